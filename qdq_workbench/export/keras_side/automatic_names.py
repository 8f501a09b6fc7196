"""The names that Keras gives to layers inside a layer, such as the softmax of an attention or the cell of an RNN.

Keras counts them from the start of the process, so that a copy has other ones in every export.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from qdq_workbench.graph.free_names import take_name
from qdq_workbench.graph_builder import inner_layers

_NUMBER = re.compile(r"_\d+$")


@contextlib.contextmanager
def counted_from_its_layer(operation: Any) -> Iterator[None]:
    """Let the automatic names inside a layer count from that layer on, until the end of the `with` statement."""
    import keras

    before: list[tuple[Any, str]] = []
    taken: set[str] = set()
    try:
        for layer in inner_layers(operation) if isinstance(operation, keras.Layer) else ():
            base = _NUMBER.sub("", layer.name)
            if base.replace("_", "") == type(layer).__name__.lower():
                before.append((layer, layer.name))
                layer.name = take_name(base, taken)
        yield
    finally:
        for layer, name in reversed(before):  # a layer may be inside twice
            layer.name = name
