"""`calibrate`: give every activation quantizer a range, by running data through the float model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from qdq_workbench.calibration.batches import input_batches
from qdq_workbench.calibration.observers import Histogram, Observer, make_observer
from qdq_workbench.calibration.observers.power_of_two import kind_of_rounding, rounded_up
from qdq_workbench.calibration.result import CalibrationResult
from qdq_workbench.conversion.float_view import float_view
from qdq_workbench.conversion.quantized_model import QuantizedModel, check_quantized
from qdq_workbench.errors import DataError
from qdq_workbench.placement.targets import get_target
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_ENDS_ARE_ENOUGH = ("minmax", "moving_average", "power_of_two")


def calibrate(
    q_model: QuantizedModel,
    data: Any,
    method: str = "minmax",
    *,
    steps: int | None = None,
    batch_size: int = 32,
    freeze: bool = True,
    verbose: bool = True,
    on_batch: Callable[[int], Any] | None = None,
    power_of_two: bool | str = False,
    histograms: bool = False,
    **settings: Any,
) -> CalibrationResult:
    """Give the activation quantizers of a model their ranges, in one pass over data.

    The data run through the float model (quantization is switched off meanwhile). The range of *every* activation
    tensor is recorded, quantized or not, so that the model can later be planned and exported for another target
    without data. Weights, batch normalizations, dropout and the optimizer are not touched. Quantizers whose range is
    known beforehand (`FixedQuantizer`) keep it.

    Methods: "minmax" (all values), "moving_average" (`momentum=`), "percentile" (`percentile=`), the least error on
    the tensor's grid as "mse", "mae", "lp" (`p=`) or "kl" (each with `candidates=`), "entropy" (ONNX Runtime's rules;
    `num_bins=`, `num_quantized_bins=`), "power_of_two". Those that minimise an error do so for the grid of this
    model's target.

    Args:
        q_model: A model made by `quantize_model`.
        data: An array of samples, a `tf.data.Dataset`, or an iterable of batches; labels are ignored. A few
            hundred samples like those of production are enough.
        method: Name of the method; see above.
        steps: How many batches to read at most; None for all.
        batch_size: How many samples of an array make a batch.
        freeze: Whether training keeps the ranges that are found; else it continues them as moving averages. A learned
            step (`LSQQuantizer`) goes on learning either way, unless its layer is frozen.
        verbose: Whether to show progress.
        on_batch: Called with the number of batches read, after each; return False to stop there.
        power_of_two: Round the thresholds that the method finds up to powers of two; "scale" makes the scales of the
            grids powers of two rather than the ends of the ranges.
        histograms: Collect the histogram of every tensor, for plots, under any method.
        **settings: Settings of the method, such as `percentile=99.99`.

    Returns:
        The ranges found. Results of parts of the data can be merged; see `CalibrationResult.merge`.

    Raises:
        DataError: If there is no data, a batch has the wrong shape, a tensor holds NaN or infinity, or the method
            is unknown. The model is then unchanged.
        NotQuantizedError: If the model was not made by `quantize_model`.

    Example:
        >>> from qdq_workbench import quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> q_model = quantize_model(keras.Model(image, keras.layers.Dense(1, name="head")(image)))
        >>> calibrate(q_model, np.array([[0.0, -1.0], [2.0, 0.5]]), verbose=False).ranges["image"]
        (-1.0, 2.0)
    """
    check_quantized(q_model)
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 1):
        raise DataError(f"steps must be an integer from 1 on, or None for all batches. Received: steps={steps!r}")
    rounding = kind_of_rounding(power_of_two)
    probe = _Probe(q_model, method, settings, histograms=histograms)
    samples = 0
    with _quantization_off(q_model), _progress(q_model, data, steps, verbose) as advance:
        for position, inputs in enumerate(input_batches(q_model, data, batch_size)):
            probe.read(inputs)
            samples += int(np.shape(inputs[0])[0])
            advance()
            stop = on_batch is not None and on_batch(position + 1) is False
            if stop or (steps is not None and position + 1 >= steps):
                break
    ranges = {**probe.ranges(rounding), **_known_ranges(q_model)}
    settings = settings if rounding is None else {**settings, "power_of_two": rounding}
    result = CalibrationResult(method, settings, ranges, probe.batches, samples, probe.states())
    apply_calibration(q_model, result, freeze=freeze)
    return result


def apply_calibration(q_model: QuantizedModel, result: CalibrationResult, *, freeze: bool = True) -> None:
    """Give a model the ranges of an earlier calibration of the same network.

    Args:
        q_model: A model made by `quantize_model`.
        result: What `calibrate` returned.
        freeze: Whether training keeps these ranges.

    Quantizers whose range is known beforehand (`FixedQuantizer`) keep it.

    Raises:
        DataError: If the result lacks a tensor that the model quantizes. The model is then unchanged.
    """
    check_quantized(q_model)
    if not isinstance(result, CalibrationResult):
        raise DataError(
            "A calibration result is needed; pass what calibrate returned, or CalibrationResult.load(path). "
            f"Received: {type(result).__name__}"
        )
    layers = [layer for layer in q_model.activation_quantizers if layer.quantizer.updates_range]
    wanted = [tensor for layer in layers for tensor in q_model.tensors_of(layer)]
    missing = [tensor for tensor in wanted if tensor not in result.ranges]
    if missing:
        raise DataError(
            "The calibration result is of another network: it has no range for a tensor that this model quantizes. "
            f"Run calibrate on this model. Received: no range for {missing[:3]}"
        )
    for layer in layers:
        ends = [result.ranges[tensor] for tensor in q_model.tensors_of(layer)]
        layer.set_range(min(low for low, _ in ends), max(high for _, high in ends))
        layer.frozen.assign(freeze and not layer.quantizer.is_learned)
    described = {"method": result.method, "settings": dict(result.settings), "samples": result.samples}
    q_model.record(result.ranges, {**described, "batches": result.batches})


class _Probe:
    """The float model with all its activation tensors as outputs, and an observer for each."""

    def __init__(self, q_model: QuantizedModel, method: str, settings: dict[str, Any], *, histograms: bool) -> None:
        view = float_view(q_model)
        known = _known_ranges(q_model)
        floats = [name for name, tensor in view.tensors.items() if _is_float(tensor) and name not in known]
        self._specs = _grids(q_model, floats)
        self.observers: dict[str, Observer] = {
            name: make_observer(method, name, self._specs[name], **settings) for name in floats
        }
        self._histograms = {name: Histogram() for name in floats} if histograms else {}
        self._dtypes = [tensor.dtype for tensor in q_model.inputs]
        seen = [view.tensors[name] for name in floats] or q_model.outputs  # a model of integers has no float tensor
        function = keras.Model(q_model.inputs, seen, name="calibration_probe")
        ends_only = method in _ENDS_ARE_ENOUGH and not histograms

        @tf.function(reduce_retracing=True)
        def run(inputs: list[Any]) -> list[Any]:
            values = keras.tree.flatten(function(inputs, training=False))[: len(floats)]
            values = [tf.cast(value, tf.float32) for value in values]
            return [_ends(value) for value in values] if ends_only else values

        self._run = run
        self.batches = 0

    def read(self, inputs: list[Any]) -> None:
        """Run one batch and hand every tensor to its observer."""
        tensors = [tf.cast(tf.convert_to_tensor(x), dtype) for x, dtype in zip(inputs, self._dtypes, strict=True)]
        for (name, observer), values in zip(self.observers.items(), self._run(tensors), strict=True):
            array = values.numpy()
            observer.update(array)
            if name in self._histograms:
                self._histograms[name].add(array)
        self.batches += 1

    def ranges(self, rounding: str | None) -> dict[str, tuple[float, float]]:
        """Return the range of every tensor that was read."""
        found = {name: observer.range() for name, observer in self.observers.items()}
        if rounding is None:
            return found
        return {name: rounded_up(ends, self._specs[name], rounding) for name, ends in found.items()}

    def states(self) -> dict[str, dict[str, Any]]:
        """Return what the observers have seen, JSON-compatible; nothing of observers that do not implement it."""
        states = {}
        for name, observer in self.observers.items():
            if type(observer).state is Observer.state:
                continue
            states[name] = {**observer.state(), "spec": self._specs[name].to_dict()}
            if name in self._histograms:
                states[name].setdefault("histogram", self._histograms[name].state())
        return states


def _grids(q_model: QuantizedModel, tensors: list[str]) -> dict[str, QuantizerSpec]:
    """Return the grid of every tensor; that of the target's activations where none is planned."""
    planned = {tensor.name: tensor.quantizer for tensor in q_model.plan.tensors if tensor.kind == "activation"}
    usual = get_target(q_model.target).activation
    return {name: planned.get(name, usual) for name in tensors}


