"""Sessions of ONNX Runtime; its failures are raised as errors of this library."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime

from qdq_workbench._interrupts import safe_point
from qdq_workbench._scratch import scratch_folder
from qdq_workbench.errors import VerificationError
from qdq_workbench.onnx_graph.graph import static_shape
from qdq_workbench.onnx_graph.model_files import SINGLE_FILE_LIMIT, constant_bytes
from qdq_workbench.onnx_graph.processor import EXACT_SUMS

# From opset 21 on a QuantizeLinear may have the attribute `output_dtype`. ONNX Runtime (1.31) sets it where it moves
# an int8 pair over a Reshape, and its rewriting of int8 to uint8 does not change it.
_FORGETS_THE_TYPE = "QDQS8ToU8Transformer"
_SYMPTOM = "output_dtype"
#: The optimizers that quantize float weights between two pairs, and merge pairs.
QUANTIZING = ("WeightBiasQuantization", "DoubleQDQPairsRemover")


class RunError(VerificationError):
    """ONNX Runtime opened a file and then failed to run it."""


def run_once(
    session: onnxruntime.InferenceSession, names: list[str], inputs: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """Return the outputs of a session in the order of `names`.

    Raises:
        RunError: If ONNX Runtime fails.
    """
    safe_point()
    try:
        return list(session.run(names, dict(inputs)))
    except Exception as error:
        raise RunError(
            f"ONNX Runtime opens the file and fails to run it: {' '.join(str(error).split())} "
            f"Received: inputs of shapes { {name: np.shape(value) for name, value in inputs.items()} }"
        ) from error


def open_session(
    model: str | bytes, options: onnxruntime.SessionOptions, disabled: Iterable[str] = ()
) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session on the CPU for a file's path or contents; raise VerificationError if refused.

    A file that ONNX Runtime refuses only because of its own rewriting of int8 pairs is opened without that rewriting.
    """
    without = list(disabled)
    try:
        try:
            return _open(model, options, without)
        except Exception as error:
            if _SYMPTOM not in str(error):
                raise
            return _open(model, options, [*without, _FORGETS_THE_TYPE])
    except Exception as error:
        shown = repr(model) if isinstance(model, str) else f"a model of {len(model)} bytes"
        raise VerificationError(
            f"ONNX Runtime refuses the file: {' '.join(str(error).split())} Received: {shown}"
        ) from error


@contextlib.contextmanager
def session_source(proto: onnx.ModelProto) -> Iterator[str | bytes]:
    """Provide a model of any size for ONNX Runtime and `onnx.checker`.

    That is its bytes, or the path of a temporary file if it is larger than a protobuf message.
    """
    if constant_bytes(proto) <= SINGLE_FILE_LIMIT:
        yield proto.SerializeToString()
        return
    with scratch_folder() as folder:
        yield save_whole(proto, folder / "model.onnx")


def save_whole(proto: onnx.ModelProto, path: pathlib.Path) -> str:
    """Write a model of any size to a file, a large one with its constants beside it; return the path.

    The model keeps its constants.
    """
    large = constant_bytes(proto) > SINGLE_FILE_LIMIT
    onnx.save(proto, path, save_as_external_data=large)
    if large:  # saving has moved the constants out of `proto`
        onnx.load_external_data_for_model(proto, str(path.parent))
    return str(path)


def fed_inputs(model: onnx.ModelProto) -> dict[str, tuple[tuple[int | None, ...], np.dtype[Any]]]:
    """Return shape (None for open sizes) and type of every input, without the constants that old files list there."""
    constants = {tensor.name for tensor in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        if value.name not in constants:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            found[value.name] = (static_shape(value) or (), np.dtype(dtype))
    return found


def with_outputs(model: onnx.ModelProto, tensors: Iterable[str]) -> onnx.ModelProto:
    """Return a copy that has some tensors, if a node of the main graph computes them, as further outputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    present = {value.name for value in copy.graph.output}
    written = {output for node in copy.graph.node for output in node.output}
    for name in dict.fromkeys(tensors):
        if name in written and name not in present:
            # Without a type, which ONNX Runtime infers.
            copy.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    return copy


def make_session(
    proto: onnx.ModelProto, *, optimized: bool, as_planned: bool = False, exact_sums: bool = False
) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session on the CPU; raise VerificationError if ONNX Runtime refuses the file.

    `as_planned` keeps ONNX Runtime from quantizing by itself what the file has in float, and from replacing two pairs
    in a row by one; `exact_sums` lets integer kernels add products exactly on processors without VNNI, too.
    """
    safe_point()
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    options.log_severity_level = 4  # fatal: failures are raised as errors
    disabled: list[str] = []
    if as_planned:
        disabled += QUANTIZING
        # Nor is the float input of MatMulNBits rounded to int8: its accuracy level 1 is float32.
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    if exact_sums:
        disabled.append("ConstantSharing")  # which would undo that every weight has a zero point of its own
        options.add_session_config_entry(EXACT_SUMS, "1")
    with session_source(proto) as model:
        return open_session(model, options, disabled)


def needs_disabled_rewriting(model: str | bytes) -> bool:
    """Return whether a file, a path or its contents, opens only without ONNX Runtime's rewriting of int8 pairs."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        _open(model, options, [])
    except Exception as error:  # noqa: BLE001 - the runtime raises several unrelated classes
        return _SYMPTOM in str(error)
    return False


def _open(model: str | bytes, options: onnxruntime.SessionOptions, disabled: list[str]) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"], disabled_optimizers=disabled)
