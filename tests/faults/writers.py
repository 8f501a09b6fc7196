"""Everything of ours that writes files, in one table: `WRITERS` for functions, `COMMANDS` for the command line."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import qdq_workbench as qdq
from qdq_widgets import Workbench, write_graph_page, write_graph_picture
from qdq_workbench import report


@dataclasses.dataclass(frozen=True)
class Writer:
    """One thing that writes.

    Args:
        name: What is called.
        files: What it writes, a file or a folder each; the first is the one that `write` is given the path of.
        write: Writes, given the `Things` and the path.
        goes_on: Whether it goes on from what is there, and writes no more where that is all.
    """

    name: str
    files: tuple[str, ...]
    write: Callable[[Things, pathlib.Path], Any]
    goes_on: bool = False

    def __str__(self) -> str:
        return self.name


class Things:
    """What is written: a calibrated model, its data, and whatever is made of them.

    Args:
        folder: Where the files are that commands read.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        keras.utils.set_random_seed(0)
        image = keras.Input((6,), name="image")
        hidden = keras.layers.Dense(8, activation="relu", name="hidden")(image)
        self.model = keras.Model(image, keras.layers.Dense(3, activation="softmax", name="head")(hidden), name="net")
        self.model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
        generator = np.random.default_rng(0)
        self.data = (generator.normal(size=(16, 6)).astype("float32"), generator.integers(0, 3, 16))
        self.q_model = qdq.quantize_model(self.model, target="onnxruntime")
        self.ranges = qdq.calibrate(self.q_model, self.data[0], verbose=False)
        self.curves = [report.Curve("training", (0, 1), (0.5, 0.75))]
        self.model.save(folder / "model.keras")
        self.q_model.save(folder / "q.keras")
        np.savez(folder / "data.npz", x=self.data[0], y=self.data[1])
        self._write_for_the_demo(folder, generator)
        self.folder, self.exported = folder, folder / "exported.onnx"
        qdq.export_onnx(self.q_model, self.exported)
        self.certificate = qdq.certificates.certify(self.exported, self.q_model, self.data[0])
        self.bench = Workbench(self.model, train_data=self.data, target="onnxruntime")
        self.bench.calibrate()
        self.bench.fine_tune(1)
        self.bench.keep_variant("first")
        self.reports = {
            "sensitivity": qdq.sensitivity(self.q_model, self.data[0], verbose=False),
            "search": qdq.search(self.q_model, self.data, accuracy_floor=0.0, verbose=False),
            "latency": qdq.profiling.profile_onnx(self.exported, rounds=1),
            "diagnosis": qdq.diagnosis.diagnose(self.q_model, self.data, verbose=False),
        }

    def _write_for_the_demo(self, folder: pathlib.Path, generator: np.random.Generator) -> None:
        """Write images and a network of a demo, whose own network takes seconds to train before anything is written."""
        x, y = generator.normal(size=(32, 4, 4, 1)).astype("float32"), np.arange(32) % 2
        np.savez(folder / "images.npz", x_train=x, y_train=y, x_test=x, y_test=y)
        image = keras.Input((4, 4, 1), name="image")
        scores = keras.layers.Dense(2, activation="softmax", name="scores")(keras.layers.Flatten()(image))
        keras.Model(image, scores, name="network").save(folder / "network.keras")

    def outputs(self) -> np.ndarray:
        """What the model computes, to see that it still does."""
        return np.asarray(self.q_model(self.data[0]))

    def learn_rounding(self, checkpoint: pathlib.Path | None = None) -> qdq.results.RoundingReport:
        """Learn the rounding of a copy."""
        copy = qdq.retarget(self.q_model, "onnxruntime")
        return qdq.correction.learn_rounding(
            copy, self.data[0], granularity="layer", steps=2, checkpoint=checkpoint, verbose=False
        )

    def bench_in_float(self) -> Workbench:
        """A bench without trained weights."""
        return Workbench(self.model, target="onnxruntime")

    def run_report(self) -> report.RunReport:
        """A page of a run."""
        return report.RunReport("title", "verdict", passed=True, plan=self.q_model.plan, curves=self.curves)


