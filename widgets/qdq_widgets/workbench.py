"""The bench: every click of the notebook front end is a method of `Workbench`, and every method updates the view."""

from __future__ import annotations

import os
import pathlib
import weakref
from collections.abc import Iterable
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.background import Jobs
from qdq_widgets.comparing import Comparing
from qdq_widgets.correcting import Correcting
from qdq_widgets.curves import Curves
from qdq_widgets.data import BenchData
from qdq_widgets.diagnosing import Diagnosing
from qdq_widgets.earlier import continue_bench, find_earlier, take_over_work
from qdq_widgets.effects import Effects
from qdq_widgets.events import Events
from qdq_widgets.exports import BenchExport, Exports
from qdq_widgets.fitting import TrainingSetup
from qdq_widgets.history import History
from qdq_widgets.journal import Journal
from qdq_widgets.measurements import Measurements
from qdq_widgets.metrics import Metric
from qdq_widgets.models import ModelStore
from qdq_widgets.netron_server import NetronPage
from qdq_widgets.pane_states import PaneStates
from qdq_widgets.parts import of_part, step_of
from qdq_widgets.plans import Plans
from qdq_widgets.search import Search
from qdq_widgets.selecting import Selecting
from qdq_widgets.snapshots import Snapshot
from qdq_widgets.speed import Speed
from qdq_widgets.state import BenchState, Planner
from qdq_widgets.storage import LoadMethod, save_bench
from qdq_widgets.style import GRAPH_HEIGHT, checked_height
from qdq_widgets.training import Training
from qdq_widgets.variants import Variant, Variants, coverage
from qdq_widgets.work import Workshop
from qdq_widgets.work_code import bench_code


