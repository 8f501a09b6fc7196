"""Two sides of a comparison as data for the page; the widget and the page without Python show the same."""

from __future__ import annotations

from typing import Any

import qdq_workbench as qdq
from qdq_widgets.file_sides import file_side, runtime_side
from qdq_widgets.side_differences import compare_sides
from qdq_widgets.sides import Side, plan_side


def comparison_traits(left: Side, right: Side) -> dict[str, Any]:
    """Return the data of a comparison for the page: both sides and their differences."""
    by_status = left.values is not None and right.values is not None
    both: dict[str, dict[str, Any]] = {}
    for name, side in (("left", left), ("right", right)):
        # Kernels have a status only; a plan beside a file is coloured by its placements, like the file.
        colors = side.colors(by_status=by_status or side.pairs is None)
        both[name] = {"title": side.title, "note": side.note, "plan_state": side.state, "colors": colors}
        both[name]["look"] = dict(side.look)
    # The kernels of one side are bracketed on both, so that the plan shows what they compute together.
    groups = left.look.get("groups") or right.look.get("groups")
    if groups:
        for side_data in both.values():
            side_data["look"]["groups"] = groups
    return {**both, "difference": compare_sides(left, right)}


def make_side(source: Any, title: str = "") -> Side:
    """Return one side of a comparison, for a plan, `FileLayers`, `RuntimeGraph` or a `Side`, which keeps its title."""
    if isinstance(source, Side):
        return source
    if isinstance(source, qdq.PlacementPlan):
        return plan_side(source, title or "Plan")
    if isinstance(source, qdq.files.FileLayers):
        return file_side(source, title)
    if isinstance(source, qdq.profiling.RuntimeGraph):
        return runtime_side(source, title=title or "ONNX Runtime")
    raise qdq.SpecError(
        "A side of a comparison is a PlacementPlan, what qdq_workbench.files.read_layers returned, or what "
        f"qdq_workbench.profiling.read_kernels returned. Received: {type(source).__name__}"
    )


def make_sides(left: Any, right: Any, titles: tuple[str, str] | None = None) -> tuple[Side, Side]:
    """Return both sides of a comparison; see `make_side`. Without titles they get the default ones.

    Raises:
        SpecError: If a side cannot be drawn, or the two are of different models.
    """
    plans = isinstance(left, qdq.PlacementPlan) and isinstance(right, qdq.PlacementPlan)
    names = titles or (("Plan", "Other plan") if plans else ("", ""))
    both = make_side(left, names[0]), make_side(right, names[1])
    check_same(both[0].graph, both[1].graph)
    return both


def check_same(one: qdq.ModelGraph, other: qdq.ModelGraph) -> None:
    """Check that two graphs have the same nodes.

    Raises:
        SpecError: If they differ.
    """
    if one is not other and [node.name for node in one.nodes] != [node.name for node in other.nodes]:
        raise qdq.SpecError(
            "Two graphs of one model can be compared; these have different layers. "
            f"Received: {one.name!r} and {other.name!r}"
        )
