"""Where commands write: names are checked before the work begins, not after hours of it."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from qdq_workbench._files import check_name, write_text
from qdq_workbench.errors import OutputPathError

MODEL = (".keras", ".h5", ".hdf5")
JSON = (".json",)
SPEC = (".yaml", ".yml", ".json")
PAGE = (".html", ".htm")
PICTURE = (".svg",)
EXPORTED = (".onnx", ".tflite")


def check_output(path: str | None, suffixes: tuple[str, ...], *, other_than: str | None = None) -> None:
    """Refuse the name of a file that cannot be written, or that says another format than will be written.

    Args:
        path: The name; None where nothing is written.
        suffixes: How it may end; upper case is fine.
        other_than: A file that must not be overwritten.

    Raises:
        OutputPathError: If the name ends otherwise, is a folder, is in a folder that does not exist or cannot be
            written, or is the file that must stay.
    """
    if path is None:
        return
    target = check_name(path, suffixes)
    if not os.access(target.parent, os.W_OK):
        raise OutputPathError(f"The folder cannot be written; choose another one. Received: path={path!r}")
    if other_than is not None and target.exists() and target.samefile(pathlib.Path(other_than)):
        raise OutputPathError(
            f"The file would overwrite the model that it is made from; give another name. Received: path={path!r}"
        )


def write_figure(path: str, figure: Any) -> None:
    """Write a figure as a page that needs no network.

    Args:
        path: The page.
        figure: A `plotly.graph_objects.Figure`.
    """
    write_text(path, figure.to_html(include_plotlyjs=True, config={"displaylogo": False}))
