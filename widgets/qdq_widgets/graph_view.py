"""The graph pane: draws a model with its plan, and turns clicks into actions.

The plan in Python is authoritative. A click sends one small message; a callback changes the plan and calls `set_plan`,
which sends the changes. The front end (`widgets/src`) paints a clicked badge at once and corrects it on the answer.
"""

from __future__ import annotations

import pathlib
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import anywidget
import traitlets

from qdq_widgets.graph_colors import NO_COLORS, graph_colors
from qdq_widgets.graph_difference import plan_difference
from qdq_widgets.graph_payload import disabled_reasons, graph_payload, plan_state, state_changes
from qdq_widgets.graph_tables import tensor_numbers
from qdq_widgets.grid_values import grid_values
from qdq_widgets.late import tell_again
from qdq_widgets.style import GRAPH_HEIGHT, LEAST_HEIGHT
from qdq_workbench import PlacementPlan, QDQError, SpecError

_BUNDLE = pathlib.Path(__file__).parent / "static" / "graph_view.js"

Action = dict[str, Any]


class GraphView(anywidget.AnyWidget):
    """The model graph with its Q/DQ pairs, in a notebook.

    Args:
        plan: The plan to draw, with its graph.
        height: Height of the pane in CSS pixels.
        editable: Whether badges are drawn and clicks become actions; False only shows the graph.

    Raises:
        SpecError: If `plan` is not a plan.

    Example:
        >>> import keras, qdq_workbench as qdq
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, name="conv")(image))
        >>> view = GraphView(qdq.plan_placement(model))
        >>> view.select(["conv"])
        >>> view.selection
        ('conv',)
    """

    _esm = _BUNDLE.read_text(encoding="utf-8")  # not the path, with which anywidget holds every widget of the class

    graph = traitlets.Dict(help="What no plan for the same target changes: see `graph_payload`.").tag(sync=True)
    plan_state = traitlets.Dict(help="The plan's part: see `graph_payload.plan_state`.").tag(sync=True)
    colors = traitlets.Dict(NO_COLORS, help="How nodes are coloured: see `set_colors`.").tag(sync=True)
    selection = traitlets.Tuple(help="Names of the selected nodes.").tag(sync=True)
    height = traitlets.Int(GRAPH_HEIGHT, min=LEAST_HEIGHT, help="Height of the pane in CSS pixels.").tag(sync=True)
    editable = traitlets.Bool(default_value=True, help="Whether clicks become actions.").tag(sync=True)
    can_undo = traitlets.Bool(default_value=True, help="Whether the undo button works.").tag(sync=True)
    can_redo = traitlets.Bool(default_value=True, help="Whether the redo button works.").tag(sync=True)
    ranges = traitlets.Dict(help="Scale, zero point and range of pairs by tensor number: see `set_ranges`.").tag(
        sync=True
    )
    svg_text = traitlets.Unicode(help="The picture that the front end exported last.").tag(sync=True)
    whole = traitlets.Unicode(help="The id of what the page keeps listening: this, or its bench.").tag(sync=True)

    def __init__(
        self, plan: PlacementPlan, *, height: int = GRAPH_HEIGHT, editable: bool = True, **kwargs: Any
    ) -> None:
        _check_plan(plan)
        self._plan = plan
        self._lock = threading.RLock()
        self._callbacks: list[Callable[[Action], Any]] = []
        self._disabled = disabled_reasons(plan)
        # The id is chosen here, because the first state that goes to the page must name it; see late.ts.
        kwargs.setdefault("whole", kwargs.setdefault("model_id", uuid.uuid4().hex))
        super().__init__(
            graph=graph_payload(plan.graph, self._disabled),
            plan_state=plan_state(plan),
            height=height,
            editable=editable,
            **kwargs,
        )
        self.on_msg(self._on_message)

    @property
    def plan(self) -> PlacementPlan:
        """The drawn plan."""
        return self._plan

    @property
    def disabled_reasons(self) -> dict[tuple[str, str], str]:
        """Why sites cannot be quantized, by node name and site ("input", "weight", "output"); other sites can be."""
        return dict(self._disabled)

    def set_plan(
        self,
        plan: PlacementPlan,
        verdicts: tuple[Mapping[str, str], Mapping[str, str]] | None = None,
        *,
        compared: bool = True,
    ) -> None:
        """Draw another plan of the same model; only the differences are sent.

        Until the next plan, the view shows what has changed: removed pairs as ghosts, new pairs with a mark, and a row
        per change that links to its layer.

        Args:
            plan: The plan.
            verdicts: The statuses of the layers on the target before and after the change: "int8", "partial" or
                "float" by layer path; None to show the changes of the plan alone.
            compared: Whether to show changes; False for a plan that is no step from the drawn one, such as a loaded
                one.

        Raises:
            SpecError: If it is not a plan, or a plan of a model with other layers.
        """
        self._check_model(plan)
        with self._lock:
            after = plan_state(plan)
            changes = state_changes(self.plan_state, after)
            difference = plan_difference(self._plan, plan, verdicts) if compared else None
            if difference is not None:
                changes["difference"] = difference
            if plan.target != self._plan.target:
                self._set_disabled(plan)
            self._plan = plan
            changes["revision"] = after["revision"] = self.plan_state["revision"] + 1
            # In place, so that the trait does not send itself whole; a page that connects later gets it as it is now.
            self.plan_state.update(after)
            self.send({"type": "plan", **changes})

    def preview(
        self, plan: PlacementPlan | None, verdicts: tuple[Mapping[str, str], Mapping[str, str]] | None = None
    ) -> None:
        """Draw the changes that another plan would make over the present plan, until the next `set_plan`.

        Args:
            plan: A plan of the same model and target; None ends the preview.
            verdicts: The statuses of the layers on the target now and under the other plan; see `set_plan`.

        Raises:
            SpecError: If it is not a plan, or a plan of a model with other layers.
        """
        if plan is None:
            self.send({"type": "preview", "pairs": {}, "difference": None})
            return
        self._check_model(plan)
        with self._lock:
            difference = plan_difference(self._plan, plan, verdicts)
            pairs = state_changes(self.plan_state, plan_state(plan))["pairs"] if difference else {}
            self.send({"type": "preview", "pairs": pairs, "difference": difference})

    def set_colors(
        self, mode: str, values: Mapping[str, Any] | None = None, legend: Mapping[str, Any] | str | None = None
    ) -> None:
        """Colour the nodes by precision or by a metric.

        Args:
            mode: "plan" (what the plan quantizes; needs no values), "precision", "rules", or the name of a metric.
            values: By layer or node name. For "precision" a status ("int8", "float", "partial", "int4", "int16" or
                "unknown") or `{"status": status, "reason": text}`, for "rules" a pair of a colour `#rrggbb` and its
                meaning, for a metric a number or `{"value": number, "unit": text}`. Layers without a value are drawn
                without colour.
            legend: For a metric: `{"title": text, "unit": text, "low": number, "high": number, "better": "high" |
                "low", "scale": "linear" | "log"}`, each optional; or the title alone.

        Raises:
            SpecError: If a name is not of the model, or a status is unknown.
        """
        self.colors = graph_colors(self._plan.graph, mode, values or {}, legend)

    def set_ranges(self, ranges: Mapping[str, tuple[float, float]]) -> None:
        """Set the ranges from which the tooltip of a pair shows its scale, zero point and range.

        Args:
            ranges: Lowest and highest value by name of the pair or its tensor, such as `CalibrationResult.ranges`;
                empty to show none.
        """
        numbers = self._plan.graph.once(tensor_numbers)
        self.ranges = {str(numbers[name]): texts for name, texts in grid_values(self._plan, ranges).items()}

    def select(self, names: str | Iterable[str]) -> None:
        """Select nodes, and bring the first of them into view.

        Args:
            names: Names of nodes or layers; an empty list selects nothing.

        Raises:
            SpecError: If a name is not of the model; the message shows the nearest names.
        """
        wanted = [names] if isinstance(names, str) else list(names)
        nodes = [call.name for name in wanted for call in self._plan.graph.calls(name)]
        self.selection = tuple(dict.fromkeys(nodes))
        self.send({"type": "reveal", "names": list(self.selection[:1])})

    def on_action(self, callback: Callable[[Action], Any], *, remove: bool = False) -> None:
        """Register a function that is called with every action in the view.

        An action is one of
        `{"action": "toggle", "layers": [...], "site": "input" | "weight" | "output", "index": int | None, "on": bool}`;
        `{"action": "apply_like", "source": name, "layers": [...], "inputs": [bool...], "weight": bool,
        "output": bool}`; `{"action": "undo"}`; `{"action": "redo"}`. Layers are named by call (`conv#1`), except for
        the site "weight".
        An error that a callback raises is shown in the view.

        Args:
            callback: The function.
            remove: Unregister it instead.
        """
        if remove:
            self._callbacks = [known for known in self._callbacks if known != callback]
        else:
            self._callbacks.append(callback)

    def show_error(self, text: str) -> None:
        """Show a message over the graph until the user closes it.

        Args:
            text: What happened and how to fix it; an empty text closes the message.
        """
        self.send({"type": "error", "text": str(text)})

    def fit(self) -> None:
        """Scale the picture so that the whole graph is in view."""
        self.send({"type": "fit"})

    def svg(self) -> str:
        """Return the SVG picture of the last export in the page; empty before the first.

        `request_svg` asks the page for a new one, which arrives in the trait `svg_text`.
        """
        return str(self.svg_text)

    def request_svg(self) -> None:
        """Ask the page for the picture; it arrives in the trait `svg_text`."""
        self.send({"type": "export_svg"})

    def _set_disabled(self, plan: PlacementPlan) -> None:
        """Take the sites that another target cannot quantize, and send the graph again where they differ."""
        reasons = disabled_reasons(plan)
        if reasons != self._disabled:
            self._disabled = reasons
            self.graph = graph_payload(plan.graph, reasons)

    def _check_model(self, plan: Any) -> None:
        _check_plan(plan)
        if plan.graph is not self._plan.graph and plan.graph.layers != self._plan.graph.layers:
            raise SpecError(
                "A graph view draws plans of one model; make another GraphView for another model. "
                f"Received: a plan of {plan.graph.name!r}, drawn is {self._plan.graph.name!r}"
            )

    def _on_message(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if not isinstance(content, Mapping):
            return
        if content.get("type") == "resync":
            if content.get("revision") == self.plan_state["revision"]:
                return
            self.send_state("plan_state")
        elif content.get("type") == "late":
            if tell_again(content) is self:
                self.send({"type": "done", "id": None})  # the page may have missed the answer to a click
        elif content.get("type") == "action":
            self._act(content)

    def _act(self, content: Mapping[str, Any]) -> None:
        action = _clean_action(content, self._plan) if self.editable else None
        try:
            if action is not None:
                for callback in list(self._callbacks):
                    callback(action)
        except QDQError as error:
            self.show_error(str(error).partition(" Received: ")[0])  # the rest repeats what was clicked
        except Exception as error:
            self.show_error(f"{type(error).__name__}: {error}")
            raise
        finally:
            # Also after an error: the page drops what it painted ahead of the answer.
            self.send({"type": "done", "id": content.get("id")})


def _check_plan(plan: Any) -> None:
    if not isinstance(plan, PlacementPlan):
        raise SpecError(
            "GraphView draws a PlacementPlan: GraphView(plan_placement(model)). "
            f"Received: plan of type {type(plan).__name__}"
        )


def _clean_action(content: Mapping[str, Any], plan: PlacementPlan) -> Action | None:
    """Return the action of a message, with names in place of node numbers; None if the message is malformed."""
    kind = content.get("action")
    if kind in {"undo", "redo"}:
        return {"action": kind}
    nodes = plan.graph.nodes
    numbers = content.get("nodes", [])
    if not isinstance(numbers, list) or not all(isinstance(n, int) and 0 <= n < len(nodes) for n in numbers):
        return None
    if kind == "toggle" and content.get("site") in {"input", "weight", "output"}:
        site, index = content["site"], content.get("index")
        names = (nodes[n].layer if site == "weight" else nodes[n].name for n in numbers)
        return {
            "action": "toggle",
            "layers": list(dict.fromkeys(names)),
            "site": site,
            "index": index if isinstance(index, int) else None,
            "on": bool(content.get("on")),
        }
    source = content.get("source")
    if kind == "apply_like" and isinstance(source, int) and 0 <= source < len(nodes):
        return {
            "action": "apply_like",
            "source": nodes[source].name,
            "layers": [nodes[n].name for n in numbers],
            "inputs": [bool(on) for on in content.get("inputs", [])],
            "weight": bool(content.get("weight")),
            "output": bool(content.get("output")),
        }
    return None
