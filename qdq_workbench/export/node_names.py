"""Whose the nodes of a file are: each is called after the layer that it belongs to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from qdq_workbench.conversion.engine.rebuild import keras_name


def layers_by_name(paths: Collection[str]) -> dict[str, str]:
    """Return the layers whose names no other layer has in a file, where paths are flat, by those names."""
    flat = [(keras_name(layer), layer) for layer in paths]
    count = Counter(name for name, _ in flat)
    shared = tuple(f"{name}_" for name, times in count.items() if times > 1)
    return {name: layer for name, layer in flat if count[name] == 1 and not name.startswith(shared)}


def layer_of(name: str, layers: Mapping[str, str]) -> str | None:
    """Return the layer that a node of a file is called after, None for none.

    Args:
        name: Name of the node.
        layers: What `layers_by_name` returned.
    """
    parts = name.split("/")
    candidates = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((layers[candidate] for candidate in candidates if candidate in layers), None)
