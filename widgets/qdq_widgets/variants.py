"""Named variants of a bench: their scores, and their differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.background import Job
from qdq_widgets.errors import BenchError, BenchStoppedError
from qdq_widgets.events import Events
from qdq_widgets.fitting import evaluate
from qdq_widgets.graph_tables import computing_nodes
from qdq_widgets.history import Aside, Step
from qdq_widgets.plans import Plans
from qdq_widgets.snapshots import CALIBRATED, Snapshot
from qdq_widgets.speed import PLAN_FILE, profile
from qdq_widgets.state import BenchState
from qdq_widgets.training import Training
from qdq_widgets.work import Workshop


@dataclasses.dataclass(frozen=True)
class Variant:
    """A state with a name, and a snapshot of all work on it, which `show_variant` restores.

    Args:
        name: The name.
        state: The state.
        pairs: Number of Q/DQ pairs of its plan.
        quantized: Number of computing layers that are quantized in full; see `coverage`.
        computing: Number of computing layers.
        metric: Name of the metric of `accuracy`.
        accuracy: The metric on the validation data, of the model at its stage; None if not measured.
        size: Bytes of the exported file; None if it was not exported.
        stage: "planned", "calibrated", "corrected" or "fine-tuned".
        int8: The share of the multiplications that the target computes in INT8, from 0 to 1; None if the library has
            no rules for the target.
        work: Its model, ranges, scores and file.
    """

    name: str
    state: BenchState
    pairs: int
    quantized: int
    computing: int
    metric: str = ""
    accuracy: float | None = None
    size: int | None = None
    stage: str = "planned"
    int8: float | None = None
    work: Snapshot = dataclasses.field(default_factory=Snapshot, repr=False, compare=False)

    @property
    def latency(self) -> qdq.LatencyReport | None:
        """The times of the file in ONNX Runtime, with the float file as baseline; None if they were not measured."""
        return self.work.latency


class Variants:
    """Named states, and moves between the states of the history; a part of `Workbench`.

    Attributes:
        by_name: The variants by name, oldest first.
    """

    def __init__(self, plans: Plans, work: Workshop, training: Training, events: Events) -> None:
        self._plans, self._work, self._training, self._events = plans, work, training, events
        self.by_name: dict[str, Variant] = {}

    def keep_variant(self, name: str) -> Variant:
        """Keep the present state under a name, to compare it with others and to return to it.

        All present work on the state is kept with it: ranges, weights, scores, stage and file. Weights are kept by
        reference; training makes new ones.

        Args:
            name: The name; an earlier variant of that name is replaced.

        Raises:
            BenchError: If the name is empty.
        """
        if not name.strip():
            raise BenchError(f"A variant needs a name. Received: name={name!r}")
        with self._plans.lock:
            plan = self._plans.plan
            work = self._work.models.snapshot(plan)
            self.by_name[name] = self._described(name, self._plans.state, plan, work)
        self._events.tell("variants")
        return self.by_name[name]

    def measure_variants(self, *, batch_size: int = 32) -> tuple[Variant, ...]:
        """Score every variant on the validation data, and measure the size and the times of its file.

        Known values are not measured again. Each variant is measured with its own ranges and weights; one that was
        kept before any calibration gets the ranges of the last one.

        Args:
            batch_size: Samples per batch of an array.

        Returns:
            All variants; after a stop, those that are not measured yet are unchanged.

        Raises:
            BenchError: If there is no variant, or a variant needs ranges before the first calibration.
        """
        if not self.by_name:
            raise BenchError("There is no variant yet. Keep the present state under a name: wb.keep_variant('first')")
        with self._work.jobs.run("measuring the variants") as job:
            if self._work.can_score() and self._training.curves.fp32 is None:
                self._training.score_unless_stopped(self._plans.plan, job, batch_size)
            for number, variant in enumerate(tuple(self.by_name.values())):
                job.report(number / len(self.by_name), variant.name)
                if variant.stage != variant.work.stage:
                    continue  # of a folder of an earlier version, which kept no weights of variants
                plan = self._plans.planner.plan(variant.state)
                try:
                    parts = [(number + share) / len(self.by_name) for share in (0.0, 0.5, 1.0)]
                    work = self._measure(plan, variant.work, job, batch_size, variant.name, parts)
                except BenchStoppedError:
                    break
                self.by_name[variant.name] = self._described(variant.name, variant.state, plan, work)
                self._events.tell("variants")
        return tuple(self.by_name.values())

    def show_variant(self, name: str) -> Step:
        """Restore a variant: its plan, ranges, weights, scores, stage and file; undo restores the former ones.

        Args:
            name: Its name.

        Raises:
            BenchError: If there is no such variant.
        """
        state = self._state_of(name)
        with self._work.jobs.run("going to a variant"), self._plans.lock:
            plan, models = self._plans.planner.plan(state), self._work.models
            aside = Aside(models.copy_contents())
            models.restore(plan, self.by_name[name].work)
            step = self._plans.history.push(f"variant {name}", state, plan, aside)
        self._tell_exchanged()
        return step

    def undo(self) -> Step:
        """Go back one step in the history.

        Raises:
            BenchError: If the present step is the first.
        """
        return self._walk(self._plans.history.undo)

    def redo(self) -> Step:
        """Go forward one step in the history.

        Raises:
            BenchError: If nothing was undone.
        """
        return self._walk(self._plans.history.redo)

    def go_to(self, position: int) -> Step:
        """Go to a step of the history.

        Args:
            position: Its index in `history.steps`.

        Raises:
            BenchError: If there is no such step.
        """
        return self._walk(lambda: self._plans.history.go_to(position))

    def compare(self, first: str, second: str | None = None) -> Any:
        """Return the differences of two plans, pair by pair.

        Args:
            first: Name of a variant.
            second: Name of another one; None for the present state.

        Returns:
            The `PlanDiff` from the first to the second.

        Raises:
            BenchError: If there is no such variant.

        Example:
            `wb.compare("all int8", "head in float").removed`
        """
        after = self._plans.plan if second is None else self._plans.planner.plan(self._state_of(second))
        return self._plans.planner.plan(self._state_of(first)).diff(after)

    def _state_of(self, name: str) -> BenchState:
        if name not in self.by_name:
            raise BenchError(f"There is no such variant. Known: {sorted(self.by_name)}. Received: name={name!r}")
        return self.by_name[name].state

    def _walk(self, move: Callable[[], Step]) -> Step:
        """Move in the history, and swap the models at every step that has models aside, such as those to a variant."""
        with self._plans.lock:
            history = self._plans.history
            start = history.position
            step = move()
            end = history.position
            asides = [step.aside for step in history.between(start, end) if step.aside is not None]
            if not asides:
                self._events.tell("plan")
                return step
            history.go_to(start)  # back: while a long task runs, `run` raises and the models must not be swapped
            with self._work.jobs.run("going to a variant"):
                for aside in asides:
                    # Each step takes what its other side now is: the way back swaps again.
                    aside.contents = self._work.models.swap(aside.contents)
                step = history.go_to(end)
        self._tell_exchanged()
        return step

    def _tell_exchanged(self) -> None:
        scores = self._work.models.scores(self._plans.plan, CALIBRATED)
        if scores is not None:
            self._training.curves = self._training.curves.replace(ptq=scores)
        self._events.tell("plan", "calibration", "stage", "curves")

    def _described(self, name: str, state: BenchState, plan: Any, work: Snapshot) -> Variant:
        metric = self._training.curves.metric
        accuracy = work.score.metrics.get(metric) if work.score else None
        size, share = work.size, int8_share(plan)
        counts = (len(plan.tensors), *coverage(plan))
        return Variant(name, state, *counts, metric, accuracy, size, work.stage, share, work)

    def _measure(
        self, plan: Any, work: Snapshot, job: Job, batch_size: int, name: str, parts: Sequence[float]
    ) -> Snapshot:
        """Measure missing scores, size and times of a variant; one without ranges gets those of the bench.

        The parts are where in the job's progress the score begins, the file begins, and both are done.
        """
        start, middle, end = parts
        models = self._work.models
        present = models.snapshot(plan)
        if work.stage == "planned":
            if models.calibration is None:
                models.get(plan)  # raises the error that asks for a calibration
            work = work.replace(stage=CALIBRATED, calibration=models.calibration)
        score = self._work.can_score() and work.score is None
        if score or work.size is None or work.latency is None:
            q_model = work.model
            if q_model is None:
                job.report(start, f"{name}: building the quantized model")
                with job.stops():
                    q_model = models.build(plan, work.calibration)
            if score:
                self._work.setup.compile(q_model)
                data, text = self._work.data.validation, f"{name}: scoring"
                work = work.with_score(evaluate(q_model, data, batch_size, job, text=text, part=(start, middle)))
            if work.size is None or work.latency is None:
                job.raise_if_stopped()
                job.report(middle, f"{name}: writing the files")
                work = self._measure_file(plan, work, q_model, job, (middle, end))
        # The bench has the same ranges and weights, so what was measured is true of its own model.
        if work.is_of(present):
            models.remember_scores(plan, work.stage, work.score)
            if work.size is not None:
                models.remember_file(plan, work.size)
            if work.latency is not None:
                models.remember_latency(plan, work.latency)
        return work

    def _measure_file(self, plan: Any, work: Snapshot, q_model: Any, job: Job, part: tuple[float, float]) -> Snapshot:
        with qdq.files.scratch_folder() as folder:
            with job.stops():
                report = qdq.export_onnx(q_model, folder / PLAN_FILE, target=plan.target)
            if work.size is None:
                work = work.replace(size=report.bytes)
            if work.latency is None:
                work = work.replace(latency=profile(self._work, report.path, plan.target, job, {}, part))
        return work


def coverage(plan: Any) -> tuple[int, int]:
    """Return the number of computing layers that are quantized in full, and the number of computing layers.

    Computing layers are those with a kernel or embeddings, and those with several inputs. A layer is quantized in full
    if all floating-point inputs of all its calls are quantized, and also a weight if it has any.
    """
    weights = {placement.layer for placement in plan.placements if placement.site == "weight"}
    whole: dict[str, bool] = {}
    for node, layer, weighs, floats in plan.graph.once(computing_nodes):
        full = layer in weights or not weighs
        full = full and all(plan.input_placement(node, index) is not None for index in floats)
        whole[layer] = full and whole.get(layer, True)
    return sum(whole.values()), len(whole)


def int8_share(plan: Any) -> float | None:
    """Return the share of multiplications, from 0 to 1, that the plan's target computes in INT8; None if unknown."""
    try:
        return float(qdq.explain(plan, target=plan.target).coverage["macs"])
    except qdq.errors.TargetError:
        return None
