"""`calibrate`: set the range of every activation quantizer by running data through the float model."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from qdq_workbench._interrupts import interrupts_held, interrupts_released, safe_point
from qdq_workbench._progress import is_count
from qdq_workbench.calibration.batches import batch_count, input_batches
from qdq_workbench.calibration.checkpoint import CalibrationCheckpoint, calibration_mark
from qdq_workbench.calibration.data_scale import input_ranges, warn_of_scale
from qdq_workbench.calibration.observers.power_of_two import kind_of_rounding
from qdq_workbench.calibration.probe import Probe, known_ranges
from qdq_workbench.calibration.result import CalibrationResult
from qdq_workbench.calibration.training_mode import FirstSamples, warn_of_unsettled
from qdq_workbench.conversion.engine.quantized_model import BEGINS_ANEW, QuantizedModel, check_quantized
from qdq_workbench.errors import DataError


def calibrate(
    q_model: QuantizedModel,
    data: Any,
    method: str = "minmax",
    *,
    steps: int | None = None,
    batch_size: int = 32,
    freeze: bool | None = None,
    verbose: bool = True,
    on_batch: Callable[[int], Any] | None = None,
    power_of_two: bool | str = False,
    histograms: bool = False,
    checkpoint: str | pathlib.Path | None = None,
    **settings: Any,
) -> CalibrationResult:
    """Set the ranges of a model's activation quantizers, in one pass over data.

    The data run through the float model in inference mode; its compiled function is kept for later calls. The range
    of *every* activation tensor is recorded, quantized or not, so that the model can later be planned and exported for
    another target without data. Weights, moving statistics and optimizer do not change. Quantizers with a fixed range
    (`FixedQuantizer`) keep it.

    Positions that a mask leaves out, such as the padding of sequences, count: the exported file computes them on the
    same grids, and a layer that does not support masking reads them. A method that cuts ranges weighs them like other
    values, so give it samples with no more padding than production has.

    Methods: "minmax" (all values), "moving_average" (`momentum=0.9`, at least 0 and below 1), "percentile"
    (`percentile=99.99`, above 0, at most 100); the least error on the tensor's own grid by "mse", "mae", "lp"
    (`p=2.0`, above 0) or "kl" (each with `candidates=100`, at least 2); "entropy" (ONNX Runtime's rules;
    `num_bins=2048`, even, and `num_quantized_bins=128`, from 2 to `num_bins`); "power_of_two" (all values, with the
    threshold rounded up).

    Args:
        q_model: A model made by `quantize_model`.
        data: An array of samples (along the first axis; real numbers of any type), one array per input, a
            `tf.data.Dataset`, a Keras `PyDataset`, or an iterable of batches; labels are ignored. A few hundred
            samples that resemble production data are enough.
        method: Name of the method; see above.
        steps: The maximum number of batches, at least 1; None for all.
        batch_size: The batch size for data given as arrays, at least 1.
        freeze: Whether training keeps the calibrated ranges; if False, each quantizer's method continues to update
            them. A learned step (`LSQQuantizer`) is trained either way, unless its layer is frozen. By default
            training keeps them, unless the moving statistics of batch normalizations are far from the data: `fit`
            then determines all ranges except those of the inputs again.
        verbose: Whether to show a progress bar.
        on_batch: Called after each batch with the number of batches read; return False to stop there.
        power_of_two: Round the thresholds that the method finds up to powers of two (True or "threshold"); "scale"
            makes the scales of the grids powers of two instead of the ends of the ranges.
        histograms: Collect the histogram of every tensor, for plots, under any method.
        checkpoint: A JSON file, written about every second and at the end; if it exists, the batches that it stands
            for are read again, but not computed. It belongs to one model, its weights, method and settings, and to
            data in one order; more data may follow.
        **settings: Settings of the method, such as `percentile=99.99`.

    Returns:
        The ranges. Results of parts of the data can be merged; see `CalibrationResult.merge`.

    Raises:
        DataError: If there is no data, a batch has the wrong shape, a tensor holds NaN or infinity, the method or a
            setting is unknown, or a number is out of its range. The model is then unchanged.
        NotQuantizedError: If the model was not made by `quantize_model`.
        CheckpointError: If the checkpoint is of another model, other data or other settings.
        OutputPathError: If the checkpoint cannot be written.

    Warns:
        UnsettledStatisticsWarning: If the moving statistics of batch normalizations are those of an untrained model,
            or of other data, so that tensors have other ranges in training than at inference.
        DataScaleWarning: If the model was calibrated before, on data that were many times larger or smaller.

    Example:
        >>> import keras
        >>> from qdq_workbench import quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> q_model = quantize_model(keras.Model(image, keras.layers.Dense(1, name="head")(image)))
        >>> calibrate(q_model, np.array([[0.0, -1.0], [2.0, 0.5]]), verbose=False).ranges["image"]
        (-1.0, 2.0)
    """
    check_quantized(q_model)
    if steps is not None and not is_count(steps):
        raise DataError(f"steps must be an integer from 1 on, or None for all batches. Received: steps={steps!r}")
    rounding = kind_of_rounding(power_of_two)
    # The result is saved as JSON, which has no numbers of NumPy.
    settings = {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}
    # `before` is read here because `apply_calibration` replaces the recorded ranges.
    known, before = known_ranges(q_model), input_ranges(q_model)
    # `islice` takes no batch beyond `steps` from the caller's iterator; a `break` in the loop would take one.
    batches: Iterator[Sequence[Any]] = itertools.islice(input_batches(q_model, data, batch_size), steps)
    total = _total(q_model, data, steps, batch_size)
    probe = Probe(q_model, method, settings, known=known, histograms=histograms, batches=total)
    first = FirstSamples(q_model)
    saved = _checkpoint(q_model, checkpoint, probe, (method, settings, known, histograms))
    with interrupts_held(), _progress(q_model.name, total, verbose=verbose) as advance:

        def took(inputs: Sequence[Any]) -> None:
            first.add(inputs)
            advance()
            safe_point()

        batches = saved.behind(batches, took)
        # `on_batch` may stop after any batch, so no batch may be read ahead of it from the caller's iterator.
        for inputs in probe.read_all(batches, ahead=on_batch is None):
            saved.add(inputs, probe.states)
            took(inputs)
            if on_batch is not None:
                with interrupts_released():
                    goes_on = on_batch(probe.batches)
                if goes_on is False:
                    break
        saved.write(probe.states())
    # Known ranges are not rounded: their quantizers keep the range that the user gave.
    ranges = {**probe.ranges(rounding), **known}
    settings = settings if rounding is None else {**settings, "power_of_two": rounding}
    with interrupts_held():
        unsettled = first.unsettled()
    result = CalibrationResult(method, settings, ranges, probe.batches, saved.samples, probe.states(), unsettled)
    apply_calibration(q_model, result, freeze=freeze)
    # The new ranges stand for the data, which an iterator may not yield a second time.
    warn_of_scale(before, [[np.array(ranges.get(name, (0.0, 0.0)), np.float32) for name in before]], replaces=True)
    if result.in_training:
        warn_of_unsettled(result.in_training, begins_anew=freeze is not True)
    return result


def apply_calibration(q_model: QuantizedModel, result: CalibrationResult, *, freeze: bool | None = None) -> None:
    """Set the activation ranges of a model from an earlier calibration of the same network.

    Quantizers with a fixed range (`FixedQuantizer`) keep it.

    Args:
        q_model: A model made by `quantize_model`.
        result: The result of `calibrate`, or of `CalibrationResult.load`.
        freeze: Whether training keeps these ranges; by default as in `calibrate`.

    Raises:
        DataError: If `result` is not a calibration result, or has no range for a tensor that the model quantizes. The
            model is then unchanged.
        NotQuantizedError: If the model was not made by `quantize_model`.
    """
    check_quantized(q_model)
    if not isinstance(result, CalibrationResult):
        raise DataError(
            "A calibration result is needed; pass what calibrate returned, or CalibrationResult.load(path). "
            f"Received: {type(result).__name__}"
        )
    layers = [layer for layer in q_model.activation_quantizers if layer.quantizer.updates_range]
    missing = [tensor for layer in layers for tensor in q_model.tensors_of(layer) if tensor not in result.ranges]
    if missing:
        raise DataError(
            "The calibration result is of another network: it has no range for a tensor that this model quantizes. "
            f"Run calibrate on this model. Received: no range for {missing[:3]}"
        )
    with interrupts_held():
        for layer in layers:
            named = zip(q_model.pairs_of(layer), q_model.tensors_of(layer), strict=True)
            # A further pair (`conv@2`) has a range of its own only if its grid differs from that of the first pair.
            ends = [result.ranges.get(pair) or result.ranges[tensor] for pair, tensor in named]
            # The tensors of a scale group share one layer, so its range must cover all of them.
            layer.set_range(min(low for low, _ in ends), max(high for _, high in ends))
        begins_anew = bool(result.in_training) and freeze is not True
        # No normalization stands in front of the inputs, so their ranges hold in training too.
        following = q_model.layers_behind_inputs() if freeze is None and begins_anew else []
        for layer in layers:
            keeps = freeze is not False and layer not in following
            # `frozen` would stop the gradient of a learned step.
            layer.frozen.assign(keeps and not layer.quantizer.is_learned)
        described = {"method": result.method, "settings": dict(result.settings), "samples": result.samples}
        described |= {BEGINS_ANEW: True} if begins_anew else {}
        q_model.record(result.ranges, {**described, "batches": result.batches})


def _checkpoint(
    q_model: QuantizedModel, path: str | pathlib.Path | None, probe: Probe, what: tuple[Any, ...]
) -> CalibrationCheckpoint:
    """Return the checkpoint of a calibration, whose statistics the observers of the probe have then."""
    if path is None:
        return CalibrationCheckpoint(None, "")
    grids = probe.grids_for_states()
    saved = CalibrationCheckpoint(path, calibration_mark(q_model, grids, *what))
    if saved.batches:
        saved.restore(probe.resume)
    return saved


def _total(q_model: QuantizedModel, data: Any, steps: int | None, batch_size: int) -> int | None:
    """Return the number of batches that will be read; None if it is unknown."""
    count = batch_count(q_model, data, batch_size)
    return min((number for number in (count, steps) if number is not None), default=None)


@contextmanager
def _progress(model: str, total: int | None, *, verbose: bool) -> Iterator[Callable[[], None]]:
    """Show a progress bar; yield the function that advances it by one batch."""
    if not verbose:
        yield lambda: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        task = progress.add_task(f"Calibrating {model} (batches)", total=total)
        yield lambda: progress.advance(task)
