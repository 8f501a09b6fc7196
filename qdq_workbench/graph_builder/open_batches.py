"""Tensors with any number of samples, of which Keras says that there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qdq_workbench.graph.model_graph import Node, Tensor
from qdq_workbench.graph.op_kinds import JOINS_CONSTANTS


class OpenBatches:
    """Keeps the batch open behind a merge with a constant, such as `Add()([tokens, positions])`.

    Keras takes the size 1 of the constant's first axis for that of the result (`Merge.compute_output_spec`), and all
    layers behind it go on with it, though they compute any number of samples.

    Args:
        tensors: The tensors of the graph so far, by name.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._opened: set[str] = set()

    def shape(self, node: Node, name: str, tensor: Any) -> tuple[int | None, ...]:
        """Return the shape of an output of a node."""
        shape = tuple(tensor.shape)
        if shape[:1] != (1,):
            return shape
        open_inputs = [self._tensors[each].shape[:1] == (None,) for each in node.inputs]
        merges = bool(node.settings.get(JOINS_CONSTANTS)) and not node.is_operation and all(open_inputs)
        if not merges and self._opened.isdisjoint(node.inputs):
            return shape
        self._opened.add(name)
        return (None, *shape[1:])
