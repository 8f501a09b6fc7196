"""How an activation that a user wrote begins: ONNX Runtime takes a ReLU for a part of the product in front of it."""

from __future__ import annotations

from typing import Any

import keras

from qdq_workbench.graph.activations import BEGINS, CLIP, SUM_AND_CLIP
from qdq_workbench.graph.kinds import KINDS


def beginning(activation: Any) -> dict[str, str]:
    """Return the setting of a layer whose activation computes a ReLU or Clip and then more; an empty one for others.

    In front of the ReLU, a number may be added. Functions that are not computed by Keras's operations alone are not
    known.
    """
    if not callable(activation) or getattr(activation, "__module__", "keras.").startswith("keras."):
        return {}
    source = keras.KerasTensor((None, 4))
    try:
        result = activation(source)
    except Exception:  # noqa: BLE001 - whatever the code of a user raises: nothing is known
        return {}
    nodes = _nodes_behind(result)
    node = _only_reader(nodes, source)
    added = node is not None and type(node.operation).__name__ == "Add" and len(node.input_tensors) == 1
    clip = _only_reader(nodes, node.outputs[0]) if added else node
    if clip is None or not _clips(clip.operation) or _only_reader(nodes, clip.outputs[0]) is None:
        return {}
    return {BEGINS: SUM_AND_CLIP if added else CLIP}


def _clips(operation: Any) -> bool:
    name = type(operation).__name__
    return name == "Clip" or (name in KINDS and KINDS[name].activation in ("relu", "relu6"))


def _nodes_behind(result: Any) -> list[Any]:
    """Return the calls of operations that a symbolic tensor was computed by."""
    nodes: list[Any] = []
    waiting = list(keras.tree.flatten(result))
    while waiting:
        history = getattr(waiting.pop(), "_keras_history", None)
        if history is None or history.operation is None:
            continue
        node = history.operation._inbound_nodes[history.node_index]
        if not any(node is each for each in nodes):
            nodes.append(node)
            waiting.extend(node.input_tensors)
    return nodes


def _only_reader(nodes: list[Any], tensor: Any) -> Any:
    """Return the one call that reads a tensor, once; None where there is another number."""
    readers = [node for node in nodes for each in node.input_tensors if each is tensor]
    return readers[0] if len(readers) == 1 else None
