"""The operations of a file that ONNX Runtime computes on integers, read from its optimized graph.

The file is loaded with all optimizations, the runtime writes the graph that it would execute, and every compute node
of the file is looked up in it by name. ONNX Runtime keeps a node's name when it replaces the node by an integer
kernel, and appends `_token_<n>` when it also changes the layout.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections import Counter
from collections.abc import Iterable

import onnx

from qdq_workbench._scratch import scratch_folder
from qdq_workbench._tables import shares_text
from qdq_workbench.onnx_graph.sessions import open_session, save_whole

# Operations that have an integer kernel in some runtime, or that are slow in float; all others move data, compute
# shapes or are fused into another node.
COMPUTE_OPS = frozenset(
    {
        "Add",
        "AveragePool",
        "Concat",
        "Conv",
        "ConvTranspose",
        "Div",
        "Gemm",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "LeakyRelu",
        "MatMul",
        "MaxPool",
        "Mul",
        "ReduceMax",
        "ReduceMean",
        "Resize",
        "Sigmoid",
        "Softmax",
        "Sub",
        "Tanh",
        "Where",
    }
)
_INTEGER_KERNEL = re.compile(r"^(QLinear\w+|QGemm|QAttention|MatMulInteger\w*|ConvInteger|MatMulNBits)$")
# Kernels for any input type; they run on integers after the runtime has removed the DQ before and the Q after them.
_ANY_TYPE = frozenset({"GlobalMaxPool", "MaxPool", "NhwcMaxPool", "ReduceMax", "Resize"})
_LAYOUT_SUFFIX = re.compile(r"(_token_\d+|_nhwc)+$")
_INTEGER_TYPES = frozenset(
    {
        onnx.TensorProto.INT8,
        onnx.TensorProto.UINT8,
        onnx.TensorProto.INT16,
        onnx.TensorProto.UINT16,
    }
)


@dataclasses.dataclass(frozen=True)
class IntegerKernels:
    """The compute nodes of a file that run as integer kernels in ONNX Runtime on CPU.

    Args:
        counts: Operator -> (nodes on integers, all nodes), for the operators in the file.
        integer_nodes: Names of the nodes that run on integers.
        float_nodes: Names of the nodes that run in float.
    """

    counts: dict[str, tuple[int, int]]
    integer_nodes: tuple[str, ...]
    float_nodes: tuple[str, ...]

    def summary(self) -> str:
        """Return the counts as text, such as "Conv 3/4", and where to read why some are in float."""
        shown = shares_text(self.counts)
        return f"{shown}; `explain` says why the others are computed in float" if self.float_nodes else shown


def count_integer_kernels(model: onnx.ModelProto | str | os.PathLike[str]) -> IntegerKernels:
    """Return which compute nodes of a file run on integers in ONNX Runtime with all optimizations."""
    with scratch_folder() as folder:
        original, path = _as_file(model, folder)
        optimized = optimized_graph(path, folder / "optimized.onnx")
    return compare_graphs(original, optimized)


def _as_file(model: onnx.ModelProto | str | os.PathLike[str], folder: pathlib.Path) -> tuple[onnx.ModelProto, str]:
    if isinstance(model, onnx.ModelProto):
        return model, save_whole(model, folder / "model.onnx")
    return onnx.load(model, load_external_data=False), os.fspath(model)


def optimized_graph(model: str | bytes, written: pathlib.Path, disabled: Iterable[str] = ()) -> onnx.ModelProto:
    """Return ONNX Runtime's graph of a file after its optimizations, without the data of external initializers.

    The runtime writes its graph to `written`, in a temporary folder, and "weights.bin" beside it. `disabled` names
    optimizers that are not used.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    # The graph is never run, so save starting threads and planning memory: each takes as long as a small graph does.
    options.intra_op_num_threads = 1
    options.enable_mem_reuse = False
    options.optimized_model_filepath = str(written)
    # With its constants in another file, the graph of a large model stays below protobuf's 2 GB.
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    open_session(model, options, disabled)
    return onnx.load(written, load_external_data=False)


def compare_graphs(original: onnx.ModelProto, optimized: onnx.ModelProto) -> IntegerKernels:
    """Look up every compute node of a file in the runtime's optimized graph."""
    runs_on_integers = _verdicts(optimized)
    floats = _float_tensors(original)
    pairs = [
        (node, _lookup(node, runs_on_integers))
        for node in original.graph.node
        if node.op_type in COMPUTE_OPS and node.domain in ("", "ai.onnx") and node.output[0] in floats
    ]
    totals = Counter(node.op_type for node, _ in pairs)
    integers = Counter(node.op_type for node, integer in pairs if integer)
    return IntegerKernels(
        counts={op: (integers[op], total) for op, total in sorted(totals.items())},
        integer_nodes=tuple(node.name for node, integer in pairs if integer),
        float_nodes=tuple(node.name for node, integer in pairs if not integer),
    )


def name_in_file(node: onnx.NodeProto) -> str:
    """Return the name in the file of a node of an optimized graph."""
    return _LAYOUT_SUFFIX.sub("", node.name)


def on_integers(optimized: onnx.ModelProto) -> list[bool]:
    """Return for every node of an optimized graph whether it computes on integers or only moves them."""
    integers = _integer_tensors(optimized)
    return [
        bool(_INTEGER_KERNEL.match(node.op_type))
        or bool(node.input and node.input[0] in integers and integers.intersection(node.output))
        for node in optimized.graph.node
    ]


def _verdicts(optimized: onnx.ModelProto) -> dict[str, bool]:
    """Return by original node name whether a node of the optimized graph computes on integers."""
    integers = _integer_tensors(optimized)
    verdicts: dict[str, bool] = {}
    for node in optimized.graph.node:
        integer = bool(_INTEGER_KERNEL.match(node.op_type))
        if node.op_type in _ANY_TYPE:
            integer = node.input[0] in integers
        verdicts[name_in_file(node)] = integer
    return verdicts


def _integer_tensors(optimized: onnx.ModelProto) -> set[str]:
    """Return the 8- and 16-bit integer tensors, propagated through operations that keep the type."""
    constants = {t.name for t in optimized.graph.initializer if t.data_type in _INTEGER_TYPES}
    declared = (*optimized.graph.input, *optimized.graph.value_info)
    integers = constants | {v.name for v in declared if v.type.tensor_type.elem_type in _INTEGER_TYPES}
    for node in optimized.graph.node:
        writes = node.op_type == "QuantizeLinear" or node.op_type.startswith("QLinear")
        if node.op_type == "QGemm" and len(node.input) > 7:
            writes = bool(node.input[7])  # without an output scale, QGemm returns floats
        keeps = node.op_type not in ("DequantizeLinear", "MatMulIntegerToFloat", "Cast", "Shape", "QGemm")
        if writes or (keeps and node.input and node.input[0] in integers):
            integers.update(node.output)
    return integers


def _lookup(node: onnx.NodeProto, verdicts: dict[str, bool]) -> bool:
    """Return the verdict of a node; False without its name, which only fusion into a float kernel removes."""
    return verdicts.get(name_in_file(node), False)


def _float_tensors(model: onnx.ModelProto) -> set[str]:
    """Return the tensors with a known floating-point type; Concat, Add and others also compute integer shapes."""
    # Shape inference serializes the model, which protobuf refuses beyond 2 GB.
    inferred = onnx.shape_inference.infer_shapes(model) if model.ByteSize() < onnx.checker.MAXIMUM_PROTOBUF else model
    floats = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
    values = (*inferred.graph.output, *inferred.graph.value_info)
    return {value.name for value in values if value.type.tensor_type.elem_type in floats}
