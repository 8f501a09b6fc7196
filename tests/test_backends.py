"""Another Keras backend than TensorFlow, where it is installed: a named error, not one from deep inside."""

import importlib.util
import os
import subprocess
import sys

import pytest

_CODE = """
import qdq_workbench as qdq
import keras
image = keras.Input((4,))
model = keras.Model(image, keras.layers.Dense(2)(image))
for name in ("build_graph", "plan_placement", "quantize_model"):
    try:
        getattr(qdq, name)(model)
    except qdq.errors.UnsupportedModelError as error:
        print(name, error)
"""


@pytest.mark.parametrize(("backend", "package"), [("jax", "jax"), ("numpy", "jax"), ("torch", "torch")])
def test_other_backends_are_refused_by_name(backend, package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"Keras's {backend} backend needs {package}, which is not installed")
    environment = {**os.environ, "KERAS_BACKEND": backend}
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True, env=environment)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["build_graph", "plan_placement", "quantize_model"]
    assert all(f"backend={backend!r}" in line and "KERAS_BACKEND" in line for line in lines)


def test_importing_the_package_needs_no_backend():
    """Where the backend of the environment is missing, Keras itself says so, when it is first needed."""
    environment = {**os.environ, "KERAS_BACKEND": "missing"}
    code = "import qdq_workbench as qdq; print(len(qdq.QuantizationSpec().to_dict()) > 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["True"]
