"""The bench: every click of the notebook front end is a method of `Workbench`, and every method updates the view."""

from __future__ import annotations

import os
import pathlib
import weakref
from collections.abc import Iterable
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.background import Jobs
from qdq_widgets.code import to_code
from qdq_widgets.curves import Curves, TrainingRun
from qdq_widgets.earlier import find_earlier, same_objects, take_work
from qdq_widgets.errors import BenchError
from qdq_widgets.history import History
from qdq_widgets.models import ModelStore
from qdq_widgets.netron_server import NetronPage, shared_server
from qdq_widgets.snapshots import CALIBRATED, Snapshot
from qdq_widgets.storage import LoadMethod, save_bench
from qdq_widgets.style import GRAPH_HEIGHT, checked_height
from qdq_widgets.training import TrainingSetup
from qdq_widgets.variant_bench import VariantBench
from qdq_widgets.variants import Variant, coverage
from qdq_widgets.work import BenchData, BenchExport, Workshop

BATCH_SIZE = 32


class Workbench(VariantBench):
    """Quantize a Keras model step by step, with the mouse in JupyterLab or line by line in a script.

    What the user decides (spec, cases, mode, target) is a history of states that undo and redo walk through; the
    plan follows from the present state at once. Calibration, training and export work on that plan. Only one of
    them runs at a time; the state may be changed meanwhile, they keep to the plan they started with.

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
        >>> wb.undo().label
        'start'
    """

    load = LoadMethod()

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
        super().__init__(model, spec, cases or (), target)
        self._work = Workshop(
            ModelStore(model),
            BenchData(train_data, validation_data, calibration_data),
            TrainingSetup(model, loss, optimizer, metrics),
        )
        self._start_metrics()
        self._curves = Curves()
        self._variants: dict[str, Variant] = {}
        self._exports: list[BenchExport] = []
        self._jobs = Jobs(lambda _: self._tell("job"))
        self._view: Any = None
        self.netron_page: NetronPage | None = None
        self.saved_to: pathlib.Path | None = None
        self.earlier = find_earlier(self)

    @property
    def earlier(self) -> Workbench | None:
        """An earlier bench of this model that holds work, for `continue_from`; None where there is none, or it is gone.

        A bench that was shown stays as long as the kernel does.
        """
        return None if self._earlier is None else self._earlier()

    @earlier.setter
    def earlier(self, bench: Workbench | None) -> None:
        self._earlier = None if bench is None else weakref.ref(bench)

    @property
    def has_work(self) -> bool:
        """Whether anything was decided, calibrated or trained here that a new bench would not know."""
        return len(self._history) > 1 or self.calibration is not None or bool(self._curves.runs)

    @property
    def curves(self) -> Curves:
        """Scores of the float model, after calibration, and along every fine-tuning run."""
        return self._curves

    @property
    def exports(self) -> tuple[BenchExport, ...]:
        """The files exported so far, oldest first."""
        return tuple(self._exports)

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
        """The calibrated or fine-tuned model of the present plan."""
        return self._work.models.get(self.plan)

    @property
    def stage(self) -> str:
        """How far the present plan is: "planned", "calibrated" or "fine-tuned"."""
        return self._work.models.stage(self.plan)

    @property
    def stage_note(self) -> str:
        """What to know about fine-tuned weights that the present plan has not; else empty."""
        if not self._work.models.trained_otherwise(self.plan):
            return ""
        return (
            "The fine-tuned weights belong to another plan and are kept with it: undo, the history or a variant lead "
            "back to them."
        )

    @property
    def ptq_is_stale(self) -> bool:
        """Whether the score of the calibrated model is that of another plan."""
        ptq = self._curves.ptq
        return ptq is not None and self._work.models.scores(self.plan, "calibrated") != ptq

    @property
    def usual_rate(self) -> float | None:
        """The learning rate of `fine_tune` where none is given; None where the optimizer's schedule decides."""
        return self._work.setup.usual_rate

    @property
    def jobs(self) -> Jobs:
        """The long work: what runs now, and how to stop it."""
        return self._jobs

    def calibrate(
        self, method: str = "minmax", *, steps: int | None = None, batch_size: int = BATCH_SIZE, **settings: Any
    ) -> qdq.CalibrationResult:
        """Find the activation ranges, and score the calibrated model where there are data to score on.

        Args:
            method: One of `qdq_workbench.calibration_methods()`, such as "minmax", "percentile" or "mse".
            steps: How many batches to read at most; None for all calibration data, or the first 16 of the training
                data.
            batch_size: How many samples of an array make a batch.
            **settings: Settings of the method, such as `percentile=99.99`, and `power_of_two`.

        Returns:
            The `CalibrationResult`.
        """
        plan = self.plan
        with self._jobs.run("calibration") as job:
            result = self._work.calibrate(plan, job, method, steps, batch_size, settings)
            self._tell("calibration")
            if self._work.can_score() and not job.stop_requested:
                self._score_unless_stopped(plan, job, batch_size)
        return result

    def fine_tune(
        self,
        epochs: int = 1,
        *,
        learning_rate: float | None = None,
        batch_size: int = BATCH_SIZE,
        name: str | None = None,
        resume: bool = False,
    ) -> TrainingRun:
        """Train the quantized model of the present plan; curves grow while it runs.

        Args:
            epochs: How many passes over the training data.
            learning_rate: The rate; None for the optimizer's own.
            batch_size: Samples per batch of an array.
            name: Name of the run; None numbers it.
            resume: Whether to go on with what was trained last for this plan, instead of the calibrated model.

        Returns:
            The run, also in `curves.runs`; where it was stopped before its first batch, a run without epochs that is
            not kept.
        """
        if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
            raise BenchError(f"epochs must be a whole number from 1 on. Received: epochs={epochs!r}")
        plan = self.plan
        with self._jobs.run("fine-tuning") as job:
            job.report(None, "preparing")
            start: Any = None
            if self._work.can_score() and self.calibration is not None:
                self._score_unless_stopped(plan, job, batch_size)
                start = self._work.models.scores(plan, CALIBRATED)
            start = (self._work.models.scores(plan) if resume else None) or start
            run = TrainingRun(name or f"QAT {len(self._curves.runs) + 1}", plan.target, len(plan.tensors))
            if start is not None:
                run = run.replace(epochs=(0.0,), scores=(start,))
            if job.stop_requested:
                return run.replace(state="stopped")
            try:
                run = self._work.fine_tune(
                    plan,
                    job,
                    run,
                    self._on_run,
                    epochs=epochs,
                    learning_rate=learning_rate,
                    batch_size=batch_size,
                    resume=resume,
                )
            except BaseException:
                self._on_run_failed(run.name)
                raise
        self._tell("stage")
        return run

    def export(
        self,
        path: str | os.PathLike[str],
        target: str | None = None,
        *,
        opset: int | None = None,
        verify: bool = True,
        certificate: bool = False,
    ) -> BenchExport:
        """Write the model of the present plan to a clean QDQ file, and verify it in ONNX Runtime.

        Args:
            path: The file, ending in `.onnx`; a name ending in `.tflite` makes a LiteRT file.
            target: The target; None for the present one.
            opset: The ONNX opset; None for the exporter's choice.
            verify: Whether to verify the file.
            certificate: Whether to write its certificate beside it: what was checked, with hashes and versions, as a
                page and as JSON that `qdq-workbench verify --certificate` computes again.
        """
        plan = self.plan
        with self._jobs.run("export") as job:
            done = self._work.export(
                plan, job, pathlib.Path(path), target, opset=opset, verify=verify, certificate=certificate
            )
            self._exports.append(done)
        self._tell("export")
        return done

    def show_netron(self, path: str | os.PathLike[str] | None = None) -> NetronPage:
        """Show an exported file in Netron, in the notebook; the value displays itself and holds a plain link.

        Args:
            path: The file; None for the one exported last.
        """
        if path is None:
            paths = [done.path for done in self._exports if done.path.suffix == ".onnx"]
            if not paths:
                raise BenchError("There is no file to show yet. Export one first: wb.export('model.onnx')")
            path = paths[-1]
        page = NetronPage(shared_server(), path)
        self.netron_page = page
        self._tell("netron")
        return page

    def to_code(self, model_name: str = "model") -> str:
        """Return Python that rebuilds exactly this plan and its quantized model.

        Args:
            model_name: Name of the variable that holds the float model.
        """
        return to_code(self.state, model_name)

    def save(self, directory: str | os.PathLike[str]) -> pathlib.Path:
        """Write the whole bench to a folder: model, history, calibration, curves, variants, trained weights.

        Args:
            directory: The folder; made if it does not exist.

        Warns:
            UserWarning: If a case was made with arguments that no file holds; `load` needs it again.
        """
        with self._jobs.run("saving"):
            self.saved_to = save_bench(self, pathlib.Path(directory))
        self._tell("saved")
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
        with self._jobs.run("loading"), self._lock:
            self._history, self._variants, self._curves = history, variants, curves
            self._work.models = ModelStore(self.model)
            if work.stage != "planned":
                self._work.models.note_weights()
            self._work.models.restore(self.plan, work)
        self.earlier = None
        for event in ("plan", "calibration", "curves", "variants"):
            self._tell(event)

    def continue_from(self, other: Workbench) -> str:
        """Take over what was done in another bench of the same model: for new data, or after the cell ran again.

        Of a model that was built anew, or whose weights have changed since, only the history and the variants fit:
        ranges, trained weights and scores are about other weights. Scores come along where the validation data are
        the same objects.

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
            for event in ("calibration", "stage"):
                self._tell(event)
        return taken

    @property
    def view(self) -> Any:
        """The bench as widgets; made on first use."""
        if self._view is None:
            from qdq_widgets.view import BenchView

            self._view = BenchView(self)
        return self._view

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.view.widget)  # type: ignore[no-untyped-call]

    def __repr__(self) -> str:
        whole, computing = coverage(self.plan)
        return (
            f"Workbench({self.graph.name!r}: {len(self.plan.tensors)} Q/DQ pairs for {self.plan.target}, "
            f"{whole} of {computing} computing layers quantized, {self.stage}; "
            f"step {self._history.position} of {len(self._history) - 1}: {self._history.present.label})"
        )

    def _on_run(self, run: TrainingRun) -> None:
        self._curves = self._curves.with_run(run)
        self._tell("curves")

    def _on_run_failed(self, name: str) -> None:
        for run in self._curves.runs:
            if run.name == name:
                self._on_run(run.replace(state="failed"))
