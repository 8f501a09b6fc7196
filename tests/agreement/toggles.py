"""Random plans: layers switched in random ways, with and without the automatic case, densely and sparsely.

The same with few bits: targets whose grids have fewer than 8, and layers with settings of their own. And with other
grids of 8 bits: signed, symmetric, of a fixed range.
"""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np

import qdq_workbench as qdq
from qdq_workbench.placement.defaults import find_default

DENSITIES = (0.02, 0.1, 0.35, 0.7)
WIDTHS = (2, 3, 4, 5, 6, 7, 8, 8, 8)


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


def other_grids_plan(graph, generator: np.random.Generator) -> qdq.PlacementPlan:
    """Return a plan for ONNX Runtime in which random grids are symmetric or have a fixed range, and all may be signed.

    Args:
        graph: The model's graph.
        generator: Where the randomness comes from.
    """
    signed = bool(generator.random() < 0.5)
    while True:
        # A pair on an output, all of whose readers have grids of their own, is refused.
        with contextlib.suppress(qdq.errors.SpecError):
            return _other_grids_plan(graph, generator, signed)


def _other_grids_plan(graph, generator: np.random.Generator, signed: bool) -> qdq.PlacementPlan:
    spec, cases = random_wishes(graph, generator)
    target = qdq.targets.get_target("onnxruntime")
    for layer in graph.layers:
        if find_default(graph.calls(layer)[0]) is not None and generator.random() < 0.3:
            site = "activation" if generator.random() < 0.6 else "output"
            config = qdq.LayerQuantizeConfig(**{site: {"signed": signed, **_range(generator)}})
            spec.add(layer, quantize_config=config, quantize_output=site == "output")
    target = dataclasses.replace(target, activation=target.activation.replace(signed=signed))
    return qdq.plan_placement(graph, "full", spec, cases, target=target)


def _range(generator: np.random.Generator) -> dict[str, object]:
    if generator.random() < 0.4:
        return {"symmetric": True}
    low, high = (-1.0, 2.0) if generator.random() < 0.4 else (0.0, float(generator.choice([3.0, 6.0, 9.0])))
    return {"quantizer": "fixed", "symmetric": False, "init_min": low, "init_max": high}


def few_bits_plan(graph, generator: np.random.Generator) -> qdq.PlacementPlan:
    """Return a plan for ONNX Runtime in which random grids have 2 to 7 bits or a narrow range.

    Args:
        graph: The model's graph.
        generator: Where the randomness comes from.
    """
    while True:
        # A pair on an output, all of whose readers have grids of their own, is refused.
        with contextlib.suppress(qdq.errors.SpecError):
            return _few_bits_plan(graph, generator)


def _few_bits_plan(graph, generator: np.random.Generator) -> qdq.PlacementPlan:
    spec, cases = random_wishes(graph, generator)
    target = qdq.targets.get_target("onnxruntime")
    site = "activation" if generator.random() < 0.6 else "output"
    for layer in graph.layers:
        default = find_default(graph.calls(layer)[0])
        if default is not None and generator.random() < 0.4:
            weight = {"num_bits": _width(generator)} if default.weights else None
            config = qdq.LayerQuantizeConfig(weight=weight, **{site: _grid(generator)})
            spec.add(layer, quantize_config=config, quantize_output=site == "output")
    if generator.random() < 0.6:
        weight = target.weight.replace(num_bits=_width(generator))
        target = dataclasses.replace(target, weight=weight, activation=target.activation.replace(**_grid(generator)))
    return qdq.plan_placement(graph, "full", spec, cases, target=target)


def _grid(generator: np.random.Generator) -> dict[str, int | bool]:
    return {"num_bits": _width(generator), "narrow_range": bool(generator.random() < 0.1)}


def _width(generator: np.random.Generator) -> int:
    return int(generator.choice(WIDTHS))
