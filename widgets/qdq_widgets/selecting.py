"""Selected layers, queries for layers, and the rules that colour them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import qdq_workbench as qdq
from qdq_widgets.events import Events
from qdq_widgets.layer_query import find_layers
from qdq_widgets.measurements import COLORINGS, Measurements
from qdq_widgets.plans import Plans
from qdq_widgets.style_rules import checked_rules, rule_values
from qdq_widgets.targets import execution_values


class Selecting:
    """Finds, selects and colours layers; a part of `Workbench`.

    Attributes:
        names: The names of the selected calls.
        rules: Colours by query.
    """

    def __init__(self, plans: Plans, measurements: Measurements, events: Events) -> None:
        self._plans, self._measurements, self._events = plans, measurements, events
        self.names: tuple[str, ...] = ()
        self.rules: dict[str, str] = {}

    def find(self, query: str) -> tuple[str, ...]:
        """Return the layers that match a query, as the search of the graph does.

        Args:
            query: Words that must all match. A word matches a part of a name or class, or with `*` and `?` the whole,
                such as `block?_*conv`; the prefixes `name:` and `class:` restrict it to one of them. `int8`, `float`
                and `mixed` match the precision on the target, `w=4`, `i=8` and `o=float` the bits of weights, inputs
                and outputs, `shared` layers with weights and several calls. `not` or a minus before a word negates it.

        Returns:
            Names of calls, in computing order; none for an empty query.

        Raises:
            BenchError: If the query is not a text.

        Example:
            `wb.toggle(wb.find("class:conv2d not int8"), "weight", on=True)`
        """
        plan = self._plans.plan
        return find_layers(plan, self._plans.planner.possible(plan.target), query, self._known_statuses())

    def select(self, layers: str | Iterable[str]) -> tuple[str, ...]:
        """Select layers in the graph, as a click does; the inspector shows them.

        Args:
            layers: Names of layers or calls; a single text is a query as for `find`, unless it is the name of a layer.

        Returns:
            The names of the selected calls.

        Raises:
            SpecError: If the model has no layer of that name.
        """
        graph = self._plans.planner.graph
        if isinstance(layers, str):
            is_name = any(layers in (node.name, node.layer) for node in graph.nodes)
            layers = [layers] if is_name else self.find(layers)
        names = tuple(dict.fromkeys(call.name for name in layers for call in graph.calls(name)))
        # The view selects the same in the graph, which tells the bench again: equal names end the circle.
        if names != self.names:
            self.names = names
            self._events.tell("selection")
        return names

    def color_rules(self, rules: Mapping[str, str]) -> None:
        """Colour the graph by rules: every layer gets the colour of the first query that matches it.

        Args:
            rules: Colours by query (see `find`): `#rrggbb`, or a name such as "blue", "orange", "gray". An empty
                mapping removes the rules and colours by precision.

        Raises:
            BenchError: If a query is empty or a colour unknown.

        Example:
            `wb.color_rules({"w=4": "orange", "class:*conv2d": "blue"})`
        """
        self.rules = checked_rules(rules)
        self._measurements.color_by("rules" if self.rules else "precision")

    def take_over_colors(self, rules: Mapping[str, str], what: str) -> None:
        """Take over rules and, if this bench has that metric, the colouring, for `load` and `continue_from`."""
        self.rules = checked_rules(rules)
        if what in (*COLORINGS, *self._measurements.metrics):
            self._measurements.color_by(what)

    def rule_values(self) -> dict[str, tuple[str, str]]:
        """Return colour and query of the first matching rule, by node."""
        plan = self._plans.plan
        return rule_values(plan, self._plans.planner.possible(plan.target), self.rules, self._known_statuses())

    def _known_statuses(self) -> dict[str, str]:
        try:
            return {layer: value["status"] for layer, value in execution_values(self._plans.explanation).items()}
        except qdq.errors.TargetError:  # no rules for this target: the plan decides
            return {}
