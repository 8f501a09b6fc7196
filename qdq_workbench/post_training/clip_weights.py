"""Weight clipping: thresholds of weights with the least quantization error.

A weight's grid spans its largest value, per scale. Clipping the few largest values gives all others a smaller scale;
the threshold with the least error of the whole slice is searched as for activations (`range_search`).
"""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np

from qdq_workbench._numbers import real, whole
from qdq_workbench.calibration.observers.range_search import RangeSearch, power_error
from qdq_workbench.errors import QuantizerError
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.targets import Target
from qdq_workbench.post_training.weight_grids import bind_float, copy_of, variable_of, weight_placements
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_POWERS = {"mae": 1.0, "mse": 2.0}


def clip_weights(
    model: keras.Model,
    method: str = "mse",
    *,
    plan: PlacementPlan | None = None,
    target: str | Target = "tensorrt",
    p: float = 2.0,
    candidates: int = 100,
) -> keras.Model:
    """Return a copy of a float model whose weights are clipped at the thresholds with the least quantization error.

    Every slice with its own scale has its own threshold. Fold batch normalizations first. At 8 bits the gain is small,
    at 4 bits and fewer it is large.

    Args:
        model: A built functional or sequential Keras model; it is only read.
        method: "mse", "mae" or "lp".
        plan: A plan of this model, which decides the quantized weights and their grids; None for the default plan.
        target: The target of the default plan. A plan has its own.
        p: The exponent of the error of method "lp", above 0.
        candidates: Number of thresholds that are tried, at least 2.

    Returns:
        The model with clipped weights, not compiled. When it is quantized, the thresholds are the ranges of its grids.

    Raises:
        QuantizerError: If the method is unknown, or `p` or `candidates` is out of range.
        SpecError: If the plan is of another model, or for another target than the given one.
        TargetError: If the target is unknown.
        UnsupportedModelError: If the model's graph cannot be read.
        UnbuiltModelError: If the model does not know its input shape.

    Example:
        >>> image = keras.Input((101,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(1, name="head")(image))
        >>> model.get_layer("head").kernel.assign(np.append(np.linspace(-1, 1, 100), 3.0)[:, None]).shape
        TensorShape([101, 1])
        >>> import dataclasses
        >>> from qdq_workbench import get_target
        >>> target = get_target("tensorrt")
        >>> four_bits = dataclasses.replace(target, weight=target.weight.replace(num_bits=4))
        >>> float(clip_weights(model, target=four_bits).get_layer("head").kernel.numpy().max()) < 2.6
        True
    """
    if method not in ("lp", *_POWERS):
        raise QuantizerError(f'method must be "mse", "mae" or "lp". Received: method={method!r}')
    candidates, p = whole(candidates), real(p)
    if isinstance(candidates, bool) or not isinstance(candidates, int) or candidates < 2:
        raise QuantizerError(f"candidates must be an integer from 2 on. Received: candidates={candidates!r}")
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 < p < np.inf:
        raise QuantizerError(f"p must be a number above 0. Received: p={p!r}")
    error = power_error(_POWERS.get(method, p))
    placements = weight_placements(model, bind_float(model), plan, target)
    copy, layers = copy_of(model)
    for placement in placements:
        variable = variable_of(layers[placement.layer], placement.weight or "")
        values = np.asarray(variable, np.float32)
        spec = placement.quantizer

        def cut(piece: np.ndarray, spec: QuantizerSpec = spec) -> np.ndarray:
            search = RangeSearch(piece.reshape(-1), np.ones(piece.size), spec, error, candidates)
            low, high = search.best(float(piece.min()), float(piece.max()))
            return np.asarray(np.clip(piece, low, high))

        variable.assign(per_slice(values, spec, cut))
    return copy


def per_slice(values: np.ndarray, spec: QuantizerSpec, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the array with a function, which keeps the shape, applied to each set of values that share a scale."""
    if spec.axis is None:
        return function(values)
    axis = spec.axis % values.ndim
    if spec.block_size is None:
        slices = np.moveaxis(values, axis, 0)
        return np.moveaxis(np.stack([function(piece) for piece in slices]), 0, axis)
    lines = np.moveaxis(values, axis, -1)
    result = np.empty_like(lines)
    for place in np.ndindex(*lines.shape[:-1]):
        for start in range(0, lines.shape[-1], spec.block_size):
            block = (*place, slice(start, start + spec.block_size))
            result[block] = function(lines[block])
    return np.moveaxis(result, -1, axis)
