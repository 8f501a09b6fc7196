"""Signatures of an ONNX file's tensors by the float operations that compute them, to match them in other files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import onnx

from qdq_workbench.errors import QuantizerError
from qdq_workbench.export.passes.restore_gelus import find_gelu
from qdq_workbench.export.passes.restore_layer_normalizations import find_layer_normalization
from qdq_workbench.export.passes.restore_rms_normalizations import find_rms_normalization
from qdq_workbench.graph.operators import CLIPS, MOVES, WEIGHTED, operators_of, written_for
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.onnx_graph.model_files import SINGLE_FILE_LIMIT, constant_bytes
from qdq_workbench.onnx_graph.qdq_graph import (
    DEQUANTIZE,
    QUANTIZE,
    QDQGraph,
    attribute,
    integer_limits,
    name_of,
    subgraphs,
    type_name,
)

# Movements that keep every value of their input, and normalizations, which exporters fold.
_TRANSPARENT = operators_of("movement", "padding", "cast") | {"BatchNormalization"}
_BOUNDS = frozenset({"Max", "Min"})
_WITH_CONSTANT = operators_of("arithmetic")


@dataclasses.dataclass(frozen=True)
class ImportedQuantizer:
    """A Q/DQ pair on an activation of a file.

    Args:
        node: Name of the QuantizeLinear node, or of its output if it has no name.
        scale: Its scale.
        zero_point: Its zero point.
        dtype: Its integer type, such as "uint8" or "int4".
        stage: The number of ReLUs before it in the chain that is looked through.
        clipped: The lowest and highest integer that the Clip of the pair lets through; None for those of the type.
    """

    node: str
    scale: float
    zero_point: int
    dtype: str
    stage: int = 0
    clipped: tuple[int, int] | None = None

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and highest value that it represents."""
        limits = self.clipped or integer_limits(self.dtype)
        if limits is None:
            raise QuantizerError(
                f"The type of a pair must be one of integers, such as 'uint8'. Received: dtype={self.dtype!r}"
            )
        return ((limits[0] - self.zero_point) * self.scale, (limits[1] - self.zero_point) * self.scale)

    @property
    def num_bits(self) -> int:
        """The width of its integers, which a Clip in front may make narrower than the type; 8 for other types."""
        return integer_bits(self.dtype) if self.clipped is None else (self.clipped[1] - self.clipped[0]).bit_length()

    @property
    def narrow_range(self) -> bool:
        """Whether a Clip leaves out the lowest integer of that width."""
        return self.clipped is not None and (self.clipped[1] - self.clipped[0]) % 2 == 0


@dataclasses.dataclass(frozen=True)
class ImportedTensor:
    """An activation tensor of a file, before its pairs.

    Args:
        name: Its name in the file; for a chain that is looked through, that of its last tensor.
        signature: Hash of the operation that computes it and of the signatures of its inputs.
        quantizers: Its pairs.
        weight_scale: The scales of the integer weight of the operation that computes it; empty without one.
        weight_dtype: The integer type of that weight; empty without one.
        weight_block: The block size of that weight; 0 without blocks.
        weight_is_symmetric: Whether all zero points of that weight are 0.
        raw_readers: The number of operations that read it without a pair.
        stages: The number of ReLUs in the chain.
        value: The tensor with its final value, dequantized if it has a pair.
        not_imported: Why a pair on it, or its weight, was not imported, such as a type other than an integer.
    """

    name: str
    signature: int
    quantizers: tuple[ImportedQuantizer, ...]
    weight_scale: tuple[float, ...] = ()
    weight_dtype: str = ""
    raw_readers: int = 0
    stages: int = 0
    value: str = ""
    not_imported: tuple[str, ...] = ()
    weight_block: int = 0
    weight_is_symmetric: bool = True


def integer_bits(dtype: str) -> int:
    """Return the width of an integer type; 8 for other types."""
    limits = integer_limits(dtype)
    return 8 if limits is None else (limits[1] - limits[0]).bit_length()


def match_tensors(ours: Mapping[str, ImportedTensor], theirs: Mapping[str, ImportedTensor]) -> dict[str, str]:
    """Return tensor -> counterpart in another file; tensors of equal signature are matched in their order."""
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
    """Return the activation tensors of a file as if it had no pairs, by name, in execution order."""
    return _View(QDQGraph(model), _layers_in_steps(model)).tensors()