WRITERS = (
    Writer("QuantizedModel.save .keras", ("q.keras",), lambda all_, path: all_.q_model.save(path)),
    Writer("QuantizedModel.save .h5", ("q.h5",), lambda all_, path: all_.q_model.save(path)),
    Writer("QuantizedModel.save folder", ("q",), lambda all_, path: all_.q_model.save(path, zipped=False)),
    Writer("QuantizedModel.save_weights", ("q.weights.h5",), lambda all_, path: all_.q_model.save_weights(path)),
    Writer("export_onnx", ("q.onnx",), lambda all_, path: qdq.export_onnx(all_.q_model, path)),
    Writer("export_float_onnx", ("q.onnx",), lambda all_, path: qdq.files.export_float_onnx(all_.model, path)),
    Writer("export_tflite", ("q.tflite",), lambda all_, path: qdq.export_tflite(all_.q_model, path)),
    Writer(
        "save_firmware",
        ("q.npz", "q.h", "q.py"),
        lambda all_, path: qdq.files.save_firmware(
            all_.q_model, path, c_header=path.with_suffix(".h"), interpreter=path.with_suffix(".py")
        ),
    ),
    Writer(
        "save_integer_weights .npz", ("q.npz",), lambda all_, path: qdq.files.save_integer_weights(all_.q_model, path)
    ),
    Writer(
        "save_integer_weights .h5", ("q.h5",), lambda all_, path: qdq.files.save_integer_weights(all_.q_model, path)
    ),
    Writer("QuantizationSpec.save", ("s.yaml",), lambda all_, path: qdq.QuantizationSpec().save(path)),
    Writer("CalibrationResult.save", ("r.json",), lambda all_, path: all_.ranges.save(path)),
    Writer("Certificate.save", ("c.json",), lambda all_, path: all_.certificate.save(path)),
    Writer(
        "write_certificate_page",
        ("c.html",),
        lambda all_, path: qdq.certificates.write_certificate_page(all_.certificate, path),
    ),
    Writer("SensitivityReport.save", ("s.json",), lambda all_, path: all_.reports["sensitivity"].save(path)),
    Writer("SearchResult.save", ("s.json",), lambda all_, path: all_.reports["search"].save(path)),
    Writer("LatencyReport.save", ("l.json",), lambda all_, path: all_.reports["latency"].save(path)),
    Writer("Diagnosis.save", ("d.json",), lambda all_, path: all_.reports["diagnosis"].save(path)),
    Writer(
        "sensitivity(checkpoint=)",
        ("s.json",),
        lambda all_, path: qdq.sensitivity(all_.q_model, all_.data[0], checkpoint=path, verbose=False),
        goes_on=True,
    ),
    Writer(
        "search(checkpoint=)",
        ("s.json", "s.sensitivity.json"),
        lambda all_, path: qdq.search(all_.q_model, all_.data, accuracy_floor=0.0, checkpoint=path, verbose=False),
        goes_on=True,
    ),
    Writer(
        "calibrate(checkpoint=)",
        ("ranges.json",),
        lambda all_, path: qdq.calibrate(all_.q_model, all_.data[0], checkpoint=path, verbose=False),
        goes_on=True,
    ),
    Writer("learn_rounding(checkpoint=)", ("r.npz",), lambda all_, path: all_.learn_rounding(path), goes_on=True),
    Writer("write_html_report", ("r.html",), lambda all_, path: report.write_html_report(all_.run_report(), path)),
    Writer("write_curves_html", ("c.html",), lambda all_, path: report.write_curves_html(path, all_.curves)),
    Writer("write_curves_png", ("c.png",), lambda all_, path: report.write_curves_png(path, all_.curves)),
    Writer("write_graph_page", ("g.html",), lambda all_, path: write_graph_page(all_.q_model.plan, path)),
    Writer("write_graph_picture", ("g.svg",), lambda all_, path: write_graph_picture(all_.q_model.plan, path)),
    Writer("Workbench.save", ("bench",), lambda all_, path: all_.bench.save(path)),
    Writer("Workbench.save, nothing trained", ("bench",), lambda all_, path: all_.bench_in_float().save(path)),
    Writer("Workbench.report", ("r.html",), lambda all_, path: all_.bench.report(path)),
    Writer(
        "Workbench.export",
        ("q.onnx", "q.certificate.json", "q.certificate.html"),
        lambda all_, path: all_.bench.export(path, certificate=True),
    ),
)


