"""Diagnosis in a bench: why the present plan loses accuracy, the gains of fixes, and applying one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.background import Job
from qdq_widgets.data import few_pairs, fit_arguments
from qdq_widgets.errors import BenchError
from qdq_widgets.events import Events
from qdq_widgets.history import Step
from qdq_widgets.plain_numbers import whole
from qdq_widgets.plans import Plans
from qdq_widgets.work import Workshop


def _stoppable(job: Job, report: Callable[[int, int, str], None]) -> Callable[[int, int, str], None]:
    """Return the progress of a diagnosis; a stop before the first site was measured ends it without a result."""

    def show(done: int, total: int, text: str) -> None:
        if not done:
            job.raise_if_stopped()
        report(done, total, text)

    return show


class Diagnosing:
    """Causes of an accuracy loss by `qdq_workbench.diagnose`; a part of `Workbench`.

    Attributes:
        result: The last diagnosis; None before the first.
    """

    def __init__(self, plans: Plans, work: Workshop, events: Events) -> None:
        self._plans, self._work, self._events = plans, work, events
        self.result: qdq.Diagnosis | None = None

    def diagnose(self, /, *, samples: int = 512, **settings: Any) -> qdq.Diagnosis:
        """Find the causes of the present plan's accuracy loss on the validation data; nothing is changed.

        Args:
            samples: Maximum number of samples to read, if the data are arrays.
            **settings: Further arguments of `qdq_workbench.diagnose`, such as `metric`.

        Returns:
            The `Diagnosis`: `try_fixes` measures the fixes of its causes, `apply_cause` applies one.
        """
        plan, data = self._plans.plan, self._work.data.validation
        with self._work.jobs.run("diagnosis") as job:
            # For its error, before the model is built.
            fit_arguments(data, "validation_data")
            model, how = self._work.swept(plan, job, samples)
            has_own = self._work.data.calibration is not None or self._work.data.train is not None
            calibration = few_pairs(self._work.data.for_calibration()[0], samples) if has_own else None
            how["progress"] = _stoppable(job, how["progress"])
            # `how` overrides the calibration data: of a plan without ranges it has its own, with the plan.
            found = qdq.diagnose(
                model, few_pairs(data, samples), **{"calibration_data": calibration, **how, **settings}
            )
        self.result = found
        self._events.tell("diagnosis")
        return found

    def try_fixes(self) -> qdq.Diagnosis:
        """Apply the fixes one after the other to a copy of the model, and record the gain of each at its cause."""
        found = self._found()
        with self._work.jobs.run("trying the fixes") as job:
            found.apply(
                progress=lambda done, total, text: job.report(done / total if total else None, text),
                stop=lambda: job.stop_requested,
            )
        self._events.tell("diagnosis")
        return found

    def apply_cause(self, place: int = 0) -> Step:
        """Apply the fix of a cause that changes the plan: one undoable step with an entry per layer.

        Args:
            place: Index of the cause in the diagnosis, from 0.

        Raises:
            BenchError: If nothing was diagnosed, there is no such cause, or its fix does not change the plan.
        """
        found, state = self._found(), self._plans.state
        place = whole(place)
        if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < len(found.causes):
            raise BenchError(f"There are {len(found.causes)} causes, counted from 0. Received: place={place!r}")
        cause = found.causes[place]
        fix = next((fix for fix in cause.fixes if fix.text == cause.fix), None)
        if fix is None or fix.replan is None:
            raise BenchError(
                f"This is no change of the plan: {cause.fix}. Calibrate in the Calibration pane, or correct the float "
                "model and make a bench of it; in code, diagnosis.apply(cause) returns the fixed model."
            )
        return self._plans.change(cause.fix, state.replace(spec=fix.entries(state.spec, self._plans.plan)))

    def _found(self) -> qdq.Diagnosis:
        if self.result is None:
            raise BenchError("Nothing was diagnosed yet. Run wb.diagnose() first.")
        return self.result
