"""`search`: the best placement under budgets of accuracy, size and measured time."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import keras

from qdq_workbench._numbers import whole
from qdq_workbench._progress import ProgressFunction, check_functions, is_count, shown_progress
from qdq_workbench.analysis.fingerprint import fingerprint
from qdq_workbench.analysis.identity import identity_of
from qdq_workbench.analysis.levels import add_changes, add_levels
from qdq_workbench.analysis.metrics import Metric, get_metric
from qdq_workbench.analysis.samples import Samples, read_samples, split_samples
from qdq_workbench.analysis.search_goal import Goal, check_float_accuracy, check_goal
from qdq_workbench.analysis.search_judge import Judge, judge_by, judge_of, name_of
from qdq_workbench.analysis.search_known import Known
from qdq_workbench.analysis.search_moves import Decisions
from qdq_workbench.analysis.search_outcome import Confirmation, confirm_best, met_of, reason_of
from qdq_workbench.analysis.search_result import SearchResult, with_front
from qdq_workbench.analysis.search_run import Ranker, SearchContext, run
from qdq_workbench.analysis.search_starts import starts_of
from qdq_workbench.analysis.search_stopwatch import Stopwatch
from qdq_workbench.analysis.search_switches import SwitchedTrials
from qdq_workbench.analysis.search_trials import Measured, Trials
from qdq_workbench.analysis.search_workers import ParallelMeasurer
from qdq_workbench.analysis.sensitivity import calibrated, sensitivity
from qdq_workbench.analysis.sensitivity_report import SensitivityReport
from qdq_workbench.analysis.sweep import Traces
from qdq_workbench.analysis.workers import check_workers
from qdq_workbench.cases import CustomQDQInsertionCase
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.retarget import replan
from qdq_workbench.conversion.engine.strip import strip
from qdq_workbench.errors import DataError, SpecError
from qdq_workbench.onnx_graph.processor import SAFE_BITS, kernels_saturate
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.profiling.profile_onnx import MOST_THREADS
from qdq_workbench.spec.quantization_spec import QuantizationSpec


def search(
    model: keras.Model,
    data: Any,
    *,
    accuracy_floor: float | None = None,
    max_loss: float | None = None,
    max_bytes: int | None = None,
    max_ms: float | None = None,
    objective: str = "bytes",
    plan: PlacementPlan | None = None,
    spec: QuantizationSpec | None = None,
    metric: Any = "accuracy",
    evaluate: Callable[[keras.Model], float] | None = None,
    confirm: Callable[[keras.Model], float] | None = None,
    bits: Sequence[int] = (8,),
    cases: Iterable[CustomQDQInsertionCase] | Literal["auto"] | None = None,
    pairs: bool = False,
    share: Literal["patterns"] | None = None,
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
    """Find the best placement under budgets: the smallest, fastest or most accurate, or least float operations.

    Each layer that the plan quantizes stays as planned, gets more bits, or stays in float. The metric of each
    placement that is tried is measured on data; with the objective "ms" or `max_ms`, its file is also timed in ONNX
    Runtime, in turns with the file of the given plan.

    Layers are first raised in the order of `sensitivity` until the constraints are met, then lowered again where
    possible. With up to 4,096 placements (twelve layers), all placements that may be better are then tried, so the
    result is the optimum; with more, SciPy's solver (HiGHS) chooses placements from additive estimates, which are then
    measured and refined. Files are all timed if they are 64 at most, or 4,096 that take two minutes at most; with more,
    layers whose kernels gain least from INT8 are tried in float, and the solver proposes placements from these gains.
    Estimates only choose the candidates: the returned placement was measured.

    Half of the samples choose the placement, the other half confirm it: `met` is True only if the placement reaches
    the floor on the held-out half too. A candidate that does not is replaced by the next best. The held-out half is
    used neither to calibrate a float model nor for the estimates.

    Args:
        model: A float Keras model, which is quantized and calibrated inside; or a calibrated model made by
            `quantize_model`.
        data: Samples with labels, as `(inputs, labels)` or batches of that form.
        accuracy_floor: Minimum of the metric, in its unit, such as 0.9 for an accuracy of 90 %; None for no minimum.
        max_loss: Maximum by which the metric may be below that of the float model on the same samples, at least 0,
            such as 0.01 for one point of accuracy; None for no limit. Both models see the same samples, so fewer
            samples are enough than for `accuracy_floor`.
        max_bytes: Maximum bytes of all weights, above 0; None for no limit.
        max_ms: Maximum milliseconds per run of one sample in ONNX Runtime, above 0; None for no limit.
        objective: What is optimized under the constraints: "bytes" (of weights, then float operations), "ms", "macs"
            (multiply-accumulate operations in float), or "accuracy" (a value above that of the float model counts as
            equal to it).
        plan: The plan that a float model is quantized by; None for the default plan, which is for TensorRT. To
            optimize times, give a plan with target="onnxruntime", the runtime that they are measured in.
        spec: The specification that the plan was made with, if any: the result's `spec` extends it.
        metric: As for `sensitivity`; higher must be better.
        evaluate: A function that returns the accuracy of a model and replaces `metric`, for a measure that needs more
            than outputs and labels. No samples are held out then: see `confirm`.
        confirm: A function like `evaluate` that uses other samples, and confirms what `evaluate` chose. Without one,
            the accuracy of a search with `evaluate` is not confirmed, and `met` is None.
        bits: The numbers of bits, each 2 to 16, that layers with fewer bits are raised to before they stay in float.
        cases: Insertion cases, each of which is tried in place of the plan's own cases and defaults; "auto" for those
            of the library; None for the plan alone. A case that leads to the pairs of an earlier start is skipped.
            Entries of a `spec` stay. All are measured; the plan and the two most promising ones are refined.
        pairs: Whether to search the placement of pairs at merges, poolings and activations too: both operands, one of
            them (the skip branch alone), none, and with or without the output. Equal layers change together.
        share: "patterns" for one decision about all layers at the same place of repeated blocks (equal class,
            settings, shapes and neighbours); None for one decision per layer.
        ranking: A sensitivity report of this model; None to make one by SQNR. Layers that it lacks are measured.
        calibration_data: The data that a float model is calibrated on; None for the samples that choose the placement.
        confirmation_data: Other samples to confirm the placement on, so that all of `data` choose it. If some of them
            are among `data`, they confirm nothing: `reason` says so, and `met` is None. None to hold out a random half
            of `data`, drawn with a fixed seed. Not for `evaluate`, which has `confirm`.
        batch_size: How many samples of an array make a batch, at least 1.
        steps: How many batches of `data` to read at most, at least 1; None for all.
        threads: Threads of ONNX Runtime where times are measured, at least 1; None for its own choice.
        n_jobs: Number of workers that measure accuracies of layers and of placements, -1 for one per processor; None
            for the number of `joblib.parallel_config`, else 1. The result does not depend on it: workers measure the
            placements that are likely to be needed next. Times are measured in this process, as is `evaluate`.
        checkpoint: A JSON file, written after every measurement; if it exists, its measurements are reused. It belongs
            to one model, plan, data set and metric or `evaluate`. `sensitivity` writes its own checkpoint beside it,
            `<name>.sensitivity.json`.
        progress: Called with the number of placements tried, an estimate of their total, and the last accuracy.
        stop: Called before every placement; when it returns True, the search ends with the best placement so far.
        verbose: Whether to show a progress bar where there is no `progress`.

    Returns:
        The best placement that was measured and confirmed; if none meets the constraints, the one that misses them
        least, and `met` is False. `met` is None if the accuracy was not measured on other samples than those that
        chose the placement.

    Raises:
        DataError: If the data do not fit the model, there is no constraint and the objective is "bytes", lower values
            of the metric are better, an option such as `objective` is unknown, a number is out of its range, or
            `confirm` is given without `evaluate`, or `confirmation_data` with it.
        SpecError: If nothing is quantized, a quantized model is given another plan than its own, or `cases` holds
            other things than insertion cases.
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
        >>> model = keras.Model(image, keras.layers.Dense(3, name="head")(image))
        >>> x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
        >>> y = np.argmax(model.predict(x, verbose=0), axis=-1)
        >>> result = search(model, (x, y), accuracy_floor=0.9, verbose=False)
        >>> result.met, result.float_layers
        (True, [])
    """
    check_functions(evaluate=evaluate, confirm=confirm, progress=progress, stop=stop)
    _check_confirmation(evaluate, confirm, confirmation_data)
    _check_kinds(spec, ranking)
    check_workers(n_jobs)
    measure = get_metric(metric)
    goal = Goal(objective, accuracy_floor, max_bytes, max_ms, max_loss)
    check_goal(goal, measure, evaluate)
    bits, threads = _checked_bits(bits), whole(threads)
    _check_choices(pairs, share, threads)
    given = read_samples(model, data, batch_size, steps)
    samples, held_out = _parts(model, given, confirmation_data, batch_size, evaluate)
    if held_out is not None and (held_out.labels is None) != (samples.labels is None):
        raise DataError(
            "The data and the confirmation data must both have labels, or neither. Received: "
            f"{'no ' if held_out.labels is None else ''}labels in confirmation_data"
        )
    q_model, calibrated_on = calibrated(model, plan, samples, calibration_data, batch_size)
    judge, source = _judges(samples, held_out, measure, evaluate, confirm, given=confirmation_data is not None)
    name = measure.name if evaluate is None else name_of(evaluate, "evaluate")
    # Goal, cases and moves are no part of the mark: measurements belong to placements, so that searches under other
    # budgets may share a checkpoint.
    settings: dict[str, Any] = {"metric": name, "bits": sorted(bits), "ranges": calibrated_on, "threads": threads}
    settings["held_out"] = held_out.digest() if held_out is not None else identity_of(confirm) if confirm else ""
    mark = fingerprint(model, q_model.plan, samples, settings, measure if evaluate is None else evaluate)
    known = Known.read(checkpoint, mark)
    how: dict[str, Any] = {"n_jobs": n_jobs, "progress": progress, "stop": stop, "verbose": verbose}
    # Before the sweep: it finds mistakes in `cases`, which look at the float model.
    starts = starts_of(q_model.plan, q_model if cases is None else strip(q_model), cases, spec)
    if ranking is None:
        beside = None if checkpoint is None else pathlib.Path(checkpoint).with_suffix(".sensitivity.json")
        ranking = sensitivity(q_model, samples, checkpoint=beside, **how)
    rank = Ranker(q_model, samples, ranking, checkpoint, **how)
    stopwatch = Stopwatch(q_model, threads, samples.batches[:1], known) if goal.is_timed else None
    try:
        with shown_progress(progress, f"Search on {model.name}", verbose=verbose) as show:
            ahead = None if evaluate is not None else ParallelMeasurer(q_model, samples, measure, n_jobs)
            measured = Measured(q_model, judge, goal, known, show, stopwatch, ahead)
            # Switches give outputs, and `evaluate` takes a model.
            switches = None if evaluate is not None else _switches(q_model, samples, measure)
            by_start = {start.name: Trials(measured, start, switches) for start in starts}
            context = SearchContext(measured, by_start, rank, Decisions(tuple(bits), pairs, share == "patterns"), stop)
            show(0, measured.expected, "float model")
            float_accuracy = check_float_accuracy(goal, measured.of_float(), name)
            # `max_loss` and the objective "accuracy" count from the float model, whose metric is known only here.
            measured.goal = goal = dataclasses.replace(goal, ceiling=float_accuracy)
            complete, exact = run(context)
            show(len(measured.steps), len(measured.steps), f"{goal.best(measured.steps).accuracy:.4f}")
            best, held = confirm_best(measured, by_start, source)
            found = by_start[best.case].model(best.levels)
    finally:
        if stopwatch is not None:
            stopwatch.close()
    exact = exact and (held is None or not held.refused)  # placements ranked behind a refused one were not tried
    first, start = by_start[""].of({}), by_start[best.case].base
    return SearchResult(
        model=model.name,
        accuracy_floor=goal.floor,
        max_loss=goal.max_loss,
        search_floor=goal.floor_beside(float_accuracy),
        max_bytes=goal.max_bytes,
        max_ms=goal.max_ms,
        objective=objective,
        metric=name,
        met=met_of(best, held, goal),
        reason=reason_of(best, held, float_accuracy, goal, complete=complete, exact=exact),
        accuracy=best.accuracy if held is None else held.accuracy,
        float_accuracy=float_accuracy if held is None else held.float_accuracy,
        quantized_accuracy=first.accuracy if held is None else held.quantized_accuracy,
        search_accuracy=best.accuracy,
        confirmed_on=0 if held is None else held.samples,
        unconfirmed=0 if held is None else held.refused,
        spec=add_levels(add_changes(spec, start, q_model.plan.decisions), start, best.levels),
        plan=found.plan,
        base=q_model.plan,
        q_model=found,
        best=best,
        history=tuple(with_front(measured.steps)),
        starts={start.name: start.plan for start in starts},
        searched=q_model,
        saturates=goal.is_timed and _may_saturate(q_model.plan),
        complete=complete,
        exact=exact,
    )


def _parts(
    model: keras.Model, given: Samples, confirmation_data: Any, batch_size: int, evaluate: Any
) -> tuple[Samples, Samples | None]:
    """Return the samples that choose the placement and those that confirm it; None where there are none."""
    if evaluate is not None:
        return given, None
    if confirmation_data is not None:
        return given, read_samples(model, confirmation_data, batch_size)
    chosen, held_out = split_samples(given)
    if not held_out.count:
        raise DataError(
            "There is no sample left to confirm the placement on: half of the data are held out. Give at least two "
            f"samples, or confirmation_data. Received: {given.count} samples"
        )
    return chosen, held_out


def _judges(
    samples: Samples,
    held_out: Samples | None,
    metric: Metric,
    evaluate: Callable[[keras.Model], float] | None,
    confirm: Callable[[keras.Model], float] | None,
    *,
    given: bool,
) -> tuple[Judge, Confirmation | None]:
    """Return what judges models on the samples of the search, and what confirms a placement; None for nothing.

    `given` tells that the user gave the samples that confirm.
    """
    if evaluate is not None:
        own = None if confirm is None else Confirmation(judge_by(confirm), by=name_of(confirm, "confirm"))
        return judge_by(evaluate), own
    traces = Traces()  # the model of the placement that is found is judged on both
    judge = judge_of(samples, metric, traces)
    if held_out is None:
        return judge, None
    reused = held_out.shared_with(samples) if given else 0
    return judge, Confirmation(judge_of(held_out, metric, traces), held_out.count, reused)


def _check_confirmation(evaluate: Any, confirm: Any, confirmation_data: Any) -> None:
    """Raise DataError if what confirms does not fit what measures, or is the same."""
    if evaluate is None and confirm is not None:
        raise DataError(
            "confirm is the second function of a search with evaluate=. A metric on outputs is confirmed on "
            f"confirmation_data=, or on half of the data. Received: confirm={confirm!r}"
        )
    if evaluate is not None and confirmation_data is not None:
        raise DataError(
            "confirmation_data are for a metric on outputs. What evaluate= measures is confirmed by a second function: "
            f"give confirm=. Received: confirmation_data with evaluate={evaluate!r}"
        )
    # `==`, since every access to a method makes another object.
    if confirm is not None and confirm == evaluate:
        raise DataError(
            "confirm must be another function than evaluate, on samples that evaluate does not use. "
            f"Received: confirm={confirm!r}"
        )


def _may_saturate(plan: PlacementPlan) -> bool:
    """Return whether sums in ONNX Runtime's kernels may saturate on this processor: by its kernels and the weights."""
    wide = any(placement.site == "weight" and placement.quantizer.num_bits > SAFE_BITS for placement in plan.placements)
    return wide and kernels_saturate()


