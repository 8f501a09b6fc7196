"""Smoothing: scales moved from activations into the weights that read them.

The output of a normalization or a linear layer is divided channel by channel, and the rows of the weights behind it
are multiplied by the same factors, so the function stays the same:

    Y = (X diag(s)^-1) (diag(s) W)              s_c = max|X_c|^alpha / max|W_c|^(1 - alpha)

A few channels of a Transformer's activations have values a hundred times as large as the others and set the scale for
all; the weights behind them have channels of similar range, and one scale per output channel. alpha is the share of
the spread that moves into the weights: 0.5 halves it in decibels. If alpha is searched, the one with the least
estimated error is taken:

    E = step_x^2 / 12 * sum (s W)^2 + sum_c mean(X_c^2) / s_c^2 * sum (Q(s W) - s W)_c^2

that is the rounding error of the activation times the weights, and that of the weights times the activation. max|X_c|
and step_x cover the padding of sequences, as the ranges of `calibrate` do; mean(X_c^2) leaves out the positions that a
mask leaves out, if all readers support masking.

Source: Xiao et al. 2022, arXiv:2211.10438, equation 4; the error is that of independent roundings.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from qdq_workbench._progress import check_count
from qdq_workbench.calibration.batches import input_batches
from qdq_workbench.calibration.failures import failures_named
from qdq_workbench.calibration.padding import all_rows_of, mask_of
from qdq_workbench.conversion.engine.deep_models import functional_model
from qdq_workbench.conversion.engine.rebuild import Rebuilder
from qdq_workbench.errors import DataError, QuantizerError
from qdq_workbench.graph.float_inside import has_low_rank_update
from qdq_workbench.graph.input_axes import input_axis
from qdq_workbench.graph.kinds import BATCH_NORMALIZATION, MULTI_HEAD_ATTENTION, NORMALIZATIONS
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.output_axes import output_axes
from qdq_workbench.placement.plan import Placement, PlacementPlan
from qdq_workbench.placement.targets import Target
from qdq_workbench.planning import plan_placement
from qdq_workbench.post_training.chains import REWRITTEN
from qdq_workbench.post_training.weight_grids import (
    along,
    bind_float,
    multiply,
    rounded,
    variable_of,
    weight_placements,
)
from qdq_workbench.quantizers import numerics
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

Floats = npt.NDArray[np.float64]
_ALPHAS = tuple(number / 20 for number in range(21))
_LARGEST = 2.0**20  # bounds the factor of a channel whose values are near zero
_NORMS = (*BATCH_NORMALIZATION, *NORMALIZATIONS)


def smooth_scales(
    model: keras.Model,
    data: Any,
    *,
    alpha: float | None = None,
    plan: PlacementPlan | None = None,
    target: str | Target = "tensorrt",
    steps: int | None = None,
    batch_size: int = 32,
) -> keras.Model:
    """Return a copy of a float model whose activations have channels of more equal range, at the expense of weights.

    It smooths the outputs of normalizations (`LayerNormalization`, `RMSNormalization`, `BatchNormalization`) and of
    `Dense` layers with a linear or ReLU activation, if all readers of the tensor are layers with weights: `Dense`,
    `EinsumDense`, `Conv1D`, `Conv2D`, `DepthwiseConv2D`, `MultiHeadAttention`. Layers with low-rank updates (LoRA)
    stay as they are: `merge_lora` first. The function of the model stays the same up to float rounding. See the module
    docstring for the equations.

    Args:
        model: A built functional or sequential Keras model; it is only read. Nested models are flattened.
        data: Samples as for `calibrate`, to measure the range of every channel.
        alpha: The share of the spread that moves into the weights, 0 to 1; None to search the best for every tensor. A
            tensor stays as it is if no alpha lowers its estimated error.
        plan: A plan of this model, which decides the quantized weights and their grids; None for the default plan.
        target: The target of the default plan. A plan has its own.
        steps: How many batches of the data to read at most, at least 1; None for all.
        batch_size: How many samples of an array make a batch, at least 1.

    Returns:
        The smoothed model, not compiled.

    Raises:
        QuantizerError: If alpha is neither None nor a number from 0 to 1.
        SpecError: If the plan is of another model, or for another target than the given one.
        DataError: If the data do not fit the model, a tensor holds NaN or infinity or is padding alone, or `steps` or
            `batch_size` is out of its range.
        TargetError: If the target is unknown.
        UnsupportedModelError: If the model's graph cannot be read.
        UnbuiltModelError: If the model does not know its input shape.

    Example:
        >>> keras.utils.set_random_seed(0)
        >>> tokens = keras.Input((4, 8), name="tokens")
        >>> norm = keras.layers.LayerNormalization(name="norm")
        >>> model = keras.Model(tokens, keras.layers.Dense(3, name="head")(norm(tokens)))
        >>> norm.gamma.assign([1.0, 50.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]).shape
        TensorShape([8])
        >>> x = np.random.default_rng(0).normal(size=(16, 4, 8)).astype("float32")
        >>> smoothed = smooth_scales(model, x)
        >>> gamma = smoothed.get_layer("norm").gamma.numpy()
        >>> bool(gamma.max() / gamma.min() < 20.0), bool(np.allclose(smoothed(x), model(x), atol=1e-3))
        (True, True)
    """
    is_number = not isinstance(alpha, bool) and isinstance(alpha, (int, float, np.number))
    if alpha is not None and not (is_number and 0.0 <= float(alpha) <= 1.0):
        raise QuantizerError(f"alpha must be a number from 0 to 1, or None to search it. Received: alpha={alpha!r}")
    check_count("steps", steps)
    bound = bind_float(model)
    plan = plan_placement(bound, target=target) if plan is None else plan
    placed = {placement.tensor: placement for placement in weight_placements(model, bound, plan, target)}
    grids = {placement.tensor: placement.quantizer for placement in plan.placements if placement.site != "weight"}
    builder = Rebuilder(bound)
    copy = builder.rebuilt(model.name)
    places = [place for place in _find_places(bound.graph) if any(name in placed for name in place.weight_names)]
    # Measured once: scaling a tensor and its readers leaves all other tensors as they are.
    measured = _measured(builder, copy, places, data, steps, batch_size)
    for place in places:
        factors = _Smoothing(place, builder.clones, placed, grids.get(place.tensor), measured[place.tensor])
        scale = factors.best() if alpha is None else factors.scale(float(alpha))
        if scale is not None:
            _divide(builder.clones[place.producer.layer], 1.0 / scale)
            for reader in place.readers:
                multiply(variable_of(builder.clones[reader.layer], reader.weight), scale, reader.axis)
    return copy


@dataclasses.dataclass(frozen=True)
class _Reader:
    """A weight that reads the channels of a tensor along one of its axes."""

    layer: str
    weight: str
    axis: int


@dataclasses.dataclass(frozen=True)
class _Place:
    """A tensor whose channels can be scaled."""

    tensor: str
    producer: Node
    readers: tuple[_Reader, ...]

    @property
    def weight_names(self) -> list[str]:
        return [f"{reader.layer}/{reader.weight}" for reader in self.readers]


@dataclasses.dataclass(frozen=True)
class _Channels:
    """The lowest and highest value of every channel of a tensor on the data, and its mean square without padding."""

    low: Floats
    high: Floats
    square: Floats

    @property
    def peak(self) -> Floats:
        return np.maximum(np.abs(self.low), np.abs(self.high))


class _Smoothing:
    """Computes the factors of one tensor."""

    def __init__(
        self,
        place: _Place,
        layers: dict[str, Any],
        placed: dict[str, Placement],
        grid: QuantizerSpec | None,
        channels: _Channels,
    ) -> None:
        self._grid, self._channels = grid, channels
        values = [np.asarray(variable_of(layers[r.layer], r.weight), np.float64) for r in place.readers]
        named = zip(place.readers, place.weight_names, values, strict=True)
        self._weights = [(value, reader.axis, placed.get(name)) for reader, name, value in named]
        self._widest = np.max([_rows(value, axis).max(axis=1) for value, axis, _ in self._weights], axis=0)

    def scale(self, alpha: float) -> Floats:
        """Return the factors of one alpha, with geometric mean 1; channels whose values are all zero get factor 1."""
        peak = self._channels.peak
        usable = (peak > 0.0) & (self._widest > 0.0)
        if not usable.any():
            return np.ones_like(peak)
        logs = alpha * np.log(peak[usable]) - (1.0 - alpha) * np.log(self._widest[usable])
        scale = np.ones_like(peak)
        scale[usable] = np.exp(np.clip(logs - logs.mean(), -np.log(_LARGEST), np.log(_LARGEST)))
        return scale

    def best(self) -> Floats | None:
        """Return the factors of the alpha with the least error; None if no alpha lowers the error."""
        as_it_is = self._error(np.ones_like(self._channels.peak))
        tried = [(self._error(scale), alpha, scale) for alpha in _ALPHAS for scale in (self.scale(alpha),)]
        # Of equal errors the smallest alpha; the arrays behind it cannot be compared.
        error, _, scale = min(tried, key=lambda each: each[:2])
        return scale if error < as_it_is else None

    def _error(self, scale: Floats) -> float:
        """Return the estimated error of the readers' outputs with these factors."""
        step = 0.0
        if self._grid is not None:
            low, high = (self._channels.low / scale).min(), (self._channels.high / scale).max()
            step = float(np.max(numerics.qparams_from_range(low, high, self._grid).scale))
        error = 0.0
        for value, axis, placement in self._weights:
            scaled = value * along(scale, axis, value.ndim)
            error += step**2 / 12.0 * float(np.square(scaled).sum())
            if placement is not None:
                off = np.square(rounded(scaled.astype(np.float32), placement.quantizer) - scaled)
                per_channel = np.moveaxis(off, axis, 0).reshape(len(scale), -1).sum(axis=1)
                error += float((self._channels.square / np.square(scale) * per_channel).sum())
        return error


