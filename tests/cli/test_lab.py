"""`qdq-workbench lab`: which notebook it opens, and what it says when it cannot."""

import importlib.util
import json
import shutil
import subprocess
import sys
from typing import ClassVar

import pytest
from project import ROOT

from qdq_workbench.cli import lab, main
from qdq_workbench.errors import OutputPathError


class FakeLab:
    """Stands for the JupyterLab process: remembers its command line and ends at once."""

    commands: ClassVar[list] = []
    trusted: ClassVar[list] = []
    code = 0

    def __init__(self, command):
        self.commands.append(command)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def wait(self):
        return self.code


@pytest.fixture
def jupyter(monkeypatch):
    """Replace the process that would run until it is closed, and the signatures of JupyterLab."""
    monkeypatch.setattr(FakeLab, "commands", [])
    monkeypatch.setattr(FakeLab, "trusted", [])
    monkeypatch.setattr(subprocess, "Popen", FakeLab)
    monkeypatch.setattr(lab, "trust", FakeLab.trusted.append)
    return FakeLab


def test_opens_the_quickstart_of_the_checkout(cli, jupyter):
    code, out, _ = cli("lab", "--no-browser", "--allow-root", "--port", "9999", "--json")

    notebook = ROOT / "notebooks" / "01_quickstart.ipynb"
    command = [sys.executable, "-m", "jupyterlab", str(notebook), "--no-browser"]
    command += [f"--LabApp.default_url=/lab/tree/{notebook.name}", "--allow-root", "--port=9999"]
    assert jupyter.commands == [command]
    assert (code, json.loads(out)["notebook"]) == (0, str(notebook))
    assert jupyter.trusted == [notebook]


def test_keras_is_left_to_the_notebook(cli, jupyter, monkeypatch):
    monkeypatch.setattr(main, "import_keras", lambda: pytest.fail("takes seconds, for nothing"))

    assert cli("lab")[0] == 0
    assert len(jupyter.commands) == 1


def test_a_quickstart_with_a_picture_is_trusted_by_jupyterlab(tmp_path, monkeypatch):
    import nbformat.sign  # takes seconds

    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    copy = shutil.copy(ROOT / "notebooks" / lab.QUICKSTART, tmp_path)
    notebook = nbformat.read(copy, as_version=4)

    lab.trust(copy)

    with nbformat.sign.NotebookNotary(data_dir=str(tmp_path / "data")) as notary:
        assert notary.check_signature(notebook)
        notebook.cells[0].source += " changed"
        assert not notary.check_signature(notebook)


def test_a_notebook_of_ones_own_is_not_signed(cli, jupyter, tmp_path):
    shutil.copy(ROOT / "notebooks" / lab.QUICKSTART, tmp_path / "mine.ipynb")

    code, _, _ = cli("lab", str(tmp_path / "mine.ipynb"))

    assert (code, len(jupyter.commands), jupyter.trusted) == (0, 1, [])


def test_a_quickstart_that_cannot_be_copied_leaves_no_half_of_it(tmp_path, monkeypatch):
    package = tmp_path / "site" / "qdq_workbench"
    (package / "notebooks").mkdir(parents=True)
    (package / "notebooks" / lab.QUICKSTART).write_text("{}")
    monkeypatch.setattr(lab, "__file__", str(package / "cli" / "lab.py"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def full(_, copy):
        copy.write_text("{")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfile", full)
        with pytest.raises(OutputPathError, match="No space left"):
            lab.quickstart()
    assert list((tmp_path / "here").iterdir()) == []
    assert lab.quickstart().read_text() == "{}"


def test_an_installed_quickstart_is_copied_once(tmp_path, monkeypatch):
    package = tmp_path / "site" / "qdq_workbench"
    (package / "notebooks").mkdir(parents=True)
    (package / "notebooks" / lab.QUICKSTART).write_text("{}")
    monkeypatch.setattr(lab, "__file__", str(package / "cli" / "lab.py"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    assert lab.quickstart().read_text() == "{}"
    (tmp_path / "here" / lab.QUICKSTART).write_text("changed")
    assert lab.quickstart().read_text() == "changed"


def test_the_code_of_jupyterlab_decides(cli, jupyter, monkeypatch):
    monkeypatch.setattr(FakeLab, "code", 3)

    code, out, _ = cli("lab")

    assert code == 1
    assert "code 3" in out


def test_says_how_to_install_jupyterlab(cli, jupyter, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jupyterlab" else find_spec(name))

    code, _, errors = cli("lab")

    assert code == 2
    assert "pip install jupyterlab" in errors
    assert jupyter.commands == []


def test_a_notebook_of_ones_own_must_exist(cli, jupyter):
    code, _, errors = cli("lab", "modle.ipynb")

    assert code == 2
    assert "modle.ipynb" in errors


def test_an_empty_name_is_no_wish_for_the_quickstart(cli, jupyter):
    code, out, errors = cli("lab", "")

    assert (code, out) == (2, "")
    assert "The path is empty" in errors
