"""The graph area of the bench: one graph, or two graphs side by side until the user goes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets

import qdq_workbench as qdq
from qdq_widgets.comparing import PLAN, READ
from qdq_widgets.graph_view import GraphView
from qdq_widgets.replacing import close_all


class GraphArea:
    """The graph of a bench, or a comparison in its place.

    Args:
        bench: The `Workbench`.
        graph: The graph.
        on_selection: Called with the names of the selected nodes.
    """

    def __init__(self, bench: Any, graph: GraphView, on_selection: Callable[[Sequence[str]], Any]) -> None:
        self._bench, self._graph = bench, graph
        self._compared: tuple[Any, Any] | None = None
        self.comparison: Any = None
        self.widget = widgets.VBox([graph])
        self.widget.add_class("qdq-graph")
        graph.observe(lambda change: on_selection(change["new"]), "selection")
        graph.observe(lambda change: self._follow(change["new"]), "selection")

    def compare(self, left: Any, right: Any) -> None:
        """Show two graphs, as for `Workbench.compare_graphs`, in the place of the graph."""
        comparison = self._bench.compare_graphs(left, right, height=self._graph.height)
        # Only now: if the graphs cannot be compared, what is shown stays.
        self.leave()
        comparison.can_leave = True
        comparison.on_leave(self.leave)
        comparison.selection = self._graph.selection
        comparison.observe(lambda change: self._select(change["new"]), "selection")
        self._compared, self.comparison = (left, right), comparison
        # Hidden, not removed: open blocks and the viewport stay.
        self._graph.layout.display = "none"
        self.widget.children = [self._graph, comparison]
        self.widget.add_class("qdq-graph-pair")

    def leave(self) -> None:
        """Show the one graph again."""
        if self.comparison is None:
            return
        former, self.comparison, self._compared = self.comparison, None, None
        self.widget.children = [self._graph]
        self.widget.remove_class("qdq-graph-pair")
        self._graph.layout.display = ""
        close_all(former)

    def on_event(self, event: str) -> None:
        """Update the comparison after an event of the bench."""
        compared = self._compared
        if compared is None:
            return
        of_file = event == "export" and any(side in READ for side in compared)
        if of_file or event == "variants" or (event == "plan" and PLAN in compared):
            try:
                self._show(compared)
            except qdq.QDQError:  # the variant is gone, or the file
                self.leave()

    def _show(self, compared: tuple[Any, Any]) -> None:
        comparison = self.comparison
        if comparison is not None:
            self._bench.compare_graphs(*compared, into=comparison)

    def _select(self, names: Sequence[str]) -> None:
        if tuple(names) != tuple(self._graph.selection):
            self._graph.selection = tuple(names)

    def _follow(self, names: Sequence[str]) -> None:
        if self.comparison is not None and tuple(names) != tuple(self.comparison.selection):
            self.comparison.select(names)