def _find_places(graph: ModelGraph) -> list[_Place]:
    places = []
    for node in graph.nodes:
        tensor = node.outputs[0] if len(node.outputs) == 1 else ""
        if (
            not tensor
            or tensor in graph.outputs
            or len(graph.calls(node.layer)) > 1
            or not _can_be_divided(node, len(graph.tensors[tensor].shape))
        ):
            continue
        readers = [_readers_of(graph, reader, index) for reader, index in graph.readers(tensor)]
        found = tuple(dict.fromkeys(each for group in readers if group is not None for each in group))
        if readers and all(group is not None for group in readers) and found:
            places.append(_Place(tensor, node, found))
    return places


def _can_be_divided(node: Node, rank: int) -> bool:
    """Return whether the output of a layer can be divided channel by channel by scaling the layer's own weights."""
    if node.is_operation or node.opaque or has_low_rank_update(node):
        return False
    if node.is_a(*_NORMS):
        names = {weight.name for weight in node.weights}
        axis = node.settings.get("axis", -1)
        axes = list(axis) if isinstance(axis, (list, tuple)) else [axis]
        # Without a gain there is no weight that could hold the factors; other axes are not the channels of the readers.
        return not names.isdisjoint(("gamma", "scale")) and [place % rank for place in axes] == [rank - 1]
    # A ReLU commutes with factors above 0.
    return node.class_name == "Dense" and node.activation_name in ("linear", "relu")


