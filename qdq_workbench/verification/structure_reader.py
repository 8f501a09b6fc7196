"""Reading the quantizers of a file back from its graph.

Metadata are ignored: a pair is a QuantizeLinear read by DequantizeLinear nodes, a weight or bias is an integer
initializer read by a DequantizeLinear, and scales, zero points, axes and codes come from the initializers that these
nodes read. Any other Q or DQ node is a stray.
"""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from qdq_workbench._fingerprints import bytes_digest
from qdq_workbench.graph.operators import HELPERS
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, NARROWING, QUANTIZE, QDQGraph
from qdq_workbench.quantizers.blocks import scale_shape, spread
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from qdq_workbench.verification.file_structure import (
    DequantizedConstant,
    FileStructure,
    QDQPair,
    layout_free_digest,
)


def read_structure(model: onnx.ModelProto | str | os.PathLike[str]) -> FileStructure:
    """Return the quantizers of a model, or of the file at a path, read from its graph."""
    if not isinstance(model, onnx.ModelProto):
        model = onnx.load(os.fspath(model))
    return _Reader(model).read()


def read_pairs(model: onnx.ModelProto) -> dict[str, QDQPair]:
    """Return the Q/DQ pairs of a model by name, read from its graph, without the weights."""
    return _Reader(model).pairs()


def read_strays(model: onnx.ModelProto) -> list[str]:
    """Return what makes Q and DQ nodes of a model no pairs and no weights, one sentence each."""
    reader = _Reader(model)
    reader.pairs()
    return reader.strays


