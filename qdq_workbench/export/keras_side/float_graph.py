"""Conversion of a cut Keras model to a float ONNX graph whose pair ends and weight inputs have known names.

tf2onnx translates the operations and sees nothing of the quantization. The quantized weights are function inputs: a
`keras.StatelessScope` gives the layers these inputs in place of their variables, so that no step of the translation
can fold, merge or transpose their values.

Workarounds for tf2onnx 1.17:

* left out are its transpose and Q/DQ optimizers (`passes/move_to_channels_first.py` moves the layout), its pool
  optimizer, which takes the means inside a LayerNormalization for global pools, its slow removal of Identity nodes,
  and its Einsum optimizer (`passes/restore_batched_matmul.py` replaces it);
* it gives a convolution two biases if two vectors are added to its output;
* it does not translate Erfc (the exact GELU), Expm1 (CELU), Log1p and Bucketize (`handlers.py`);
* it gets the padding of transposed convolutions wrong (`transposed_convolutions.py`);
* it refuses opsets beyond `MAX_TF2ONNX_OPSET`, so for newer ones the float graph is upgraded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from qdq_workbench._interrupts import safe_point
from qdq_workbench.errors import ExportError
from qdq_workbench.export.keras_side.cut_model import CutModel
from qdq_workbench.export.keras_side.handlers import HANDLERS
from qdq_workbench.export.keras_side.stable_order import in_stable_order, number_functions
from qdq_workbench.export.keras_side.trace import EndNames, trace
from qdq_workbench.export.keras_side.transposed_convolutions import transposed_convolutions
from qdq_workbench.onnx_graph.resizes import with_inferred_shapes

if TYPE_CHECKING:
    import onnx

MIN_OPSET, MAX_TF2ONNX_OPSET = 13, 18
_LEFT_OUT = frozenset(
    {
        "optimize_transpose",
        "const_dequantize_optimizer",
        "q_dq_optimizer",
        "global_pool_optimizer",
        "remove_identity",
        "einsum_optimizer",
    }
)


@dataclasses.dataclass(frozen=True)
class FloatGraph:
    """A float ONNX model, with the names of its cut ends and the Keras operations of its scopes.

    Args:
        model: The converted model; its inputs and outputs have the names in `ends`.
        ends: The names of the cut ends.
        scopes: Scope (the first part of node and tensor names) -> the Keras operation that was traced in it.
    """

    model: onnx.ModelProto
    ends: EndNames
    scopes: dict[str, str]


def convert_float(cut: CutModel, *, opset: int, dynamic_batch: bool) -> FloatGraph:
    """Translate the float graph of a cut model with tf2onnx; newer opsets than its own go through onnx's upgrade.

    Without `dynamic_batch`, unknown batch sizes become 1.
    """
    ends = EndNames.of(cut)
    with _quiet():
        concrete, scopes = trace(cut, ends, dynamic_batch=dynamic_batch)
        safe_point()
        model = _translate(concrete, ends.all_inputs(), min(opset, MAX_TF2ONNX_OPSET))
    if opset > MAX_TF2ONNX_OPSET:
        model = _upgrade(model, opset)
    in_stable_order(model)
    return FloatGraph(with_inferred_shapes(model), ends, scopes)


def _translate(concrete: Any, input_ends: set[str], opset: int) -> onnx.ModelProto:
    """Freeze the traced function and run tf2onnx on it, without its layout passes."""
    import tensorflow as tf
    from tf2onnx import tf_loader

    # The traced function also lists constants that layers hold as plain tensors (Normalization(mean=...)); those
    # are frozen with the variables and must not become inputs of the model.
    rename = {t.name: t.name.split(":")[0] for t in concrete.inputs if t.name.split(":")[0] in input_ends}
    input_names = list(rename)
    output_names = [t.name for t in concrete.outputs]
    rename.update({tensor.name: key for key, tensor in concrete.structured_outputs.items()})
    try:
        with tf.device("/cpu:0"):
            frozen = tf_loader.from_function(concrete, input_names, output_names)
        number_functions(frozen)
        arguments = {
            "opset": opset,
            "input_names": input_names,
            "output_names": output_names,
            "tensors_to_rename": rename,
        }
        return _convert_and_optimize(frozen, arguments)
    except Exception as error:
        raise ExportError(
            "tf2onnx could not translate the model. Every operation of the model must have an ONNX form at this "
            f"opset; replace the operation named here or try another opset. Received: opset={opset}, "
            f"{type(error).__name__}: {error}"
        ) from error


def _at_safe_point(factory: Callable[[], Any]) -> Any:
    """Construct a pass of tf2onnx; an interrupt may end the export here, since tf2onnx does so between two passes."""
    safe_point()
    return factory()


def _merging_by_name() -> Any:
    """Return tf2onnx's pass that merges equal nodes, changed to keep the same one of them in every export.

    Its own order changes between conversions, and verification compares a file with a newly built one.
    """
    from tf2onnx.optimizer.merge_duplicated_nodes_optimizer import MergeDuplicatedNodesOptimizer

    class MergingByName(MergeDuplicatedNodesOptimizer):
        @staticmethod
        def _len_of_node_output(node: Any) -> tuple[int, str]:
            return len(node.output), str(node.name)

    return MergingByName()


def _convert_and_optimize(frozen: Any, arguments: dict[str, Any]) -> onnx.ModelProto:
    """Convert a frozen graph strictly; if that fails, convert it again and skip the parts of tf2onnx that fail.

    Strict means that every rewriter and pass must succeed. Otherwise tf2onnx copies the whole graph before every pass
    to undo one that fails, which takes most of the time for a large network. Its LSTM rewriter fails on kernels that
    are not constant: where the kernel is quantized, the LSTM stays a loop.
    """
    import tensorflow as tf
    from tf2onnx import optimizer
    from tf2onnx.tfonnx import process_tf_graph

    passes = {key: factory for key, factory in optimizer._get_optimizers().items() if key not in _LEFT_OUT}  # noqa: SLF001 - it has no public list
    passes["merge_duplication"] = _merging_by_name
    passes = {key: functools.partial(_at_safe_point, factory) for key, factory in passes.items()}

    def convert(*, strict: bool) -> onnx.ModelProto:
        with tf.device("/cpu:0"), tf.Graph().as_default() as graph:
            tf.import_graph_def(frozen, name="")
            handlers = {**HANDLERS, **transposed_convolutions(graph)}
            converted = process_tf_graph(graph, **arguments, custom_op_handlers=handlers, continue_on_error=not strict)
            _join_biases(converted)
            optimized = optimizer.optimize_graph(converted, catch_errors=not strict, optimizers=passes)
            model = optimized.make_model("qdq_workbench")
            _add_known_shapes(model, optimized)
            return model

    try:
        model = convert(strict=True)
    except Exception as error:
        model = convert(strict=False)
        if _unknown_operations(model):
            # The first error names the cause; what a lenient conversion leaves over need not.
            raise error from None
    unknown = _unknown_operations(model)
    if unknown:
        raise NotImplementedError(f"no ONNX form for the TensorFlow operations {unknown}")
    return model


def _join_biases(graph: Any) -> None:
    """Replace the several biases that tf2onnx gave a convolution by their sum, also in the bodies of loops."""
    for node in list(graph.get_nodes()):
        for body in (node.get_body_graphs() or {}).values():
            _join_biases(body)
        if node.type != "Conv" or len(node.input) < 4:
            continue
        total = graph.make_node("Add", node.input[2:])  # a later pass folds constants
        graph.replace_inputs(node, [*node.input[:2], total.output[0]])


def _unknown_operations(model: onnx.ModelProto) -> list[str]:
    """Return the TensorFlow operations left in a model, which tf2onnx only logs."""
    from onnx import defs

    from qdq_workbench.onnx_graph.graph import standard_opset

    opset = standard_opset(model)
    standard = (node for node in model.graph.node if node.domain in ("", "ai.onnx"))
    return sorted({node.op_type for node in standard if not defs.has(node.op_type, opset)})


def _add_known_shapes(model: onnx.ModelProto, converted: Any) -> None:
    """Add the shapes that TensorFlow inferred for Reshapes; ONNX's own inference cannot follow all computed sizes."""
    from onnx import helper

    known = {value.name for value in (*model.graph.output, *model.graph.value_info)}
    for node in model.graph.node:
        if node.op_type != "Reshape":
            continue
        tensor = node.output[0]
        shape, dtype = converted.get_shape(tensor), converted.get_dtype(tensor)
        if tensor in known or shape is None or dtype is None:
            continue
        sizes = [f"{tensor}_{axis}" if size == -1 else size for axis, size in enumerate(shape)]
        model.graph.value_info.append(helper.make_tensor_value_info(tensor, dtype, sizes))


def _upgrade(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Raise the opset of a float model, before it has a Q: onnx's converter adds output types to them."""
    from onnx import version_converter

    try:
        return version_converter.convert_version(model, opset)
    except Exception as error:
        raise ExportError(
            f"The float graph could not be raised from opset {MAX_TF2ONNX_OPSET}; export at an opset up to that. "
            f"Received: opset={opset}, {type(error).__name__}: {error}"
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the loggers of tf2onnx and TensorFlow for the duration of a conversion."""
    loggers = [logging.getLogger("tf2onnx"), logging.getLogger("tensorflow")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