def _layers_in_steps(model: onnx.ModelProto) -> dict[str, tuple[str, str]]:
    """Return output -> (kind, input) of the layers that exporters write in several forms.

    The tensors inside such a layer are mapped to ("", ""), because other files need not have them.
    """
    operators = {node.op_type for node in model.graph.node}
    if not operators & {"Erf", "Reciprocal", "ReduceMean"}:
        return {}
    # Shape inference serializes the model, which protobuf refuses beyond 2 GB.
    if constant_bytes(model) <= SINGLE_FILE_LIMIT:
        model = onnx.shape_inference.infer_shapes(model)
    graph = Graph(model)
    found: dict[str, tuple[str, str]] = {}
    for node in graph.nodes:
        normalization, rms = find_layer_normalization(graph, node), find_rms_normalization(graph, node)
        gelu = find_gelu(graph, node)
        if normalization is not None:
            found[node.output] = ("LayerNormalization", normalization.source)
        elif rms is not None:
            found[node.output] = ("RMSNormalization", rms.source)
        elif gelu is not None:
            found[node.output] = ("Gelu", gelu)
    for last, (_, source) in list(found.items()):
        waiting = [last]
        while waiting:
            step = graph.producer(waiting.pop())
            inner = [tensor for tensor in step.inputs if tensor not in (source, last, *found)] if step else []
            waiting += inner
            found.update((tensor, ("", "")) for tensor in inner if graph.producer(tensor) is not None)
    return found


