"""`search`: the best placement under budgets of accuracy, size and measured time."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import keras

from qdq_workbench._progress import ProgressFunction, check_functions, shown_progress
from qdq_workbench.analysis.fingerprint import fingerprint
from qdq_workbench.analysis.levels import add_levels
from qdq_workbench.analysis.metrics import Metric, get_metric, number
from qdq_workbench.analysis.samples import Samples, read_samples, split_samples
from qdq_workbench.analysis.search_goal import Goal, check_goal
from qdq_workbench.analysis.search_result import SearchResult, SearchStep, with_front
from qdq_workbench.analysis.search_strategies import MOST_EXACT, Moves, climb, follow_times, solve, try_all
from qdq_workbench.analysis.search_switches import SwitchedTrials
from qdq_workbench.analysis.search_trials import Judge, Known, Stopwatch, Trials
from qdq_workbench.analysis.sensitivity import calibrated, sensitivity
from qdq_workbench.analysis.sensitivity_report import SensitivityReport
from qdq_workbench.analysis.sweep import model_outputs
from qdq_workbench.analysis.workers import check_workers
from qdq_workbench.errors import DataError, SpecError
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.spec.quantization_spec import QuantizationSpec

_CONFIRMED_AT_MOST = 8


def search(
    model: keras.Model,
    data: Any,
    *,
    accuracy_floor: float | None = None,
    max_bytes: int | None = None,
    max_ms: float | None = None,
    objective: str = "bytes",
    plan: PlacementPlan | None = None,
    spec: QuantizationSpec | None = None,
    metric: Any = "accuracy",
    evaluate: Callable[[keras.Model], float] | None = None,
    bits: Sequence[int] = (8,),
    ranking: SensitivityReport | None = None,
    calibration_data: Any = None,
    confirmation_data: Any = None,
    batch_size: int = 32,
    steps: int | None = None,
    threads: int | None = None,
    n_jobs: int | None = None,
    checkpoint: str | pathlib.Path | None = None,
    progress: ProgressFunction | None = None,
    stop: Callable[[], bool] | None = None,
    verbose: bool = True,
) -> SearchResult:
    """Find the best placement under budgets: least size, time or float operations, or most accuracy.

    Every layer that the plan quantizes may stay as it is, get more bits, or stay in float. Each placement that is tried
    is built as a model and run on data; where a time is asked for its file is measured in ONNX Runtime, in turns with
    the file of the plan as it was given.

    Layers are first raised in the order of `sensitivity`, until the constraints are met, and lowered again where that
    is possible. With up to 4,096 placements (twelve layers) all that may be better are then tried, so that the result
    is the best of all; with more, SciPy's solver (HiGHS) chooses placements on additive estimates, which are measured
    and refined. For times, layers whose kernels gain least by INT8 are tried in float. Estimates only choose what is
    tried: what is returned was measured.

    Half of the samples choose the placement, the other half confirm it: only a placement that reaches the floor there
    counts as `met`. A candidate that does not is dropped for the next best.

    Args:
        model: A float Keras model, which is quantized and calibrated inside; or a calibrated model made by
            `quantize_model`.
        data: Samples with labels, as `(inputs, labels)` or batches of that form.
        accuracy_floor: What the metric has to reach, such as 0.9 for an accuracy of 90 %; None for any.
        max_bytes: Most bytes of all weights; None for any.
        max_ms: Most milliseconds per run of one sample in ONNX Runtime; None for any.
        objective: What is made best under the constraints: "bytes" (of weights, then float operations), "ms", "macs"
            (multiply-accumulate operations in float), or "accuracy" (that of the float model is enough: more is
            chance).
        plan: Where a float model is quantized; None for the defaults.
        spec: The specification that the plan was made with, if any: the result's `spec` continues it.
        metric: As for `sensitivity`; higher must be better.
        evaluate: A function that returns the accuracy of a model, instead of `metric`; for anything that needs more
            than outputs and labels. It judges alone: nothing is held out from it.
        bits: The numbers of bits that layers with fewer bits are raised to before they stay in float.
        ranking: A sensitivity report of this model; None to make one by SQNR.
        calibration_data: What a float model is calibrated on; None for `data`.
        confirmation_data: Other samples to confirm the placement on, so that all of `data` choose it; None to hold out
            every second sample of `data`.
        batch_size: How many samples of an array make a batch.
        steps: How many batches of `data` to read at most; None for all.
        threads: Threads of ONNX Runtime where times are measured; None for its own choice.
        n_jobs: Workers of the sensitivity sweep.
        checkpoint: A JSON file, written after everything that was tried; if it exists, nothing in it is tried again.
            It is of one model, plan, data and metric or `evaluate`, as that of `sensitivity`, which keeps its own
            beside it, `<name>.sensitivity.json`.
        progress: Called with the placements tried, an estimate of all, and what was tried.
        stop: Called before every placement; when it returns True the search ends with the best so far.
        verbose: Whether to show a progress bar where there is no `progress`.

    Returns:
        The best placement that was measured and confirmed; if none meets the constraints, the one that misses them
        least, and `met` is False.

    Raises:
        DataError: If the data do not fit, the metric is one where lower is better, or a floor or budget is no number.
        SpecError: If nothing is quantized, or a plan is given for a quantized model.
        UncalibratedError: If a quantized model has no ranges yet.
        CheckpointError: If the checkpoint is of another model, other data or other settings.
        OutputPathError: If the checkpoint cannot be written.
        WorkerError: If a worker process ends before its work does; the checkpoint has what was measured.

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
    goal = Goal(objective, accuracy_floor, max_bytes, max_ms)
    check_goal(goal, measure, evaluate)
    _check_bits(bits)
    given = read_samples(model, data, batch_size, steps)
    samples, held_out = _parts(model, given, confirmation_data, batch_size, evaluate)
    if held_out is not None and (held_out.labels is None) != (samples.labels is None):
        raise DataError(
            "The data and the confirmation data must both have labels, or neither. Received: "
            f"{'no ' if held_out.labels is None else ''}labels in confirmation_data"
        )
    q_model, calibrated_on = calibrated(model, plan, given, calibration_data, batch_size)
    judge = _judge(samples, measure, evaluate)
    name = measure.name if evaluate is None else getattr(evaluate, "__qualname__", "evaluate")
    settings: dict[str, Any] = {"metric": name, "bits": sorted(bits), "ranges": calibrated_on, "threads": threads}
    settings["held_out"] = "" if held_out is None else held_out.digest()
    mark = fingerprint(model, q_model.plan, samples, settings, measure if evaluate is None else evaluate)
    known = Known.read(checkpoint, mark)
    if ranking is None:
        beside = None if checkpoint is None else pathlib.Path(checkpoint).with_suffix(".sensitivity.json")
        ranking = sensitivity(
            q_model, samples, n_jobs=n_jobs, checkpoint=beside, progress=progress, stop=stop, verbose=verbose
        )
    stopwatch = Stopwatch(q_model, threads, samples.batches[:1]) if goal.is_timed else None
    try:
        with shown_progress(progress, f"Search on {model.name}", verbose=verbose) as show:
            switched = SwitchedTrials(q_model, samples, measure) if evaluate is None else None
            tried = Trials(q_model, judge, goal, known, show, checkpoint, mark, stopwatch, switched)
            moves = Moves(tried, ranking, bits, stop)
            show(0, tried.expected, "float model")
            float_accuracy = tried.of_float()
            tried.goal = goal = dataclasses.replace(goal, ceiling=float_accuracy)
            complete, exact = _run(moves)
            show(len(tried.steps), len(tried.steps), f"{goal.best(tried.steps).accuracy:.4f}")
            best, held = _confirmed(tried, held_out, measure)
            found = tried.model(best.levels)
    finally:
        if stopwatch is not None:
            stopwatch.close()
    met = best.meets and (held is None or goal.is_accurate(held.accuracy))
    first = tried.of({})
    return SearchResult(
        model=model.name,
        accuracy_floor=accuracy_floor,
        max_bytes=max_bytes,
        max_ms=max_ms,
        objective=objective,
        metric=name,
        met=met,
        reason=_reason(best, held, float_accuracy, goal, complete=complete, exact=exact),
        accuracy=best.accuracy if held is None else held.accuracy,
        float_accuracy=float_accuracy if held is None else held.float_accuracy,
        quantized_accuracy=first.accuracy if held is None else held.quantized_accuracy,
        search_accuracy=best.accuracy,
        confirmed_on=0 if held is None else held.samples,
        spec=add_levels(spec, q_model.plan, best.levels),
        plan=found.plan,
        base=q_model.plan,
        q_model=found,
        best=best,
        history=tuple(with_front(tried.steps)),
        complete=complete,
        exact=exact,
    )


