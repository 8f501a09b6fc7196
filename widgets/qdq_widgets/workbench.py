"""The bench: every click of the notebook front end is a method of `Workbench`, and every method updates the view."""

from __future__ import annotations

import functools
import os
import pathlib
import weakref
from collections.abc import Iterable
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.background import Jobs
from qdq_widgets.code import to_code
from qdq_widgets.comparing import Comparing
from qdq_widgets.correcting import Correcting
from qdq_widgets.curves import Curves
from qdq_widgets.data import BenchData
from qdq_widgets.diagnosing import Diagnosing
from qdq_widgets.earlier import find_earlier, same_objects, take_work
from qdq_widgets.effects import Effects
from qdq_widgets.events import Events
from qdq_widgets.exports import BenchExport, Exports
from qdq_widgets.fitting import TrainingSetup
from qdq_widgets.history import History
from qdq_widgets.measurements import Measurements
from qdq_widgets.metrics import Metric
from qdq_widgets.models import ModelStore
from qdq_widgets.netron_server import NetronPage
from qdq_widgets.pane_states import PaneStates
from qdq_widgets.parts import of_part
from qdq_widgets.plans import Plans
from qdq_widgets.search import Search
from qdq_widgets.snapshots import Snapshot
from qdq_widgets.speed import Speed
from qdq_widgets.state import BenchState, Planner
from qdq_widgets.storage import LoadMethod, save_bench
from qdq_widgets.style import GRAPH_HEIGHT, checked_height
from qdq_widgets.training import Training
from qdq_widgets.variants import Variant, Variants, coverage
from qdq_widgets.work import Workshop


