"""The files of a bench, written so that a folder holds the whole bench of before or the whole one of now.

A save writes the models under names of its own, `model-<mark>.keras`. The bench is the new one with the replacement of
`bench.json`, which has the mark; then the models get their usual names. Where a save was killed behind that, a model is
found under the name with the mark; what one left that was killed before is removed by the next.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import qdq_workbench as qdq

BENCH, FLOAT, TUNED = "bench.json", "model.keras", "quantized.keras"

_MARK = "[0-9a-f]{8}"


def write_files(
    folder: pathlib.Path, data: Mapping[str, Any], models: Mapping[str, Callable[[pathlib.Path], Any]]
) -> None:
    """Write a bench.

    Args:
        folder: The folder, which exists.
        data: What `bench.json` holds.
        models: Functions that write a file each, by its name: `FLOAT` and, where there are trained weights, `TUNED`.

    Raises:
        OSError: If a file cannot be written. The bench of before is then unchanged.
    """
    _settle(folder, _present_mark(folder))
    mark = secrets.token_hex(4)
    try:
        for name, write in models.items():
            qdq.write_atomically(folder / _marked(name, mark), write)
        text = json.dumps({**data, "mark": mark}, indent=1)
        qdq.write_atomically(folder / BENCH, lambda file: file.write_text(text, encoding="utf-8"))
    finally:
        _settle(folder, _present_mark(folder))
    for name in {FLOAT, TUNED}.difference(models):
        (folder / name).unlink(missing_ok=True)


def model_file(folder: pathlib.Path, data: Mapping[str, Any], name: str) -> pathlib.Path:
    """Return where a model of a bench is.

    Args:
        folder: The folder.
        data: What its `bench.json` holds.
        name: `FLOAT` or `TUNED`.
    """
    mark = _checked(data.get("mark"))
    unsettled = folder / _marked(name, mark)
    return unsettled if mark and unsettled.is_file() else folder / name


def _settle(folder: pathlib.Path, mark: str) -> None:
    """Give the models of the present bench their usual names, and remove what killed saves left."""
    if mark:
        for name in (FLOAT, TUNED):
            with contextlib.suppress(FileNotFoundError):
                (folder / _marked(name, mark)).replace(folder / name)
    for name in (FLOAT, TUNED):
        left = re.compile(_marked(re.escape(name), _MARK))
        for path in folder.iterdir():
            if left.fullmatch(path.name):
                path.unlink(missing_ok=True)


def _present_mark(folder: pathlib.Path) -> str:
    """Return the mark of the bench in a folder; nothing where there is none, or none that can be read."""
    try:
        return _checked(qdq.files.parse_json((folder / BENCH).read_text(encoding="utf-8"))["mark"])
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        return ""


def _checked(mark: Any) -> str:
    return mark if isinstance(mark, str) and re.fullmatch(_MARK, mark) else ""


def _marked(name: str, mark: str) -> str:
    stem, _, suffix = name.rpartition(".")
    return f"{stem}-{mark}.{suffix}"
