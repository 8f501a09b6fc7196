"""The wheel outside of the checkout, in an environment that borrows its dependencies from the one of the tests.

`make installed` does the same in an empty environment, which installs TensorFlow for itself.
"""

import importlib.util
import pathlib
import subprocess
import sys

import pytest
from project import ROOT


def load_installed():
    """Import the script; its folder has the name of an installed package."""
    spec = importlib.util.spec_from_file_location("installed", pathlib.Path(__file__).with_name("installed.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_wheel_is_all_that_a_user_needs_of_us(tmp_path):
    installed = load_installed()
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist", ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    environment = installed.Environment(tmp_path, None, borrow=True)
    environment.pip("--no-deps", "--no-index", str(wheel))
    installed.use(environment, demo=False)  # `make demo` runs it