class Workbench:
    """Quantize a Keras model step by step, with the mouse in JupyterLab or line by line in a script.

    What the user decides (spec, cases, mode, target) is a history of states that undo and redo walk through; the plan
    follows at once. Long steps work on the plan they started with, one at a time; the state may be changed meanwhile.

    Args:
        model: A built functional or sequential Keras 3 model; it is only read.
        train_data: Labelled data to fine-tune on: (inputs, labels), a `tf.data.Dataset`, a Keras `PyDataset`.
        validation_data: Labelled data to score on.
        calibration_data: Data for the activation ranges; None for the first batches of `train_data`.
        loss: Loss for scoring and training; None for the one that the model is compiled with.
        optimizer: Optimizer for fine-tuning; None for Adam with a rate of 1e-4.
        metrics: Metrics for scoring; None for those that the model is compiled with.
        target: The inference runtime, one of `qdq_workbench.target_names()`.
        spec: A `QuantizationSpec` to start from; it is copied.
        cases: Insertion cases to start from.
        height: Height of the graph in CSS pixels, 160 or more; its lower edge can be dragged as well.

    Raises:
        QDQError: If the model, the spec or the cases cannot be used; see `qdq_workbench.plan_placement`.

    Example:
        >>> import keras
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, name="conv")(image))
        >>> wb = Workbench(model)
        >>> wb.toggle("conv", "input").change
        '-1 1 changed'
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
        self._events = Events()
        self._plans = Plans(model, spec, cases or (), target, self._events)
        self._work = Workshop(
            ModelStore(model),
            BenchData(train_data, validation_data, calibration_data),
            TrainingSetup(model, loss, optimizer, metrics),
            Jobs(lambda _: self._events.tell("job")),
        )
        self._measurements = Measurements(self._plans, self._work, self._events)
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
        self.saved_to: pathlib.Path | None = None
        self.earlier = find_earlier(self)

    load = LoadMethod()
    subscribe = of_part("_events", Events.subscribe)
    preview = of_part("_plans", Plans.preview)
    toggle = of_part("_plans", Plans.toggle)
    configure = of_part("_plans", Plans.configure)
    apply_like = of_part("_plans", Plans.apply_like)
    weights_alone = of_part("_plans", Plans.weights_alone)
    apply_case = of_part("_plans", Plans.apply_case)
    remove_case = of_part("_plans", Plans.remove_case)
    state_with_case = of_part("_plans", Plans.state_with_case)
    add_entry = of_part("_plans", Plans.add_entry)
    remove_entry = of_part("_plans", Plans.remove_entry)
    set_spec = of_part("_plans", Plans.set_spec)
    set_target = of_part("_plans", Plans.set_target)
    set_mode = of_part("_plans", Plans.set_mode)
    apply_fix = of_part("_plans", Plans.apply_fix)
    apply_fixes = of_part("_plans", Plans.apply_fixes)
    state_with_fix = of_part("_plans", Plans.state_with_fix)
    color_by = of_part("_measurements", Measurements.color_by)
    is_stale = of_part("_measurements", Measurements.is_stale)
    set_metric = of_part("_measurements", Measurements.set_metric)
    measure_sqnr = of_part("_measurements", Measurements.measure_sqnr)
    sensitivity = of_part("_measurements", Measurements.sensitivity)
    leave_in_float = of_part("_measurements", Measurements.leave_in_float)
    histogram = of_part("_measurements", Measurements.histogram)
    histograms = of_part("_measurements", Measurements.histograms)
    take_over_metrics = of_part("_measurements", Measurements.take_over_metrics)
    search = of_part("_search", Search.search)
    apply_search = of_part("_search", Search.apply_search)
    diagnose = of_part("_diagnosing", Diagnosing.diagnose)
    try_fixes = of_part("_diagnosing", Diagnosing.try_fixes)
    apply_cause = of_part("_diagnosing", Diagnosing.apply_cause)
    measure_speed = of_part("_speed", Speed.measure_speed)
    calibrate = of_part("_training", Training.calibrate)
    evaluate = of_part("_training", Training.evaluate)
    fine_tune = of_part("_training", Training.fine_tune)
    correct = of_part("corrections", Correcting.correct)
    undo = of_part("_variants", Variants.undo)
    redo = of_part("_variants", Variants.redo)
    go_to = of_part("_variants", Variants.go_to)
    keep_variant = of_part("_variants", Variants.keep_variant)
    measure_variants = of_part("_variants", Variants.measure_variants)
    show_variant = of_part("_variants", Variants.show_variant)
    compare = of_part("_variants", Variants.compare)
    export = of_part("_exports", Exports.export)
    show_netron = of_part("_exports", Exports.show_netron)
    compare_graphs = of_part("_comparing", Comparing.compare_graphs)

    @property
    def state(self) -> BenchState:
        """What the user decided so far."""
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
        """What turns states of this model into plans."""
        return self._plans.planner

    @property
    def explanation(self) -> qdq.Explanation:
        """What the target will do with every layer under the present plan."""
        return self._plans.explanation

    @property
    def history(self) -> History:
        """The states that the bench went through."""
        return self._plans.history

    @property
    def earlier(self) -> Workbench | None:
        """An earlier bench of this model that holds work, for `continue_from`; None where there is none."""
        return None if self._earlier is None else self._earlier()

    @earlier.setter
    def earlier(self, bench: Workbench | None) -> None:
        self._earlier = None if bench is None else weakref.ref(bench)

    @property
    def has_work(self) -> bool:
        """Whether anything was decided, calibrated or trained here that a new bench would not know."""
        return len(self.history) > 1 or self.calibration is not None or bool(self.curves.runs)

    @property
    def metrics(self) -> dict[str, Metric]:
        """The figures per layer by name: sizes under the present plan, and what was measured or set so far."""
        return self._measurements.metrics

    @property
    def own_metrics(self) -> list[Metric]:
        """What was measured or set so far, without the sizes that follow from the plan."""
        return self._measurements.own

    @property
    def coloring(self) -> str:
        """What the graph is coloured by: "plan", "precision", or the name of a metric."""
        return self._measurements.coloring

    @property
    def sensitivity_report(self) -> qdq.SensitivityReport | None:
        """What `sensitivity` found last; None before."""
        return self._measurements.report

    @property
    def search_result(self) -> qdq.SearchResult | None:
        """What `search` found last, a `SearchResult`; None before."""
        return self._search.result

    @property
    def diagnosis(self) -> qdq.Diagnosis | None:
        """What `diagnose` found last; None before."""
        return self._diagnosing.result

    @property
    def latency(self) -> qdq.LatencyReport | None:
        """How long the file of the present plan takes, as `measure_speed` found it; None before."""
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
        """How many validation samples scores are of; None where that is not known."""
        return self._work.data.scored_samples

    @property
    def exports(self) -> tuple[BenchExport, ...]:
        """The files exported so far, oldest first."""
        return tuple(self._exports.done)

    @property
    def netron_page(self) -> NetronPage | None:
        """What `show_netron` showed last; None before."""
        return self._exports.page

    @property
    def calibration(self) -> qdq.CalibrationResult | None:
        """The last `CalibrationResult`; None before the first calibration."""
        return self._work.models.calibration

    @property
    def snapshot(self) -> Snapshot:
        """The work on the present state: how far it is, its model, ranges, scores and file."""
        return self._work.models.snapshot(self.plan)

    @property
    def q_model(self) -> qdq.QuantizedModel:
        """The calibrated, corrected or fine-tuned model of the present plan."""
        return self._work.models.get(self.plan)

    @property
    def stage(self) -> str:
        """How far the present plan is: "planned", "calibrated", "corrected" or "fine-tuned"."""
        return self._work.models.stage(self.plan)

    @property
    def stage_note(self) -> str:
        """What to know about corrected or fine-tuned weights that the present plan has not; else empty."""
        return self._training.stage_note

    @property
    def ptq_is_stale(self) -> bool:
        """Whether the score of the calibrated model is that of another plan."""
        return self._training.ptq_is_stale

    @property
    def usual_rate(self) -> float | None:
        """The learning rate of `fine_tune` where none is given; None where the optimizer's schedule decides."""
        return self._work.setup.usual_rate

    @property
    def jobs(self) -> Jobs:
        """The long work: what runs now, and how to stop it."""
        return self._work.jobs

    def to_code(self, model_name: str = "model") -> str:
        """Return Python that rebuilds exactly this plan and its quantized model.

        Args:
            model_name: Name of the variable that holds the float model.
        """
        return to_code(self.state, model_name, self.snapshot)

    def save(self, directory: str | os.PathLike[str]) -> pathlib.Path:
        """Write the whole bench to a folder: model, history, calibration, curves, variants, trained weights.

        Args:
            directory: The folder; made if it does not exist.

        Warns:
            UserWarning: If a case was made with arguments that no file holds; `load` needs it again.
        """
        with self.jobs.run("saving"):
            self.saved_to = save_bench(self, pathlib.Path(directory))
        self._events.tell("saved")
        return self.saved_to

    def report(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write one HTML file that shows the whole bench and needs no network.

        Args:
            path: The file, ending in `.html`.
        """
        from qdq_widgets.report import write_report

        return write_report(self, pathlib.Path(path))

    def take_over(self, history: History, variants: dict[str, Variant], curves: Curves, work: Snapshot) -> None:
        """Replace everything by what a folder held; `load` calls this.

        Args:
            history: The states.
            variants: The variants by name.
            curves: The scores.
            work: The work on the present state.
        """
        with self.jobs.run("loading"), self._plans.lock:
            self._plans.history, self._variants.by_name, self._training.curves = history, variants, curves
            self._work.models = ModelStore.restored(self.model, self.plan, work)
        self.earlier = None
        self._events.tell("plan", "calibration", "curves", "variants")

    def continue_from(self, other: Workbench) -> str:
        """Take over what was done in another bench of the same model: for new data, or after the cell ran again.

        Of a model that was built anew, or whose weights have changed since, only the history and the variants fit.
        Scores come along where the validation data are the same objects.

        Args:
            other: The other bench; it stays as it is.

        Returns:
            What was taken over, in a sentence.

        Raises:
            BenchError: If it is a bench of another model.
        """
        same_data = same_objects(self._work.data.validation, other._work.data.validation)
        same_weights = self.model is other.model and not other._work.models.weights_changed
        taken = take_work(self, other, same_data=same_data, same_weights=same_weights)
        if same_weights:
            self._work.models.adopt(other._work.models, with_scores=same_data)
            self._events.tell("calibration", "stage")
        return taken

    @functools.cached_property
    def view(self) -> Any:
        """The bench as widgets; made on first use."""
        from qdq_widgets.view import BenchView

        return BenchView(self)

    def _ipython_display_(self) -> None:
        from qdq_widgets.displayed import display_bench

        display_bench(self)
        self.effects.begin()

    def __repr__(self) -> str:
        return (
            f"Workbench({self.graph.name!r}: {len(self.plan.tensors)} Q/DQ pairs for {self.plan.target}, "
            f"{' of '.join(map(str, coverage(self.plan)))} computing layers quantized, {self.stage}; "
            f"step {self.history.position} of {len(self.history) - 1}: {self.history.present.label})"
        )
