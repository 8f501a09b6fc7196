"""The dtypes of the tensors that a layer returns, where they are not those that it declares.

A Keras layer that does not say otherwise declares the compute dtype of its policy for its outputs. Layers that repeat,
pad, crop or add their inputs return integers for integers all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
from keras import tree

from qdq_workbench._interrupts import interrupts_held
from qdq_workbench.graph.model_graph import Tensor
from qdq_workbench.graph_builder.references import TensorRef


def returned_dtypes(
    operation: Any, call: tuple[Any, Any], outputs: list[Any], known: Mapping[str, Tensor]
) -> list[str]:
    """Return the dtypes of the outputs of a call whose tensors are references to `known` ones."""
    declared = [keras.backend.standardize_dtype(output.dtype) for output in outputs]
    given = [known[leaf.name] for leaf in tree.flatten(call) if isinstance(leaf, TensorRef)]
    # Between floats, a layer's word is taken: to trace every layer would take as long as to build the model.
    if not given or any("float" in tensor.dtype for tensor in given) or not any("float" in name for name in declared):
        return declared
    found = _traced(operation, call, known)
    if len(found) != len(declared):
        return declared
    return [real if "int" in real or real == "bool" else name for name, real in zip(declared, found, strict=True)]


@interrupts_held()
def _traced(operation: Any, call: tuple[Any, Any], known: Mapping[str, Tensor]) -> list[str]:
    """Return the dtypes that the code of a layer returns; an empty list if it cannot be run without values."""

    def symbol(value: Any) -> Any:
        if not isinstance(value, TensorRef):
            return value
        return keras.KerasTensor(known[value.name].shape, dtype=known[value.name].dtype)

    args, kwargs = tree.map_structure(symbol, call)
    try:
        found = keras.Operation.compute_output_spec(operation, *args, **kwargs)
    except Exception:  # noqa: BLE001 - whatever the code of a layer raises: its declaration stands
        return []
    return [keras.backend.standardize_dtype(tensor.dtype) for tensor in tree.flatten(found)]
