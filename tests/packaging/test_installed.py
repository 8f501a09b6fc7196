"""Wheel and source archive outside of the checkout, in environments that borrow the dependencies of the tests.

`make installed` does the same in an empty environment, which installs TensorFlow for itself, with the demo's own data.
"""

import importlib.util
import pathlib
import subprocess
import sys
import zipfile

import pytest
from browser.conftest import SCREENSHOTS, browser  # noqa: F401 - a fixture
from project import ROOT

pytestmark = pytest.mark.slow


def load_installed():
    """Import the script; its folder has the name of an installed package."""
    spec = importlib.util.spec_from_file_location("installed", pathlib.Path(__file__).with_name("installed.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(folder, *arguments):
    """Build from the checkout, with the backend that is there."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, *arguments, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """A source archive, and the wheel that was built from it."""
    return built(tmp_path_factory.mktemp("archives"))


@pytest.fixture(scope="module")
def environment(archives, tmp_path_factory):
    """The wheel in an environment."""
    environment = load_installed().Environment(tmp_path_factory.mktemp("installed"), None, borrow=True)
    (wheel,) = archives.glob("*.whl")
    environment.pip("--no-deps", "--no-index", str(wheel))
    return environment


def test_the_wheel_is_all_that_a_user_needs_of_us(environment):
    load_installed().use(environment, small=True)


def test_the_graph_of_the_wheel_is_painted_in_a_browser(environment, browser):  # noqa: F811 - only to skip without one
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    load_installed().show(environment, SCREENSHOTS / "installed.png")


def test_a_wheel_from_the_source_archive_is_the_one_from_the_checkout(archives, tmp_path):
    (from_archive,) = archives.glob("*.whl")
    (from_checkout,) = built(tmp_path, "--wheel").glob("*.whl")
    records = []
    for wheel in (from_archive, from_checkout):
        with zipfile.ZipFile(wheel) as opened:
            (record,) = [name for name in opened.namelist() if name.endswith(".dist-info/RECORD")]
            records.append(sorted(opened.read(record).decode().splitlines()))
    assert len(records[0]) > 500
    assert records[0] == records[1]


def test_the_source_archive_installs_without_the_checkout(archives, tmp_path):
    installed = load_installed()
    environment = installed.Environment(tmp_path, None, borrow=True)
    (archive,) = archives.glob("*.tar.gz")
    environment.pip("--no-deps", "--no-index", "--no-build-isolation", str(archive))
    (environment.work / "use.py").write_text(installed.USE)
    environment.run("python", "use.py")
