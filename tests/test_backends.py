"""Another Keras backend than TensorFlow; what models of one are told stands in test_bad_models.py."""

import os
import subprocess
import sys


def test_importing_the_package_needs_no_backend():
    """Where the backend of the environment is missing, Keras itself says so, when it is first needed."""
    environment = {**os.environ, "KERAS_BACKEND": "missing"}
    code = "import qdq_workbench as qdq; print(len(qdq.QuantizationSpec().to_dict()) > 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["True"]
