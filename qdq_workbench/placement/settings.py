"""A layer's own quantizer settings: from a `LayerQuantizeConfig` to the grid and the method of one placement.

Settings are plain dictionaries, so that decisions and plans are JSON-compatible:

    {"weights": {"kernel": {...}}, "activation": {...}, "output": {...}}        any of them may be missing
    {"num_bits": 4, "symmetric": True, "per_axis": True, "quantizer": "lsq"}    one site; any may be missing

Under "weights" the name `*` stands for every weight that the layer's class quantizes by default. Missing settings
default to those of the target.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from qdq_workbench.errors import SpecError, first_names, nearest_names
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.placement.defaults import find_named_default
from qdq_workbench.spec.quantize_config import LayerQuantizeConfig, is_per_weight
from qdq_workbench.spec.quantizer_method import CUSTOM, QuantizerMethod
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

Settings = Mapping[str, Any]
#: Converts the `quantize_config` of an entry to the settings of one node; the last argument names the entry.
Resolver = Callable[[Node, Any, str], Settings]

EVERY_WEIGHT = "*"
_GRID = ("num_bits", "signed", "symmetric", "narrow_range")
_NOT_METHOD = {*_GRID, "per_axis", "axis", "block_size", "quantizer"}
# A default method is not stored in the plan: weights take their own range at every call.
_DEFAULT_METHODS = {"weight": ("", "last_value"), "activation": ("", "moving_average")}


def settings_of(node: Node, config: Any, source: str) -> Settings:
    """Return the settings that a `LayerQuantizeConfig` gives a node.

    Args:
        node: The node.
        config: The entry's `quantize_config`.
        source: The entry, for error messages.

    Raises:
        SpecError: If the config is a `QuantizeConfig`, whose methods need the layer itself.
    """
    if not isinstance(config, LayerQuantizeConfig):
        raise SpecError(
            f"{source}: a QuantizeConfig is asked about the layer itself, and a ModelGraph holds no layers. Pass the "
            "Keras model instead of its graph, or describe the quantizers with a LayerQuantizeConfig. "
            f"Received: {type(config).__name__} for layer {node.layer!r}"
        )
    found: dict[str, Any] = {}
    if config.weight is not None:
        found["weights"] = dict(config.weight) if is_per_weight(config.weight) else {EVERY_WEIGHT: dict(config.weight)}
    if config.activation is not None:
        found["activation"] = dict(config.activation)
    if config.output is not None:
        found["output"] = dict(config.output)
    return found


def config_of(node: Node, settings: Settings | None) -> LayerQuantizeConfig | None:
    """Return the `LayerQuantizeConfig` of an entry by name that gives a node its settings; None without any.

    Settings of weights that the node does not have are left out: only an entry for several layers may name them.
    """
    own, names = (settings or {}).get("weights") or {}, {weight.name for weight in node.weights}
    if EVERY_WEIGHT in own:
        default = find_named_default(node)
        known = default is not None and not names.isdisjoint(default.weights)
        weight = own[EVERY_WEIGHT] if known else None
    else:
        weight = {name: site for name, site in own.items() if name in names} or None
    found = {"weight": weight, **{site: (settings or {}).get(site) for site in ("activation", "output")}}
    return LayerQuantizeConfig(**found) if any(site is not None for site in found.values()) else None


def check_settings(node: Node, config: Any, source: str) -> None:
    """Raise SpecError if an entry by name has settings for weights that the layer does not have.

    That is so if the layer has no weights, none that its class is known to quantize, or none of a name.
    """
    if not isinstance(config, LayerQuantizeConfig) or config.weight is None:
        return
    default, names = find_named_default(node), [weight.name for weight in node.weights]
    if is_per_weight(config.weight):
        for name in config.weight:
            if name not in names:
                raise SpecError(
                    f"{source}: layer {node.layer!r} ({node.class_name}) has no weight of that name. "
                    f"{nearest_names(name, names)} Received: weight={dict(config.weight)}"
                )
        return
    if default is not None and any(name in default.weights for name in names):
        return
    why = "has no weights" if not node.weights else "is of a class whose weights nobody has named"
    raise SpecError(
        f"{source}: layer {node.layer!r} ({node.class_name}) {why}, so settings for them would have no effect. Leave "
        f"weight out; to quantize a weight of a layer of your own, name it in a QuantizeConfig or define "
        f"{node.class_name}QuantizeWrapper. Received: weight={dict(config.weight)}"
    )


def check_weight_names(nodes: Sequence[Node], config: Any, source: str) -> None:
    """Raise SpecError if an entry for several layers has settings for a weight that none of them has.

    Settings by weight name leave all other weights in float, so the weights of these layers would stay in float.
    """
    if not isinstance(config, LayerQuantizeConfig) or config.weight is None or not is_per_weight(config.weight):
        return
    names = {weight.name for node in nodes for weight in node.weights}
    for name in config.weight:
        if name not in names:
            layers = list(dict.fromkeys(node.layer for node in nodes))
            raise SpecError(
                f"{source}: none of the layers that it is about ({first_names(layers)}) has a weight of that name, "
                f"so that their weights would stay in float. {nearest_names(name, sorted(names))} A layer inside "
                f"another has an entry of its own, by its path. Received: weight={dict(config.weight)}"
            )


def weight_settings(settings: Settings | None, names: Mapping[str, int | None]) -> dict[str, Settings | None]:
    """Return the settings of every quantized weight; None for the defaults.

    `names` are the weights that its class quantizes by default.
    """
    own = (settings or {}).get("weights")
    if own is None:
        return dict.fromkeys(names)
    if EVERY_WEIGHT in own:
        return dict.fromkeys(names, own[EVERY_WEIGHT])
    return dict(own)


def grid_of(
    base: QuantizerSpec,
    site: Settings | None,
    axis: int | None = None,
    rank: int = 0,
    block_axes: tuple[int, ...] = (),
) -> QuantizerSpec:
    """Return the grid of one site; `base` is the target's default, and `axis` that of the scales, None for one scale.

    `rank` is that of the tensor, if its scales may lie along an axis. Blocks lie along the last of `block_axes` unless
    the settings choose another.
    """
    if site is None:
        return base if axis is None else _along(base, axis)
    fields = {key: site[key] for key in _GRID if key in site}
    if site.get("block_size") is not None:
        # Users may count axes from the end; plans count them from 0.
        chosen = site["axis"] % max(rank, 1) if "axis" in site else block_axes[-1]
        return base.replace(axis=chosen, block_size=site["block_size"], **fields)
    if not site.get("per_axis", axis is not None):
        axis = None
    elif "axis" in site or axis is None:
        axis = site.get("axis", -1) % max(rank, 1)
    return base.replace(axis=axis, **fields)


@functools.lru_cache(maxsize=256)
def _along(base: QuantizerSpec, axis: int) -> QuantizerSpec:
    """Return a grid with scales along an axis; cached, because planning needs few of them, many times."""
    return base.replace(axis=axis)


def method_of(site: Settings | None, kind: str) -> QuantizerMethod | None:
    """Return the method that finds the range of a site of the kind "weight" or "activation"; None for the default."""
    if site is None:
        return None
    name = site.get("quantizer", "")
    # A quantizer of the user's own, as Keras serialized it.
    if isinstance(name, Mapping):
        return QuantizerMethod.make(CUSTOM, name)
    arguments = {key: value for key, value in site.items() if key not in _NOT_METHOD}
    if name in _DEFAULT_METHODS[kind] and not arguments:
        return None
    return QuantizerMethod.make(name, arguments)
