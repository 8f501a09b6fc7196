"""Which layers of a quantized model can learn their rounding, and from which float model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import SpecError
from qdq_workbench.graph_builder import Call, layer_weights
from qdq_workbench.post_training.rounding.weights import LearnedWeight
from qdq_workbench.post_training.weight_grids import bind_float
from qdq_workbench.quantizers import numerics
from qdq_workbench.quantizers.numerics import QParams
from qdq_workbench.wrappers import BaseQuantizeWrapper


@dataclasses.dataclass(frozen=True)
class Learner:
    """A layer with its learned weights.

    Args:
        wrapper: The layer's wrapper.
        weights: Its quantized weights that are learned.
        fixed: Its other quantized weights, as pairs of the variable and its quantized value.
        bias: The variable of its bias if that is learned too, else None.
    """

    wrapper: Any
    weights: tuple[LearnedWeight, ...]
    fixed: tuple[tuple[Any, Any], ...] = ()
    bias: Any = None


def find_learners(q_model: QuantizedModel, *, biases: bool) -> tuple[list[Learner], dict[str, str]]:
    """Return the layers whose weights can be learned, and the quantized weights that cannot, each with the reason."""
    qparams = q_model.weight_qparams()
    names: dict[str, list[str]] = {}
    for placement in q_model.plan.placements:
        if placement.weight is not None:
            names.setdefault(placement.layer, []).append(placement.weight)
    learners, left_out = [], {}
    for path, wrapper in q_model.wrappers_by_path().items():
        if path not in names:
            continue
        grids = {name: qparams.get(f"{path}/{name}") for name in names[path]}
        learner, reasons = _learner(wrapper, path, grids, biases=biases)
        left_out.update({f"{path}/{name}": reason for name, reason in reasons.items()})
        if learner.weights:
            learners.append(learner)
    return learners, left_out


def _learner(
    wrapper: BaseQuantizeWrapper, path: str, grids: Mapping[str, QParams | None], *, biases: bool
) -> tuple[Learner, dict[str, str]]:
    """Return a layer with the weights that can be learned, and why its other quantized weights cannot."""
    variables = dict(layer_weights(wrapper.layer))
    reason = _obstacle(wrapper, grids)
    weights, fixed, reasons = [], [], {}
    for name, grid in grids.items():
        variable = variables[name]
        if reason or grid is None:
            reasons[name] = reason
            continue
        if str(variable.dtype) != "float32":
            reasons[name] = f"it is kept as {variable.dtype}, which cannot hold the values of its grid exactly"
        else:
            weight = LearnedWeight(f"{path}/{name}", variable, grid, own_range=not wrapper.keeps_range(name))
            if weight.free:
                weights.append(weight)
                continue
            reasons[name] = "all of its values lie on the grid already"
        # `compute` calls a learned layer without its wrapper, which would have quantized this weight.
        values = numerics.fake_quantize(np.asarray(keras.ops.convert_to_numpy(variable), np.float32), grid)
        fixed.append((variable, keras.ops.cast(values, variable.dtype)))
    bias = variables.get("bias") if biases and "bias" not in grids else None
    if bias is not None and str(bias.dtype) != "float32":
        bias = None
    return Learner(wrapper, tuple(weights), tuple(fixed), bias), reasons


def _obstacle(wrapper: BaseQuantizeWrapper, grids: Mapping[str, QParams | None]) -> str:
    """Return why no weight of a layer can be learned; empty if they can."""
    if any(grid is None for grid in grids.values()):
        return "a quantizer of its layer is a function of the user's own, without a grid"
    if wrapper.bypassed or not bool(keras.ops.convert_to_numpy(wrapper.enabled)):
        return "the quantization of its layer is switched off"
    return ""


def reference_weights(q_model: QuantizedModel, reference: keras.Model) -> dict[str, list[tuple[Any, Any]]]:
    """Return the weights of another float model of the same layers, for the layers of a quantized model.

    Layers are matched by their paths, or in computing order if a correction flattened nested models and paths differ.
    """
    ours, theirs = _layers_with_weights(float_view(q_model).calls), _layers_with_weights(bind_float(reference).calls)
    named = set(ours) <= set(theirs)
    # Not strict: a layer without a counterpart is refused below.
    pairs = [(path, theirs[path]) for path in ours] if named else list(zip(ours, theirs.values(), strict=False))
    fitting = [path for path, other in pairs if _shapes(ours[path]) == _shapes(other)]
    if len(fitting) < len(ours):
        missing = next(path for path in ours if path not in fitting)
        raise SpecError(
            "reference must have the layers of the model that was quantized, with weights of the same shapes; fold its "
            f"batch normalizations too if that was done. Received: reference {reference.name!r} without a layer like "
            f"{missing!r}"
        )
    wrappers = {wrapper.layer.name: wrapper.name for wrapper in q_model.wrappers}
    found = {}
    for path, other in pairs:
        layer = ours[path]
        own, given = layer_weights(layer), layer_weights(other)
        values = [keras.ops.convert_to_tensor(variable.value) for _, variable in given]
        found[wrappers.get(layer.name, layer.name)] = [
            (variable, value) for (_, variable), value in zip(own, values, strict=True)
        ]
    return found


def _layers_with_weights(calls: Iterable[Call]) -> dict[str, Any]:
    """Return the layers that have weights by their paths, in computing order."""
    layers = {call.node.layer: call.operation for call in calls}
    return {
        path: layer for path, layer in layers.items() if isinstance(layer, keras.layers.Layer) and layer_weights(layer)
    }


def _shapes(layer: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(variable.shape)) for name, variable in layer_weights(layer)]
