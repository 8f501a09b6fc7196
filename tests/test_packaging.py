"""The wheel holds both import packages and their data files, and nothing else."""

import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from project import ROOT, project_table

from qdq_workbench._pages import TITLES, page_paths


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel and open it."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT],
        check=True, capture_output=True,
    )  # fmt: skip
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def wheel_names(wheel):
    """Return the names in the wheel."""
    return wheel.namelist()


def test_both_packages_are_inside_with_their_data(wheel_names):
    assert {
        "qdq_workbench/__init__.py",
        "qdq_workbench/py.typed",
        "qdq_workbench/__init__.pyi",
        "qdq_workbench/report/templates/report.html.j2",
        "qdq_workbench/notebooks/01_quickstart.ipynb",
        *(f"qdq_workbench/docs/{path}" for path in TITLES),
        "qdq_widgets/__init__.py",
        "qdq_widgets/py.typed",
        "qdq_widgets/__init__.pyi",
    } <= set(wheel_names)


def test_nothing_else_is_inside(wheel_names):
    version = project_table()["version"]

    assert {name.split("/")[0] for name in wheel_names} == {
        "qdq_workbench",
        "qdq_widgets",
        f"qdq_workbench-{version}.dist-info",
    }
    assert f"qdq_workbench-{version}.dist-info/licenses/LICENSE" in wheel_names


def test_of_the_documentation_only_its_pages_are_inside(wheel_names):
    pages = [name.removeprefix("qdq_workbench/docs/") for name in wheel_names if name.startswith("qdq_workbench/docs/")]

    assert sorted(pages) == page_paths(ROOT / "docs")


def test_the_version_is_the_same_everywhere():
    import qdq_workbench

    assert qdq_workbench.__version__ == project_table()["version"]
    assert f"## [{qdq_workbench.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_description_has_no_link_that_leads_nowhere(wheel):
    (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    text = wheel.read(metadata).decode()

    assert "# QDQ Workbench" in text
    assert "`tests/verification/test_verify.py`" in text
    assert re.findall(r"\]\((?!https?:|#)[^)]*\)", text) == []


@pytest.fixture
def installs(tmp_path):
    """Return a function that tells what a target of the Makefile installs in a fresh clone."""
    if shutil.which("make") is None:
        pytest.skip("needs make")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)

    def told(target):
        command = ["make", "--dry-run", target, f"PYTHON={sys.executable}", "TF=tensorflow-cpu"]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        return re.findall(r"pip -qq install ([^;&|}\n]*)", done.stdout)

    return told


def test_a_build_installs_the_build_tool_and_nothing_else(installs):
    assert [what.strip().strip('"') for what in installs("build")] == ["build>=1.2"]
    assert [what.strip().strip('"') for what in installs("installed")] == ["build>=1.2"]
    assert len(installs("lint")) > 1  # the developer environment
