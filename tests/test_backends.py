"""Another Keras backend than TensorFlow; what models of one are told stands in test_bad_models.py."""

import os
import subprocess
import sys


def run(code):
    environment = {**os.environ, "KERAS_BACKEND": "missing"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)


def test_importing_the_package_needs_no_backend():
    done = run("import qdq_workbench as qdq; print(len(qdq.QuantizationSpec().to_dict()) > 0)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"]


def test_keras_says_that_the_backend_is_missing_when_it_is_first_needed():
    done = run("import qdq_workbench as qdq; print('imported'); qdq.build_graph")
    assert done.returncode != 0
    assert done.stdout.split() == ["imported"]
    assert done.stderr.strip().splitlines()[-1] == "ValueError: Unable to import backend : missing"
