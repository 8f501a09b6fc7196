"""Every notebook runs from top to bottom, and is committed without outputs but the pictures of its benches.

They run in forked processes, because a kernel takes 8 seconds to start (tests/browser runs the first one in a JupyterLab).
All train for less time than a reader's (`SHORT` in run_notebook.py), and `make test` runs four (tests/held_elsewhere.yaml);
test_notebook_types.py reads the cells of all. `make notebooks` runs them whole.
"""

import ast
import json
import pathlib
import subprocess
import sys

import pytest
from notebooks import long_run
from notebooks.run_notebook import SHORT, shortened
from project import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RUNNER = pathlib.Path(__file__).with_name("run_notebook.py")
WIDGETS = ("Workbench(", "GraphView(")


@pytest.mark.parametrize(("limit", "status", "said"), [("60", 0, ""), ("-1", 1, ", more than -1 s")])
def test_a_notebook_that_takes_too_long_fails_the_long_run(limit, status, said, monkeypatch, capsys):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, "", ""))
    monkeypatch.setattr(sys, "argv", ["long_run.py", "--only", "01", "--seconds", limit])

    with pytest.raises(SystemExit) as left:
        long_run.main()

    assert left.value.code == status
    assert capsys.readouterr().out == f"01_quickstart.ipynb: passed, 0 s{said}\n"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_committed_without_outputs_but_for_the_picture_of_a_bench(path):
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]

    assert all(cell["execution_count"] is None for cell in cells)
    assert [list(output["data"]) for output in outputs] == [["image/svg+xml"]] * shows_widgets(path), (
        "run docs/site/notebook_pictures.py"
    )


def shows_widgets(path):
    """Return whether a notebook makes widgets, which it is then expected to display."""
    return any(name in path.read_text(encoding="utf-8") for name in WIDGETS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_say_where_the_readers_data_go(path):
    assert "your data here" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_the_tests_shorten_stands_in_the_cell_of_parameters_and_is_longer_for_readers(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    tagged = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", ())]
    shorter = SHORT.get(path.stem[:2], {})

    assert len(tagged) == bool(shorter)
    for cell in tagged:
        lines = ast.parse("".join(cell["source"])).body
        values = {line.targets[0].id: ast.literal_eval(line.value) for line in lines}
        assert values.keys() == shorter.keys()
        assert all(0 < shorter[name] < value for name, value in values.items())
        ran = {}
        exec(shortened(path, cell), ran)
        assert {name: ran[name] for name in values} == shorter


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, fresh, tmp_path):
    done = fresh.start(RUNNER, str(path), str(tmp_path), "--short", environment={"IPYTHONDIR": str(tmp_path)}).finish()

    assert done.returncode == 0, done.stderr
    assert shows_widgets(path) != done.stdout.endswith("widgets displayed: 0\n"), done.stdout


def write_notebook(path, *sources):
    """Write a notebook of these code cells."""
    cells = [{"cell_type": "code", "id": f"c{place}", "source": [source]} for place, source in enumerate(sources)]
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")


RUN_ALL = """
import pathlib, sys
import run_notebook

for path in sorted(pathlib.Path(sys.argv[1]).glob("*.ipynb")):
    print(path.stem, "returned", run_notebook.main(path))
"""
BROKEN = "class Broken:\n    def __repr__(self):\n        raise RuntimeError('no picture')\n\nvalue = 1"
# The cell, and how its traceback ends.
WRONG = {
    "fails": ("assert value == 2, 'wrong value'", "AssertionError: wrong value"),
    "is_no_python": ("value + ", "SyntaxError: invalid syntax"),
    "leaves": ("raise SystemExit(0)", "SystemExit: 0"),
    "cannot_be_displayed": ("Broken()", "RuntimeError: no picture"),
}
RIGHT = ("import ipywidgets", "slider = ipywidgets.IntSlider(); kept = ipywidgets.IntText(); slider", "display(slider)")


@pytest.mark.slow
def test_wrong_cells_fail_with_their_tracebacks_and_displayed_widgets_are_counted(fresh, tmp_path):
    pytest.importorskip("ipywidgets")
    for name, (cell, _) in WRONG.items():
        write_notebook(tmp_path / f"{name}.ipynb", BROKEN, cell, "print('behind')")
    write_notebook(tmp_path / "works.ipynb", *RIGHT)
    environment = {"IPYTHONDIR": str(tmp_path)}
    done = fresh.start(RUN_ALL, str(tmp_path), path=[str(RUNNER.parent)], environment=environment).finish()

    assert done.returncode == 0, done.stderr
    assert "behind" not in done.stdout
    for name, (cell, error) in WRONG.items():
        assert f"{name} returned 1\n" in done.stdout
        assert f"Cell 'c1' of {name}.ipynb failed:\n\n{cell}\n" in done.stderr
        assert f"\n{error}\n" in done.stderr
    assert done.stdout.endswith("widgets displayed: 2\nworks returned 0\n")
