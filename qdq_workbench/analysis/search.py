"""`search`: the cheapest placement whose accuracy reaches a floor."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from qdq_workbench._documents import read_document
from qdq_workbench._files import write_text
from qdq_workbench._progress import ProgressFunction, check_functions, shown_progress
from qdq_workbench.analysis.fingerprint import fingerprint
from qdq_workbench.analysis.levels import FLOAT, Level, add_levels, ladder_of, raise_layers
from qdq_workbench.analysis.metrics import Metric, get_metric, number
from qdq_workbench.analysis.samples import Samples, read_samples
from qdq_workbench.analysis.search_result import SearchResult, SearchStep, best_of, cost_of
from qdq_workbench.analysis.sensitivity import calibrated, sensitivity
from qdq_workbench.analysis.sensitivity_report import SensitivityReport
from qdq_workbench.analysis.sweep import model_outputs
from qdq_workbench.analysis.workers import check_workers
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.retarget import replan
from qdq_workbench.conversion.engine.strip import strip
from qdq_workbench.errors import CheckpointError, DataError, SpecError
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.spec.quantization_spec import QuantizationSpec

_FORMAT = "qdq-workbench/search-checkpoint"


def search(
    model: keras.Model,
    data: Any,
    *,
    accuracy_floor: float,
    plan: PlacementPlan | None = None,
    spec: QuantizationSpec | None = None,
    metric: Any = "accuracy",
    evaluate: Callable[[keras.Model], float] | None = None,
    bits: Sequence[int] = (8,),
    ranking: SensitivityReport | None = None,
    calibration_data: Any = None,
    batch_size: int = 32,
    steps: int | None = None,
    n_jobs: int | None = None,
    checkpoint: str | pathlib.Path | None = None,
    progress: ProgressFunction | None = None,
    stop: Callable[[], bool] | None = None,
    verbose: bool = True,
) -> SearchResult:
    """Find the cheapest placement whose accuracy reaches a floor, by raising the most sensitive layers.

    Layers are ranked by `sensitivity`. In that order they are raised: first those with fewer bits to `bits`, then
    all to float, until the floor is reached; how many are needed is found by doubling and halving. Then every raised
    layer, the dearest first, is lowered again if the floor allows it. Each placement that is tried is built as a
    model and run on all data, so what is reported is what that model does. Cost is the bytes of the weights, then the
    multiply-accumulate operations in float.

    Args:
        model: A float Keras model, which is quantized and calibrated inside; or a calibrated model made by
            `quantize_model`.
        data: Samples with labels, as `(inputs, labels)` or batches of that form.
        accuracy_floor: What the metric has to reach, such as 0.9 for an accuracy of 90 %.
        plan: Where a float model is quantized; None for the defaults.
        spec: The specification that the plan was made with, if any: the result's `spec` continues it.
        metric: As for `sensitivity`; higher must be better.
        evaluate: A function that returns the accuracy of a model, instead of `metric`; for anything that needs more
            than outputs and labels.
        bits: The numbers of bits that layers with fewer bits are raised to before they stay in float.
        ranking: A sensitivity report of this model; None to make one by SQNR.
        calibration_data: What a float model is calibrated on; None for `data`.
        batch_size: How many samples of an array make a batch.
        steps: How many batches of `data` to read at most; None for all.
        n_jobs: Workers of the sensitivity sweep.
        checkpoint: A JSON file, written after everything that was tried; if it exists, nothing in it is tried again.
            It is of one model, plan, data and metric or `evaluate`, as that of `sensitivity`, which keeps its own
            beside it, `<name>.sensitivity.json`.
        progress: Called with the placements tried, an estimate of all, and what was tried.
        stop: Called before every placement; when it returns True the search ends with the best so far.
        verbose: Whether to show a progress bar where there is no `progress`.

    Returns:
        The best placement: the cheapest that reaches the floor; if none does, the most accurate, and `met` is False.

    Raises:
        DataError: If the data do not fit, the metric is one where lower is better, or the floor is no number.
        SpecError: If nothing is quantized, or a plan is given for a quantized model.
        UncalibratedError: If a quantized model has no ranges yet.
        CheckpointError: If the checkpoint is of another model, other data or other settings.

    Example:
        >>> import numpy as np
        >>> keras.utils.set_random_seed(0)
        >>> image = keras.Input((4,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(3, name="head")(image))
        >>> x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
        >>> y = np.argmax(model.predict(x, verbose=0), axis=-1)
        >>> result = search(model, (x, y), accuracy_floor=0.9, verbose=False)
        >>> result.met, result.float_layers
        (True, [])
    """
    check_functions(evaluate=evaluate, progress=progress, stop=stop)
    _check_kinds(spec, ranking)
    check_workers(n_jobs)
    measure = get_metric(metric)
    _check_request(measure, evaluate, accuracy_floor, bits)
    samples = read_samples(model, data, batch_size, steps)
    q_model, calibrated_on = calibrated(model, plan, samples, calibration_data, batch_size)
    judge = _judge(samples, measure, evaluate)
    name = measure.name if evaluate is None else getattr(evaluate, "__qualname__", "evaluate")
    settings = {"metric": name, "bits": sorted(bits), "ranges": calibrated_on}
    mark = fingerprint(model, q_model.plan, samples, settings, measure if evaluate is None else evaluate)
    known = _read_checkpoint(checkpoint, mark)
    if ranking is None:
        beside = None if checkpoint is None else pathlib.Path(checkpoint).with_suffix(".sensitivity.json")
        ranking = sensitivity(
            q_model, samples, n_jobs=n_jobs, checkpoint=beside, progress=progress, stop=stop, verbose=verbose
        )
    with shown_progress(progress, f"Search on {model.name}", verbose=verbose) as show:
        tried = _Trials(q_model, judge, float(accuracy_floor), known, show, checkpoint, mark)
        greedy = _Greedy(tried, ranking, bits, stop)
        show(0, tried.expected, "float model")
        float_accuracy = tried.of_float()
        complete = greedy.run()
        best = best_of(tried.steps)
        show(len(tried.steps), len(tried.steps), f"{best.accuracy:.4f}")  # how many it would be was an estimate
        found = (
            replan(q_model, raise_layers(q_model.plan, best.levels)) if best.levels else replan(q_model, q_model.plan)
        )
    return SearchResult(
        model=model.name,
        accuracy_floor=float(accuracy_floor),
        metric=name,
        met=best.meets,
        reason=_reason(best, float_accuracy, float(accuracy_floor), complete=complete),
        accuracy=best.accuracy,
        float_accuracy=float_accuracy,
        quantized_accuracy=tried.steps[0].accuracy,
        spec=add_levels(spec, q_model.plan, best.levels),
        plan=found.plan,
        q_model=found,
        history=tuple(tried.steps),
        complete=complete,
    )


class _Trials:
    """Builds and measures placements, each once, and remembers them in the checkpoint."""

    def __init__(
        self,
        q_model: QuantizedModel,
        judge: Callable[[keras.Model, keras.Model | None], float],
        floor: float,
        known: dict[str, float],
        show: ProgressFunction,
        checkpoint: str | pathlib.Path | None,
        mark: str,
    ) -> None:
        self.q_model = q_model
        self.steps: list[SearchStep] = []
        self.expected = 1
        self._judge = judge
        self._floor = floor
        self._known = known
        self._show = show
        self._checkpoint = checkpoint
        self._mark = mark
        self._float = strip(q_model)

    def of_float(self) -> float:
        """Return the metric of the float model."""
        return self._accuracy(FLOAT, lambda: self._float)

    def of(self, levels: Mapping[str, Level]) -> SearchStep:
        """Return the step of a placement, building it if it is new.

        Args:
            levels: The raised layers.
        """
        raised = {layer: level for layer, level in sorted(levels.items()) if level is not None}
        for step in self.steps:
            if step.levels == raised:
                return step
        plan = raise_layers(self.q_model.plan, raised) if raised else self.q_model.plan
        accuracy = self._accuracy(json.dumps(raised), lambda: replan(self.q_model, plan))
        weight_bytes, float_macs = cost_of(plan)
        step = SearchStep(raised, accuracy, weight_bytes, float_macs, accuracy >= self._floor)
        self.steps.append(step)
        self._show(len(self.steps), max(self.expected, len(self.steps)), f"{accuracy:.4f}")
        return step

    def _accuracy(self, key: str, build: Callable[[], keras.Model]) -> float:
        if key not in self._known:
            self._known[key] = self._judge(build(), self._float)
            if self._checkpoint is not None:
                data = {"format": _FORMAT, "version": 1, "fingerprint": self._mark, "accuracies": self._known}
                write_text(self._checkpoint, json.dumps(data, indent=2) + "\n")
        return self._known[key]


class _Greedy:
    """Raises layers in the order of the ranking, then lowers again what is not needed."""

    def __init__(
        self, tried: _Trials, ranking: SensitivityReport, bits: Sequence[int], stop: Callable[[], bool] | None
    ) -> None:
        plan = tried.q_model.plan
        self._tried = tried
        self._stop = stop
        self._ladders = {entry.layer: ladder_of(plan, entry.layer, bits) for entry in ranking.ranked()}
        # Every layer takes its first step before any takes its second: more bits are cheaper than float.
        most = max((len(ladder) for ladder in self._ladders.values()), default=1)
        by_step = [
            [(layer, ladder[s]) for layer, ladder in self._ladders.items() if s < len(ladder) - 1]
            for s in range(1, most)
        ]
        raises = [pair for pairs in by_step for pair in pairs]
        self._moves = [*raises, *((layer, ladder[-1]) for layer, ladder in self._ladders.items())]
        tried.expected = 2 + 2 * len(self._moves).bit_length()

    def run(self) -> bool:
        """Search; returns whether it came to its end."""
        count = self._needed()
        if count is None:
            return not self._stopped()
        return self._lower(self._levels(count)) if count else True

    def _stopped(self) -> bool:
        return self._stop is not None and self._stop()

    def _levels(self, count: int) -> dict[str, Level]:
        return dict(self._moves[:count])

    def _needed(self) -> int | None:
        """Return how many moves reach the floor; None where all do not, or the search was stopped."""
        failed, count = -1, 0
        while not self._tried.of(self._levels(count)).meets:
            if count >= len(self._moves) or self._stopped():
                return None
            failed, count = count, min(max(1, 2 * count), len(self._moves))
        while count - failed > 1:
            if self._stopped():
                return None
            middle = (failed + count) // 2
            if self._tried.of(self._levels(middle)).meets:
                count = middle
            else:
                failed = middle
        return count

    def _lower(self, levels: dict[str, Level]) -> bool:
        """Lower the raised layers step by step, the dearest first, as long as the floor is reached."""
        plan = self._tried.q_model.plan
        self._tried.expected = len(self._tried.steps) + len(levels)

        def saved(layer: str) -> tuple[int, int]:
            less = raise_layers(plan, {**levels, layer: self._below(layer, levels[layer])})
            return cost_of(less)

        for layer in sorted(levels, key=saved):
            while levels[layer] is not None:
                if self._stopped():
                    return False
                lower = {**levels, layer: self._below(layer, levels[layer])}
                if not self._tried.of(lower).meets:
                    break
                levels = lower
        return True

    def _below(self, layer: str, level: Level) -> Level:
        ladder = self._ladders[layer]
        return ladder[ladder.index(level) - 1]


def _judge(
    samples: Samples, metric: Metric, evaluate: Callable[[keras.Model], float] | None
) -> Callable[[keras.Model, keras.Model | None], float]:
    """Return the function that gives a model its accuracy."""
    if evaluate is not None:
        name = getattr(evaluate, "__qualname__", "evaluate")
        return lambda model, _: number(evaluate(model), f"The function {name!r}")
    reference: list[Any] = []

    def judge(model: keras.Model, float_model: keras.Model | None) -> float:
        if not reference:
            reference.extend(model_outputs(float_model, samples))
        outputs = reference if model is float_model else model_outputs(model, samples)
        return metric.measure(reference, outputs, samples.labels)

    return judge


def _check_kinds(spec: Any, ranking: Any) -> None:
    if spec is not None and not isinstance(spec, QuantizationSpec):
        raise SpecError(f"spec must be the QuantizationSpec that the plan was made with. Received: spec={spec!r}")
    if ranking is not None and not isinstance(ranking, SensitivityReport):
        raise DataError(f"ranking must be a SensitivityReport, made by `sensitivity`. Received: ranking={ranking!r}")


def _check_request(metric: Metric, evaluate: Any, floor: Any, bits: Any) -> None:
    whole = isinstance(bits, (list, tuple, range)) and all(type(n) is int and 2 <= n <= 16 for n in bits)
    if not whole:
        raise DataError(f"bits must be a list of integers from 2 to 16, such as [4, 8]. Received: bits={bits!r}")
    if evaluate is None and not metric.higher_is_better:
        raise DataError(
            f"A floor needs a metric of which more is better; {metric.name!r} is the opposite. Use 'accuracy', 'sqnr', "
            "'cosine' or a function of your own."
        )
    is_number = not isinstance(floor, bool) and hasattr(floor, "__float__") and getattr(floor, "shape", ()) == ()
    if not is_number or float(floor) != float(floor):
        raise DataError(f"accuracy_floor must be a number, such as 0.9. Received: accuracy_floor={floor!r}")
    if evaluate is None and metric.name == "accuracy" and not 0.0 <= float(floor) <= 1.0:
        raise DataError(f"An accuracy is a share from 0 to 1; for 90 % give 0.9. Received: accuracy_floor={floor!r}")


def _read_checkpoint(path: str | pathlib.Path | None, mark: str) -> dict[str, float]:
    if path is None or not pathlib.Path(path).exists():
        return {}

    def build(data: Any) -> dict[str, float]:
        if not isinstance(data, dict) or data.get("format") != _FORMAT or data.get("fingerprint") != mark:
            raise CheckpointError(
                "The file to resume from is of another search, or of an earlier version: the model, its weights or "
                "ranges, the plan, the data, the calibration data, the metric or the settings differ. Delete the file, "
                "or give another path. "
                f"Received: checkpoint={str(path)!r}"
            )
        return {str(key): float(value) for key, value in data["accuracies"].items()}

    return read_document(
        path, build, what="checkpoint of a search", made_by="search(checkpoint=)", error=CheckpointError
    )


def _reason(best: SearchStep, float_accuracy: float, floor: float, *, complete: bool) -> str:
    count = len(best.levels)
    if best.meets:
        end = "" if complete else "; the search was stopped, so a cheaper placement may exist"
        return f"The floor is met with {count or 'no'} layers raised{end}."
    if not complete:
        return "The search was stopped before a placement met the floor."
    if float_accuracy < floor:
        return "The floor cannot be met: the float model itself does not reach it."
    return "The floor is not met by any placement that was tried."
