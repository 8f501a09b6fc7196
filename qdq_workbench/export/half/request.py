"""The half-precision request of a model, from its recorded ranges and its dtype policies."""

from __future__ import annotations

from collections.abc import Mapping

import keras

from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import ExportError
from qdq_workbench.export.node_names import layer_of, layers_by_name
from qdq_workbench.graph.half_precision import FLOAT32, FLOAT_TYPES, HALF_TYPES, USED_RANGE, HalfRequest, HalfType

_POLICY = "its own dtype policy computes in float32"
_SHOWN = 3
_ONNXRUNTIME = {
    "float16": "ONNX Runtime computes float16 on GPUs; on CPUs it casts most of it to float32 and back.",
    "bfloat16": "ONNX Runtime has no CPU kernels of bfloat16, so the file opens on GPUs only; verify_onnx evaluates it "
    "in float32 with every result rounded.",
}


def half_request(q_model: QuantizedModel, float_type: str, *, ends: bool = False) -> HalfRequest | None:
    """Return the request for a file with floats of a given type, inputs and outputs too if `ends`; None for float32.

    The model is planned for the file's target, with the dtype policies that it was trained with. With `ends`, float32
    and input values that the type does not hold are refused.
    """
    if float_type not in FLOAT_TYPES:
        raise ExportError(
            f"The floats of a file can be {', '.join(map(repr, FLOAT_TYPES))}. Received: float_type={float_type!r}"
        )
    if float_type == FLOAT32 and ends:
        raise ExportError(
            "Inputs and outputs have another type than float32 in files of half precision: float_type='float16' or "
            f"'bfloat16'. Received: keep_io_types=False, float_type={float_type!r}"
        )
    if float_type == FLOAT32:
        return None
    kind = HALF_TYPES[float_type]
    if ends:
        _check_inputs(q_model, kind)
    layers = layers_by_name(q_model.plan.graph.layers)
    reasons = {**_out_of_range(q_model, kind), **_float32_by_policy(q_model)}

    def why_kept(name: str) -> str:
        layer = layer_of(name, layers)
        return "" if layer is None else reasons.get(layer, "")

    return HalfRequest(kind, q_model.plan.target_object.half_scales, why_kept, ends)


def half_notes(request: HalfRequest, q_model: QuantizedModel) -> list[str]:
    """Return notes on the nodes in half precision and in float32; the request must be that of a finished export."""
    kind = request.kind.name
    notes = [f"{len(request.half)} nodes in {kind}, {len(request.kept)} in float32."]
    for reason, names in request.kept_by_reason.items():
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        notes.append(f"In float32: {shown}: {reason}.")
    if not q_model.recorded_ranges:
        notes.append(f"No ranges were recorded, so nothing is known of values beyond {kind}; run calibrate once.")
    if q_model.plan.target == "onnxruntime":
        notes.append(_ONNXRUNTIME[kind])
    return notes


def _check_inputs(q_model: QuantizedModel, kind: HalfType) -> None:
    for name in q_model.plan.graph.inputs:
        largest = max(map(abs, q_model.recorded_ranges.get(name, (0.0,))))
        if largest > kind.largest:
            raise ExportError(
                f"An input in {kind.name} holds values up to {kind.largest:,.0f}. Leave the inputs in float32 "
                "(keep_io_types=True), or use bfloat16. "
                f"Received: the input {name!r}, of which calibration saw values up to {largest:,.0f}"
            )


def _out_of_range(q_model: QuantizedModel, kind: HalfType) -> dict[str, str]:
    """Return layer -> reason, for layers at a tensor whose range exceeds `USED_RANGE` of the type's."""
    limit = USED_RANGE * kind.largest
    # bfloat16 has the exponents of float32, so no range exceeds it.
    reason = f"calibration saw values beyond {limit:,.0f}, half of what {kind.name} holds" if limit < 1e9 else ""
    ranges = {**q_model.recorded_ranges, **q_model.activation_ranges()}
    wide = {tensor for tensor, ends in ranges.items() if max(map(abs, ends)) > limit}
    graph = q_model.plan.graph
    return {node.layer: reason for node in graph.nodes if reason and wide.intersection((*node.inputs, *node.outputs))}


def _float32_by_policy(q_model: QuantizedModel) -> Mapping[str, str]:
    """Return the layers of a mixed precision model that compute in float32, or wider."""
    calls = [call for call in float_view(q_model).calls if isinstance(call.operation, keras.layers.Layer)]
    computed = {call.node.layer: call.operation.compute_dtype for call in calls if call.node.inputs}
    # float32 is Keras's default: it is a wish only beside layers in half precision.
    if not set(computed.values()) & set(HALF_TYPES):
        return {}
    return {layer: _POLICY for layer, dtype in computed.items() if dtype not in HALF_TYPES}
