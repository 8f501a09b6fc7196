"""`diagnose`: find the causes of a quantized model's loss against its float model, with fixes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from qdq_workbench._progress import ProgressFunction, check_functions, shown_progress
from qdq_workbench.analysis.metrics import get_metric
from qdq_workbench.analysis.samples import read_samples
from qdq_workbench.analysis.sensitivity import calibrated
from qdq_workbench.analysis.switches import Switch
from qdq_workbench.diagnosis import activations, norms, weights
from qdq_workbench.diagnosis.evidence import Evidence, Noise, read_evidence
from qdq_workbench.diagnosis.finding import Detector, Finding
from qdq_workbench.diagnosis.report import Cause, Diagnosis, Patient
from qdq_workbench.errors import DataError
from qdq_workbench.placement.plan import PlacementPlan

#: Each site counts for the first detector that explains it: problems of the data come before those of a grid, and the
#: range of a grid before its number of bits.
DETECTORS: tuple[Detector, ...] = (
    activations.data_range,
    norms.stale_statistics,
    activations.few_samples,
    activations.softmax_or_logits,
    activations.unfolded_normalization,
    activations.unbalanced_inputs,
    activations.negative_tail,
    activations.outlier_channel,
    activations.wide_range,
    weights.dead_channels,
    weights.unequal_channels,
    weights.outlying_weights,
    activations.coarse_activation,
    weights.coarse_weights,
)
_LEAST_SHARE = 0.02
# Most sites have no cause but their grid, so that only the largest of these are reported.
_MOST_COARSE = 3


def diagnose(
    model: keras.Model,
    data: Any,
    *,
    plan: PlacementPlan | None = None,
    metric: Any = None,
    calibration_data: Any = None,
    batch_size: int = 32,
    steps: int | None = None,
    progress: ProgressFunction | None = None,
    stop: Callable[[], bool] | None = None,
    verbose: bool = True,
) -> Diagnosis:
    """Find the causes of a quantized model's loss against its float model.

    Every site (the inputs, the weights, the output of a layer) is quantized alone to measure its share of the error of
    the outputs. The data, the ranges, the weights and the plan are then checked for known causes: outlier channels and
    weights, dead channels that set a scale, unequal channels of a depthwise kernel, unbalanced inputs of a sum or
    concatenation, short negative sides (swish) on symmetric grids, normalizations that are not folded or whose
    statistics do not fit the data, quantized softmax or logits, too few calibration samples, data in another range
    than calibrated. Causes are ranked by the share of the error at their sites. For sites without a known cause the
    grid is reported as too coarse.

    Args:
        model: A float Keras model, which is quantized and calibrated inside; or a calibrated model made by
            `quantize_model`.
        data: Samples, as for `calibrate`: a few hundred samples like those on which the loss was observed. With
            labels, `(inputs, labels)`, the loss is measured as accuracy.
        plan: The plan that a float model is quantized by; None for the default plan.
        metric: As for `sensitivity`; None for "accuracy" if there are labels, else "sqnr".
        calibration_data: The data that a float model and fixes are calibrated on; None for `data`. Where these data
            may be the cause, `apply` tries `data`, too.
        batch_size: How many samples of an array make a batch, at least 1.
        steps: How many batches of `data` to read at most, at least 1; None for all.
        progress: Called with the number of sites measured, their total (0 while it is not known), and the layer's name
            or another step, instead of a progress bar.
        stop: Called before every site; when it returns True, the diagnosis uses the sites measured so far.
        verbose: Whether to show a progress bar where there is no `progress`.

    Returns:
        The likely causes, the largest share first; its method `apply` removes them and measures the gain.

    Raises:
        DataError: If the data do not fit the model, the metric or what it needs is missing, or `batch_size` or `steps`
            is out of its range.
        SpecError: If nothing is quantized, or a quantized model is given another plan than its own.
        UnsupportedModelError: If a float model's graph cannot be read.
        UnbuiltModelError: If a float model does not know its input shape.
        UncalibratedError: If a quantized model has no ranges yet.

    Example:
        >>> keras.utils.set_random_seed(0)
        >>> image = keras.Input((8,), name="image")
        >>> hidden = keras.layers.Dense(8, name="hidden")(image)
        >>> model = keras.Model(image, keras.layers.Dense(2, name="head")(hidden))
        >>> x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
        >>> x[:, 3] *= 100.0
        >>> model.get_layer("hidden").kernel[3].assign(model.get_layer("hidden").kernel[3] / 100.0).shape
        TensorShape([8, 8])
        >>> diagnosis = diagnose(model, x, verbose=False)
        >>> diagnosis.causes[0].kind, diagnosis.causes[0].tensor
        ('outlier_channel', 'image')
    """
    check_functions(progress=progress, stop=stop)
    samples = read_samples(model, data, batch_size, steps)
    measure = get_metric(metric if metric is not None else "sqnr" if samples.labels is None else "accuracy")
    if isinstance(calibration_data, Iterator):  # fixes read it again
        calibration_data = read_samples(model, calibration_data, batch_size, steps).batches
    with shown_progress(progress, f"Diagnosis of {model.name}", verbose=verbose) as show:
        show(0, 0, "the quantized model")
        q_model, _ = calibrated(model, plan, samples, calibration_data, batch_size)
        show(0, 0, "the outputs of the float model and of the quantized one")
        noise = Noise(q_model, samples)
        if not all(np.isfinite(array).all() for array in noise.reference):
            raise DataError(
                "The float model's outputs on these data are not finite, so nothing can be compared with them. Check "
                f"the data and the model. Received: NaN or infinity in the outputs of {q_model.name!r}"
            )
        sites = len(noise.switches)
        everything = frozenset(noise.switches)
        of_weights = frozenset(switch for switch in everything if switch[1] == "weight")
        values = []
        for on, text in (
            (frozenset(), "the float model"),
            (everything, "all sites"),
            (of_weights, "all weights"),
            (everything - of_weights, "all activations"),
        ):
            show(0, sites, text)
            values.append(noise.value(measure, on))
        complete = noise.measure_each(show, stop or (lambda: False))
        show(len(noise.of), sites, "the causes")
        findings = likely_causes(read_evidence(q_model, samples, noise))
    return Diagnosis(
        model=model.name,
        target=q_model.target,
        metric=measure.name,
        unit=measure.unit,
        higher_is_better=measure.higher_is_better,
        float_value=values[0],
        quantized_value=values[1],
        weights_value=values[2],
        activations_value=values[3],
        noise=noise.total,
        weights_share=noise.share(of_weights),
        samples=samples.count,
        causes=tuple(_cause(finding, share) for share, finding in findings),
        complete=complete,
        patient=Patient(
            q_model,
            samples,
            samples.batches if calibration_data is None else calibration_data,
            measure,
            noise.reference,
        ),
    )


def likely_causes(evidence: Evidence) -> list[tuple[float, Finding]]:
    """Return the findings of all detectors with their shares of the error, largest first; each site counts once."""
    taken: set[Switch] = set()
    found: list[tuple[float, Finding]] = []
    for detector in DETECTORS:
        # Within one detector the largest share goes first, because two pairs may serve one site.
        findings = sorted(detector(evidence), key=lambda finding: -evidence.noise.share(finding.switches))
        for finding in findings:
            if finding.kind == "stale_statistics" and any(each.kind == "data_range" for _, each in found):
                continue  # the statistics fit the model's own data
            share = evidence.noise.share(finding.switches - taken) if finding.share is None else finding.share
            # Also below the least share: an explained site does not count for a later detector.
            taken |= finding.switches
            if share >= _LEAST_SHARE:
                found.append((share, finding))
    ranked = sorted(found, key=lambda each: -each[0])
    coarse = [each for each in ranked if each[1].kind == "coarse_grid"][_MOST_COARSE:]
    return [each for each in ranked if each not in coarse]


def _cause(finding: Finding, share: float) -> Cause:
    return Cause(
        kind=finding.kind,
        layer=finding.layer,
        tensor=finding.tensor,
        share=share,
        evidence=finding.evidence,
        fix=finding.fixes[0].text,
        fixes=finding.fixes,
        changes_function=finding.changes_function,
    )