class Workbench:
    """Quantize a Keras model step by step, with the mouse in JupyterLab or line by line in a script.

    The decisions of the user (spec, cases, mode, target) form a history of states for undo and redo; every change
    replans at once. Long tasks run one at a time, each on the plan that was present when it started; the state can be
    changed while they run.

    Args:
        model: A built functional or sequential Keras 3 model; it is only read.
        train_data: Labelled data to fine-tune on: (inputs, labels), a `tf.data.Dataset`, a Keras `PyDataset`.
        validation_data: Labelled data to score on.
        calibration_data: Data for the activation ranges; None for the first batches of `train_data`.
        loss: Loss for scoring and training; None for the one that the model is compiled with.
        optimizer: Optimizer for fine-tuning; None for Adam with a learning rate of 1e-4.
        metrics: Metrics for scoring; None for those that the model is compiled with.
        target: The inference runtime, one of `qdq_workbench.target_names()`.
        spec: A `QuantizationSpec` to start from; it is copied.
        cases: Insertion cases to start from.
        height: Height of the graph in CSS pixels, 160 or more; its lower edge can be dragged as well.

    Raises:
        QDQError: If the model, the spec or the cases cannot be used, see `qdq_workbench.plan_placement`; or if the
            height is too small.

    Example:
        >>> import keras
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, name="conv")(image))
        >>> wb = Workbench(model)
        >>> wb.toggle("conv", "input").change
        '1 pair less, 1 with another grid or author'
    """

    def __init__(
        self,
        model: Any,
        *,
        train_data: Any = None,
        validation_data: Any = None,
        calibration_data: Any = None,
        loss: Any = None,
        optimizer: Any = None,
        metrics: Any = None,
        target: str = "tensorrt",
        spec: Any = None,
        cases: Iterable[Any] | None = None,
        height: int = GRAPH_HEIGHT,
    ) -> None:
        self.height = checked_height(height)
        self.model = model
        data = {"train_data": train_data, "validation_data": validation_data, "calibration_data": calibration_data}
        setup = {"loss": loss, "optimizer": optimizer, "metrics": metrics}
        self._events, cases = Events(), tuple(cases or ())
        self.journal = Journal({**data, **setup, "target": target, "spec": spec}, cases, self._events)
        self._plans = Plans(model, spec, cases, target, self._events)
        self._work = Workshop(
            ModelStore(model),
            BenchData(train_data, validation_data, calibration_data),
            TrainingSetup(model, loss, optimizer, metrics),
            Jobs(lambda _: self._events.tell("job")),
        )
        self._measurements = Measurements(self._plans, self._work, self._events)
        self._selecting = Selecting(self._plans, self._measurements, self._events)
        self._search = Search(self._plans, self._work, self._events)
        self._diagnosing = Diagnosing(self._plans, self._work, self._events)
        self._speed = Speed(self._plans, self._work, self._events)
        self._training = Training(self._plans, self._work, self._events)
        self._variants = Variants(self._plans, self._work, self._training, self._events)
        self._exports = Exports(self._plans, self._work, self._events)
        self._comparing = Comparing(self._plans, self._variants, self._exports, self._work)
        self.effects = Effects(self._plans, self._work, self._measurements, self._training, self._events)
        self.corrections = Correcting(type(self), self._plans, self._work, self._training, self.effects, self._events)
        self.pane_states = PaneStates(self._events)
        self._view: Any = None
        self.saved_to: pathlib.Path | None = None
        # Last, as it reads the graph and registers this bench for those that come after it.
        self.earlier = find_earlier(self)

    load = LoadMethod()
    continue_from = continue_bench
    take_over = take_over_work
    subscribe = of_part("_events", Events.subscribe)
    preview = of_part("_plans", Plans.preview)
    toggle = step_of("_plans", Plans.toggle)
    configure = step_of("_plans", Plans.configure)
    apply_like = step_of("_plans", Plans.apply_like)
    weights_alone = step_of("_plans", Plans.weights_alone)
    apply_case = step_of("_plans", Plans.apply_case)
    remove_case = step_of("_plans", Plans.remove_case)
    state_with_case = of_part("_plans", Plans.state_with_case)
    add_entry = step_of("_plans", Plans.add_entry)
    remove_entry = step_of("_plans", Plans.remove_entry)
    set_spec = step_of("_plans", Plans.set_spec)
    set_target = step_of("_plans", Plans.set_target)
    set_mode = step_of("_plans", Plans.set_mode)
    apply_fix = step_of("_plans", Plans.apply_fix)
    apply_fixes = step_of("_plans", Plans.apply_fixes)
    state_with_fix = of_part("_plans", Plans.state_with_fix)
    find = of_part("_selecting", Selecting.find)
    select = of_part("_selecting", Selecting.select)
    color_rules = step_of("_selecting", Selecting.color_rules)
    take_over_colors = of_part("_selecting", Selecting.take_over_colors)
    rule_values = of_part("_selecting", Selecting.rule_values)
    to_script = of_part("journal", Journal.to_script)
    color_by = step_of("_measurements", Measurements.color_by)
    is_stale = of_part("_measurements", Measurements.is_stale)
    set_metric = step_of("_measurements", Measurements.set_metric)
    measure_sqnr = step_of("_measurements", Measurements.measure_sqnr)
    sensitivity = step_of("_measurements", Measurements.sensitivity)
    leave_in_float = step_of("_measurements", Measurements.leave_in_float)
    histogram = of_part("_measurements", Measurements.histogram)
    histograms = of_part("_measurements", Measurements.histograms)
    take_over_metrics = of_part("_measurements", Measurements.take_over_metrics)
    search = step_of("_search", Search.search)
    apply_search = step_of("_search", Search.apply_search)
    diagnose = step_of("_diagnosing", Diagnosing.diagnose)
    try_fixes = step_of("_diagnosing", Diagnosing.try_fixes)
    apply_cause = step_of("_diagnosing", Diagnosing.apply_cause)
    measure_speed = step_of("_speed", Speed.measure_speed)
    calibrate = step_of("_training", Training.calibrate)
    evaluate = step_of("_training", Training.evaluate)
    fine_tune = step_of("_training", Training.fine_tune)
    correct = step_of("corrections", Correcting.correct)
    undo = step_of("_variants", Variants.undo)
    redo = step_of("_variants", Variants.redo)
    go_to = step_of("_variants", Variants.go_to)
    keep_variant = step_of("_variants", Variants.keep_variant)
    measure_variants = step_of("_variants", Variants.measure_variants)
    show_variant = step_of("_variants", Variants.show_variant)
    compare = of_part("_variants", Variants.compare)
    export = step_of("_exports", Exports.export)
    show_netron = of_part("_exports", Exports.show_netron)
    compare_graphs = of_part("_comparing", Comparing.compare_graphs)

    @property
    def state(self) -> BenchState:
        """The present state: spec, cases, mode and target."""
        return self._plans.state

    @property
    def spec(self) -> qdq.QuantizationSpec:
        """A copy of the specification; change the bench's own with `toggle`, `add_entry`, `remove_entry`."""
        return self.state.spec.copy()

    @property
    def plan(self) -> qdq.PlacementPlan:
        """The placement plan of the present state."""
        return self._plans.plan

    @property
    def graph(self) -> qdq.ModelGraph:
        """The model's graph."""
        return self.planner.graph

    @property
    def planner(self) -> Planner:
        """The planner, which turns states of this model into plans."""
        return self._plans.planner

    @property
    def explanation(self) -> qdq.Explanation:
        """How the target runs every layer under the present plan, with the reasons."""
        return self._plans.explanation

    @property
    def history(self) -> History:
        """The states that the bench went through."""
        return self._plans.history

    @property
    def earlier(self) -> Workbench | None:
        """An earlier bench of this model that holds work, for `continue_from`; None if there is none."""
        return None if self._earlier is None else self._earlier()

    @earlier.setter
    def earlier(self, bench: Workbench | None) -> None:
        self._earlier = None if bench is None else weakref.ref(bench)

    @property
    def has_work(self) -> bool:
        """Whether the bench has a step after the first, a calibration or a fine-tuning run."""
        return len(self.history) > 1 or self.calibration is not None or bool(self.curves.runs)

    @property
    def metrics(self) -> dict[str, Metric]:
        """All metrics per layer, by name: sizes under the present plan, measured ones, and those of `set_metric`."""
        return self._measurements.metrics

    @property
    def own_metrics(self) -> list[Metric]:
        """The measured metrics and those of `set_metric`, without the sizes that follow from the plan."""
        return self._measurements.own

    @property
    def coloring(self) -> str:
        """The colouring of the graph: "plan", "precision", "rules", or the name of a metric."""
        return self._measurements.coloring

    @property
    def selection(self) -> tuple[str, ...]:
        """Names of the selected calls of layers."""
        return self._selecting.names

    @property
    def rules(self) -> dict[str, str]:
        """The rules that colour the graph: colours by query; see `color_rules`."""
        return dict(self._selecting.rules)

    @property
    def sensitivity_report(self) -> qdq.SensitivityReport | None:
        """The report of the last `sensitivity`; None before the first."""
        return self._measurements.report

    @property
    def search_result(self) -> qdq.SearchResult | None:
        """The result of the last `search`; None before the first."""
        return self._search.result

    @property
    def diagnosis(self) -> qdq.Diagnosis | None:
        """The result of the last `diagnose`; None before the first."""
        return self._diagnosing.result

    @property
    def latency(self) -> qdq.LatencyReport | None:
        """The times of the present plan's file from `measure_speed`; None if they were not measured."""
        return self._work.models.latency(self.plan)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The named variants, oldest first."""
        return tuple(self._variants.by_name.values())

    @property
    def curves(self) -> Curves:
        """Scores of the float model, after calibration, and along every fine-tuning run."""
        return self._training.curves

    @property
    def scored_samples(self) -> int | None:
        """The number of validation samples that scores are computed on; None if it is not known."""
        return self._work.data.scored_samples

    @property
    def exports(self) -> tuple[BenchExport, ...]:
        """The files exported so far, oldest first."""
        return tuple(self._exports.done)

    @property
    def netron_page(self) -> NetronPage | None:
        """The page of the last `show_netron`; None before the first."""
        return self._exports.page

    @property
    def calibration(self) -> qdq.CalibrationResult | None:
        """The last `CalibrationResult`; None before the first calibration."""
        return self._work.models.calibration

    @property
    def snapshot(self) -> Snapshot:
        """The work on the present plan: its stage, model, ranges, scores and file."""
        return self._work.models.snapshot(self.plan)

    @property
    def q_model(self) -> qdq.QuantizedModel:
        """The calibrated, corrected or fine-tuned model of the present plan."""
        return self._work.models.get(self.plan)

    @property
    def stage(self) -> str:
        """The stage of the present plan: "planned", "calibrated", "corrected" or "fine-tuned"."""
        return self._work.models.stage(self.plan)

    @property
    def stage_note(self) -> str:
        """A note if only another plan has corrected or fine-tuned weights, or some were dropped; else empty."""
        return self._training.stage_note

    @property
    def ptq_is_stale(self) -> bool:
        """Whether the score of the calibrated model in `curves` is that of another plan."""
        return self._training.ptq_is_stale

    @property
    def usual_rate(self) -> float | None:
        """The learning rate of `fine_tune` if none is given; None for a schedule, or an optimizer given by name."""
        return self._work.setup.usual_rate

    @property
    def jobs(self) -> Jobs:
        """The long tasks: the running one, and how to stop it."""
        return self._work.jobs

    def to_code(self, model_name: str = "model") -> str:
        """Return Python that rebuilds exactly this plan and its model, and calibrates, trains and exports as done here.

        Args:
            model_name: Name of the variable that holds the float model; data have the names of the arguments of
                `Workbench`.
        """
        written = self._exports.exports_of(self.plan)
        return bench_code(self.state, self.snapshot, written[-1] if written else None, self._work, model_name)

    def save(self, directory: str | os.PathLike[str]) -> pathlib.Path:
        """Write the whole bench to a folder: model, history, calibration, curves, variants, trained weights.

        Args:
            directory: The folder; created if it does not exist.

        Warns:
            UserWarning: If a case, loss, optimizer or metric cannot be saved; `load` needs it again.
        """
        with self.jobs.run("saving"):
            self.saved_to = save_bench(self, pathlib.Path(directory), self._work)
        self._events.tell("saved")
        return self.saved_to

    def report(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write one HTML file that shows the whole bench and needs no network.

        Summary, scores and the layers that matter come first; long tables are folded, and open on paper.

        Args:
            path: The file, ending in `.html`.
        """
        from qdq_widgets.report import write_report

        return write_report(self, pathlib.Path(path))

    @property
    def view(self) -> Any:
        """The widgets of the bench, created on first use."""
        if self._view is None:
            # Here, so that a bench in a script needs no widget library.
            from qdq_widgets.view import BenchView

            self._view = BenchView(self)
            self._view.on_event("selection")  # not before: the inspector reads `bench.view`
        return self._view

    def _ipython_display_(self) -> None:
        from qdq_widgets.displayed import display_bench

        display_bench(self)

    def _display_(self) -> Any:
        from qdq_widgets.displayed import marimo_bench

        return marimo_bench(self)

    def __repr__(self) -> str:
        return (
            f"Workbench({self.graph.name!r}: {len(self.plan.tensors)} Q/DQ pairs for {self.plan.target}, "
            f"{' of '.join(map(str, coverage(self.plan)))} computing layers quantized, {self.stage}; "
            f"step {self.history.position} of {len(self.history) - 1}: {self.history.present.label})"
        )
