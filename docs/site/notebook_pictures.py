"""Puts a picture of each bench into the notebooks that show one: `python docs/site/notebook_pictures.py`.

Notebooks are committed without outputs. A reader who has no kernel, on GitHub say, sees this much of a bench: the
picture that it leaves in a saved notebook anyway. It takes a minute per notebook.
"""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import nbclient
import nbformat

NOTEBOOKS = pathlib.Path(__file__).parents[2] / "notebooks"
PICTURE = "image/svg+xml"


def pictures_of(path: pathlib.Path) -> list[list[Any]]:
    """Run a notebook; return the pictures of each of its cells, as outputs."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": folder}}).execute()
    return [[only_picture(output) for output in cell.get("outputs", []) if is_bench(output)] for cell in notebook.cells]


def is_bench(output: Any) -> bool:
    """Return whether an output is a bench with its picture."""
    data = output.get("data", {})
    return PICTURE in data and "application/vnd.jupyter.widget-view+json" in data


def only_picture(output: Any) -> Any:
    """Return an output without its widgets, which need a kernel."""
    return nbformat.v4.new_output("display_data", {PICTURE: output["data"][PICTURE]})


def main() -> None:
    """Write the notebooks that show a bench."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if "Workbench(" not in path.read_text(encoding="utf-8"):
            continue
        notebook = nbformat.read(path, as_version=4)
        for cell, pictures in zip(notebook.cells, pictures_of(path), strict=True):
            if cell.cell_type == "code":
                cell.outputs = pictures
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
