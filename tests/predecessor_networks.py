"""The test networks of NVIDIA's tensorflow-quantization 0.2.0, and where it puts its pairs on them.

`data/predecessor_placements.json` was recorded by running the toolkit on TensorFlow 2.15, in 178 configurations.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import keras
from project import ROOT


@functools.cache
def recorded() -> dict[str, Any]:
    """Return `networks` by name, each with its nodes in order, and `placements`."""
    return json.loads((ROOT / "tests" / "data" / "predecessor_placements.json").read_text(encoding="utf-8"))


def network_names() -> list[str]:
    """Return the names of the networks."""
    return sorted(recorded()["networks"])


def build_network(name: str) -> keras.Model:
    """Return a network in Keras 3.

    Args:
        name: One of `network_names()`.
    """
    described = recorded()["networks"][name]
    tensors: dict[str, Any] = {}
    for node in described["nodes"]:
        settings = dict(node["config"])
        if node["class"] == "InputLayer":
            tensors[node["name"]] = keras.Input(settings["batch_input_shape"][1:], name=node["name"])
        else:
            layer = getattr(keras.layers, node["class"])(name=node["name"], **settings)
            tensors[node["name"]] = layer(_single([tensors[source] for source in node["inbound"]]))
    inputs, outputs = ([tensors[end] for end in described[ends]] for ends in ("inputs", "outputs"))
    return keras.Model(_single(inputs), _single(outputs), name=name)


def _single(values: list[Any]) -> Any:
    return values if len(values) > 1 else values[0]
