"""The last step of an export: final names, batch dimensions, and the checked ModelProto.

During the passes, the ends of the graph have generated identifiers. Here inputs and outputs get the model's names, and
node and tensor names, those in the bodies of loops and branches too, lose their generated scopes and running numbers.
Together with `keras_side/stable_order.py`, the same model always gives the same file.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Collection

import numpy as np
import onnx
from onnx import helper, numpy_helper

from qdq_workbench.errors import ExportError
from qdq_workbench.export.encodings import pack_pairs
from qdq_workbench.export.keras_side.float_graph import FloatGraph
from qdq_workbench.export.keras_side.stable_order import without_running_numbers
from qdq_workbench.graph.free_names import take_name
from qdq_workbench.onnx_graph.body_names import bodies_of, nodes_in, rename_in, tensors_in
from qdq_workbench.onnx_graph.graph import Graph, bodies
from qdq_workbench.onnx_graph.model_files import SINGLE_FILE_LIMIT, TENSOR_LIMIT, constant_bytes
from qdq_workbench.onnx_graph.qdq_graph import without_running_number

BATCH = "batch"
# The types that `_plain_constant` writes itself.
_PLAIN_TYPES = {
    np.dtype(name): int(helper.np_dtype_to_tensor_dtype(np.dtype(name)))
    for name in ("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16")
}
# The identifiers that `trace` gives to traced operations and to the ends of the graph, and the `__<n>` that tf2onnx's
# `make_name` and `free_name` append.
# Of functions in TensorFlow, only the names of operations have slashes.
_SCOPE = re.compile(r"^(?:.*[/_])?(qdq_op_\d+)[/_]")
_END = re.compile(r"^qdq_(?:input|output|source|placeholder|weight|argument_\d+|result_\d+)_\d+")


def finish(graph: Graph, names: FloatGraph, *, dynamic_batch: bool, four_bits: Collection[str] = ()) -> onnx.ModelProto:
    """Return the graph as a model with its final names that `onnx.checker` accepts, as far as it fits into one file.

    With `dynamic_batch`, an unknown first axis of inputs and outputs is named as the batch; `four_bits` names the
    weights whose integers are packed two in a byte.
    """
    model = assemble(graph, names, dynamic_batch=dynamic_batch, four_bits=four_bits)
    try:
        if constant_bytes(model) <= SINGLE_FILE_LIMIT:  # larger ones are read from the written file
            onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        raise ExportError(
            "The exported model did not pass onnx.checker, which is an error of the exporter; please report it with "
            f"the model. Received: {type(error).__name__}: {error}"
        ) from error
    return model


def assemble(
    graph: Graph, names: FloatGraph, *, dynamic_batch: bool, four_bits: Collection[str] = ()
) -> onnx.ModelProto:
    """Return the graph as a model with its final names; the arguments are those of `finish`.

    Raises:
        ExportError: If a constant is larger than ONNX can hold.
    """
    graph.prune()
    packed = _packed_constants(graph, four_bits)
    stable = _StableNames(names)
    renamed = _tensor_names(graph, names, stable)
    for name, value in graph.constants.items():
        _check_size(renamed.get(name, name), value)
    nodes = []
    taken: set[str] = set()
    for node in graph.sorted_nodes():
        proto = helper.make_node(
            node.op,
            [renamed.get(tensor, tensor) for tensor in node.inputs],
            [renamed.get(tensor, tensor) for tensor in node.outputs],
            name=_claim(stable(node.name), taken),
            domain=node.domain,
        )
        proto.attribute.extend(node.attributes.values())
        nodes.append(proto)
    for body in bodies_of(nodes):
        inner = {name: _claim(stable(name), taken) for name in nodes_in(body)}
        rename_in(body, inner, renamed, stable)
    proto = helper.make_graph(
        nodes,
        "qdq_workbench",
        [_value(graph.inputs[old], new, dynamic_batch=dynamic_batch) for new, old in names.ends.inputs.items()],
        [_value(graph.outputs[old], new, dynamic_batch=dynamic_batch) for new, old in names.ends.outputs.items()],
        [_constant(value, renamed.get(name, name), name in packed) for name, value in graph.constants.items()],
    )
    opsets = [helper.make_opsetid("", graph.opset), *graph.other_domains]
    # The oldest IR version that has the opset: a runtime refuses a newer IR than it knows.
    ir_version = helper.find_min_ir_version_for(opsets[:1])
    return helper.make_model(proto, opset_imports=opsets, ir_version=ir_version, producer_name="qdq_workbench")


def _check_size(name: str, value: np.ndarray) -> None:
    """Refuse a constant larger than one protobuf message, also if the file keeps its bytes outside."""
    if value.nbytes > TENSOR_LIMIT:
        raise ExportError(
            f"The constant {name!r} has {value.nbytes:,} bytes, and ONNX holds {TENSOR_LIMIT:,} in one tensor. "
            "Quantize this weight, its integers take a quarter of that, or divide its layer in two. "
            f"Received: shape {value.shape}, {value.dtype}"
        )


def _packed_constants(graph: Graph, four_bits: Collection[str]) -> set[str]:
    """Return the names of the constants with the integers and zero points of these weights."""
    wanted = {f"{name}/DequantizeLinear" for name in four_bits}
    found: set[str] = set()
    for node in graph.nodes:
        if node.op == "DequantizeLinear" and without_running_number(node.name) in wanted:
            found |= {node.inputs[0], node.inputs[2]} & set(graph.constants)
    return found


def _constant(value: np.ndarray, name: str, packed: bool) -> onnx.TensorProto:
    if not packed:
        return _plain_constant(value, name)
    # Not another field than `raw_data`, which may take twice as much.
    kind = onnx.TensorProto.UINT4 if value.dtype == np.uint8 else onnx.TensorProto.INT4
    return onnx.TensorProto(data_type=kind, dims=value.shape, raw_data=pack_pairs(value).tobytes(), name=name)


def _plain_constant(value: np.ndarray, name: str) -> onnx.TensorProto:
    """Return the tensor of `numpy_helper.from_array`, which takes ten times as long to look its type up."""
    kind = _PLAIN_TYPES.get(value.dtype)
    if kind is None or sys.byteorder != "little":
        return numpy_helper.from_array(value, name)
    return onnx.TensorProto(data_type=kind, dims=value.shape, raw_data=value.tobytes(), name=name)


class _StableNames:
    """Maps the names that nodes and tensors have during the passes to names that depend on the model alone.

    Args:
        names: The names of the cut ends and the traced scopes.
    """

    def __init__(self, names: FloatGraph) -> None:
        ends = names.ends
        self._scopes = names.scopes
        graph = names.model.graph
        self._converted = {*tensors_in(graph), *nodes_in(graph)}
        self._ends = {old: name for kept in (ends.inputs, ends.outputs) for name, old in kept.items()}
        self._ends |= {old: f"{pair}/source" for pair, old in ends.sources.items()}
        self._ends |= {old: f"{pair}/dequantized" for pair, old in ends.placeholders.items()}
        self._ends |= {old: weight for weight, old in ends.weights.items()}
        self._ends |= {end: end.removeprefix("qdq_") for call in ends.calls for end in (*call.inputs, *call.outputs)}

    def __call__(self, name: str) -> str:
        """Return the final name of a node or tensor.

        Traced ones become `<operation>/<name in TensorFlow>`; cut ends get the name of their input, output, pair or
        weight; names by tf2onnx lose their running numbers; all others are kept.
        """
        name = name.removesuffix("/channels_first")
        # A converted tensor keeps its `:0` here, because it is looked up below.
        if name not in self._converted:
            name = name.removesuffix(":0")
        end = _END.match(name)
        if end is not None and end[0] in self._ends:
            return self._ends[end[0]] + name[end.end() :]
        match = _SCOPE.match(name)
        if match is None or match[1] not in self._scopes:
            # The second test is for what passes name after a converted node, such as `<node>/bias`.
            made_by_tf2onnx = name in self._converted or name.partition("/")[0] in self._converted
            return without_running_numbers(name).removesuffix(":0") if made_by_tf2onnx else name
        operation = self._scopes[match[1]]
        rest = without_running_numbers(name[match.end() :])
        # Keras opens a scope of the layer's own name inside ours; TensorFlow numbers it if it exists already.
        inner = re.match(rf"{re.escape(operation)}(_\d+)?(/|$)", rest)
        rest = (rest[inner.end() :] if inner else rest).removesuffix(":0")
        return f"{operation}/{rest}" if rest else operation


def final_names(names: FloatGraph) -> Callable[[str], str]:
    """Return a function that maps the name of a node during the passes to its name in the file."""
    return _StableNames(names)


def settle_names(graph: Graph, names: FloatGraph) -> None:
    """Rename the nodes to their names in the file, before a pass whose rules take these names."""
    stable = _StableNames(names)
    taken: set[str] = set()
    graph.rename({node: _claim(stable(node.name), taken) for node in graph.sorted_nodes()})


def _tensor_names(graph: Graph, names: FloatGraph, stable: _StableNames) -> dict[str, str]:
    """Map every tensor to its final name; the model's inputs and outputs come first, so that theirs stay unchanged."""
    ends = names.ends
    # `_claim` numbers whatever comes second, and the ends of the model must keep their names.
    renamed = {old: new for new, old in (*ends.inputs.items(), *ends.outputs.items())}
    taken = set(renamed.values())
    nodes = graph.sorted_nodes()
    read = (tensor for node in nodes for tensor in (*node.inputs, *node.outputs))
    # The names in bodies come last, so that those in the graph are the same with or without a body.
    inner = (tensor for node in nodes for body in bodies(node) for tensor in tensors_in(body))
    for tensor in itertools.chain(read, inner):
        if tensor and tensor not in renamed:
            renamed[tensor] = _claim(stable(tensor), taken)
    return renamed


def _claim(name: str, taken: set[str]) -> str:
    return take_name(name, taken, "__")


def _value(value: onnx.ValueInfoProto, name: str, *, dynamic_batch: bool) -> onnx.ValueInfoProto:
    tensor = value.type.tensor_type
    shape: list[int | str] | None = None
    if tensor.HasField("shape"):
        # Each open axis but the batch gets a name of its own: in ONNX axes of one name have one size.
        shape = [d.dim_value if d.HasField("dim_value") else f"{name}_{i}" for i, d in enumerate(tensor.shape.dim)]
        if shape and dynamic_batch and isinstance(shape[0], str):
            shape[0] = BATCH
    return helper.make_tensor_value_info(name, tensor.elem_type, shape)