def _run(moves: Moves) -> tuple[bool, bool]:
    """Search; returns whether it came to its end, and whether the best is the best of all."""
    goal = moves.trials.goal
    first = moves.trials.of({})
    if first.meets and goal.objective in ("bytes", "macs"):
        return True, not goal.is_timed  # more bits and float only add to both
    if goal.floor is not None and not climb(moves):
        return False, False
    if goal.is_timed:
        return follow_times(moves), False
    if moves.count <= MOST_EXACT:
        complete = try_all(moves)
        return complete, complete
    return solve(moves), False


@dataclasses.dataclass(frozen=True)
class _Held:
    """What held-out samples say.

    Args:
        accuracy: The metric of the placement.
        float_accuracy: The metric of the float model.
        quantized_accuracy: The metric of the plan as it was given.
        samples: How many samples were held out.
    """

    accuracy: float
    float_accuracy: float
    quantized_accuracy: float
    samples: int


def _confirmed(tried: Trials, held_out: Samples | None, metric: Metric) -> tuple[SearchStep, _Held | None]:
    """Return the best placement that its model and held-out samples confirm; if none is, the best of its model."""
    judge = None if held_out is None else _judge(held_out, metric, None)
    chosen = None
    for candidate in sorted((s for s in tried.steps if s.meets), key=tried.goal.key)[:_CONFIRMED_AT_MOST]:
        step = tried.built(candidate)
        if step.meets and (judge is None or tried.goal.is_accurate(tried.confirmed(step.levels, judge))):
            chosen = step
            break
    chosen = chosen or tried.best_built()
    if held_out is None or judge is None:
        return chosen, None
    accuracy, of_float, quantized = (tried.confirmed(levels, judge) for levels in (chosen.levels, None, {}))
    return chosen, _Held(accuracy, of_float, quantized, held_out.count)


