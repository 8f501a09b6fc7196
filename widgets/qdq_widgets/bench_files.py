"""The files of a bench, saved atomically: a folder holds the whole former bench or the whole new one.

A save writes the models under marked names, `model-<mark>.keras`. Replacing `bench.json`, which holds the mark, makes
the new bench the valid one; then the models are renamed to their usual names. If a save is killed after the
replacement, a model is found under its marked name; the files of a save that was killed before it are removed by the
next save.
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
    """Write a bench to an existing folder; on an `OSError` the former bench is unchanged.

    `data` is the content of `bench.json`; `models` are functions that write one file each, by its name: `FLOAT` and, if
    there are trained weights, `TUNED`.
    """
    _settle(folder, _present_mark(folder))
    mark = secrets.token_hex(4)
    try:
        for name, write in models.items():
            qdq.write_atomically(folder / _marked(name, mark), write)
        text = json.dumps({**data, "mark": mark}, indent=1)
        qdq.write_atomically(folder / BENCH, lambda file: file.write_text(text, encoding="utf-8"))
    finally:
        # Also after an error: `bench.json`, read again, tells whether the former or the new models are valid.
        _settle(folder, _present_mark(folder))
    # Only now: until `bench.json` was replaced, the former bench needed its trained weights.
    for name in {FLOAT, TUNED}.difference(models):
        (folder / name).unlink(missing_ok=True)


def model_file(folder: pathlib.Path, data: Mapping[str, Any], name: str) -> pathlib.Path:
    """Return the path of a model file: under its marked name if the last save was killed before renaming it.

    `data` is the content of `bench.json`.
    """
    mark = _checked(data.get("mark"))
    unsettled = folder / _marked(name, mark)
    return unsettled if mark and unsettled.is_file() else folder / name


def _settle(folder: pathlib.Path, mark: str) -> None:
    """Rename the models of the present bench to their usual names, and remove the files of killed saves."""
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
    """Return the mark in the `bench.json` of a folder; empty if there is none that can be read."""
    try:
        return _checked(qdq.files.parse_json((folder / BENCH).read_text(encoding="utf-8"))["mark"])
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        return ""


def _checked(mark: Any) -> str:
    # The mark becomes a part of a path: one in a foreign folder must not lead out of it.
    return mark if isinstance(mark, str) and re.fullmatch(_MARK, mark) else ""


def _marked(name: str, mark: str) -> str:
    stem, _, suffix = name.rpartition(".")
    return f"{stem}-{mark}.{suffix}"