def _check_kinds(spec: Any, ranking: Any) -> None:
    if spec is not None and not isinstance(spec, QuantizationSpec):
        raise SpecError(f"spec must be the QuantizationSpec that the plan was made with. Received: spec={spec!r}")
    if ranking is not None and not isinstance(ranking, SensitivityReport):
        raise DataError(f"ranking must be a SensitivityReport, made by `sensitivity`. Received: ranking={ranking!r}")
    if ranking is not None and not ranking.entries:
        raise DataError(
            "The ranking has no layers: give a report of a sweep that measured some, or ranking=None. "
            f"Received: a report of {ranking.model!r} without entries"
        )


def _check_choices(pairs: Any, share: Any, threads: Any) -> None:
    if not isinstance(pairs, bool):
        raise DataError(f"pairs must be True or False. Received: pairs={pairs!r}")
    if share not in (None, "patterns"):
        raise DataError(
            'share must be "patterns" (one decision about equal places of repeated blocks) or None (one per layer). '
            f"Received: share={share!r}"
        )
    if threads is not None and not (is_count(threads) and threads <= MOST_THREADS):
        raise DataError(
            f"threads must be an integer from 1 to {MOST_THREADS}, or None for the runtime's choice. "
            f"Received: threads={threads!r}"
        )


def _switches(q_model: QuantizedModel, samples: Samples, metric: Metric) -> Callable[[PlacementPlan], SwitchedTrials]:
    """Return a function that builds the `SwitchedTrials` of a start from its plan."""

    def make(plan: PlacementPlan) -> SwitchedTrials:
        model = q_model if plan is q_model.plan else replan(q_model, plan)
        return SwitchedTrials(model, samples, metric)

    return make


def _checked_bits(bits: Any) -> list[int]:
    """Return widths as integers of Python; raise DataError unless they are a list of integers from 2 to 16."""
    found: list[Any] = list(map(whole, bits)) if isinstance(bits, (list, tuple, range)) else [None]
    # `type(n) is int`, because True is an instance of int.
    if not all(type(n) is int and 2 <= n <= 16 for n in found):
        raise DataError(f"bits must be a list of integers from 2 to 16, such as [4, 8]. Received: bits={bits!r}")
    return found