def _parts(
    model: keras.Model, given: Samples, confirmation_data: Any, batch_size: int, evaluate: Any
) -> tuple[Samples, Samples | None]:
    """Return the samples that choose the placement and those that confirm it; None where there are none."""
    if evaluate is not None:
        return given, None
    if confirmation_data is not None:
        return given, read_samples(model, confirmation_data, batch_size)
    chosen, held_out = split_samples(given)
    return (chosen, held_out) if held_out.count else (given, None)


def _judge(samples: Samples, metric: Metric, evaluate: Callable[[keras.Model], float] | None) -> Judge:
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


def _check_bits(bits: Any) -> None:
    whole = isinstance(bits, (list, tuple, range)) and all(type(n) is int and 2 <= n <= 16 for n in bits)
    if not whole:
        raise DataError(f"bits must be a list of integers from 2 to 16, such as [4, 8]. Received: bits={bits!r}")


def _reason(
    best: SearchStep, held: _Held | None, float_accuracy: float, goal: Goal, *, complete: bool, exact: bool
) -> str:
    if best.meets and held is not None and not goal.is_accurate(held.accuracy):
        return (
            f"The floor is met on the samples that chose the placement ({best.accuracy:.4f}), not on the "
            f"{held.samples} held-out ones ({held.accuracy:.4f})."
        )
    if best.meets:
        end = "" if complete else "; the search was stopped, so a better placement may exist"
        confirmed = "" if held is None else f", confirmed on {held.samples} held-out samples"
        what = "The floor is met" if goal.floor is not None else "The best that was measured has"
        count = len(best.levels) or "no"
        found = f" with {count} layers raised" if goal.floor is not None else f" {count} layers raised"
        all_tried = "; no other placement is better" if exact and complete else ""
        return f"{what}{found}{confirmed}{all_tried}{end}."
    if not complete:
        return "The search was stopped before a placement met the constraints."
    if goal.floor is not None and float_accuracy < goal.floor:
        return "The floor cannot be met: the float model itself does not reach it."
    if goal.floor is not None and goal.max_bytes is None and goal.max_ms is None:
        return "The floor is not met by any placement that was tried."
    return "No placement that was tried meets the constraints together; the returned one misses them least."
