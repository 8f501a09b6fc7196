"""The long steps of a bench: calibrate, score, fine-tune, export. Each is one job that can be stopped."""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.background import Job
from qdq_widgets.curves import Curves, TrainingRun
from qdq_widgets.data import batch_count, few_pairs, few_samples, fit_arguments, inputs_only
from qdq_widgets.errors import BenchError
from qdq_widgets.histograms import Histogram, count_values
from qdq_widgets.models import ModelStore
from qdq_widgets.snapshots import CALIBRATED, FINE_TUNED, Snapshot
from qdq_widgets.training import TrainingSetup, evaluate, fine_tune

BATCHES_OF_TRAINING_DATA = 16
VERIFIED_SAMPLES = 128
LITERT = "litert"


@dataclasses.dataclass(frozen=True)
class BenchData:
    """The data of a bench.

    Args:
        train: Labelled data to fine-tune on.
        validation: Labelled data to score on.
        calibration: Data to calibrate on; labels are ignored.
    """

    train: Any = None
    validation: Any = None
    calibration: Any = None

    def for_calibration(self) -> tuple[Any, int | None]:
        """Return the data to calibrate on, and after how many batches to stop.

        Raises:
            BenchError: If there are none.
        """
        if self.calibration is not None:
            return self.calibration, None
        if self.train is not None:
            return inputs_only(self.train), BATCHES_OF_TRAINING_DATA
        raise BenchError(
            "Calibration needs data. Give some to the bench: Workbench(model, calibration_data=images), or "
            "train_data=(images, labels). Received: neither"
        )

    def for_verification(self) -> Any:
        """Return a few samples to compare a file on; None where the bench has no data."""
        for data in (self.validation, self.calibration, self.train):
            if data is not None:
                return few_samples(data, VERIFIED_SAMPLES)
        return None


@dataclasses.dataclass(frozen=True)
class BenchExport:
    """One exported file.

    Args:
        path: The file.
        target: The target that it was written for.
        report: What `export_onnx` returned.
        verification: What `verify_onnx` returned; None if it was not asked for.
        plan: The plan that the file was built from, on the grid of its target.
        not_verified: Why it could not be verified; empty where it was, or was not asked for.
        certificate: The page of its certificate; the same as JSON lies beside it. None if it was not asked for.
        replaced: Whether there was a file of this name before.
    """

    path: pathlib.Path
    target: str
    report: Any
    verification: Any = None
    plan: Any = dataclasses.field(default=None, repr=False)
    not_verified: str = ""
    certificate: pathlib.Path | None = None
    replaced: bool = False

    @property
    def pairs(self) -> int:
        """How many Q/DQ pairs the file has: activation tensors and weights."""
        return int(self.report.activations + self.report.weights)

    @property
    def format(self) -> str:
        """What kind of file it is, with its opset where it has one."""
        opset = getattr(self.report, "opset", None)
        return "LiteRT" if opset is None else f"ONNX, opset {opset}"

    @property
    def passed(self) -> bool | None:
        """Whether the file passed its verification; None if it was not verified."""
        return None if self.verification is None else bool(self.verification.passed)

    def __str__(self) -> str:
        verdict = self.not_verified or "not verified"
        if self.verification is not None:
            verdict = self.verification.summary()
        return f"{self.report.summary()}\n{verdict}"