class _Reader:
    """One pass over a graph."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = QDQGraph(model)
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._used: set[str] = set()
        self.strays: list[str] = []

    def pairs(self) -> dict[str, QDQPair]:
        pairs: dict[str, QDQPair] = {}
        for node in self._graph.nodes:
            pair = self._pair(node) if node.op_type == QUANTIZE else None
            if pair is not None:
                self._keep(pairs, pair)
        return pairs

    def read(self) -> FileStructure:
        pairs = self.pairs()
        weights: dict[str, DequantizedConstant] = {}
        biases: dict[str, DequantizedConstant] = {}
        for node in self._graph.nodes:
            if node.op_type == DEQUANTIZE and node.input[0] in self._constants:
                constant = self._constant(node)
                if constant is not None:
                    self._keep(biases if constant.dtype == "int32" else weights, constant)
            elif node.op_type == DEQUANTIZE and not self._behind_quantize(node):
                self.strays.append(f"{node.name}: dequantizes what no QuantizeLinear wrote")
        others = {
            name: bytes_digest(numpy_helper.to_array(tensor))
            for name, tensor in self._constants.items()
            if name not in self._used
        }
        return FileStructure(pairs, weights, biases, others, tuple(self.strays))

    def _keep(self, into: dict[str, Any], item: Any) -> None:
        if item.name in into:
            self.strays.append(f"{item.name}: a second quantizer of that name")
        into.setdefault(item.name, item)

    def _behind_quantize(self, node: onnx.NodeProto) -> bool:
        producer = self._graph.producer(node.input[0])
        return producer is not None and producer.op_type == QUANTIZE

    def _parameters(self, node: onnx.NodeProto) -> tuple[np.ndarray, np.ndarray] | None:
        """Return scale and zero point of a Q or DQ; None, and record a stray, if they are not constants."""
        tensors = [self._constants.get(name) for name in node.input[1:3] if name]
        if not tensors or any(tensor is None for tensor in tensors):
            self.strays.append(f"{node.name}: scale or zero point is no constant")
            return None
        self._used.update(node.input[1:3])
        return self._graph.parameters(node)

    def _pair(self, quantize: onnx.NodeProto) -> QDQPair | None:
        found = self._parameters(quantize)
        readers = self._graph.readers(quantize.output[0])
        if found is None:
            return None
        if not readers or any(reader.op_type != DEQUANTIZE for reader in readers):
            self.strays.append(f"{quantize.name}: not followed by DequantizeLinear alone")
            return None
        scale, zero = found
        for dequantize in readers:
            other = self._parameters(dequantize)
            if other is None or not all(_same(a, b) for a, b in zip(found, other, strict=True)):
                self.strays.append(f"{dequantize.name}: other parameters than the QuantizeLinear before it")
        if scale.size != 1:
            self.strays.append(f"{quantize.name}: more than one scale on an activation")
            return None
        behind = {_unnumbered(node.name) for reader in readers for node in self._graph.readers(reader.output[0])}
        behind |= {f"output {name}" for reader in readers for name in reader.output if name in self._graph.outputs}
        source, bounds = self._clip(quantize)
        return QDQPair(
            name=quantize.name.removesuffix(f"/{QUANTIZE}"),
            scale=float(scale.reshape(-1)[0]),
            zero_point=int(zero.reshape(-1)[0]),
            dtype=str(zero.dtype),
            bounds=bounds,
            source=source,
            readers=tuple(sorted(behind)),
        )

    def _clip(self, quantize: onnx.NodeProto) -> tuple[str, tuple[float, float] | None]:
        """Return the quantized tensor and the bounds of the pair's own Clip, which carries the pair's name."""
        node = self._graph.producer(quantize.input[0])
        while node is not None and node.op_type in HELPERS:  # the exporter may transpose in between
            node = self._graph.producer(node.input[0])
        if node is None or node.op_type != "Clip":
            return quantize.input[0], None
        if node.name != quantize.name.replace(f"/{QUANTIZE}", NARROWING):
            return quantize.input[0], None
        if len(node.input) < 3 or not self._constants.keys() >= set(node.input[1:3]):  # another exporter's Clip
            return quantize.input[0], None
        low, high = (float(numpy_helper.to_array(self._constants[name])) for name in node.input[1:3])
        return node.input[0], (low, high)

    def _constant(self, node: onnx.NodeProto) -> DequantizedConstant | None:
        found = self._parameters(node)
        if found is None:
            return None
        scale, zero = found
        stored = numpy_helper.to_array(self._constants[node.input[0]])
        codes, zero = _unpacked(stored), _unpacked(zero)
        self._used.add(node.input[0])
        axis, block = (
            next((attribute.i for attribute in node.attribute if attribute.name == name), default)
            for name, default in (("axis", 1), ("block_size", 0))
        )
        spec = QuantizerSpec(axis=axis, block_size=block or None) if scale.ndim else QuantizerSpec()
        if scale.ndim and not (-codes.ndim <= axis < codes.ndim and scale_shape(codes.shape, spec) == scale.shape):
            told = f"blocks of {block} on axis {axis}" if block else f"axis {axis}"
            self.strays.append(f"{node.name}: scales of shape {scale.shape} do not fit {told} of {codes.shape}")
            return None
        place = axis % codes.ndim if scale.ndim else None
        return DequantizedConstant(
            name=node.name.removesuffix(f"/{DEQUANTIZE}"),
            scale=tuple(float(value) for value in scale.reshape(-1)),
            zero_point=tuple(int(value) for value in zero.reshape(-1)),
            dtype=_dtype_name(self._constants[node.input[0]]),
            digest=layout_free_digest(codes, scale, zero, place, spec.block_size),
            axis=place,
            shape=codes.shape,
            codes_sha256=bytes_digest(codes),
            is_zero=not np.any(codes.astype(np.int64) - spread(zero.astype(np.int64), codes.shape, spec)),
            block_size=spec.block_size,
        )


def _unpacked(codes: np.ndarray) -> np.ndarray:
    """Return 4-bit integers as 8-bit ones, which NumPy's functions support."""
    return codes.astype(np.int8 if "uint" not in str(codes.dtype) else np.uint8) if "4" in str(codes.dtype) else codes


def _dtype_name(tensor: onnx.TensorProto) -> str:
    return str(onnx.TensorProto.DataType.Name(tensor.data_type)).lower()


def _unnumbered(name: str) -> str:
    """Remove running numbers: the converter's from equal node names, Keras's from layers created by a layer."""
    parts = re.sub(r"__\d+$", "", name).split("/")
    # The first part is the name of a layer, the last that of an operator; a number at their end belongs to the name.
    return "/".join(re.sub(r"(_\d+)+$", "", p) if 0 < i < len(parts) - 1 else p for i, p in enumerate(parts))


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two parameters have equal values; the scales of a pair may differ in their float type."""
    comparable = a.dtype == b.dtype or not (np.issubdtype(a.dtype, np.integer) or np.issubdtype(b.dtype, np.integer))
    return comparable and np.array_equal(a.astype(np.float64), b.astype(np.float64))
