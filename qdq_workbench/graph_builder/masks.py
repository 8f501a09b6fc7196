"""Which tensors of a model carry a Keras mask at run time.

Keras hands a mask on with the tensor, into nested models and out of them. The symbolic tensors inside and behind a
nested model do not show it, because the model was traced without one, so the masks are followed call by call here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import tree

from qdq_workbench.graph.kinds import CHOOSING_BY_MASK
from qdq_workbench.graph.model_graph import Node, Tensor
from qdq_workbench.graph.op_kinds import MASKED
from qdq_workbench.graph_builder.layer_parts import carries_mask
from qdq_workbench.graph_builder.references import TensorRef


class Masks:
    """The masks of the tensors that were read so far.

    Args:
        tensors: The tensors that were read so far, by name; the reader adds to them.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._found: dict[str, Any] = {}

    def settings(self, node: Node) -> dict[str, Any]:
        """Return the setting of a node whose layer chooses values by the masks of its inputs; else nothing."""
        chooses = node.is_a(*CHOOSING_BY_MASK) and not (node.is_operation or node.opaque)
        return {MASKED: True} if chooses and any(name in self._found for name in node.inputs) else {}

    def follow(self, operation: Any, args: tuple[Any, ...], outputs: Sequence[Any], names: Sequence[str]) -> None:
        """Note the masks of the outputs of a call; tensors in `args` are `TensorRef`."""
        made = [output._keras_mask if carries_mask(output) else None for output in outputs]
        if args and not any(mask is not None for mask in made) and getattr(operation, "supports_masking", False):
            made = self._handed_on(operation, args[0]) or made
        for name, mask in zip(names, made, strict=False):
            if mask is not None:
                self._found[name] = _apart(mask)

    def _handed_on(self, layer: Any, inputs: Any) -> list[Any]:
        """Return the masks that a layer makes of those of its inputs; empty without any."""
        read = tree.flatten(inputs)
        if not all(isinstance(leaf, TensorRef) for leaf in read) or self._found.keys().isdisjoint(r.name for r in read):
            return []
        masks = tree.map_structure(lambda leaf: self._found.get(leaf.name), inputs)
        made = layer.compute_mask(tree.map_structure(self._symbolic, inputs), masks)
        return [] if made is None else tree.flatten(made)

    def _symbolic(self, ref: TensorRef) -> Any:
        tensor = self._tensors[ref.name]
        return keras.KerasTensor(tensor.shape, dtype=tensor.dtype)


def _apart(mask: Any) -> Any:
    """Return a symbolic tensor like a mask that no layer of the model has computed, so that none notes its readers."""
    return keras.KerasTensor(mask.shape, dtype=mask.dtype)