@dataclasses.dataclass(frozen=True)
class CommandLine:
    """A command that writes.

    Args:
        arguments: The command line; `{in}` is the folder of what it reads, and `{out}` the one that it writes to.
        outcome: The exit code where nothing is wrong.
    """

    arguments: str
    outcome: int = 0

    def __str__(self) -> str:
        return self.arguments

    def filled(self, things: Things, folder: pathlib.Path) -> list[str]:
        """Return the command line with its folders."""
        return [
            part.replace("{in}", str(things.folder)).replace("{out}", str(folder)) for part in self.arguments.split()
        ]


COMMANDS = (
    CommandLine("plan {in}/model.keras -o {out}/plan.json --html {out}/plan.html --picture {out}/plan.svg"),
    CommandLine("quantize {in}/model.keras -o {out}/q.keras --calibration-data {in}/data.npz"),
    CommandLine("quantize {in}/model.keras -o {out}/q.h5 --calibration-data {in}/data.npz"),
    CommandLine(
        "calibrate {in}/q.keras --data {in}/data.npz -o {out}/q.keras --ranges {out}/ranges.json "
        "--checkpoint {out}/checkpoint.json"
    ),
    CommandLine(
        "learn-rounding {in}/q.keras --data {in}/data.npz -o {out}/q.keras --steps 2 --report {out}/report.json "
        "--checkpoint {out}/rounding.npz"
    ),
    CommandLine("gptq {in}/q.keras --data {in}/data.npz -o {out}/q.keras --report {out}/report.json"),
    CommandLine("finetune {in}/q.keras --data {in}/data.npz -o {out}/q.keras --checkpoint {out}/run.npz"),
    CommandLine("export {in}/q.keras -o {out}/q.onnx"),
    CommandLine("export {in}/q.keras -o {out}/q.tflite"),
    CommandLine("export {in}/q.keras -o {out}/q.npz --c-header {out}/q.h --interpreter {out}/q.py"),
    CommandLine("export {in}/q.keras -o {out}/float.onnx --float"),
    CommandLine("verify {in}/exported.onnx --model {in}/q.keras --certificate {out}/new.json"),
    CommandLine("certify {in}/exported.onnx --model {in}/q.keras -o {out}/certificate.json"),
    CommandLine("profile {in}/exported.onnx --rounds 1 --figure {out}/times.html"),
    CommandLine("import {in}/exported.onnx --model {in}/model.keras -o {out}/spec.yaml"),
    CommandLine(
        "sensitivity {in}/q.keras --data {in}/data.npz -o {out}/s.json --figure {out}/s.html --top-k 1 "
        "--spec-output {out}/s.yaml --checkpoint {out}/checkpoint.json"
    ),
    CommandLine("diagnose {in}/q.keras --data {in}/data.npz --apply all -o {out}/q.keras --report {out}/d.json"),
    CommandLine(
        "search {in}/q.keras --data {in}/data.npz --accuracy-floor 0 -o {out}/q.keras --spec-output {out}/s.yaml "
        "--report {out}/r.json --figure {out}/f.html --checkpoint {out}/checkpoint.json"
    ),
    CommandLine(
        "demo --data {in}/images.npz --model {in}/network.keras --epochs 1 --fine-tune-epochs 1 --output {out}/demo"
    ),
)