def _readers_of(graph: ModelGraph, node: Node, index: int) -> tuple[_Reader, ...] | None:
    """Return the weights that a layer multiplies a tensor with; None if it uses the tensor in any other way."""
    if node.is_operation or node.opaque or has_low_rank_update(node) or len(graph.calls(node.layer)) > 1:
        return None
    if node.is_a(*MULTI_HEAD_ATTENTION):
        named = node.arguments[index] if index < len(node.arguments) else ""
        if named not in ("query", "key", "value"):
            return None
        # Keras takes the value as the key if the call passes no key.
        parts = [named, *(["key"] if named == "value" and "key" not in node.arguments else [])]
        held = {weight.name for weight in node.weights}
        if not all(f"{part}/kernel" in held for part in parts):
            return None
        return tuple(_Reader(node.layer, f"{part}/kernel", 0) for part in parts)
    if node.class_name != "EinsumDense" and (
        node.class_name not in REWRITTEN
        or node.settings.get("data_format", "channels_last") != "channels_last"
        or node.settings.get("groups", 1) != 1
    ):
        return None
    axis = input_axis(node, "kernel")
    # An einsum may keep the last axis of its input.
    kept = node.class_name == "EinsumDense" and axis in (output_axes(node, "kernel") or ())
    return None if axis is None or kept else (_Reader(node.layer, "kernel", axis),)


def _measured(
    builder: Rebuilder, model: keras.Model, places: Sequence[_Place], data: Any, steps: int | None, batch_size: int
) -> dict[str, _Channels]:
    """Return the statistics of every channel of the places' tensors over data."""
    if not places:
        return {}
    function = functional_model(model.inputs, [builder.values[place.tensor] for place in places], name="channels")
    found: dict[str, list[Any]] = {}
    for position, inputs in enumerate(itertools.islice(input_batches(model, data, batch_size), steps)):
        with failures_named(inputs):
            values = keras.tree.flatten(function(inputs, training=False))
        for place, value in zip(places, values, strict=True):
            name, array = place.tensor, np.asarray(value, np.float64)
            if not np.isfinite(array).all():
                raise DataError(
                    f"Tensor {name!r} holds NaN or infinity on these data, so its channels have no range; drop such "
                    f"samples, or look for the layer that makes it. Received: batch {position}"
                )
            mask = mask_of(value, *(builder.clones[reader.layer] for reader in place.readers))
            # Ranges cover padding, as those of `calibrate` do; errors of padded positions do not count.
            rows, read, valid = all_rows_of(array, None if mask is None else np.asarray(mask))
            now = [rows.min(axis=0), rows.max(axis=0), np.square(read).sum(axis=0), valid.sum(axis=0)]
            old = found.get(name)
            merge = (np.minimum, np.maximum, np.add, np.add)
            found[name] = now if old is None else [join(a, b) for join, a, b in zip(merge, old, now, strict=True)]
    for name, (*_, count) in found.items():
        if not count.any():
            raise DataError(
                "The channels of a tensor have no mean square where its mask leaves out all values; give samples that "
                f"are not padding alone. Received: no value of {name!r}"
            )
    return {
        name: _Channels(low, high, square / np.maximum(count, 1)) for name, (low, high, square, count) in found.items()
    }


def _rows(values: Floats, axis: int) -> Floats:
    """Return the absolute weights of every channel as rows."""
    return np.abs(np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1))


def _divide(layer: Any, factor: Floats) -> None:
    """Multiply the output of a layer, channel by channel, by factors above 0 (its weights and bias are scaled)."""
    for variable in layer.variables:
        if variable.name in ("gamma", "beta", "scale", "kernel", "bias"):
            multiply(variable, factor, -1)