@dataclasses.dataclass
class Workshop:
    """What the long steps share: the models, the data, and how to train.

    Args:
        models: The quantized models.
        data: The data.
        setup: How models are compiled.
    """

    models: ModelStore
    data: BenchData
    setup: TrainingSetup

    def calibrate(
        self, plan: Any, job: Job, method: str, steps: int | None, batch_size: int, settings: dict[str, Any]
    ) -> Any:
        """Calibrate a new model of a plan and keep it.

        Args:
            plan: The plan.
            job: The job in which this happens.
            method: The calibration method.
            steps: How many batches to read at most.
            batch_size: How many samples of an array make a batch.
            settings: Settings of the method.
        """
        data, few = self.data.for_calibration()
        steps = few if steps is None else steps
        total = batch_count(data, batch_size)
        total = steps if total is None else min(total, steps or total)
        job.report(0.0, "building the quantized model")
        q_model = self.models.new(plan)

        def on_batch(count: int) -> bool:
            job.report(count / total if total else None, f"batch {count}" + (f" of {total}" if total else ""))
            return not job.stop_requested

        result = qdq.calibrate(
            q_model, data, method, steps=steps, batch_size=batch_size, verbose=False, on_batch=on_batch, **settings
        )
        self.models.calibrated(plan, q_model, result)
        return result

    def can_score(self) -> bool:
        """Whether there are validation data and a loss to score models with."""
        return self.data.validation is not None and self.setup.knows_loss

    def score(self, plan: Any, job: Job, curves: Curves, batch_size: int) -> Curves:
        """Return the curves with the scores of the float model and of the calibrated one.

        Args:
            plan: The plan.
            job: The job in which this happens.
            curves: The curves so far.
            batch_size: Samples per batch of an array.
        """
        known = self.models.scores(plan, "calibrated")
        if known is not None and curves.fp32 is not None:
            return curves.replace(ptq=known)
        q_model = self.models.build(plan)
        self.setup.compile(q_model)
        data = self.data.validation
        if curves.fp32 is None:
            job.report(None, "scoring the float model")
            curves = curves.replace(fp32=evaluate(q_model, data, batch_size, job, quantized=False))
        job.report(None, "scoring the quantized model")
        scores = evaluate(q_model, data, batch_size, job)
        self.models.remember_scores(plan, "calibrated", scores)
        return curves.replace(ptq=scores)

    def fine_tune(
        self,
        plan: Any,
        job: Job,
        run: TrainingRun,
        on_run: Any,
        *,
        epochs: int,
        learning_rate: float | None,
        batch_size: int,
        resume: bool,
    ) -> TrainingRun:
        """Train a model of a plan and keep it.

        Args:
            plan: The plan.
            job: The job in which this happens.
            run: The run as it starts.
            on_run: Called with the run as it grows.
            epochs: How many passes over the training data.
            learning_rate: The rate; None for the optimizer's own.
            batch_size: Samples per batch of an array.
            resume: Whether to go on with the model that was trained last for this plan.
        """
        q_model = self.models.copy(plan) if resume else self.models.build(plan)
        self.setup.compile(q_model, learning_rate)
        finished = fine_tune(
            q_model,
            run,
            job,
            on_run,
            epochs=epochs,
            train_data=self.data.train,
            validation_data=self.data.validation,
            batch_size=batch_size,
        )
        if finished.loss_trace:
            self.models.put(plan, q_model, FINE_TUNED)
            # Batches after the last finished epoch have changed what was scored.
            scored = len(finished.epochs) > 1 and finished.epochs[-1] == finished.loss_trace[-1][0]
            self.models.remember_scores(plan, FINE_TUNED, finished.scores[-1] if scored else None)
        return finished

    def sensitivity(self, plan: Any, job: Job, mode: str, metric: Any, samples: int, settings: dict[str, Any]) -> Any:
        """Find out which layers suffer from quantization.

        Args:
            plan: The plan.
            job: The job in which this happens.
            mode: "one_on" or "one_off".
            metric: The metric.
            samples: How many samples of arrays to read at most.
            settings: Further arguments of `qdq_workbench.sensitivity`.

        Raises:
            BenchError: If there are no data, or the ranges are not known yet.
        """
        data = self.data.validation if self.data.validation is not None else self.data.for_calibration()[0]
        model, ranges = self._swept(plan, job, samples)
        return qdq.sensitivity(
            model, few_pairs(data, samples), mode=mode, metric=metric, **ranges, **_reported_to(job), **settings
        )

    def search(self, plan: Any, job: Job, samples: int, settings: dict[str, Any]) -> Any:
        """Find the cheapest placement that is accurate enough.

        Args:
            plan: The plan to start from.
            job: The job in which this happens.
            samples: How many samples of arrays to read at most.
            settings: Arguments of `qdq_workbench.search`.

        Raises:
            BenchError: If there are no labelled validation data, or the ranges are not known yet.
        """
        fit_arguments(self.data.validation, "validation_data")
        model, ranges = self._swept(plan, job, samples)
        data = few_pairs(self.data.validation, samples)
        return qdq.search(model, data, **ranges, **_reported_to(job), **settings)

    def _swept(self, plan: Any, job: Job, samples: int) -> tuple[Any, dict[str, Any]]:
        """Return what `sensitivity` and `search` are given of a plan: its calibrated model, or how to make one."""
        job.report(0.0, "building the quantized model")
        if self.models.stage(plan) != "planned":
            return self.models.present(plan), {}
        self.models.note_weights()
        few = few_pairs(self.data.for_calibration()[0], samples)
        return self.models.float_model, {"plan": plan, "calibration_data": few}

    def histograms(self, plan: Any, job: Job, tensors: Sequence[str]) -> tuple[Histogram, ...]:
        """Count the values of some activations, on a few samples, and of weights.

        Args:
            plan: The plan.
            job: The job in which this happens.
            tensors: Names of the tensors.
        """
        ranges = {} if self.models.calibration is None else self.models.calibration.ranges
        return count_values(self.models.present(plan), ranges, lambda: self.data.for_calibration()[0], job, tensors)

    def export(
        self,
        plan: Any,
        job: Job,
        path: pathlib.Path,
        target: str | None,
        *,
        opset: int | None,
        verify: bool,
        certificate: bool = False,
    ) -> BenchExport:
        """Write the model of a plan to a file, and check the file.

        Args:
            plan: The plan.
            job: The job in which this happens.
            path: Where to write.
            target: The target; None for the plan's.
            opset: The ONNX opset; None for the exporter's choice.
            verify: Whether to verify the file.
            certificate: Whether to write its certificate beside it.
        """
        q_model = self.models.get(plan)
        job.report(None, f"writing {path.name}")
        existed = path.exists()
        if path.suffix == ".tflite":
            return dataclasses.replace(self._export_tflite(q_model, path, target), replaced=existed)
        target = target or plan.target
        report = qdq.export_onnx(q_model, path, target=target, opset=opset)
        if target == plan.target:
            self.models.remember_file(plan, report.bytes, path)
        reference = q_model if target == q_model.target else qdq.retarget(q_model, target)
        verification, why_not = None, ""
        if verify and not job.stop_requested:
            job.report(None, f"verifying {path.name} in ONNX Runtime")
            try:
                verification = qdq.verify_onnx(path, reference, data=self.data.for_verification())
            except qdq.QDQError as error:  # the file is written all the same
                why_not = f"It could not be verified: {error}"
        done = BenchExport(path, target, report, verification, reference.plan, why_not, replaced=existed)
        if certificate and not job.stop_requested:
            job.report(None, f"certifying {path.name}")
            done = dataclasses.replace(done, certificate=self._certify(path, reference))
        return done

    def _certify(self, path: pathlib.Path, q_model: Any) -> pathlib.Path:
        """Write the certificate of a file beside it, as JSON and as a page; returns the page."""
        found = qdq.certify(path, q_model, self.data.for_verification())
        found.save(path.with_suffix(".certificate.json"))
        page = path.with_suffix(".certificate.html")
        qdq.write_certificate_page(found, page)
        return page

    def _export_tflite(self, q_model: Any, path: pathlib.Path, target: str | None) -> BenchExport:
        """Write a LiteRT file, which TensorFlow's interpreter runs, not ONNX Runtime."""
        if target not in (None, LITERT):
            raise BenchError(
                f"A .tflite file is for LiteRT; name the file .onnx for another target. Received: target={target!r}"
            )
        report = qdq.export_tflite(q_model, path)
        plan = (q_model if q_model.target == LITERT else qdq.retarget(q_model, LITERT)).plan
        why_not = "Compared with the Keras model in TensorFlow's interpreter; ONNX Runtime does not run .tflite files."
        return BenchExport(path, LITERT, report, None, plan, why_not)

    def measure(self, plan: Any, work: Snapshot, job: Job, batch_size: int) -> Snapshot:
        """Find out what a kept model scores, and how large its file is, where that is not known yet.

        Args:
            plan: The plan.
            work: What was kept of it; where it has no ranges yet, it takes those of the last calibration.
            job: The job in which this happens.
            batch_size: Samples per batch of an array.

        Raises:
            BenchStoppedError: If the job was stopped before all was known.
        """
        present = self.models.snapshot(plan)
        if work.stage == "planned":
            if self.models.calibration is None:
                self.models.get(plan)  # says what is missing
            work = work.replace(stage=CALIBRATED, calibration=self.models.calibration)
        score = self.can_score() and work.score is None
        if score or work.size is None:
            q_model = self.models.build(plan, work.calibration) if work.model is None else work.model
            if score:
                self.setup.compile(q_model)
                work = work.with_score(evaluate(q_model, self.data.validation, batch_size, job))
            if work.size is None:
                job.raise_if_stopped()
                with tempfile.TemporaryDirectory(prefix="qdq-") as folder:
                    report = qdq.export_onnx(q_model, pathlib.Path(folder) / "variant.onnx", target=plan.target)
                work = work.replace(size=report.bytes)
        if work.is_of(present):
            self.models.remember_scores(plan, work.stage, work.score)
            if work.size is not None:
                self.models.remember_file(plan, work.size)
        return work


def _reported_to(job: Job) -> dict[str, Any]:
    """Return the arguments by which a sweep says how far it is, and asks whether to end early."""
    return {
        "stop": lambda: job.stop_requested,
        "progress": lambda done, total, text: job.report(done / total if total else None, str(text)),
    }
