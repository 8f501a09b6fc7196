"""The effect of a plan change: at once as an estimate, and a moment later as measured values.

Measuring begins when the user pauses, on models and files of its own, and ends with the next change or long task.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.curves import Scores, is_share
from qdq_widgets.effect_estimates import Effect, Figure, estimated_score, estimated_size, estimated_time
from qdq_widgets.effect_measuring import PlanMeasurer, is_easy
from qdq_widgets.events import Events
from qdq_widgets.exiting import ended_with_python
from qdq_widgets.measurements import Measurements
from qdq_widgets.plans import Plans
from qdq_widgets.state import plan_key
from qdq_widgets.targets import statuses
from qdq_widgets.training import Training
from qdq_widgets.work import Workshop

PAUSE_SECONDS = 1.0
_LOOKED_BACK = 8  # steps; fewer than the plans that the history keeps
_PATIENCE = 2.0  # seconds that a long task waits for the piece that is being measured


class Effects:
    """The effect of the last change of the plan; a part of `Workbench`, as `wb.effects`.

    Attributes:
        present: The effect of the last change; None before the first.
        pause: Seconds without a change after which measuring begins.
    """

    def __init__(
        self, plans: Plans, work: Workshop, measurements: Measurements, training: Training, events: Events
    ) -> None:
        self._plans, self._work, self._measurements, self._training = plans, work, measurements, training
        self._events = events
        self.present: Effect | None = None
        self.pause = PAUSE_SECONDS
        # None until the user or `begin` decides.
        self._measuring: bool | None = None
        # History and plan at the last event, with which the next change is compared.
        self._seen: tuple[Any, Any] = (plans.history, plans.plan)
        self._known_statuses: tuple[Any, dict[str, str]] = (None, {})
        self._before: Any = None
        self._told: Any = None  # the step of the last `tell_score`
        self._measurer: tuple[Any, PlanMeasurer] | None = None
        # The number of the present measurement: one with another number ends at its next piece.
        self._ticket = 0
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()  # held while a piece is measured
        events.subscribe(self._on_event)

    @property
    def measuring(self) -> bool:
        """Whether estimates are replaced by measured values when the user pauses.

        A displayed bench begins with True if that takes about a second: few validation samples, a small model.
        """
        return bool(self._measuring)

    @measuring.setter
    def measuring(self, on: bool) -> None:
        self._measuring = bool(on)
        if self._measuring:
            self._schedule()
        else:
            self._cancel()
            self._settle()

    @property
    def former(self) -> tuple[str, Mapping[str, Scores]]:
        """The label of the first change that is not scored yet, and the scores by stage of the plan before it.

        Both are empty if the present plan has scores, or none of the last plans before it has some.
        """
        models, steps, position = self._work.models, self._plans.history.steps, self._plans.history.position
        if not models.snapshot(self._plans.plan).scores:
            for place in range(position, max(0, position - _LOOKED_BACK), -1):
                scores = models.snapshot(steps[place - 1].plan).scores
                if scores:
                    return steps[place].label, scores
        return "", {}

    def begin(self) -> None:
        """Switch measuring on if it is cheap and the user has not set it; called when the bench is displayed."""
        if self._measuring is None:
            data = self._work.data.validation
            self.measuring = is_easy(self._plans.planner.graph, data)
            self._events.tell("effect")
        elif self._timer is None:  # since `rest`
            self._schedule()

    def rest(self) -> None:
        """End the present measurement, which nobody sees any more; called when the bench is displayed no longer."""
        self._cancel()
        self._timer = None
        self._settle()

    def tell_score(self, label: str, before: Scores | None, after: Scores | None, metric: str) -> None:
        """Show the effect of a step that did not change the plan, if `metric` is an accuracy and was scored."""
        self._cancel()
        self._before, self._told = None, self._plans.history.present
        values = [None if scores is None else scores.metrics.get(metric) for scores in (before, after)]
        self.present = None
        if values[0] is not None and values[1] is not None and is_share(metric):
            change = 100 * (values[1] - values[0])
            figure = Figure(change, 100 * values[1], "points", measured=True, basis=f"{metric} on the validation data")
            self.present = Effect(label, figure, state="measured", metric="accuracy")
        self._events.tell("effect")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the pending measurement has ended.

        Args:
            timeout: Maximum number of seconds to wait; None for no limit.

        Returns:
            Whether it has ended.
        """
        timer = self._timer
        if timer is not None:
            timer.join(timeout)
            return not timer.is_alive()
        return True

    def _on_event(self, event: str) -> None:
        if event == "plan":
            self._changed()
        elif event == "calibration":
            self._measurer = None  # of other ranges
            self._schedule()
        elif event == "job":
            self._make_way()

    def _changed(self) -> None:
        """Estimate the effect of the change, and schedule its measurement."""
        history, before = self._seen
        plan = self._plans.plan
        self._seen = (self._plans.history, plan)
        # A step such as a correction changes the models and leaves the plan.
        if history is self._plans.history and plan_key(before) == plan_key(plan):
            if self._told is not None and self._told is not self._plans.history.present:
                self._told = self.present = None  # that step was left
                self._events.tell("effect")
            return
        self._told = None
        self._cancel()
        if history is not self._plans.history or before.target != plan.target:
            self.present = self._before = None  # a loaded history or another target: nothing can be compared
            self._events.tell("effect")
            return
        self._before = before
        report = self._measurements.report
        self.present = Effect(
            self._plans.history.present.label,
            estimated_score(before, plan, report),
            estimated_size(before, plan),
            self._estimated_time(before, plan),
            metric="" if report is None else report.metric,
            higher_is_better=report is None or report.higher_is_better,
        )
        self._take_known()
        self._events.tell("effect")
        self._schedule()

    def _estimated_time(self, before: Any, plan: Any) -> Figure | None:
        report = self._work.models.last_latency
        if report is None:
            return None
        try:
            known, was = self._known_statuses
            was = was if known is before else statuses(qdq.explain(before, target=before.target))
            now = statuses(self._plans.explanation)
        except qdq.errors.TargetError:  # a target without rules
            return None
        self._known_statuses = (plan, now)
        return estimated_time(was, now, report)

    # ------------------------------------------------------------------ when to measure

    def _can_measure(self) -> bool:
        effect = self.present
        pending = effect is not None and effect.state != "measured" and self._before is not None
        return self.measuring and pending and self._work.models.calibration is not None

    def _schedule(self) -> None:
        self._cancel()
        # When the job has ended, `_make_way` schedules again.
        if not self._can_measure() or self._work.jobs.current is not None:
            return
        timer = threading.Timer(self.pause, self._measure, args=(self._ticket,))
        timer.name, timer.daemon = "qdq-effect", True
        self._timer = timer
        timer.start()

    def _cancel(self) -> None:
        self._ticket += 1
        if self._timer is not None:
            self._timer.cancel()

    def _make_way(self) -> None:
        """Cancel for a long task, which waits for the present piece; schedule again when the task has ended."""
        if self._work.jobs.current is None:
            self._schedule()
        elif self._timer is not None:
            self._cancel()
            # Once per job: the same event tells its progress.
            self._timer = None
            self._settle()
            # With a limit: the measuring thread may wait for the lock of the view, which this thread may hold.
            if self._lock.acquire(timeout=_PATIENCE):
                self._lock.release()

    def _is_over(self, ticket: int) -> bool:
        return ticket != self._ticket

    # ------------------------------------------------------------------ measuring

    def _measure(self, ticket: int) -> None:
        """Measure in the thread of a timer, and let the end of Python end it first."""
        with ended_with_python(self._cancel):
            self._measure_pieces(ticket)

    def _measure_pieces(self, ticket: int) -> None:
        """Measure piece by piece; a newer change ends it between two pieces, and at the next safe point of a piece."""
        pieces = self._pieces(ticket, self._before, self._seen[1])
        try:
            self._update(ticket, state="measuring")
            is_left = True
            while is_left:
                # Released between pieces, for `_make_way`.
                with self._lock, qdq.files.stoppable(lambda: self._is_over(ticket)):
                    if self._is_over(ticket):
                        return
                    is_left = next(pieces, False)
            self._update(ticket, state="measured")
        except Exception as error:  # noqa: BLE001 - runs unasked in a thread: errors become a note
            text = str(error).partition(" Received: ")[0] or type(error).__name__
            self._update(ticket, state="measured", note=f"Not everything could be measured: {text}")

    def _pieces(self, ticket: int, before: Any, after: Any) -> Iterator[bool]:
        """Measure both plans, one model or file at a time, so that a long task waits for one piece at most."""
        measurer = self._own_measurer()
        for what in ("score", "size"):
            pair = []
            for plan in (before, after):
                pair.append(getattr(measurer, what)(plan))
                yield True
            self._note(ticket, measurer, **{what: (pair[0], pair[1])})
        self._note_times(ticket, measurer.times(before, after, lambda: self._is_over(ticket)))

    def _own_measurer(self) -> PlanMeasurer:
        ranges = self._work.models.calibration
        if self._measurer is None or self._measurer[0] is not ranges:
            self._measurer = ranges, PlanMeasurer(self._work, self._training.curves.metric)
        return self._measurer[1]

    def _note(self, ticket: int, measurer: PlanMeasurer, **pairs: tuple[float, float]) -> None:
        """Show the values that were measured before and after the change."""
        figures = {what: _figure(what, measurer, *pair) for what, pair in pairs.items()}
        self._update(ticket, metric=measurer.metric, higher_is_better=True, **figures)

    def _note_times(self, ticket: int, report: qdq.LatencyReport) -> None:
        baseline, interval = report.baseline, report.speedup_interval
        if baseline is None or interval is None:
            return
        low, high = interval
        basis = f"both files in turns on this computer; {report.interval_name} of their ratio {low:.2f} to {high:.2f}"
        change = report.total_ms - baseline.total_ms
        if low <= 1.0 <= high:
            basis = f"no difference beyond the noise: {basis}"
            change = 0.0
        self._update(ticket, time=Figure(change, report.total_ms, "ms", measured=True, basis=basis))

    def _take_known(self) -> None:
        """Use cached values of both plans at once, such as after undo."""
        if self._measurer is None or self.present is None or self._measurer[0] is not self._work.models.calibration:
            return
        measurer = self._measurer[1]
        for what in ("score", "size"):
            pair = [measurer.known(what, plan) for plan in (self._before, self._seen[1])]
            if None not in pair:
                changes: dict[str, Any] = {what: _figure(what, measurer, *pair), "metric": measurer.metric}
                self.present = dataclasses.replace(self.present, higher_is_better=True, **changes)

    def _update(self, ticket: int, **changes: Any) -> None:
        if not self._is_over(ticket) and self.present is not None:
            self.present = dataclasses.replace(self.present, **changes)
            self._events.tell("effect")

    def _settle(self) -> None:
        """Set the state back from "measuring" to "estimated"."""
        if self.present is not None and self.present.state == "measuring":
            self.present = dataclasses.replace(self.present, state="estimated")
            self._events.tell("effect")


def _figure(what: str, measurer: PlanMeasurer, before: float, after: float) -> Figure:
    if what == "size":
        return Figure(after - before, after, "B", measured=True, basis="the files of both plans")
    basis = f"{measurer.metric} on {measurer.samples} samples, of calibrated models without fine-tuning"
    if measurer.metric == "accuracy":
        return Figure(100 * (after - before), 100 * after, "points", measured=True, basis=basis)
    return Figure(after - before, after, "dB", measured=True, basis=basis)
