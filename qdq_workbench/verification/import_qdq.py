"""`import_qdq`: the Q/DQ placement and parameters of any QDQ ONNX file, mapped on a Keras model by structure.

Tensors are recognised by what computes them, not by name. Every tensor has a signature: the operation, the shapes of
its constants, and the signatures of what it reads. Pairs, movements of data, batch normalizations, sums or products
with constants, and ReLUs are looked through, because exporters and quantizers fold, move and drop them; which side of a
ReLU a pair is on follows from whether the file still has a ReLU behind it. Tensors of equal signatures (parallel
branches of one shape) are told apart by their order.

The Keras side is exported once with a pair on every tensor, so that its tensors have signatures of the same kind.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from qdq_workbench.verification.lint import load_graph
from qdq_workbench.verification.qdq_graph import DEQUANTIZE, MOVES, QUANTIZE, QDQGraph, attribute

_TRANSPARENT = (MOVES - {"MaxPool", "GlobalMaxPool", "Slice", "Gather", "Split", "Tile", "Expand"}) | {
    "BatchNormalization",
    "Cast",
}
_CLIPS = frozenset({"Relu", "Clip"})
_WITH_CONSTANT = frozenset({"Add", "Mul", "Sub", "Div"})
_SAME_OPERATION = {"Gemm": "MatMul", "ReduceMean": "GlobalAveragePool", "ReduceMax": "GlobalMaxPool"}
_WEIGHTED = ("Conv", "ConvTranspose", "MatMul")


@dataclasses.dataclass(frozen=True)
class ImportedQuantizer:
    """A pair on an activation, as the file has it.

    Args:
        node: Name of the QuantizeLinear node.
        scale: Its scale.
        zero_point: Its zero point.
        dtype: Its integer type, such as "uint8".
        stage: How many ReLUs of the chain stand before it.
    """

    node: str
    scale: float
    zero_point: int
    dtype: str
    stage: int = 0

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and highest value that it represents."""
        info = np.iinfo(self.dtype)
        return ((int(info.min) - self.zero_point) * self.scale, (int(info.max) - self.zero_point) * self.scale)


@dataclasses.dataclass(frozen=True)
class ImportedTensor:
    """An activation tensor of the file, in front of its pairs.

    Args:
        name: Its name in the file; of a chain that is looked through, the last tensor.
        signature: What computes it.
        quantizers: Its pairs.
        weight_scale: The scales of the integer weight of the operation that computes it; empty without one.
        weight_dtype: The integer type of that weight; empty without one.
        raw_readers: How many operations read it without a pair.
        stages: How many ReLUs the file has in the chain.
        value: The tensor that holds its final value: dequantized, where it has a pair.
    """

    name: str
    signature: int
    quantizers: tuple[ImportedQuantizer, ...]
    weight_scale: tuple[float, ...] = ()
    weight_dtype: str = ""
    raw_readers: int = 0
    stages: int = 0
    value: str = ""


@dataclasses.dataclass(frozen=True)
class ImportedQDQ:
    """What `import_qdq` read.

    Args:
        path: The file.
        tensors: The activation tensors that have pairs, or whose operation has an integer weight.
        keras_tensors: File tensor -> Keras tensor, for those that were recognised; empty without a model.
        spec: The placement as a specification for that model, for partial mode; None without a model.
        ranges: Keras tensor -> range of its first pair.
        inside: File tensor -> layer, for those made with an integer weight inside a layer whose own activation (a
            softmax, say) follows: they stand for no Keras tensor, but the weight is that layer's.
        unmatched: File tensors with pairs, or made with integer weights, that have no counterpart in the model.
    """

    path: pathlib.Path
    tensors: tuple[ImportedTensor, ...]
    keras_tensors: Mapping[str, str] = dataclasses.field(default_factory=dict)
    spec: Any = None
    ranges: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    inside: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unmatched: tuple[str, ...] = ()

    def summary(self) -> str:
        """Return what was read as a few lines of text."""
        pairs = sum(len(tensor.quantizers) for tensor in self.tensors)
        weights = sum(bool(tensor.weight_dtype) for tensor in self.tensors)
        lines = [f"{self.path}: {pairs} pairs on activations, {weights} integer weights"]
        if self.spec is not None:
            known = len({*self.keras_tensors, *self.inside} - {*self.unmatched})
            lines.append(f"{known} tensors recognised in the model, {len(self.unmatched)} not")
        return "\n".join([*lines, *(f"not recognised: {name}" for name in self.unmatched)])


