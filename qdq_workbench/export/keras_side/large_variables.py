"""Weights that are too large for TensorFlow's graph and are kept out of it during the conversion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from qdq_workbench.graph_builder import layer_weights

#: Bytes of all float variables above which the large ones are kept out of TensorFlow's graph, which holds 2 GB.
GRAPH_LIMIT = 1_500_000_000
_LARGE = 1 << 20  # bytes of one variable


def large_variables(layers: Mapping[str, Any], without: Iterable[Any] = ()) -> dict[str, Any]:
    """Return the float variables, other than `without`, to keep out of TensorFlow's graph; none if all of them fit."""
    kept_out = {id(variable) for variable in without}
    found = {
        f"{path}/{name}": variable
        for path, layer in layers.items()
        if isinstance(layer, keras.layers.Layer)
        for name, variable in layer_weights(layer)
        if variable.dtype == "float32" and id(variable) not in kept_out
    }
    if sum(_bytes(variable) for variable in found.values()) <= GRAPH_LIMIT:
        return {}
    return {name: variable for name, variable in found.items() if _bytes(variable) >= _LARGE}


def _bytes(variable: Any) -> int:
    return 4 * int(np.prod(variable.shape))
