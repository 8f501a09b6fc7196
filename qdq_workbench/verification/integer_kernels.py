"""Which operations of a file ONNX Runtime computes on integers, read from its own optimized graph.

A QDQ file says what to compute, the runtime decides how. So the file is loaded with all optimizations, the graph
that the runtime would execute is written out, and every operation of the file is looked up in it by name. ONNX
Runtime keeps a node's name when it replaces the node by an integer kernel, and appends `_token_<n>` when it also
changes the layout.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections import Counter

import onnx

from qdq_workbench._scratch import scratch_folder
from qdq_workbench.onnx_graph.sessions import open_session, save_whole

# Operations that have integer kernels somewhere, or whose staying in float costs speed; all others move data,
# compute shapes or vanish into a neighbour.
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
# These compute on whatever type arrives; they run on integers when a DQ in front and a Q behind have vanished.
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
    """How many operations of a file run as integer kernels in ONNX Runtime on CPU.

    Args:
        counts: Operator -> (run on integers, all of them), for the operators that occur.
        integer_nodes: Names of the nodes of the file that run on integers.
        float_nodes: Names of the nodes of the file that stay in float.
    """

    counts: dict[str, tuple[int, int]]
    integer_nodes: tuple[str, ...]
    float_nodes: tuple[str, ...]

    def share(self, *ops: str) -> float:
        """Return the share of the given operators that runs on integers, from 0 to 1; of all without arguments.

        Args:
            *ops: Operators such as `Conv`.

        Returns:
            The share; 1.0 where there is no such node.
        """
        chosen = [self.counts[op] for op in (ops or self.counts) if op in self.counts]
        total = sum(count for _, count in chosen)
        return sum(count for count, _ in chosen) / total if total else 1.0


def count_integer_kernels(model: onnx.ModelProto | str | os.PathLike[str]) -> IntegerKernels:
    """Load a file in ONNX Runtime with all optimizations and report what runs on integers.

    Args:
        model: The model, or the path of a file.

    Returns:
        The counts per operator and the names of both kinds of nodes.

    Raises:
        VerificationError: If ONNX Runtime refuses the file.
    """
    with scratch_folder() as folder:
        original, path = _as_file(model, folder)
        optimized = optimized_graph(path, folder / "optimized.onnx")
    return compare_graphs(original, optimized)


def _as_file(model: onnx.ModelProto | str | os.PathLike[str], folder: pathlib.Path) -> tuple[onnx.ModelProto, str]:
    if isinstance(model, onnx.ModelProto):
        return model, save_whole(model, folder / "model.onnx")
    return onnx.load(model, load_external_data=False), os.fspath(model)


def optimized_graph(model: str | bytes, written: pathlib.Path) -> onnx.ModelProto:
    """Return the graph that ONNX Runtime makes of a file with all optimizations.

    Args:
        model: Path of the file, or its contents.
        written: Where the runtime may write its graph, in a temporary folder.

    Raises:
        VerificationError: If ONNX Runtime refuses the file.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    # Nothing is run, so no threads and no plan for sharing memory: each takes as long as optimizing a small graph.
    options.intra_op_num_threads = 1
    options.enable_mem_reuse = False
    options.optimized_model_filepath = str(written)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    open_session(model, options)
    return onnx.load(written, load_external_data=False)


def compare_graphs(original: onnx.ModelProto, optimized: onnx.ModelProto) -> IntegerKernels:
    """Look up every compute operation of a file in the runtime's optimized graph.

    Args:
        original: The file.
        optimized: The graph that the runtime wrote.
    """
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


def on_integers(optimized: onnx.ModelProto) -> list[bool]:
    """Return for every node of an optimized graph whether it computes on integers, or moves them.

    Args:
        optimized: The graph that the runtime wrote.
    """
    integers = _integer_tensors(optimized)
    return [
        bool(_INTEGER_KERNEL.match(node.op_type))
        or bool(node.input and node.input[0] in integers and integers.intersection(node.output))
        for node in optimized.graph.node
    ]


def _verdicts(optimized: onnx.ModelProto) -> dict[str, bool]:
    """Map the original name of every node of the optimized graph to whether it computes on integers."""
    integers = _integer_tensors(optimized)
    verdicts: dict[str, bool] = {}
    for node in optimized.graph.node:
        integer = bool(_INTEGER_KERNEL.match(node.op_type))
        if node.op_type in _ANY_TYPE:
            integer = node.input[0] in integers
        verdicts[_LAYOUT_SUFFIX.sub("", node.name)] = integer
    return verdicts


def _integer_tensors(optimized: onnx.ModelProto) -> set[str]:
    """Follow integer tensors from the operations that write them through operations that keep the type."""
    constants = {t.name for t in optimized.graph.initializer if t.data_type in _INTEGER_TYPES}
    declared = (*optimized.graph.input, *optimized.graph.value_info)
    integers = constants | {v.name for v in declared if v.type.tensor_type.elem_type in _INTEGER_TYPES}
    for node in optimized.graph.node:
        writes = node.op_type == "QuantizeLinear" or node.op_type.startswith("QLinear")
        if node.op_type == "QGemm" and len(node.input) > 7:
            writes = bool(node.input[7])
        keeps = node.op_type not in ("DequantizeLinear", "MatMulIntegerToFloat", "Cast", "Shape", "QGemm")
        if writes or (keeps and node.input and node.input[0] in integers):
            integers.update(node.output)
    return integers


def _lookup(node: onnx.NodeProto, verdicts: dict[str, bool]) -> bool:
    """A node that is not there under its name was fused into a float operation; integer kernels keep the name."""
    return verdicts.get(_LAYOUT_SUFFIX.sub("", node.name), False)


def _float_tensors(model: onnx.ModelProto) -> set[str]:
    """Return the tensors known to hold floating-point numbers; Concat, Add and others also compute shapes."""
    inferred = onnx.shape_inference.infer_shapes(model) if model.ByteSize() < onnx.checker.MAXIMUM_PROTOBUF else model
    floats = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
    values = (*inferred.graph.output, *inferred.graph.value_info)
    return {value.name for value in values if value.type.tensor_type.elem_type in floats}