def import_qdq(path: str | os.PathLike[str], model: Any = None) -> ImportedQDQ:
    """Read the Q/DQ placement of an ONNX file and map it on a Keras model.

    Args:
        path: The file, from any exporter or quantizer that writes QuantizeLinear and DequantizeLinear.
        model: The float Keras model of the same network; None to read the file alone. It is only read.

    Returns:
        The pairs and weights; with a model also the specification that places them there
        (`quantize_model(model, "partial", imported.spec)`) and the ranges.

    Raises:
        FileAccessError: If the file cannot be read, or is not an ONNX model.
        UnsupportedModelError: If the model's graph cannot be read.

    Example:
        >>> import keras, tempfile
        >>> from qdq_workbench import calibrate, export_onnx, quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(1, name="head")(image))
        >>> q_model = quantize_model(model)
        >>> _ = calibrate(q_model, np.ones((1, 2)), verbose=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     imported = import_qdq(export_onnx(q_model, pathlib.Path(folder) / "model.onnx").path, model)
        >>> sorted(imported.ranges)
        ['image']
    """
    view = read_float_view(load_graph(path))
    kept = tuple(tensor for tensor in view.values() if tensor.quantizers or tensor.weight_dtype)
    found = ImportedQDQ(pathlib.Path(path), kept)
    if model is None:
        return found
    from qdq_workbench.verification.keras_signatures import keras_view, placement_spec

    reference, aliases, inner = keras_view(model)
    known: dict[str, str] = {}
    inside: dict[str, str] = {}
    for tensor, other in match_tensors(view, reference).items():
        if aliases.get(other):
            known[tensor] = _alias(view[tensor], aliases[other])
        elif other in inner and view[tensor].weight_dtype:
            inside[tensor] = inner[other]
    matched = {tensor.name: known[tensor.name] for tensor in kept if tensor.name in known}
    ranges = {matched[item.name]: item.quantizers[0].range for item in kept if item.quantizers and item.name in matched}
    # A pair in the middle of a layer has no counterpart, though the weight before it has.
    unmatched = tuple(
        item.name for item in kept if item.name not in matched and (item.name not in inside or item.quantizers)
    )
    spec = placement_spec(model, {matched[item.name]: item for item in kept if item.name in matched}, inside.values())
    return dataclasses.replace(
        found, keras_tensors=matched, spec=spec, ranges=ranges, inside=inside, unmatched=unmatched
    )


def _alias(tensor: ImportedTensor, aliases: list[tuple[int, str]]) -> str:
    """Return which Keras tensor of a chain a pair is on: the last one, unless a ReLU follows it in the file."""
    stage = tensor.quantizers[0].stage if tensor.quantizers else tensor.stages
    if stage == tensor.stages:
        return aliases[-1][1]
    return [name for level, name in aliases if level <= stage][-1]


def match_tensors(ours: Mapping[str, ImportedTensor], theirs: Mapping[str, ImportedTensor]) -> dict[str, str]:
    """Return the counterparts of tensors in another file: equal signatures, in order.

    Args:
        ours: From `read_float_view`.
        theirs: The same, of the other file.
    """
    by_signature: dict[int, list[str]] = {}
    for tensor in theirs.values():
        by_signature.setdefault(tensor.signature, []).append(tensor.name)
    found = {}
    for tensor in ours.values():
        candidates = by_signature.get(tensor.signature)
        if candidates:
            found[tensor.name] = candidates.pop(0)
    return found


def read_float_view(model: onnx.ModelProto) -> dict[str, ImportedTensor]:
    """Return the activation tensors of a file as if it had no pairs, by name, in computing order.

    Args:
        model: The file.
    """
    return _View(QDQGraph(model)).tensors()


