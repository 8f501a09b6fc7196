"""`sensitivity`: how much the quantization of each single layer changes what a model computes."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras

from qdq_workbench._files import check_place
from qdq_workbench._progress import ProgressFunction, check_functions, shown_progress
from qdq_workbench.analysis.fingerprint import fingerprint
from qdq_workbench.analysis.metrics import METRICS, get_metric
from qdq_workbench.analysis.samples import HashedBatches, Samples, read_samples
from qdq_workbench.analysis.sensitivity_report import MODES, SensitivityEntry, SensitivityReport
from qdq_workbench.analysis.switches import SITES, Switch
from qdq_workbench.analysis.workers import Choice, Measurer, Task, check_workers, measured
from qdq_workbench.calibration import calibrate
from qdq_workbench.calibration.batches import input_batches
from qdq_workbench.conversion.engine.quantize_model import quantize_model
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import CheckpointError, DataError, ModeError, SpecError, UncalibratedError, nearest_names
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.settings import config_of


def sensitivity(
    model: keras.Model,
    data: Any,
    *,
    plan: PlacementPlan | None = None,
    mode: str = "one_on",
    metric: Any = "sqnr",
    sites: Sequence[str] = SITES,
    layers: Sequence[str] | None = None,
    calibration_data: Any = None,
    batch_size: int = 32,
    steps: int | None = None,
    n_jobs: int | None = None,
    checkpoint: str | pathlib.Path | None = None,
    progress: ProgressFunction | None = None,
    stop: Callable[[], bool] | None = None,
    verbose: bool = True,
) -> SensitivityReport:
    """Measure how much the quantization of each layer changes a model's outputs.

    Every layer is switched by itself in one copy of the model, which is built and traced once. Switching a layer
    switches everything that the plan quantizes at it: its operands (other readers of the same tensor keep the float
    value), its weights, and the pair on its output. The model itself is only read.

    Args:
        model: A float Keras model, which is quantized and calibrated inside; or a calibrated model made by
            `quantize_model`.
        data: Samples to compare on, as for `calibrate`; `(inputs, labels)` for metrics that need labels.
        plan: The plan that a float model is quantized by; None for the default plan.
        mode: "one_on": only this layer is quantized. "one_off": all layers but this one are.
        metric: "sqnr" (dB), "mse" (squared units of the outputs), "kl" (nats), "cosine" (-1 to 1), "accuracy" (top-1,
            0 to 1), a `Metric`, or a function of the float and the quantized outputs, and of the labels if it takes
            three arguments.
        sites: The sites that are switched: any of "input", "weight", "output"; the others stay in float.
        layers: The layers to measure; None for all that the plan quantizes, except those whose pairs exist only
            because the target requires them.
        calibration_data: The data that a float model is calibrated on; None for `data`.
        batch_size: How many samples of an array make a batch, at least 1.
        steps: How many batches of `data` to read at most, at least 1; None for all.
        n_jobs: How many workers measure at once, -1 for one per processor; None for the number of
            `joblib.parallel_config`, else 1.
        checkpoint: A JSON file, written after every layer; if it exists, the sweep continues from it. It belongs to
            one model (graph, weights and ranges), plan, data set and metric; a function is identified by its code and
            the values that it refers to.
        progress: Called with the number of layers done, their total, and the layer's name, instead of a progress bar.
        stop: Called before every layer; when it returns True, the sweep ends with the layers measured so far.
        verbose: Whether to show a progress bar where there is no `progress`.

    Returns:
        The value of every layer, to be ranked, plotted and applied.

    Raises:
        ModeError: If the mode is unknown.
        DataError: If the data do not fit the model, the metric or what it needs is missing, or `batch_size`, `steps`
            or `n_jobs` is out of its range.
        SpecError: If a layer or a site is unknown, nothing is quantized, or a quantized model is given another plan
            than its own.
        UnsupportedModelError: If a float model's graph cannot be read.
        UnbuiltModelError: If a float model does not know its input shape.
        UncalibratedError: If a quantized model has no ranges yet.
        CheckpointError: If the checkpoint is of another model, other data or other settings.
        OutputPathError: If the checkpoint cannot be written.
        WorkerError: If a worker process ends before its work does; the checkpoint has what was measured.

    Example:
        >>> import numpy as np
        >>> keras.utils.set_random_seed(0)
        >>> image = keras.Input((4,), name="image")
        >>> hidden = keras.layers.Dense(8, activation="relu", name="hidden")(image)
        >>> model = keras.Model(image, keras.layers.Dense(2, name="head")(hidden))
        >>> report = sensitivity(model, np.random.default_rng(0).normal(size=(64, 4)), verbose=False)
        >>> sorted(entry.layer for entry in report.ranked()), report.unit
        (['head', 'hidden'], 'dB')
    """
    if mode not in MODES:
        raise ModeError(f"mode must be one of {', '.join(map(repr, MODES))}. Received: mode={mode!r}")
    check_functions(progress=progress, stop=stop)
    check_workers(n_jobs)
    measure = get_metric(metric)
    sites = _checked_sites(sites)
    samples = read_samples(model, data, batch_size, steps)
    q_model, calibrated_on = calibrated(model, plan, samples, calibration_data, batch_size)
    names = chosen_layers(q_model.plan, sites, layers)
    everything = frozenset((p.layer, p.site) for p in q_model.plan.placements if p.site in sites)
    task = Task(measure, frozenset() if mode == "one_on" else everything)
    choices = {name: _choice(name, mode, everything) for name in names}
    settings = {"mode": mode, "metric": measure.name, "sites": sites, "ranges": calibrated_on}
    mark = fingerprint(model, q_model.plan, samples, settings, measure)
    with shown_progress(progress, f"Sensitivity of {model.name}", verbose=verbose) as show:
        found = _resumed(checkpoint, mark)
        show(0, len(names), "")
        first = Measurer(q_model, samples, task)
        report = SensitivityReport(
            model=model.name,
            mode=mode,
            metric=measure.name,
            unit=measure.unit,
            higher_is_better=measure.higher_is_better,
            sites=sites,
            entries=(),
            float_value=first.measure(frozenset()),
            quantized_value=first.measure(everything),
            samples=samples.count,
            fingerprint=mark,
            own_metric=measure is not METRICS.get(measure.name),
        )

        def with_values(values: dict[str, float]) -> SensitivityReport:
            return _filled(report, q_model.plan, names, values)

        missing = [name for name in names if name not in found]
        results = measured(first, q_model, samples, task, [choices[name] for name in missing], n_jobs)
        values = {name: value for name, value in found.items() if name in choices}
        # Not a loop over the results: `stop` is asked before the next layer is measured.
        while len(values) < len(names) and not (stop is not None and stop()):
            position, value = next(results)
            values[missing[position]] = value
            if checkpoint is not None:
                with_values(values).save(checkpoint)
            show(len(values), len(names), missing[position])
        results.close()
    return with_values(values)


def calibrated(
    model: Any, plan: PlacementPlan | None, samples: Samples, calibration_data: Any, batch_size: int
) -> tuple[QuantizedModel, str]:
    """Return a model with ranges, the given one or a float model quantized by the plan, and a hash of its own data."""
    digest = ""
    if isinstance(model, QuantizedModel) and model.has_plan:
        if plan is not None and plan != model.plan:
            raise SpecError(
                "The model is quantized by another plan already. Leave plan=None, or pass its float model, "
                f"qdq_workbench.strip(q_model). Received: a plan for the quantized model {model.name!r}"
            )
        missing = model.uncalibrated_tensors()
        if missing:
            raise UncalibratedError(
                "The quantized model has tensors without a range. Run calibrate(q_model, data) first. "
                f"Received: no range for {missing[:3]}"
            )
        q_model = model
    else:
        q_model = quantize_model(model, plan=plan)
        if calibration_data is None:
            calibrate(q_model, samples.batches, batch_size=batch_size, verbose=False)
        else:
            source = HashedBatches(input_batches(q_model, calibration_data, batch_size))
            calibrate(q_model, source, batch_size=batch_size, verbose=False)
            digest = source.digest()
    if not q_model.plan.placements:
        raise SpecError(f"The plan quantizes nothing, so there is nothing to measure. Received: model {model.name!r}")
    return q_model, digest


def _checked_sites(sites: Any) -> tuple[str, ...]:
    given = (sites,) if isinstance(sites, str) else tuple(sites)
    if not given or not set(given) <= set(SITES):
        raise SpecError(f"sites must be some of {', '.join(map(repr, SITES))}. Received: sites={sites!r}")
    return tuple(site for site in SITES if site in given)


def chosen_layers(plan: PlacementPlan, sites: Sequence[str], layers: Sequence[str] | None = None) -> list[str]:
    """Return the layers to measure, in computing order: the given ones, or all but those of the target's own pairs.

    Raises:
        SpecError: If a layer is unknown, or nothing is quantized at the sites.
    """
    quantized = {placement.layer for placement in plan.placements if placement.site in sites}
    known = [layer for layer in plan.graph.layers if layer in quantized]
    if layers is None:
        # A pair that a target adds for the sake of a reader changes nothing that the reader's own pair does not.
        wished = {p.layer for p in plan.placements if p.site in sites and p.author != "target"}
        chosen = [layer for layer in known if layer in wished]
        if not chosen:
            raise SpecError(f"The plan quantizes nothing at these sites. Received: sites={tuple(sites)!r}")
        return chosen
    if isinstance(layers, str) or not isinstance(layers, Iterable):
        raise SpecError(f"layers must be a list of layer names, such as ['conv1']. Received: layers={layers!r}")
    layers = list(layers)  # read more than once
    for name in layers:
        if name not in known:
            raise SpecError(
                f"The plan quantizes no layer of that name at the sites {', '.join(sites)}. "
                f"{nearest_names(name, known)} Received: {name!r}"
            )
    return [layer for layer in known if layer in set(layers)]


def _choice(layer: str, mode: str, everything: frozenset[Switch]) -> Choice:
    own = frozenset(switch for switch in everything if switch[0] == layer)
    return own if mode == "one_on" else everything - own


def _filled(
    report: SensitivityReport, plan: PlacementPlan, names: Sequence[str], values: dict[str, float]
) -> SensitivityReport:
    """Return the report with the entries of the layers measured so far."""
    entries = []
    for name in names:
        if name in values:
            planned = plan.for_layer(name)
            entries.append(
                SensitivityEntry(
                    layer=name,
                    value=values[name],
                    unit=report.unit,
                    float_value=report.float_value,
                    quantized_value=report.quantized_value,
                    input_indices=planned.input_indices,
                    quantize_weight=planned.quantize_weight,
                    quantize_output=planned.quantize_output,
                    settings=_settings_of(plan, name),
                )
            )
    return dataclasses.replace(report, entries=tuple(entries), complete=len(entries) == len(names))


def _settings_of(plan: PlacementPlan, layer: str) -> dict[str, dict[str, Any]]:
    """Return the settings of every call of a layer as an entry of a specification says them; empty without any."""
    found = {}
    for call in plan.graph.calls(layer):
        decision = plan.decisions.get(call.name)
        config = None if decision is None else config_of(call, decision.settings)
        found[call.name] = {} if config is None else config.get_config()
    return found if any(found.values()) else {}


def _resumed(checkpoint: str | pathlib.Path | None, mark: str) -> dict[str, float]:
    """Return the values that a checkpoint holds.

    Raises:
        CheckpointError: If it is of another sweep, or no checkpoint.
    """
    if checkpoint is None or not check_place(checkpoint).exists():
        return {}
    try:
        report = SensitivityReport.load(checkpoint)
    except DataError as error:
        raise CheckpointError(f"The file to resume from is no checkpoint of a sweep. {error}") from error
    if report.fingerprint != mark:
        raise CheckpointError(
            "The checkpoint is of another sweep, or of an earlier version: the model, its weights or ranges, the plan, "
            "the data, the calibration data, the metric or the settings differ. Delete the file, or give another path. "
            f"Received: checkpoint={str(checkpoint)!r} of model {report.model!r}, mode {report.mode!r}, metric "
            f"{report.metric!r}"
        )
    return {entry.layer: entry.value for entry in report.entries}
