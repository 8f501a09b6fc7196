"""Measuring the score, the file size and the time of a plan, in pieces between which it can be cancelled."""

from __future__ import annotations

import collections
import itertools
import pathlib
from collections.abc import Callable
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.curves import is_share
from qdq_widgets.data import count_samples, few_pairs
from qdq_widgets.errors import BenchError
from qdq_widgets.scratch import scratch_folder_of
from qdq_widgets.state import PlanKey, plan_key
from qdq_widgets.work import Workshop

MOST_SAMPLES = 512
_KEPT = 8
_ROUNDS = 4
_BATCHES = 16  # read from data that are not arrays
# Limits for measuring by default: about one second on one core of a present laptop.
_EASY_MACS = 2e10
_EASY_PARAMETERS = 4_000_000
_EASY_LAYERS = 200


def is_easy(graph: qdq.ModelGraph, data: Any) -> bool:
    """Return whether measuring a change takes about a second, so that it may start by default.

    `data` are the validation data, or None.
    """
    samples = None if data is None else count_samples(data)
    if samples is None or len(graph.nodes) > _EASY_LAYERS:
        return False
    costs = qdq.layer_costs(graph).values()
    macs = sum(cost.macs for cost in costs)
    weights = sum(cost.parameters for cost in costs)
    return macs * min(samples, MOST_SAMPLES) <= _EASY_MACS and weights <= _EASY_PARAMETERS


class PlanMeasurer:
    """Measures plans of one calibration and caches the results.

    It works on models and files of its own: those of the bench stay as they are.

    Args:
        work: The float model, the ranges and the data.
        metric: The name of the bench's metric; an accuracy is measured as "accuracy" if there are labels, else "sqnr"
            is measured.

    Raises:
        BenchError: If there are no data, or none that can be read twice.
    """

    def __init__(self, work: Workshop, metric: str) -> None:
        self._work = work
        self._data = _few(work.data.for_scoring())
        if hasattr(self._data, "__next__"):
            raise BenchError(
                "Changes are measured on data that can be read again and again; a generator is used up by it. Give "
                f"arrays or a tf.data.Dataset as validation_data. Received: {type(self._data).__name__}"
            )
        # A dataset counts as labelled until `_new_scores` finds no labels.
        labelled = isinstance(self._data, tuple) or hasattr(self._data, "element_spec")
        self.metric = "accuracy" if labelled and is_share(metric) else "sqnr"
        self.samples = 0
        self._folder = scratch_folder_of(self)
        self._numbers = itertools.count()
        self._scores: Any = None
        self._known: dict[tuple[str, PlanKey], Any] = {}
        self._files: collections.OrderedDict[PlanKey, pathlib.Path] = collections.OrderedDict()
        self._built: tuple[PlanKey, Any] | None = None

    def known(self, what: str, plan: Any) -> Any:
        """Return the cached "score" or "size" of a plan; None if it was not measured."""
        return self._known.get((what, plan_key(plan)))

    def score(self, plan: Any) -> float:
        """Return the score of a plan; a model that has its pairs already is reused by switching them."""
        return float(self._once("score", plan, lambda: self._scored(plan)))

    def size(self, plan: Any) -> int:
        """Return the size of a plan's file in bytes."""
        return int(self._once("size", plan, lambda: self._file(plan).stat().st_size))

    def times(self, before: Any, after: Any, stop: Callable[[], bool] | None = None) -> qdq.LatencyReport:
        """Return the times of the file of `after` with that of `before` as baseline; both are run in turns.

        `stop` is called after every round; when it returns True, the rounds so far count.
        """
        one, other = self._file(after), self._file(before)
        return qdq.profile_onnx(one, self._work.data.for_verification(), rounds=_ROUNDS, baseline=other, stop=stop)

    def _once(self, what: str, plan: Any, measure: Callable[[], Any]) -> Any:
        key = (what, plan_key(plan))
        if key not in self._known:
            self._known[key] = measure()
        return self._known[key]

    def _scored(self, plan: Any) -> float:
        found = None if self._scores is None else self._scores.measure(plan)
        # The plan has pairs that the measured copy lacks.
        if found is None:
            self._scores = self._new_scores(plan)
            found = self._scores.measure(plan)
        return float(found)

    def _new_scores(self, plan: Any) -> Any:
        """Return a measuring copy of the plan's model with switchable pairs; without labels the metric is "sqnr"."""
        model = self._model(plan)
        steps = None if count_samples(self._data) is not None else _BATCHES
        try:
            scores = qdq.analysis.PlanScores(model, self._data, self.metric, steps=steps)
            # Missing labels raise only when the metric is computed.
            scores.measure(plan)
        except qdq.errors.DataError:
            if self.metric == "sqnr":
                raise
            self.metric = "sqnr"
            scores = qdq.analysis.PlanScores(model, self._data, self.metric, steps=steps)
        self.samples = scores.samples
        return scores

    def _model(self, plan: Any) -> Any:
        if self._built is None or self._built[0] != plan_key(plan):
            self._built = plan_key(plan), self._work.models.build(plan)
        return self._built[1]

    def _file(self, plan: Any) -> pathlib.Path:
        key = plan_key(plan)
        if key not in self._files:
            path = self._folder / f"plan_{next(self._numbers)}.onnx"
            qdq.export_onnx(self._model(plan), path, target=plan.target)
            self._files[key] = path
            while len(self._files) > _KEPT:
                self._files.popitem(last=False)[1].unlink(missing_ok=True)
        # The file that was asked for last stays when the other one of a pair is written.
        self._files.move_to_end(key)
        return self._files[key]


def _few(data: Any) -> Any:
    return few_pairs(data, MOST_SAMPLES) if count_samples(data) is not None else data
