"""The layer of a file's node, recognised by the node's name, which begins with that of the layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from qdq_workbench.conversion.engine.rebuild import keras_name


def layers_by_name(paths: Collection[str]) -> dict[str, str]:
    """Return flat name -> path, for layers with a unique flat name that no numbered duplicate (`name_1`) can have."""
    flat = [(keras_name(layer), layer) for layer in paths]
    count = Counter(name for name, _ in flat)
    # Of two layers `conv` one becomes `conv_2` in the file, which may be the name of a third layer as well.
    shared = tuple(f"{name}_" for name, times in count.items() if times > 1)
    return {name: layer for name, layer in flat if count[name] == 1 and not name.startswith(shared)}


def layer_of(name: str, layers: Mapping[str, str]) -> str | None:
    """Return the layer, of `layers_by_name`, whose name is the longest beginning of a node's name; None without one."""
    parts = name.split("/")
    candidates = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((layers[candidate] for candidate in candidates if candidate in layers), None)
