"""Entries of a specification, by name, that lead to given decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.settings import config_of
from qdq_workbench.spec.quantization_spec import QuantizationSpec

#: Arguments of `QuantizationSpec.add` beside the name.
Entry = dict[str, Any]


def entry_of(graph: ModelGraph, call: Node, decision: Decision) -> Entry:
    """Return the entry that leads to a decision about a call."""
    config = config_of(call, decision.settings)
    # Settings by name leave all other weights in float: without one that the layer has, all of them.
    has_weights = not (decision.settings or {}).get("weights") or (config is not None and config.weight is not None)
    # A pattern may select what returns no real numbers; an entry by name is refused there.
    has_floats = any(graph.tensors[name].is_float for name in call.outputs)
    return {
        "quantize_input": bool(decision.input_indices),
        "quantization_index": list(decision.input_indices) or None,
        "quantize_weight": decision.quantize_weight and has_weights,
        "quantize_output": decision.quantize_output and has_floats,
        "quantize_config": config,
    }


def add_entries(spec: QuantizationSpec, graph: ModelGraph, layer: str, entries: Mapping[str, Entry]) -> None:
    """Add the entries of a layer's calls, by the names of the calls; one for the layer if they are equal.

    The name of the first call stands for all calls, so that entries for some of them must not include it.
    """
    calls = [call.name for call in graph.calls(layer) if call.name in entries]
    if len(calls) == len(graph.calls(layer)) and all(entries[name] == entries[calls[0]] for name in calls):
        spec.add(layer, **entries[calls[0]])
        return
    for name in calls:
        spec.add(name, **entries[name])
