"""Accuracies of placements that a search will probably need next, measured ahead in joblib's workers.

The search itself runs in one process and finds these values where it would have measured them. So the result is the
same, and a placement that was measured in vain costs time only.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Sequence

import joblib

from qdq_workbench.analysis.metrics import Metric
from qdq_workbench.analysis.pool import Job, in_workers, job_of
from qdq_workbench.analysis.samples import Samples
from qdq_workbench.analysis.search_judge import judge_of
from qdq_workbench.analysis.search_switches import SwitchedTrials
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.retarget import replan
from qdq_workbench.conversion.engine.strip import strip
from qdq_workbench.placement.plan import PlacementPlan


@dataclasses.dataclass(frozen=True)
class Request:
    """A placement whose accuracy is requested.

    Args:
        key: Its key in the checkpoint.
        start: The plan of its start.
        plan: Its plan.
        by_switches: Whether to measure it by switches where possible.
    """

    key: str
    start: PlacementPlan
    plan: PlacementPlan
    by_switches: bool


@dataclasses.dataclass(frozen=True)
class Answer:
    """The accuracy of a placement.

    Args:
        accuracy: The metric.
        by_switches: Whether it was measured by switches instead of the placement's built model.
    """

    accuracy: float
    by_switches: bool


class ParallelMeasurer:
    """Measures placements in workers, as many at once as there are workers.

    Args:
        q_model: The calibrated model of the search; it is only read.
        samples: The samples of the search.
        metric: The metric.
        n_jobs: How many workers; None for the number of `joblib.parallel_config`.
    """

    def __init__(self, q_model: QuantizedModel, samples: Samples, metric: Metric, n_jobs: int | None) -> None:
        self._q_model, self._samples, self._metric, self._n_jobs = q_model, samples, metric, n_jobs
        self._job: Job[_Bench] | None = None
        alone = joblib.Parallel(n_jobs=n_jobs).n_jobs in (None, 1)
        self.width = 1 if alone else max(1, joblib.effective_n_jobs(n_jobs))

    def measure(self, asked: Sequence[Request], tell: Callable[[str, Answer], None]) -> None:
        """Measure placements, and call `tell` with the key and the answer of each as soon as it is known.

        A search can stop only after all of them: there is at most one per worker, so all are under way.
        """
        # At the first use: a search whose measurements are all known need not save the model.
        self._job = self._job or job_of(self._q_model, self._samples, self._metric, _Bench.of)
        with contextlib.closing(in_workers(self._job, _Bench.answer, asked, self._n_jobs)) as results:
            for position, answer in results:
                tell(asked[position].key, answer)


class _Bench:
    """The state of a worker, which measures as a search in one process does: by switches or by a built model."""

    def __init__(self, q_model: QuantizedModel, job: Job[_Bench]) -> None:
        self._q_model, self._float_model = q_model, strip(q_model)
        self._samples, self._metric = job.samples, job.settings
        self._judge = judge_of(job.samples, job.settings)
        self._switched: tuple[PlacementPlan, SwitchedTrials] | None = None

    @classmethod
    def of(cls, q_model: QuantizedModel, job: Job[_Bench]) -> _Bench:
        return cls(q_model, job)

    def answer(self, asked: Request) -> Answer:
        if asked.by_switches:
            found = self._switches(asked.start).measure(asked.plan)
            if found is not None:
                return Answer(found, by_switches=True)
        return Answer(self._judge(replan(self._q_model, asked.plan), self._float_model), by_switches=False)

    def _switches(self, start: PlacementPlan) -> SwitchedTrials:
        # By value, not identity: every request brings a copy of the plan of its start to another process.
        if self._switched is None or self._switched[0] != start:
            model = self._q_model if start == self._q_model.plan else replan(self._q_model, start)
            self._switched = start, SwitchedTrials(model, self._samples, self._metric)
        return self._switched[1]


def first_unknown(asked: Iterable[Request | None], width: int) -> list[Request]:
    """Return up to `width` requests to measure ahead; none if the first one is known, that is None."""
    found: dict[str, Request] = {}
    # `asked` is read only as far as needed, since every request makes a plan.
    for one in asked:
        if one is not None:
            found.setdefault(one.key, one)
        if not found or len(found) == width:
            break
    return list(found.values())
