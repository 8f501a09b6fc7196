"""The worked example of docs/extending.md: a layer, a target, a calibration method, by the documented places alone."""

import json
import re
import shutil
import subprocess

import pytest
from project import ROOT

PATCH = re.compile(r"^```diff\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
SCRIPT = """
import json

import keras
import numpy as np

import qdq_workbench as qdq


@keras.saving.register_keras_serializable(package="example")
class ScaledDense(keras.layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        self.table = self.add_weight(name="table", shape=(input_shape[-1], self.units))

    def call(self, inputs):
        return keras.ops.matmul(inputs, self.table) * 0.5

    def get_config(self):
        return {**super().get_config(), "units": self.units}


ScaledDense.__module__ = "keras.layers"  # as if Keras had it
x = keras.Input((6,), name="x")
q_model = qdq.quantize_model(keras.Model(x, ScaledDense(3, name="scaled")(x)), target="edge")
data = np.random.default_rng(0).normal(1.0, 2.0, (2000, 6)).astype("float32")
qdq.calibrate(q_model, data, method="sigma", verbose=False)
verification = qdq.verify_onnx(qdq.export_onnx(q_model, "edge.onnx").path, q_model, data[:8])
explained = qdq.explain(q_model).for_layer("scaled")
mean, deviation = float(data.mean()), float(data.std())
print(json.dumps({
    "tensors": [tensor.name for tensor in q_model.plan.tensors],
    "axis": next(site.quantizer.axis for site in q_model.plan.placements if site.weight == "table"),
    "passed": verification.passed,
    "kernels": verification.figures["integer_kernels"]["MatMul"],
    "range": q_model.activation_ranges()["x"],
    "expected": [mean - 3 * deviation, mean + 3 * deviation],
    "explained": [explained.status, explained.macs],
}))
"""


@pytest.fixture
def extended(tmp_path):
    """A copy of the package to which the patches of the page were applied; returns the folder and the files changed."""
    shutil.copytree(ROOT / "qdq_workbench", tmp_path / "qdq_workbench", ignore=shutil.ignore_patterns("__pycache__"))
    patch = "".join(PATCH.findall((ROOT / "docs" / "extending.md").read_text(encoding="utf-8")))
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, text=True, check=True)
    return tmp_path, re.findall(r"^diff --git a/(\S+)", patch, flags=re.MULTILINE)


def test_a_layer_a_target_and_a_calibration_method(extended, fresh):
    folder, changed = extended
    assert [path.removeprefix("qdq_workbench/") for path in changed] == [
        "graph/kinds.py",  # a layer: one file
        "placement/targets/edge.py",  # a target: three, one of them new
        "placement/targets/__init__.py",
        "runtimes/rule_sets.py",
        "calibration/observers/sigma.py",  # a calibration method: two, one of them new
        "calibration/observers/__init__.py",
    ]
    done = fresh.run(f"import os; os.chdir({str(folder)!r})\n{SCRIPT}", path=[folder])
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["tensors"] == ["x", "scaled/table"]
    assert found["axis"] == 1
    assert found["passed"] is True
    assert found["kernels"] == [1, 1]
    assert found["range"] == pytest.approx(found["expected"], rel=1e-4)
    assert found["explained"] == ["int8", 18]
