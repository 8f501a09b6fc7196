"""The files that a bench exports: written, checked, and shown in Netron."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.background import Job
from qdq_widgets.errors import BenchError, BenchStoppedError
from qdq_widgets.events import Events
from qdq_widgets.netron_server import NetronPage, shared_server
from qdq_widgets.plans import Plans
from qdq_widgets.snapshots import WorkMark
from qdq_widgets.state import plan_key
from qdq_widgets.work import Workshop

LITERT = "litert"
FLOAT32 = "float32"
_FORMATS = {".tflite": "LiteRT", ".npz": "integers for firmware"}


@dataclasses.dataclass(frozen=True)
class BenchExport:
    """One exported file.

    Args:
        path: The file.
        target: The target that it was written for.
        report: The report of `export_onnx`, `export_tflite` or `save_firmware`.
        verification: The report of `verify_onnx`; None if the file was not verified.
        plan: The plan that the file was built from, with the grids of its target.
        not_verified: Why it could not be verified; empty if it was verified or verification was not requested.
        certificate: The page of its certificate, with the JSON beside it; None if it was not requested.
        replaced: Whether there was a file of this name before.
        given: The arguments of `export` that are not the defaults.
        mark: The ranges and weights that the file holds.
    """

    path: pathlib.Path
    target: str
    report: Any
    verification: Any = None
    plan: Any = dataclasses.field(default=None, repr=False)
    not_verified: str = ""
    certificate: pathlib.Path | None = None
    replaced: bool = False
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    mark: WorkMark | None = dataclasses.field(default=None, repr=False)

    @property
    def pairs(self) -> int:
        """The number of Q/DQ pairs in the file: activation tensors and weights; for firmware, of its plan."""
        if isinstance(self.report, qdq.results.FirmwareReport):
            return len(self.plan.tensors)
        return int(self.report.activations + self.report.weights)

    @property
    def format(self) -> str:
        """The format of the file, for ONNX with its opset and, unless float32, the type of its floats."""
        known = _FORMATS.get(self.path.suffix)
        if known is not None:
            return known
        floats = "" if self.report.float_type == FLOAT32 else f", {self.report.float_type}"
        return f"ONNX, opset {self.report.opset}{floats}"

    @property
    def passed(self) -> bool | None:
        """Whether the file passed its verification; None if it was not verified."""
        return None if self.verification is None else bool(self.verification.passed)

    def __str__(self) -> str:
        verdict = self.not_verified or "not verified"
        if self.verification is not None:
            verdict = self.verification.summary()
        return f"{self.report.summary()}\n{verdict}"


class Exports:
    """The exported files; a part of `Workbench`.

    Attributes:
        done: The files, oldest first.
        page: The page that Netron shows; None before the first.
    """

    def __init__(self, plans: Plans, work: Workshop, events: Events) -> None:
        self._plans, self._work, self._events = plans, work, events
        self.done: list[BenchExport] = []
        self._earlier: list[BenchExport] = []
        self.page: NetronPage | None = None

    def export(
        self,
        path: str | os.PathLike[str],
        target: str | None = None,
        *,
        opset: int | None = None,
        float_type: str = FLOAT32,
        verify: bool = True,
        certificate: bool = False,
        c_header: str | os.PathLike[str] | None = None,
    ) -> BenchExport:
        """Write the model of the present plan to a clean QDQ file, and verify it in ONNX Runtime.

        Args:
            path: The file, ending in `.onnx`; a name ending in `.tflite` makes a LiteRT file, one ending in `.npz` the
                integers for firmware (`qdq.files.save_firmware`).
            target: The target; None for the present one.
            opset: The ONNX opset; None for the exporter's choice.
            float_type: The type of the floats in an ONNX file: "float32", "float16" or "bfloat16".
            verify: Whether to verify an ONNX file.
            certificate: Whether to write the certificate of an ONNX file beside it: the checks, with hashes and
                versions, as a page and as JSON that `qdq-workbench verify --certificate` computes again.
            c_header: Path of a C header with the integers of a `.npz` file; None for no header.

        Raises:
            BenchError: If the plan is not calibrated, or an argument does not suit the format.
            BenchStoppedError: If the job is stopped before the file is written; a file of this name stays as it was.
        """
        plan = self._plans.plan
        with self._work.jobs.run("export") as job:
            form = {"opset": opset, "float_type": float_type}
            path = pathlib.Path(path)
            _check_form(path, form, c_header, certificate=certificate)
            if path.suffix in _FORMATS:
                done = self._write_integers(plan, job, path, target, c_header)
            else:
                done = self._write(plan, job, path, target, form, verify=verify, certificate=certificate)
            header = None if c_header is None else str(c_header)
            given = {"target": target, "opset": opset, "float_type": float_type, "c_header": header}
            given = {name: value for name, value in given.items() if value not in (None, FLOAT32)}
            mark = WorkMark(plan_key(plan), self._work.models.snapshot(plan))
            self.done.append(dataclasses.replace(done, given=given, mark=mark))
        self._events.tell("export")
        return self.done[-1]

    def exports_of(self, plan: Any) -> list[BenchExport]:
        """Return the files that hold the present ranges and weights of a plan, oldest first."""
        key, work = plan_key(plan), self._work.models.snapshot(plan)
        return [done for done in (*self._earlier, *self.done) if done.mark is not None and done.mark.is_of(key, work)]

    def continue_from(self, other: Exports) -> None:
        """Remember the files of another bench whose models this one takes over; `done` does not list them."""
        self._earlier = [*other._earlier, *other.done]

    def show_netron(self, path: str | os.PathLike[str] | None = None) -> NetronPage:
        """Show an exported file in Netron, in the notebook.

        Args:
            path: The file; None for the one exported last.

        Returns:
            The page, which displays itself and holds a plain link.

        Raises:
            BenchError: If there is no such ONNX file.
        """
        if path is None:
            paths = [done.path for done in self.done if done.path.suffix == ".onnx"]
            if not paths:
                raise BenchError("There is no file to show yet. Export one first: wb.export('model.onnx')")
            path = paths[-1]
        self.page = NetronPage(shared_server(), path)
        self._events.tell("netron")
        return self.page

    def _write_integers(
        self, plan: Any, job: Job, path: pathlib.Path, target: str | None, c_header: str | os.PathLike[str] | None
    ) -> BenchExport:
        """Write a `.tflite` or `.npz` file, which ONNX Runtime does not run."""
        existed = path.exists()
        with job.stops():
            q_model = self._work.models.get(plan)
            job.report(None, f"writing {path.name}")
            if path.suffix == ".tflite":
                done = _export_tflite(q_model, path, target)
            else:
                done = _save_firmware(q_model, path, target, c_header)
        return dataclasses.replace(done, replaced=existed)

    def _write(
        self,
        plan: Any,
        job: Job,
        path: pathlib.Path,
        target: str | None,
        form: Mapping[str, Any],
        *,
        verify: bool,
        certificate: bool,
    ) -> BenchExport:
        existed = path.exists()
        target = target or plan.target
        with job.stops():
            q_model = self._work.models.get(plan)
            job.report(None, f"writing {path.name}")
            report = qdq.export_onnx(q_model, path, target=target, **form)
        # The store has one file per plan; a file for another target has other grids.
        if target == plan.target:
            self._work.models.remember_file(plan, report.bytes, path)
        exported = (q_model if target == q_model.target else qdq.retarget(q_model, target)).plan
        # With the exported model itself, which verification plans anew for the file's target: a file that this model
        # has just been exported to is not built again for comparison.
        verification, checked, why_not = None, None, ""
        if verify and not job.stop_requested:
            job.report(None, f"verifying {path.name} in ONNX Runtime")
            try:
                with job.stops():
                    if certificate:  # which holds the report, so that the file is verified once
                        checked = self._checked(path, q_model)
                        verification = checked.report
                    else:
                        verification = qdq.verify_onnx(path, q_model, data=self._work.data.for_verification())
            except BenchStoppedError:  # the file is written
                why_not = "It was not verified: the verification was stopped."
            except qdq.QDQError as error:  # the file is written all the same
                why_not = f"It could not be verified: {error}"
        done = BenchExport(path, target, report, verification, exported, why_not, replaced=existed)
        if certificate and not job.stop_requested:
            job.report(None, f"certifying {path.name}")
            with contextlib.suppress(BenchStoppedError), job.stops():
                checked = self._checked(path, q_model) if checked is None else checked
                job.raise_if_stopped()
                done = dataclasses.replace(done, certificate=_write_certificate(checked, path))
        return done

    def _checked(self, path: pathlib.Path, q_model: Any) -> Any:
        """Return the certificate of a file."""
        return qdq.certify(path, q_model, self._work.data.for_verification())


def _write_certificate(certificate: Any, path: pathlib.Path) -> pathlib.Path:
    """Write the certificate of a file beside it, as JSON and as a page; return the path of the page."""
    certificate.save(path.with_suffix(".certificate.json"))
    page = path.with_suffix(".certificate.html")
    qdq.write_certificate_page(certificate, page)
    return page


def _check_form(
    path: pathlib.Path, form: Mapping[str, Any], c_header: str | os.PathLike[str] | None, *, certificate: bool
) -> None:
    if c_header is not None and path.suffix != ".npz":
        raise BenchError(
            f"A C header is written beside integers for firmware: name the file .npz. Received: path={str(path)!r}, "
            f"c_header={str(c_header)!r}"
        )
    if certificate and path.suffix in _FORMATS:
        raise BenchError(
            f"A certificate is that of an ONNX file; leave it out for a {path.suffix} file, whose report says what was "
            f"compared, or name the file .onnx. Received: path={str(path)!r}, certificate=True"
        )
    given = {key: form[key] for key, default in (("opset", None), ("float_type", FLOAT32)) if form[key] != default}
    if given and path.suffix in _FORMATS:
        raise BenchError(
            f"A {path.suffix} file has no opset and holds its floats in float32; leave these settings as they are, or "
            f"name the file .onnx. Received: {', '.join(f'{key}={value!r}' for key, value in given.items())}"
        )


def _export_tflite(q_model: Any, path: pathlib.Path, target: str | None) -> BenchExport:
    """Write a LiteRT file, which TensorFlow's interpreter runs, not ONNX Runtime."""
    if target not in (None, LITERT):
        raise BenchError(
            f"A .tflite file is for LiteRT; name the file .onnx for another target. Received: target={target!r}"
        )
    report = qdq.export_tflite(q_model, path)
    plan = (q_model if q_model.target == LITERT else qdq.retarget(q_model, LITERT)).plan
    why_not = "Compared with the Keras model in TensorFlow's interpreter; ONNX Runtime does not run .tflite files."
    return BenchExport(path, LITERT, report, None, plan, why_not)


def _save_firmware(
    q_model: Any, path: pathlib.Path, target: str | None, c_header: str | os.PathLike[str] | None
) -> BenchExport:
    """Write graph and integers for firmware, which the reference interpreter runs, not ONNX Runtime."""
    report = qdq.files.save_firmware(
        q_model, path, target=target, c_header=None if c_header is None else pathlib.Path(c_header)
    )
    plan = (q_model if target in (None, q_model.target) else qdq.retarget(q_model, target)).plan
    why_not = "Not run: ONNX Runtime does not read .npz files."
    return BenchExport(path, plan.target, report, None, plan, why_not)
