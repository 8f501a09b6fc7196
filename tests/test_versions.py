"""The versions that files and reports name: of what is installed, and of nothing else."""

import numpy as np

from qdq_workbench._versions import versions_of


def test_only_what_is_installed_has_a_version():
    assert versions_of(("numpy", "no-such-distribution", "onnx"))["numpy"] == np.__version__
    assert list(versions_of(("onnx", "no-such-distribution", "numpy"))) == ["onnx", "numpy"]
    assert versions_of(()) == {}
