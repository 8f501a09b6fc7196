"""The export pane: write the file, verify it, and show whether it passed."""

from __future__ import annotations

import html
import pathlib
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.errors import BenchBusyError
from qdq_widgets.folder_offer import FolderOffer
from qdq_widgets.pane import Pane, button, file_name, kibibytes, row, table_html, text_html
from qdq_widgets.targets import target_options, target_title

FLOAT_TYPES = ("float32", "float16", "bfloat16")


class ExportPane(Pane):
    """Runs `export` and shows the result of the verification."""

    title = "Export"
    events = ("export", "job", "plan", "calibration", "stage")

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        # Two benches in one notebook must not write the same file unasked.
        name = f"{file_name(self.bench.graph.name)}_int8.onnx"
        self.path = widgets.Text(value=name, description="File", layout={"width": "330px"})
        self.path.tooltip = (
            "Ending in .onnx; a name ending in .tflite makes a LiteRT file, one ending in .npz the integers for "
            "firmware and a C header beside them"
        )
        targets = [("the bench's target", ""), *target_options()]
        self.target = widgets.Dropdown(options=targets, description="Target", layout={"width": "290px"})
        self.opset = widgets.BoundedIntText(
            value=0,
            min=0,
            max=30,
            description="Opset (0: auto)",
            layout={"width": "170px"},
            style={"description_width": "initial"},
        )
        self.opset.tooltip = "0 leaves it to the exporter"
        self.floats = widgets.Dropdown(
            options=FLOAT_TYPES, description="Floats", layout={"width": "160px"}, style={"description_width": "initial"}
        )
        self.floats.tooltip = (
            "The type of what is not integer: half precision for runtimes that take the types of the file, such as "
            "TensorRT 11"
        )
        self.verify = widgets.Checkbox(value=True, description="verify in ONNX Runtime", indent=False)
        self.verify.layout.width = "auto"
        self.certificate = widgets.Checkbox(description="certificate", indent=False, layout={"width": "auto"})
        self.certificate.tooltip = "Write what was checked, with hashes and versions, as a page and as JSON"
        self.run = button("Export", self._run, icon="download", style="primary")
        self.offer = FolderOffer(self.path, self._make_and_run)
        self._begun: tuple[str, int] | None = None  # path of this pane's last export, and the number of exports then
        self.beside_file = button(
            "Plan beside the file",
            lambda: self._beside("file"),
            icon="columns",
            tooltip="Draw the plan beside what the file holds: operators, pairs, what was folded",
        )
        self.beside_runtime = button(
            "Plan beside ONNX Runtime",
            lambda: self._beside("onnxruntime"),
            icon="columns",
            tooltip="Draw the plan beside the kernels that ONNX Runtime makes of the file",
        )
        self._beside_row = row(self.beside_file, self.beside_runtime)
        self._verdict = widgets.HTML()
        self._files = widgets.HTML()
        controls = row(self.path, self.target, self.opset, self.floats, self.verify, self.certificate, self.run)
        return [controls, self.offer.widget, self.errors.widget, self._verdict, self._beside_row, self._files]

    def refresh(self) -> None:
        """Show the last export."""
        job = self.bench.jobs.current
        self.run.disabled = self.offer.make_it.disabled = job is not None
        written = self.bench.snapshot.file is not None or bool(self.bench.exports)
        self._beside_row.layout.display = "" if written else "none"
        self.beside_file.disabled = self.beside_runtime.disabled = job is not None
        if not self.bench.exports:
            text = "Not calibrated yet: export needs the activation ranges. Calibrate in the first of these tabs."
            if self.bench.stage != "planned":
                text = f"Nothing was exported yet; the present plan is {self.bench.stage}, so it can be."
            self._verdict.value = text_html(text, "qdq-muted")
            self._files.value = ""
        else:
            self._show_exports()
        if self._begun is not None and self._begun[1] == len(self.bench.exports):
            # Do not show the verification of an earlier file for this one.
            name, _ = self._begun
            exporting = job is not None and job.label == "export"
            last = self.bench.jobs.last
            status, words = "failed", f"Not exported: {name}"
            if exporting:
                status, words = "partial", "Exporting ..."
            elif last is not None and last.label == "export" and last.stop_requested:
                status, words = "partial", f"Stopped, not exported: {name}"
            earlier = "Below are the files of earlier exports." if self.bench.exports else ""
            self._verdict.value = (
                f'<div class="qdq-verdict qdq-{status}"><b>{html.escape(words)}</b><div>{earlier}</div></div>'
            )

    def _show_exports(self) -> None:
        file = self.bench.snapshot.file
        present = "The present state has not been exported yet." if file is None else f"Of the present state: {file}"
        self._verdict.value = verdict_html(self.bench.exports[-1]) + text_html(present, "qdq-muted")
        rows = [
            (
                item.path.name,
                target_title(item.target),
                item.format,
                item.pairs,
                kibibytes(item.report.bytes),
                {True: "passed", False: "FAILED", None: "not verified"}[item.passed],
            )
            for item in reversed(self.bench.exports)
        ]
        self._files.value = table_html(("file", "target", "format", "Q/DQ pairs", "size", "verification"), rows)

    @shows_errors
    def _beside(self, what: str) -> None:
        self.start(lambda: self.bench.view.compare("plan", what))

    @shows_errors
    def _run(self) -> None:
        if not self.offer.is_needed():
            self._export()

    @shows_errors
    def _make_and_run(self) -> None:
        self.offer.make()
        self._export()

    def _export(self) -> None:
        path, target, verify = self.path.value.strip(), self.target.value or None, self.verify.value
        form = {"opset": self.opset.value or None, "float_type": self.floats.value}
        certificate = self.certificate.value
        header = str(pathlib.Path(path).with_suffix(".h")) if path.endswith(".npz") else None
        # Before the start: events of the job refresh the pane from another thread.
        before, self._begun = self._begun, (path, len(self.bench.exports))
        try:
            self.start(
                lambda: self.bench.export(path, target, **form, verify=verify, certificate=certificate, c_header=header)
            )
        except BenchBusyError:
            self._begun = before
            raise


def verdict_html(done: Any) -> str:
    """Return the result of a `BenchExport`, as HTML."""
    status, word = {
        True: ("int8", "Verified"),
        False: ("failed", "FAILED its verification"),
        None: ("partial", "Written, not verified"),
    }[done.passed]
    said = [done.not_verified] if done.not_verified else []
    said += ["An earlier file of this name was replaced."] if done.replaced else []
    found = done.verification
    remarks = [] if found is None else [found.processor_remark, found.form_remark]
    said += [f"Note: {remark}" for remark in remarks if remark]
    said += [f"Certificate: {done.certificate}, and as JSON beside it"] if done.certificate else []
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in said)
    return (
        f'<div class="qdq-verdict qdq-{status}"><b>{word}: {html.escape(str(done.path))}</b>'
        f"<div>{html.escape(done.report.summary())}</div><ul>{notes}</ul></div>{_checks(done.verification)}"
    )


def _checks(verification: Any) -> str:
    """Return the checks of a verification as a table, the failures first."""
    if verification is None:
        return ""
    checks = sorted(verification.checks, key=lambda check: check.passed)
    rows = [("passed" if check.passed else "FAILED", check.name, check.detail) for check in checks]
    return table_html(("", "check", "found"), rows)
