"""The hash of everything that a sweep's values depend on; a checkpoint with another hash belongs to another sweep."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
from keras import tree

from qdq_workbench._fingerprints import fingerprint_of, text_of
from qdq_workbench.analysis.identity import config_of, identity_of
from qdq_workbench.analysis.samples import Samples
from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.graph_builder import BoundGraph, Call, TensorRef, bind_graph, inner_layers
from qdq_workbench.placement.plan import PlacementPlan


def fingerprint(
    model: keras.Model, plan: PlacementPlan, samples: Samples, settings: dict[str, Any], function: Any = None
) -> str:
    """Return a hash of everything that the values of a sweep depend on, equal in every process."""
    placements = [dataclasses.asdict(placement) for placement in plan.placements]
    # Not its name alone: the caller may have altered it.
    told = text_of(placements, plan.target_object.to_dict(), settings)
    # A quantized model counts as its float layers: its wrappers and pairs follow from the plan, hashed above.
    quantized = isinstance(model, QuantizedModel) and model.has_plan
    computed = _computation(float_view(model) if quantized else bind_graph(model))
    # Not the switches of quantizers, which a sweep sets itself.
    variables = [variable for variable in model.variables if "bool" not in str(variable.dtype)]
    return fingerprint_of(f"{samples.digest()}{told}{computed}{identity_of(function)}", variables)


def _computation(bound: BoundGraph) -> str:
    """Return a hash of a graph's computation: how each tensor is computed from others; names do not count."""
    known: dict[str, str] = {}
    for position, name in enumerate(bound.input_tensors):
        tensor = bound.graph.tensors[name]
        known[name] = identity_of(["input", position, list(tensor.shape), tensor.dtype])
    operations: dict[int, Any] = {}
    for call in bound.calls:
        if id(call.operation) not in operations:  # ids are unique because the graph keeps its operations alive
            operations[id(call.operation)] = _operation(call)
        made = identity_of([operations[id(call.operation)], _with_hashes((call.args, call.kwargs), known)])
        known.update({name: f"{made}:{index}" for index, name in enumerate(call.node.outputs)})
    return identity_of(_with_hashes([bound.input_structure, bound.output_structure], known))


def _operation(call: Call) -> str:
    """Return a hash of a layer or operation, with the functions and classes that its configuration only names."""
    operation: Any = call.operation
    layers = [operation, *(inner_layers(operation) if isinstance(operation, keras.layers.Layer) else ())]
    return identity_of([[type(layer), config_of(layer), _functions(layer)] for layer in layers])


def _functions(layer: Any) -> list[Any]:
    found = ((key, getattr(layer, key, None)) for key in config_of(layer))
    return [[key, value] for key, value in found if callable(value) and not isinstance(value, keras.layers.Layer)]


def _with_hashes(structure: Any, known: dict[str, str]) -> Any:
    return tree.map_structure(lambda leaf: known[leaf.name] if isinstance(leaf, TensorRef) else leaf, structure)
