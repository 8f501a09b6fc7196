"""The rooms of the house: which files a sample is drawn from, and which tests are theirs.

A room's tests run first. The others of those that reach the changed line follow.
"""

from __future__ import annotations

import dataclasses
import pathlib

from project import ROOT

_PACKAGES = (
    "graph", "spec", "placement", "runtimes", "graph_builder", "cases", "quantizers", "wrappers", "conversion",
    "calibration", "post_training", "onnx_graph", "export", "foreign", "verification", "profiling", "analysis",
    "diagnosis", "mct", "tfmot", "report", "cli",
)  # fmt: skip
_ELSEWHERE = {"onnx_graph": ("export", "verification")}


@dataclasses.dataclass(frozen=True)
class Room:
    """A package, or a part of one, with its tests.

    Args:
        name: What it is called in the records.
        files: Its files, from the root of the repository.
        tests: Folders and files of its tests.
    """

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...]


def rooms(root: pathlib.Path = ROOT) -> dict[str, Room]:
    """Return all rooms by name: the packages of the library, its single modules, and the bench.

    Args:
        root: The repository.
    """
    found = {}
    for name in _PACKAGES:
        tests = tuple(f"tests/{folder}" for folder in _ELSEWHERE.get(name, (name,)))
        found[name] = Room(name, _files(root, f"qdq_workbench/{name}/**/*.py"), tests)
    single = _files(root, "qdq_workbench/*.py")
    tests = ("tests/test_files.py", "tests/test_errors.py", "tests/test_interrupts.py", "tests/placement")
    found["modules"] = Room("modules", single, tests)
    found["bench"] = Room("bench", _files(root, "widgets/qdq_widgets/**/*.py"), ("tests/widgets",))
    return found


def _files(root, pattern):
    found = sorted(str(path.relative_to(root)) for path in root.glob(pattern))
    return tuple(path for path in found if not path.endswith("__init__.py"))