class _View:
    """One walk over a graph that gives every tensor the root that it stands for, and roots their signatures."""

    def __init__(self, graph: QDQGraph) -> None:
        self._graph = graph
        self._roots: dict[str, str] = {}
        self._signatures: dict[str, int] = {}
        self._last: dict[str, str] = {}
        self._pairs: dict[str, list[ImportedQuantizer]] = {}
        self._weights: dict[str, tuple[tuple[float, ...], str]] = {}
        self._raw: dict[str, int] = {}
        self._stages: dict[str, int] = {}
        self._values: dict[str, str] = {}

    def tensors(self) -> dict[str, ImportedTensor]:
        for index, name in enumerate(self._graph.inputs):
            self._root(name, hash(("input", index)))
        for node in self._graph.nodes:
            self._visit(node)
        found = {}
        for root, signature in self._signatures.items():
            scale, dtype = self._weights.get(root, ((), ""))
            pairs = tuple(self._pairs.get(root, ()))
            name = self._last[root]
            stages, value = self._stages.get(root, 0), self._values.get(root, name)
            found[name] = ImportedTensor(name, signature, pairs, scale, dtype, self._raw.get(root, 0), stages, value)
        return found

    def _root(self, tensor: str, signature: int) -> None:
        self._roots[tensor] = tensor
        self._signatures[tensor] = signature
        self._last[tensor] = tensor

    def _visit(self, node: onnx.NodeProto) -> None:
        reads = [tensor for tensor in node.input if tensor in self._roots]
        if not reads or node.op_type == "Constant":
            return
        if self._is_transparent(node, reads):
            self._look_through(node, self._roots[reads[0]])
            return
        for tensor in reads:
            if not self._behind_pair(tensor):
                self._raw[self._roots[tensor]] = self._raw.get(self._roots[tensor], 0) + 1
        signature = hash((self._kind(node), *(self._signatures[self._roots[tensor]] for tensor in reads)))
        for index, output in enumerate(node.output):
            self._root(output, signature if index == 0 else hash((signature, index)))
        self._keep_weight(node)

    def _look_through(self, node: onnx.NodeProto, root: str) -> None:
        for output in node.output:
            self._roots[output] = root
        if node.op_type == QUANTIZE:
            self._keep_pair(root, node)
        elif node.op_type == DEQUANTIZE:
            self._values[root] = node.output[0]
        elif node.op_type in _CLIPS:
            self._stages[root] = self._stages.get(root, 0) + 1
            self._last[root] = node.output[0]
            self._values.pop(root, None)
        elif node.op_type not in (*MOVES, "Cast") and not self._pairs.get(root):
            self._last[root] = node.output[0]

    def _is_transparent(self, node: onnx.NodeProto, reads: list[str]) -> bool:
        if node.op_type in (QUANTIZE, DEQUANTIZE) or node.op_type in _TRANSPARENT:
            return True
        if node.op_type == "Clip" and node.name.endswith("/Clip"):
            behind = self._graph.readers(node.output[0])
            if behind and behind[0].op_type == QUANTIZE and behind[0].name.startswith(node.name[:-4]):
                return True
        if node.op_type in _CLIPS:
            return self._graph.producer(self._roots[reads[0]]) is not None
        return node.op_type in _WITH_CONSTANT and len(reads) == 1 and len(node.input) == 2

    def _behind_pair(self, tensor: str) -> bool:
        return self._graph.quantizer_of(tensor) is not None

    def _keep_pair(self, root: str, node: onnx.NodeProto) -> None:
        found = self._graph.parameters(node)
        if found is not None:
            stage = self._stages.get(root, 0)
            scale, zero = (float(part.reshape(-1)[0]) for part in found)
            self._pairs.setdefault(root, []).append(
                ImportedQuantizer(node.name, scale, int(zero), str(found[1].dtype), stage)
            )

    def _keep_weight(self, node: onnx.NodeProto) -> None:
        source = self._graph.producer(node.input[1]) if len(node.input) > 1 else None
        codes = None if source is None or source.op_type != DEQUANTIZE else self._graph.constant(source.input[0])
        if source is not None and codes is not None:
            found = self._graph.parameters(source)
            scale = () if found is None else tuple(float(value) for value in found[0].reshape(-1))
            self._weights[node.output[0]] = (scale, str(codes.dtype))

    def _kind(self, node: onnx.NodeProto) -> tuple[Any, ...]:
        """What an operation is, as far as all exporters agree about it."""
        name = _SAME_OPERATION.get(node.op_type, node.op_type)
        if name not in _WEIGHTED:
            return (name,)
        sizes = [self._size(tensor) for tensor in node.input[1:2]]
        return (name, *sizes, attribute(node, "group", 1))

    def _size(self, tensor: str) -> int:
        """How many elements a weight has, whatever its layout, directly or behind its DequantizeLinear."""
        value = self._graph.constant(tensor)
        source = self._graph.producer(tensor)
        while value is None and source is not None and source.input:
            value = self._graph.constant(source.input[0])
            source = self._graph.producer(source.input[0])
        return 0 if value is None else int(value.size)
