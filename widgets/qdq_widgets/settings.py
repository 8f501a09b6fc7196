"""The quantizers of single layers: bits, symmetry, axis and method, as entries of the specification.

A layer whose settings are changed gets an entry by name with these settings. Removing the last of them also removes
the entry, unless the plan needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import qdq_workbench as qdq
from qdq_widgets import toggles
from qdq_widgets.errors import BenchError
from qdq_widgets.state import BenchState, Planner, plan_key

PARTS = {"weight": "weight", "input": "activation", "output": "output"}
"""What a `LayerQuantizeConfig` calls each site."""

Config = dict[str, dict[str, Any]]

_WAY_OUT = "change it in Python, or remove its entry from the spec first."
_PER_WEIGHT = f"Every weight of this layer has settings of its own; {_WAY_OUT}"
_OWN_CONFIG = f"A QuantizeConfig of your own decides how this layer is quantized; {_WAY_OUT}"


def configured(
    planner: Planner, state: BenchState, plan: Any, layers: Sequence[str], site: str, settings: Mapping[str, Any]
) -> tuple[BenchState, Any]:
    """Return the state and the plan after changing the quantizer of one site of some layers.

    A site in float becomes quantized; of several layers, those without such a site are left out. A setting of None is
    reset to the target's default, and without settings all of the site are.
    """
    if site not in PARTS:
        raise BenchError(f'site must be "input", "weight" or "output". Received: site={site!r}')
    if not layers:
        raise BenchError("Name at least one layer to configure. Received: layers=[]")
    wishes, configs, refusals = {}, {}, []
    for name in dict.fromkeys(layers):
        node = planner.graph.calls(name)[0]
        wish = toggles.wish_of(plan, node)
        if not _wants(wish, site):
            reason = toggles.blocked_reason(planner, plan, node, site)
            if reason:
                refusals.append(reason)
                continue
            wish = toggles.changed(wish, planner.usual_inputs(node, plan.target), site, None, on=True)
        parts = config_of(state, plan, node)
        before = parts.pop(PARTS[site], {})
        part = {key: value for key, value in {**before, **settings}.items() if settings and value is not None}
        if part:
            parts[PARTS[site]] = part
        wishes[name], configs[name] = wish, qdq.LayerQuantizeConfig(**parts) if parts else None
    if not wishes:
        raise BenchError(f"There is no quantizer to configure: {refusals[0]} Received: {layers=}, {site=}")
    after, after_plan = toggles.with_wishes(planner, state, plan, wishes, configs)
    # A setting that equals the target's default changes the spec alone; it holds for other targets, too.
    if after == state or (plan_key(after_plan) == plan_key(plan) and not settings):
        raise BenchError(f"This changes nothing: it is so already. Received: {layers=}, {site=}, {dict(settings)}")
    return after, after_plan


def config_of(state: BenchState, plan: Any, node: Any) -> Config:
    """Return the settings of a node that differ from the target's defaults, by part: weight, activation, output.

    Raises:
        BenchError: If they come from a `QuantizeConfig` of the user's own, or differ between weights of the layer.
    """
    named = [entry for entry in state.spec.layers if toggles.names_exactly(entry, {node.name, node.layer})]
    # Of several entries for a name the last one decides.
    config = named[-1].quantize_config if named else None
    if isinstance(config, qdq.LayerQuantizeConfig):
        found = config.get_config()
        # Settings by name of the weight; a dictionary with a class name is a quantizer of the user's own.
        if any(isinstance(value, dict) and "class_name" not in value for value in found.get("weight", {}).values()):
            raise BenchError(f"{_PER_WEIGHT} Received: layer={node.layer!r}")
        return found
    decision = plan.decisions.get(node.name)
    settings = dict(decision.settings) if config is None and decision is not None and decision.settings else {}
    weights = settings.pop("weights", {})
    # "*" stands for all weights of the layer; the pickers cannot show settings of single ones.
    if config is not None or set(weights) - {"*"}:
        # Both kinds of configs decide by name of the weight when they come from an entry for a class or a pattern.
        deciding = (entry for place, entry in enumerate(state.spec.layers) if decision.author == f"spec[{place}]")
        settings_decide = any(isinstance(entry.quantize_config, qdq.LayerQuantizeConfig) for entry in deciding)
        why = _PER_WEIGHT if config is None and settings_decide else _OWN_CONFIG
        raise BenchError(f"{why} Received: layer={node.layer!r}")
    found = {part: dict(values) for part, values in settings.items() if values}
    return {**found, "weight": dict(weights["*"])} if weights.get("*") else found


def settings_text(config: Any) -> str:
    """Return the settings of a `quantize_config`, in words; empty for None.

    Example:
        >>> settings_text(qdq.LayerQuantizeConfig(weight={"num_bits": 4, "quantizer": "lsq"}))
        'weights: 4 bits, lsq'
    """
    if config is None:
        return ""
    if not isinstance(config, qdq.LayerQuantizeConfig):
        return f"quantizers of {type(config).__name__}"
    names = {"weight": "weights", "activation": "inputs", "output": "output"}
    return "; ".join(
        f"{names[part]}: {', '.join(_setting(key, value) for key, value in settings.items())}"
        for part, settings in config.get_config().items()
        if settings
    )


def value_text(value: Any) -> str:
    """Return the value of a setting in words: a serialized quantizer of the user's is named by its class.

    Example:
        >>> value_text({"class_name": "OwnRange", "config": {}}), value_text(4), value_text(None)
        ('OwnRange', '4', 'default')
    """
    if isinstance(value, dict) and "class_name" in value:
        return str(value["class_name"])
    return "default" if value is None else str(value)


def grid_text(placement: Any) -> str:
    """Return the grid of a placement and the method of its range, such as `int4/axis 3, symmetric, narrow, lsq`."""
    grid = placement.quantizer
    parts = [grid.label, "symmetric" if grid.symmetric else "asymmetric"]
    parts += ["narrow"] * grid.narrow_range
    if placement.method is not None:
        parts.append(placement.method.label)
    return ", ".join(parts)


def _setting(key: str, value: Any) -> str:
    words = {
        ("symmetric", True): "symmetric",
        ("symmetric", False): "asymmetric",
        ("signed", True): "signed",
        ("signed", False): "unsigned",
        ("narrow_range", True): "narrow",
        ("narrow_range", False): "wide",
        ("per_axis", True): "per axis",
        ("per_axis", False): "per tensor",
    }
    if isinstance(value, bool):
        return words.get((key, value), f"{key}={value}")
    if key == "num_bits":
        return f"{value} bits"
    if key == "block_size":
        return f"blocks of {value}"
    if isinstance(value, dict):
        if "class_name" in value:
            return value_text(value)
        return f"{key} {', '.join(_setting(*item) for item in value.items()) or 'as the target'}"
    return str(value) if key == "quantizer" else f"{key}={value:g}"


def _wants(wish: Any, site: str) -> bool:
    return {"weight": wish.weight, "input": bool(wish.inputs), "output": wish.output}[site]
