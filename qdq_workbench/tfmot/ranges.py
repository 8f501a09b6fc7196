"""Functions that fix or remove the ranges of a model's inputs and outputs."""

from __future__ import annotations

from typing import Any

from qdq_workbench import FixedQuantizer, QuantizedModel
from qdq_workbench.conversion.engine.retarget import replan
from qdq_workbench.errors import NotQuantizedError, SpecError
from qdq_workbench.placement.planner import FLOAT, override_tensors


def fix_input_output_range(
    model: QuantizedModel,
    num_bits: int = 8,
    input_min: float = 0.0,
    input_max: float = 1.0,
    output_min: float = 0.0,
    output_max: float = 1.0,
    narrow_range: bool = False,
) -> QuantizedModel:
    """Return a copy of a quantized model whose inputs and outputs have ranges that neither data nor training change.

    The ranges apply to every target: `retarget` and `export_onnx(target=...)` keep them.

    If the pair of an output is before its activation (softmax, sigmoid, tanh), the range of that pair is fixed, as in
    TFMOT. TFMOT always uses 8 bits there; this function uses `num_bits`.

    Args:
        model: A model made by `quantize_apply` or `quantize_model`; it is only read.
        num_bits: Width of the integers.
        input_min: Lowest value of the inputs.
        input_max: Highest value of the inputs.
        output_min: Lowest value of the outputs.
        output_max: Highest value of the outputs.
        narrow_range: Exclude the lowest integer.

    Returns:
        The new model, not compiled.

    Raises:
        NotQuantizedError: If the model is not quantized.
        SpecError: If the lower end of a range is not below its upper end.

    Example:
        >>> import keras
        >>> from qdq_workbench import tfmot
        >>> model = keras.Sequential([keras.Input((4,), name="image"), keras.layers.Dense(2, name="head")])
        >>> fixed = fix_input_output_range(tfmot.quantize_model(model), output_min=-1.0)
        >>> [layer.range for layer in fixed.activation_quantizers]
        [(0.0, 1.0), (-1.0, 1.0)]
    """
    _check_quantized(model)
    if not (input_min < input_max and output_min < output_max):
        raise SpecError(
            "A range needs a lower end below its upper end. Received: "
            f"inputs ({input_min}, {input_max}), outputs ({output_min}, {output_max})"
        )
    ends = dict.fromkeys(_quantized_outputs(model), (output_min, output_max))
    ends.update(dict.fromkeys(model.plan.graph.inputs, (input_min, input_max)))
    grid = {"num_bits": num_bits, "narrow_range": narrow_range, "quantizer": FixedQuantizer.method_name}
    fixed = {tensor: {**grid, "init_min": float(low), "init_max": float(high)} for tensor, (low, high) in ends.items()}
    return replan(model, override_tensors(model.plan, fixed))


def remove_input_range(model: QuantizedModel) -> QuantizedModel:
    """Return a copy of a quantized model whose inputs are not quantized, for use as a part of another model.

    Args:
        model: A model made by `quantize_apply` or `quantize_model`; it is only read.

    Returns:
        The new model, not compiled.

    Raises:
        NotQuantizedError: If the model is not quantized.

    Example:
        >>> import keras
        >>> from qdq_workbench import tfmot
        >>> model = keras.Sequential([keras.Input((4,), name="image"), keras.layers.Dense(2, name="head")])
        >>> [layer.tensor for layer in remove_input_range(tfmot.quantize_model(model)).activation_quantizers]
        ['head']
    """
    _check_quantized(model)
    return replan(model, override_tensors(model.plan, dict.fromkeys(model.plan.graph.inputs, FLOAT)))


def _check_quantized(model: Any) -> None:
    if not isinstance(model, QuantizedModel) or not model.has_plan:
        raise NotQuantizedError(
            "The ranges of a quantized model can be fixed or removed; pass what tfmot.quantize_apply returns. "
            f"Received: model {getattr(model, 'name', type(model).__name__)!r}"
        )


def _quantized_outputs(model: QuantizedModel) -> list[str]:
    """Return the tensors with the outputs' pairs: for an activation without a pair, its input."""
    graph = model.plan.graph
    paired = {p.tensor for p in model.plan.placements if p.site != "weight" and p.author != "target"}
    found = []
    for tensor in graph.outputs:
        node = graph.producer(tensor)
        behind = tensor not in paired and node.is_activation and len(node.inputs) == 1
        found.append(node.inputs[0] if behind else tensor)
    return found
