"""Two graphs of one model side by side, panned, zoomed, opened and selected together."""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import anywidget
import traitlets

from qdq_widgets.graph_payload import disabled_reasons, graph_payload
from qdq_widgets.late import tell_again
from qdq_widgets.side_pairs import check_same, comparison_traits, make_sides
from qdq_widgets.style import GRAPH_HEIGHT, LEAST_HEIGHT

_BUNDLE = pathlib.Path(__file__).parent / "static" / "graph_view.js"


class GraphComparison(anywidget.AnyWidget):
    """Two graphs of one model side by side in a notebook: plans, the layers of a file, the kernels of ONNX Runtime.

    Both sides are drawn on the layers of the model, and share selection, open blocks, pan and zoom. Layers that differ
    are marked, and a list of the differences links to them.

    Args:
        left: A `PlacementPlan`, the result of `qdq_workbench.files.read_layers` or
            `qdq_workbench.profiling.read_kernels`, or a `Side` made of one of them.
        right: The same, of the same model.
        titles: Titles of the sides; None for the default ones.
        height: Height of the pane in CSS pixels, 160 or more.

    Raises:
        SpecError: If a side is none of these, or the two are of different models.
        BenchError: If the file that `read_kernels` read carries no plan.

    Example:
        >>> import keras, qdq_workbench as qdq
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, name="conv")(image))
        >>> spec = qdq.QuantizationSpec()
        >>> spec.add("conv", quantize_weight=False)
        >>> both = GraphComparison(qdq.plan_placement(model), qdq.plan_placement(model, quantization_spec=spec))
        >>> both.differences[0]
        ('conv', '-', 'weights conv/kernel')
    """

    _esm = _BUNDLE.read_text(encoding="utf-8")  # not the path, with which anywidget holds every widget of the class

    graph = traitlets.Dict(help="What never changes: see `graph_payload`.").tag(sync=True)
    left = traitlets.Dict(help="The left side: `SideData` in widgets/src/traits.ts.").tag(sync=True)
    right = traitlets.Dict(help="The right side.").tag(sync=True)
    difference = traitlets.Dict(help="How they differ: `SideDifference` in widgets/src/traits.ts.").tag(sync=True)
    selection = traitlets.Tuple(help="Names of the selected nodes.").tag(sync=True)
    height = traitlets.Int(GRAPH_HEIGHT, min=LEAST_HEIGHT, help="Height of the pane in CSS pixels.").tag(sync=True)
    editable = traitlets.Bool(default_value=False, help="Always false: a comparison is only looked at.").tag(sync=True)
    can_leave = traitlets.Bool(default_value=False, help="Whether a button leads back to one graph.").tag(sync=True)
    svg_text = traitlets.Unicode(help="The picture that the front end exported last.").tag(sync=True)
    whole = traitlets.Unicode(help="The id of what the page keeps listening: this.").tag(sync=True)

    def __init__(
        self, left: Any, right: Any, *, titles: tuple[str, str] | None = None, height: int = GRAPH_HEIGHT, **kwargs: Any
    ) -> None:
        sides = make_sides(left, right, titles)
        self._graph = sides[0].graph
        self._callbacks: list[Callable[[], Any]] = []
        payload = graph_payload(self._graph, disabled_reasons(sides[0].plan))
        # The id is chosen here, because the first state that goes to the page must name it; see late.ts.
        kwargs.setdefault("whole", kwargs.setdefault("model_id", uuid.uuid4().hex))
        super().__init__(graph=payload, height=height, **comparison_traits(*sides), **kwargs)
        self.on_msg(self._on_message)

    @property
    def differences(self) -> list[tuple[str, str, str]]:
        """The first 400 differences as (name of the node, sign, sentence), in the order of the nodes.

        Signs are `+` and `-` for a pair, weight or input that only the right or the left side quantizes, `~` for
        another grid, `8`, `½` and `F` for a layer that runs in INT8, partly in INT8 or in float on the right, `!` for
        a fault of the file. Two signs come last and do not mark a layer as different: `⇄` for a tensor that the
        runtime converts between two kernels, `→` for a node with an operator or kernel of its own on one side only.
        """
        names = self.graph["names"]
        return [(names[node], sign, text) for node, sign, text in self.difference["rows"]]

    @property
    def summary(self) -> str:
        """The number of differences of each kind; empty if there are none."""
        return str(self.difference["summary"])

    def set_sides(self, left: Any, right: Any, titles: tuple[str, str] | None = None) -> None:
        """Show two other sides of the same model.

        Args:
            left: As for the class.
            right: As for the class.
            titles: As for the class.

        Raises:
            SpecError: If a side cannot be drawn, or is of another model.
            BenchError: If the file that `read_kernels` read carries no plan.
        """
        sides = make_sides(left, right, titles)
        check_same(self._graph, sides[0].graph)
        with self.hold_sync():
            for name, value in comparison_traits(*sides).items():
                setattr(self, name, value)

    def select(self, names: str | Iterable[str]) -> None:
        """Select nodes on both sides, and bring the first of them into view.

        Args:
            names: Names of nodes or layers; an empty list selects nothing.

        Raises:
            SpecError: If a name is not of the model; the message shows the nearest names.
        """
        wanted = [names] if isinstance(names, str) else list(names)
        nodes = [call.name for name in wanted for call in self._graph.calls(name)]
        self.selection = tuple(dict.fromkeys(nodes))
        self.send({"type": "reveal", "names": list(self.selection[:1])})

    def on_leave(self, callback: Callable[[], Any]) -> None:
        """Register a function for the button "Back to one graph", which is shown while `can_leave` is true.

        Args:
            callback: Called without arguments.
        """
        self._callbacks.append(callback)

    def _on_message(self, _widget: Any, content: Any, _buffers: Any) -> None:
        kind = content.get("type") if isinstance(content, dict) else None
        if kind == "late":
            tell_again(content)
        elif kind == "leave":
            for callback in list(self._callbacks):
                callback()
