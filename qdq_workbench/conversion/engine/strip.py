"""`strip`: the float model of a quantized one."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras

from qdq_workbench._interrupts import interrupts_held
from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel, check_quantized
from qdq_workbench.conversion.engine.rebuild import Rebuilder
from qdq_workbench.graph_builder import layer_weights
from qdq_workbench.quantizers import numerics


def strip(q_model: QuantizedModel, *, bake_weights: bool = False) -> keras.Model:
    """Return the float model of a quantized one, with its current weights.

    Args:
        q_model: A model made by `quantize_model`; it is only read.
        bake_weights: Give quantized weights their fake-quantized values, instead of the float values from which
            training continues.

    Returns:
        A float model without Q/DQ layers and wrappers, not compiled. Layers have the source's names; those of nested
        models are named after their paths, with dots.

    Raises:
        NotQuantizedError: If the model was not made by `quantize_model`.

    Example:
        >>> from qdq_workbench import quantize_model
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, name="conv")(image))
        >>> [layer.name for layer in strip(quantize_model(model)).layers]
        ['image', 'conv']
    """
    check_quantized(q_model)
    with interrupts_held():
        builder = Rebuilder(dataclasses.replace(float_view(q_model), model=q_model))
        model = builder.rebuilt(q_model.name)
        if bake_weights:
            bake(q_model, builder.clones)
        return model


def bake(q_model: QuantizedModel, clones: dict[str, Any]) -> None:
    """Assign the fake-quantized values of quantized weights to cloned layers."""
    qparams = q_model.weight_qparams()
    for placement in q_model.plan.placements:
        if placement.weight is None or placement.tensor not in qparams:
            continue
        variable = dict(layer_weights(clones[placement.layer]))[placement.weight]
        values = keras.ops.convert_to_numpy(variable)
        variable.assign(numerics.fake_quantize(values, qparams[placement.tensor]))
