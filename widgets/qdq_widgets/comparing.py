"""Two graphs of a bench side by side: plans, variants, the exported file, the kernels of ONNX Runtime."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.errors import BenchError
from qdq_widgets.exports import Exports
from qdq_widgets.file_sides import file_side, runtime_side
from qdq_widgets.plans import Plans
from qdq_widgets.sides import Side, plan_side
from qdq_widgets.style import GRAPH_HEIGHT
from qdq_widgets.variants import Variant, Variants
from qdq_widgets.work import Workshop

PLAN, FILE, RUNTIME = "plan", "file", "onnxruntime"
READ = (FILE, RUNTIME)
"""The sides that are read from a file, which takes some time."""
_KEPT_FILES = 4

Source = str | Variant | os.PathLike[str]


class Comparing:
    """Comparisons of two graphs; a part of `Workbench`."""

    def __init__(self, plans: Plans, variants: Variants, exports: Exports, work: Workshop) -> None:
        self._plans, self._variants, self._exports, self._work = plans, variants, exports, work
        self._found: dict[tuple[Any, ...], Any] = {}

    def compare_graphs(
        self, left: Source, right: Source = PLAN, *, height: int = GRAPH_HEIGHT, into: Any = None
    ) -> Any:
        """Return two graphs side by side, with shared selection, pan and zoom, and with their differences marked.

        Args:
            left: "plan" (the present plan), "file" (the layers of the exported file), "onnxruntime" (the kernels that
                ONNX Runtime runs for that file), a variant or its name, or another file of `export_onnx` as a
                `pathlib.Path`.
            right: The same.
            height: Height of the graphs in CSS pixels.
            into: A `GraphComparison` of this model to show them in; None for a new one.

        Returns:
            A `GraphComparison`, which displays itself; `differences` lists the differences. It does not follow later
            changes of the bench.

        Raises:
            BenchError: If there is no such variant or no exported file, or the file carries no plan.

        Example:
            `wb.compare_graphs("plan", "onnxruntime")`
        """
        # Here, so that a bench in a script needs no widget library.
        from qdq_widgets.graph_comparison import GraphComparison

        sides = self._side(left, right), self._side(right, left)
        if into is None:
            return GraphComparison(*sides, height=height)
        into.set_sides(*sides)
        return into

    def _side(self, source: Source, other: Source) -> Side:
        if source == PLAN:
            return plan_side(self._plans.plan, "Plan", self._explanation())
        if source == FILE:
            return file_side(self._layers(self._file(other)))
        if source == RUNTIME:
            graph = self._kernels(self._file(other))
            measured = None if graph.plan is None else self._work.models.latency(graph.plan)
            return runtime_side(graph, measured, f"ONNX Runtime {graph.runtime}")
        if isinstance(source, os.PathLike):
            return file_side(self._layers(pathlib.Path(source)))
        variant = self._variant(source)
        return plan_side(self._plans.planner.plan(variant.state), f"Variant {variant.name}")

    def _explanation(self) -> qdq.Explanation | None:
        try:
            return self._plans.explanation
        except qdq.errors.TargetError:  # a target without rules
            return None

    def _variant(self, source: Any) -> Variant:
        if isinstance(source, Variant):
            return source
        found = self._variants.by_name.get(source)
        if found is None:
            raise BenchError(
                f'There is no such graph. Expected "{PLAN}", "{FILE}", "{RUNTIME}", a variant, one of '
                f"{sorted(self._variants.by_name)}, or the pathlib.Path of a file. Received: {source!r}"
            )
        return found

    def _file(self, other: Source) -> pathlib.Path:
        """Return the ONNX file to read: that of the other side's variant, else of the present plan, else the last."""
        named = isinstance(other, str) and other not in (PLAN, FILE, RUNTIME)
        variant = self._variant(other) if named or isinstance(other, Variant) else None
        known = [
            None if variant is None else variant.work.file,
            self._work.models.file(self._plans.plan),
            *(done.path for done in reversed(self._exports.done)),
        ]
        for path in known:
            if path is not None and path.suffix == ".onnx" and path.exists():
                return path
        raise BenchError(
            "There is no exported ONNX file to compare with. Export one first: wb.export('model.onnx'), or the button "
            "in the Export pane."
        )

    def _layers(self, path: pathlib.Path) -> Any:
        return self._read(path, "reading the file", qdq.files.read_layers)

    def _kernels(self, path: pathlib.Path) -> Any:
        return self._read(path, "asking ONNX Runtime for its graph", qdq.profiling.read_kernels)

    def _read(self, path: pathlib.Path, label: str, read: Callable[[pathlib.Path], Any]) -> Any:
        """Read a file, or return the earlier result if its modification time and size are unchanged."""
        at = path.stat() if path.exists() else None
        key = (label, str(path), at and (at.st_mtime_ns, at.st_size))
        if key not in self._found:
            with self._work.jobs.run(label) as job:
                job.report(None, path.name)
                self._found[key] = read(path)
            for old in list(self._found)[:-_KEPT_FILES]:
                del self._found[old]
        return self._found[key]