class _View:
    """Visits a graph once; maps each tensor to its root and each root to its signature.

    The root of a tensor is the tensor before the operations that are looked through.
    """

    def __init__(self, graph: QDQGraph, in_steps: Mapping[str, tuple[str, str]]) -> None:
        self._graph = graph
        self._in_steps = in_steps
        self._roots: dict[str, str] = {}
        self._signatures: dict[str, int] = {}
        self._last: dict[str, str] = {}
        self._pairs: dict[str, list[ImportedQuantizer]] = {}
        self._weights: dict[str, dict[str, Any]] = {}
        self._raw: dict[str, int] = {}
        self._stages: dict[str, int] = {}
        self._values: dict[str, str] = {}
        self._refused: dict[str, list[str]] = {}

    def tensors(self) -> dict[str, ImportedTensor]:
        for index, name in enumerate(self._graph.inputs):
            # By position, because names need not agree.
            # Signatures hold within one process, because Python salts the hashes of texts.
            self._root(name, hash(("input", index)))
        for node in self._graph.nodes:
            self._visit(node)
        found = {}
        for root, signature in self._signatures.items():
            pairs = tuple(self._pairs.get(root, ()))
            name = self._last[root]
            stages, value = self._stages.get(root, 0), self._values.get(root, name)
            refused = tuple(dict.fromkeys(self._refused.get(root, ())))
            found[name] = ImportedTensor(
                name,
                signature,
                pairs,
                raw_readers=self._raw.get(root, 0),
                stages=stages,
                value=value,
                not_imported=refused,
                **self._weights.get(root, {}),
            )
        return found

    def _root(self, tensor: str, signature: int) -> None:
        self._roots[tensor] = tensor
        self._signatures[tensor] = signature
        self._last[tensor] = tensor

    def _visit(self, node: onnx.NodeProto) -> None:
        layer, source = self._in_steps.get(node.output[0], (None, ""))
        if layer == "":
            return  # inside a layer, which has its signature as a whole
        reads = [tensor for tensor in ([source] if layer else node.input) if tensor in self._roots]
        # It computes from constants alone, unless a branch or body of it reads activations from outside.
        if not reads and not any(subgraphs(node)):
            return
        if layer is None and self._is_transparent(node, reads):
            self._look_through(node, self._roots[reads[0]])
            return
        for tensor in reads:
            if not self._behind_pair(tensor):
                self._raw[self._roots[tensor]] = self._raw.get(self._roots[tensor], 0) + 1
        kind = self._kind(node) if layer is None else (layer,)
        signature = hash((kind, *(self._signatures[self._roots[tensor]] for tensor in reads)))
        for index, output in enumerate(node.output):
            if output:
                self._root(output, signature if index == 0 else hash((signature, index)))
        self._keep_weight(node)

    def _look_through(self, node: onnx.NodeProto, root: str) -> None:
        for output in filter(None, node.output):
            self._roots[output] = root
        if node.op_type == QUANTIZE:
            self._keep_pair(root, node)
        elif node.op_type == DEQUANTIZE:
            self._values[root] = node.output[0]
        elif self._graph.clipped_pair(node) is not None:
            pass  # a part of the pair behind it
        elif self._is_clip(node):
            self._stages[root] = self._stages.get(root, 0) + (not self._ends_clip(node))
            self._last[root] = node.output[0]
            # What a pair before the ReLU dequantizes is not the value at the end of the chain any more.
            self._values.pop(root, None)
        elif node.op_type not in (*MOVES, "Cast") and not self._pairs.get(root):
            self._last[root] = node.output[0]

    def _is_transparent(self, node: onnx.NodeProto, reads: list[str]) -> bool:
        if node.op_type in (QUANTIZE, DEQUANTIZE) or node.op_type in _TRANSPARENT:
            return True
        if self._graph.clipped_pair(node) is not None:
            return True
        if self._is_clip(node):
            return self._graph.producer(self._roots[reads[0]]) is not None
        return node.op_type in _WITH_CONSTANT and len(reads) == 1 and len(node.input) == 2

    def _is_clip(self, node: onnx.NodeProto) -> bool:
        """Return whether a node clips; the exporter writes Max and Min with a number where a runtime must not fuse."""
        if node.op_type not in _BOUNDS:
            return node.op_type in CLIPS
        bounds = [self._graph.constant(tensor) for tensor in node.input if tensor not in self._roots]
        return len(node.input) == 2 and len(bounds) == 1 and bounds[0] is not None and bounds[0].size == 1

    def _ends_clip(self, node: onnx.NodeProto) -> bool:
        """Return whether a node is the Min of a Clip that the file has as Max and Min."""
        before = self._graph.producer(node.input[0])
        return node.op_type == "Min" and before is not None and before.op_type == "Max" and self._is_clip(before)

    def _behind_pair(self, tensor: str) -> bool:
        return self._graph.dequantize_of(tensor) is not None

    def _keep_pair(self, root: str, node: onnx.NodeProto) -> None:
        found = self._graph.parameters(node)
        dtype = "" if found is None else type_name(found[1].dtype)
        if found is None:
            self._refuse(root, f"the scale or zero point of {name_of(node)!r} is computed")
        elif integer_limits(dtype) is None:
            self._refuse(root, f"{name_of(node)!r} rounds to {dtype}, not to integers")
        elif found[0].size != 1:
            self._refuse(root, f"{name_of(node)!r} has {found[0].size} scales; an activation has one range here")
        else:
            scale, zero = (float(part.reshape(-1)[0]) for part in found)
            stage = self._stages.get(root, 0)
            clipped = self._clipped(node, scale, int(zero), integer_limits(dtype))
            pair = ImportedQuantizer(name_of(node), scale, int(zero), dtype, stage, clipped)
            self._pairs.setdefault(root, []).append(pair)

    def _clipped(
        self, node: onnx.NodeProto, scale: float, zero: int, limits: tuple[int, int] | None
    ) -> tuple[int, int] | None:
        """Return the integers at the bounds of the Clip of a pair; None without one, or if it leaves out none."""
        clip = self._graph.producer(node.input[0])
        if clip is None or limits is None or self._graph.clipped_pair(clip) is None:
            return None
        found = self._graph.clipped_limits(clip, scale, zero)
        if found is None:
            return None
        low, high = max(found[0], limits[0]), min(found[1], limits[1])
        return (low, high) if low < high and (low, high) != limits else None

    def _keep_weight(self, node: onnx.NodeProto) -> None:
        source = self._graph.dequantize_of(node.input[1]) if len(node.input) > 1 else None
        codes = None if source is None else self._graph.stored(source)
        if source is None or codes is None:
            return
        found = self._graph.parameters(source)
        # A weight stored as floats before a QuantizeLinear has the integer type of the zero point.
        dtype = type_name(codes.dtype if found is None or codes.dtype.kind in "iu" else found[1].dtype)
        if integer_limits(dtype) is None:
            self._refuse(node.output[0], f"its weight, behind {name_of(source)!r}, is {dtype}, not integers")
            return
        scale = () if found is None else tuple(float(value) for value in found[0].reshape(-1))
        self._weights[node.output[0]] = {
            "weight_scale": scale,
            "weight_dtype": dtype,
            "weight_block": attribute(source, "block_size", 0),
            "weight_is_symmetric": found is None or not found[1].any(),
        }

    def _refuse(self, root: str, reason: str) -> None:
        self._refused.setdefault(root, []).append(reason)

    def _kind(self, node: onnx.NodeProto) -> tuple[Any, ...]:
        """Return those properties of an operation that are equal for all exporters."""
        name = written_for(node.op_type)
        if name not in WEIGHTED:
            return (name,)
        # The number of elements, not the shape: exporters transpose and reshape weights.
        sizes = [self._size(tensor) for tensor in node.input[1:2]]
        return (name, *sizes, attribute(node, "group", 1))

    def _size(self, tensor: str) -> int:
        """Return the number of elements of a weight in any layout, constant or dequantized; 0 if it is computed."""
        value = self._graph.constant(tensor)
        source = self._graph.producer(tensor)
        while value is None and source is not None and source.input:
            value = self._graph.constant(source.input[0])
            source = self._graph.producer(source.input[0])
        return 0 if value is None else int(value.size)
