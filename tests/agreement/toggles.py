"""Random plans: layers switched in random ways, with and without the automatic case, densely and sparsely."""

from __future__ import annotations

import numpy as np

import qdq_workbench as qdq
from qdq_workbench.placement.defaults import find_default

DENSITIES = (0.02, 0.1, 0.35, 0.7)


def random_plan(graph, generator: np.random.Generator, *, plain: bool = False) -> qdq.PlacementPlan:
    """Return a plan for ONNX Runtime in which random layers are switched.

    Args:
        graph: The model's graph.
        generator: Where the randomness comes from.
        plain: The defaults, nothing switched.
    """
    spec, cases = (None, []) if plain else random_wishes(graph, generator)
    return qdq.plan_placement(graph, "full", spec, cases, target="onnxruntime")


def random_wishes(graph, generator: np.random.Generator) -> tuple[qdq.QuantizationSpec, list[qdq.AutoQDQCase]]:
    """Return a random specification, and one time in three the automatic case.

    Args:
        graph: The model's graph.
        generator: Where the randomness comes from.
    """
    cases = [qdq.AutoQDQCase()] if generator.random() < 1 / 3 else []
    return random_spec(graph, generator), cases


def random_spec(graph, generator: np.random.Generator) -> qdq.QuantizationSpec:
    """Return a specification that switches some layers in random ways.

    Args:
        graph: The model's graph.
        generator: Where the randomness comes from.
    """
    spec = qdq.QuantizationSpec()
    density = generator.choice(DENSITIES)
    for layer in graph.layers:
        node = graph.calls(layer)[0]
        known = find_default(node) is not None or node.class_name in ("ReLU", "Activation", "LeakyReLU")
        if known and generator.random() < density:
            flags = {key: bool(generator.random() < 0.6) for key in ("quantize_input", "quantize_weight")}
            spec.add(layer, **flags, quantize_output=bool(generator.random() < 0.3))
    return spec
