"""The grid that NVIDIA's tensorflow-quantization takes from the variables of its package, here of `qdq_workbench`.

    qdq_workbench.G_NUM_BITS = 4          every quantizer whose settings do not say otherwise; read while planning
    qdq_workbench.G_NARROW_RANGE = False
    qdq_workbench.G_SYMMETRIC = False

Values that differ from the package's defaults are added to the settings of the decisions, and so stored in the plan.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from qdq_workbench._numbers import whole
from qdq_workbench.errors import SpecError
from qdq_workbench.graph.model_graph import INTEGERS, ModelGraph, Node
from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.settings import EVERY_WEIGHT

_VARIABLES: dict[str, tuple[str, Any]] = {
    "G_NUM_BITS": ("num_bits", 8),
    "G_NARROW_RANGE": ("narrow_range", True),
    "G_SYMMETRIC": ("symmetric", True),
}


def with_global_grid(graph: ModelGraph, decisions: Mapping[str, Decision]) -> dict[str, Decision]:
    """Return the decisions with the grid of the package's variables in place of settings that are not given.

    Args:
        graph: The model.
        decisions: One decision per node.

    Raises:
        SpecError: If G_NUM_BITS is no integer from 2 to 16, or another variable is no bool.
    """
    changes = _changes()
    if not changes:
        return dict(decisions)
    return {
        name: dataclasses.replace(each, settings=_settings(graph.node(name), each, changes))
        for name, each in decisions.items()
    }


def _changes() -> dict[str, Any]:
    # Through the module, because users assign the variables after the import.
    package = vars(sys.modules[__name__.partition(".")[0]])
    changes = {}
    for variable, (field, usual) in _VARIABLES.items():
        value = whole(package[variable])
        if isinstance(usual, bool):
            fits, expected = isinstance(value, bool), "True or False"
        else:
            fits = isinstance(value, int) and not isinstance(value, bool) and 2 <= value <= 16
            expected = "an integer from 2 to 16"
        if not fits:
            raise SpecError(f"qdq_workbench.{variable} must be {expected}. Received: {variable}={value!r}")
        if value != usual:
            changes[field] = value
    return changes


def _settings(node: Node, decision: Decision, changes: Mapping[str, Any]) -> dict[str, Any]:
    settings = dict(decision.settings or {})
    own = settings.get("weights")
    # With settings, weights that Keras has quantized would be quantized anew.
    if own is not None or not node.settings.get(INTEGERS):
        # Settings per weight leave all other weights in float, so they get no `*`.
        weights = {EVERY_WEIGHT: {}} if own is None else own
        settings["weights"] = {name: {**changes, **(site or {})} for name, site in weights.items()}
    for site in ("activation", "output"):
        settings[site] = {**changes, **settings.get(site, {})}
    return settings