def _known_ranges(q_model: QuantizedModel) -> dict[str, tuple[float, float]]:
    """Return the ranges that were known before any data, by tensor."""
    known = {}
    for layer in q_model.activation_quantizers:
        if not layer.quantizer.updates_range and layer.range is not None:
            known.update(dict.fromkeys(q_model.tensors_of(layer), layer.range))
    return known


def _ends(x: Any) -> Any:
    """Return the lowest and the highest value of a tensor; NaN where any value is NaN."""
    worst = tf.where(tf.reduce_any(tf.math.is_nan(x)), tf.constant(np.nan, tf.float32), 0.0)
    return tf.stack([tf.reduce_min(x) + worst, tf.reduce_max(x) + worst])


def _is_float(tensor: Any) -> bool:
    empty = 0 in tensor.shape  # no values, no range
    return not empty and "float" in keras.backend.standardize_dtype(tensor.dtype)


@contextmanager
def _quantization_off(q_model: QuantizedModel) -> Iterator[None]:
    """Switch every quantizer off, and back to what it was; by their variables, so that nothing is retraced."""
    layers = q_model.quantizing_layers
    before = [bool(layer.enabled.numpy()) for layer in layers]
    try:
        for layer in layers:
            layer.enabled.assign(value=False)
        yield
    finally:
        for layer, on in zip(layers, before, strict=True):
            layer.enabled.assign(on)


@contextmanager
def _progress(q_model: QuantizedModel, data: Any, steps: int | None, verbose: bool) -> Iterator[Callable[[], None]]:
    """Show a progress bar; yields the function that moves it on by one batch."""
    if not verbose:
        yield lambda: None
        return
    total = steps
    if (
        total is None
        and hasattr(data, "__len__")
        and not isinstance(data, (dict, tuple))
        and not hasattr(data, "dtype")
    ):
        total = len(data)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        task = progress.add_task(f"Calibrating {q_model.name} (batches)", total=total)
        yield lambda: progress.advance(task)
