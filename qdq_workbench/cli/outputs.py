"""Output files of the commands; their names are checked before the work begins, which may take hours."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable
from typing import Any

from qdq_workbench._files import check_name, write_text
from qdq_workbench.errors import OutputPathError

MODEL = (".keras", ".h5", ".hdf5")
JSON = (".json",)
SPEC = (".yaml", ".yml", ".json")
PAGE = (".html", ".htm")
PICTURE = (".svg",)
C_HEADER = (".h",)
PYTHON = (".py",)
EXPORTED = (".onnx", ".tflite", ".npz")


def check_output(path: str | None, suffixes: tuple[str, ...], *, other_than: str | None = None) -> None:
    """Raise `OutputPathError` unless a file can be written, has one of the suffixes and is not the file `other_than`.

    The case of the path's suffix is ignored; None stands for an output that is not written.
    """
    if path is None:
        return
    target = check_name(path, suffixes)
    if not os.access(target.parent, os.W_OK):
        raise OutputPathError(f"The folder cannot be written; choose another one. Received: path={path!r}")
    if other_than is not None and _is_same(target, other_than):
        raise OutputPathError(
            f"The file would overwrite the model that it is made from; give another name. Received: path={path!r}"
        )


def _is_same(target: pathlib.Path, other: str) -> bool:
    try:
        return target.samefile(other)
    except (OSError, ValueError):
        # A path without a file: a wrong one of a model is reported when it is loaded, with the names of similar files.
        return False


def check_apart(*paths: str | None) -> None:
    """Raise `OutputPathError` if two outputs of a command are one file; None stands for one that is not written."""
    seen: dict[pathlib.Path, str] = {}
    for path in paths:
        if path is None:
            continue
        # Outputs need not exist yet, so `samefile` cannot compare them.
        file = pathlib.Path(path).resolve()
        if file in seen:
            raise OutputPathError(
                "Two outputs have the same name, so one would overwrite the other; give each its own. "
                f"Received: {seen[file]!r} and {path!r}"
            )
        seen[file] = path


def check_keeps(outputs: Iterable[str | None], inputs: Iterable[str | None]) -> None:
    """Raise `OutputPathError` if an output of a command replaces a file of another kind that it reads."""
    read = [path for path in inputs if path is not None]
    for path in outputs:
        same = None if path is None else next((other for other in read if _is_same(pathlib.Path(path), other)), None)
        if same is not None:
            raise OutputPathError(
                "The file would overwrite one that this command reads, with something else; give another name. "
                f"Received: path={path!r}, which is read too"
            )


def write_figure(path: str, figure: Any) -> None:
    """Write a `plotly.graph_objects.Figure` as an HTML page that needs no network."""
    from qdq_workbench.report.chart_html import chart_html

    write_text(path, chart_html(figure))
