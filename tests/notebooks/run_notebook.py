"""Runs the cells of a notebook in IPython's shell: without a kernel, so that a forked process can do it.

`run_notebook.py NOTEBOOK [FOLDER] [--short]` runs them in the folder and writes what they write. The first cell that
fails ends it with status 1, that cell and its traceback; so does a value that cannot be displayed. The last line says how
many widgets were displayed, after their states were made into what a page is sent. `--short` trains for less time, with
the values of `SHORT` in place of those of the cell with the tag "parameters"; `make notebooks` runs all of them whole.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import traceback
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

_VIEW = "application/vnd.jupyter.widget-view+json"
#: What the tests replace, by the start of a notebook's name. What notebooks assert must hold all the same.
SHORT: dict[str, dict[str, int]] = {
    "01": {"EPOCHS": 1},
    "02": {"EPOCHS": 1},
    "03": {"FLOAT_EPOCHS": 8, "EPOCHS": 2},
    "06": {"EPOCHS": 2},
    "07": {"EPOCHS": 3},
    "08": {"EPOCHS": 3},
    "09": {"EPOCHS": 5, "STEPS": 30},
}


class _Hook(DisplayHook):
    """Displays the value of a cell as `display` does."""

    def write_output_prompt(self) -> None:
        pass

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        self.shell.display_pub.publish(format_dict, md_dict)


class _Shell(InteractiveShell):
    """Keeps errors and outputs instead of printing them."""

    displayhook_class = _Hook
    display_pub_class = CapturingDisplayPublisher
    error: BaseException | None = None

    def showtraceback(self, *arguments: Any, **options: Any) -> None:
        self.error = sys.exc_info()[1]

    showsyntaxerror = showtraceback


def shortened(path: pathlib.Path, cell: dict[str, Any]) -> str:
    """Return the source of a cell of a notebook; behind its parameters, as papermill does it, the values of `SHORT`."""
    source = "".join(cell["source"])
    if "parameters" not in cell["metadata"].get("tags", ()):
        return source
    return "\n".join([source, *(f"{name} = {value}" for name, value in SHORT[path.stem[:2]].items())])


def main(path: pathlib.Path, *, short: bool = False) -> int:
    """Run a notebook; return the exit status."""
    # No history: processes that run at the same time would share its file.
    shell = _Shell(config=Config({"HistoryManager": {"enabled": False}}))
    _Shell._instance = InteractiveShell._instance = shell  # what get_ipython() returns
    views: list[str] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        source = shortened(path, cell) if short else "".join(cell["source"])
        shell.run_cell(source)
        if shell.error is not None:
            print(f"Cell {cell['id']!r} of {path.name} failed:\n\n{source}\n", file=sys.stderr)
            traceback.print_exception(shell.error)
            return 1
        displayed = [output["data"] for output in shell.display_pub.outputs]
        shell.display_pub.outputs.clear()
        print(*(data.get("text/plain", "") for data in displayed), sep="\n", end="\n" if displayed else "")
        views += [data[_VIEW]["model_id"] for data in displayed if _VIEW in data]
    check_states(views)
    print(f"widgets displayed: {len(views)}")
    return 0


def check_states(views: list[str]) -> None:
    """Make the states of all widgets into JSON, as a kernel does to show them."""
    if views:
        from ipywidgets.embed import embed_data

        states = json.loads(json.dumps(embed_data(views=None)))["manager_state"]["state"]
        assert all(states[view]["state"] for view in views)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path, nargs="?", default=pathlib.Path())
    parser.add_argument("--short", action="store_true", help="as the tests do")
    options = parser.parse_args()
    notebook = options.notebook.resolve()
    os.chdir(options.folder)
    sys.exit(main(notebook, short=options.short))
