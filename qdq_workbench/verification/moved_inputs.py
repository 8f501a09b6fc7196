"""The outputs of a model whose samples were moved by quantization steps.

A model that reads integers, such as the numbers of words, is moved at the first real numbers that it makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from qdq_workbench._interrupts import safe_point
from qdq_workbench.conversion.engine.deep_models import functional_model
from qdq_workbench.conversion.engine.few_calls import for_few_calls
from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.graph_builder import function_behind
from qdq_workbench.verification.copies import run_copies
from qdq_workbench.verification.differences import mean_of_numbers
from qdq_workbench.verification.sensitivity import PERTURBATIONS

Arrays = Sequence[np.ndarray]
# Computed from some of its tensors on, the outputs may differ in their last bits, not by a mask that got lost.
_SAME_RATIO, _SAME = 1e-4, 1e-6


def moved_outputs(
    q_model: QuantizedModel,
    inputs: Mapping[str, np.ndarray],
    predict: Callable[[Arrays], Arrays],
    wanted: Arrays,
    move: Callable[[str, np.ndarray], np.ndarray],
) -> Sequence[Arrays]:
    """Return the outputs of a model for several copies of the samples that `move` has changed.

    `wanted` are the outputs for the samples themselves.
    """
    samples = list(inputs.values())
    behind = BehindTensors(q_model, samples, first_floats(q_model.plan.graph))
    if behind.names and all(map(_equal, behind.outputs(behind.values), wanted)):
        floats = dict(zip(behind.names, behind.values, strict=True))
        copies = [[move(*item) if item[1].ndim else item[1] for item in floats.items()] for _ in range(PERTURBATIONS)]
        return [behind.outputs(copy) for copy in copies]
    return run_copies(q_model, predict, samples, wanted, [[*map(move, inputs, samples)] for _ in range(PERTURBATIONS)])


def first_floats(graph: ModelGraph) -> list[str]:
    """Return the float tensors that are computed from integer inputs alone, such as the results of embeddings.

    There are none if an input holds real numbers, which can be moved themselves.
    """
    if any(graph.tensors[name].is_float for name in graph.inputs):
        return []
    integers, found = set(graph.inputs), []
    for node in graph.nodes:
        if node.inputs and integers.issuperset(node.inputs):
            for name in node.outputs:
                if graph.tensors[name].is_float:
                    found.append(name)
                else:
                    integers.add(name)
    return found


def differences_behind(
    q_model: QuantizedModel, samples: Arrays, base: Mapping[str, np.ndarray], moves: Iterable[tuple[str, np.ndarray]]
) -> Iterator[dict[str, float]]:
    """Yield the mean differences of outputs where tensors move, one tensor after the other, summed up so far.

    `base` are the outputs for the samples, by name; a move is a tensor and what is added to its values.
    """
    sums = dict.fromkeys(base, 0.0)
    for tensor, change in moves:
        behind = BehindTensors(q_model, samples, [tensor])
        for values in behind.values:
            changed = behind.outputs([(values + change).astype(values.dtype)])
            sums = {n: s + mean_of_numbers(moved, base[n]) for (n, s), moved in zip(sums.items(), changed, strict=True)}
        yield sums


class BehindTensors:
    """A model from some of its tensors on, with its inputs beside them.

    Args:
        q_model: The model; it is only read.
        inputs: Samples, one array per input.
        names: The tensors, by their names in the plan.

    Attributes:
        names: The tensors whose values have the shape that Keras declares.
        values: Their values for the samples.
    """

    def __init__(self, q_model: QuantizedModel, inputs: Arrays, names: Sequence[str]) -> None:
        self.names: list[str] = []
        self.values: list[np.ndarray] = []
        if not names:
            return
        tensors = float_view(q_model).tensors
        self._given = [tf.constant(array) for array in inputs]
        made = functional_model(q_model.inputs, [tensors[name] for name in names], name="tensors")
        computed = zip(names, keras.tree.flatten(made(self._given, training=False)), strict=True)
        # Keras refuses values of another shape than a layer declares, as CategoryEncoding does for three axes.
        fitting = [(name, value) for name, value in computed if value.shape.is_compatible_with(tensors[name].shape)]
        if not fitting:
            return
        self.names = [name for name, _ in fitting]
        first, found = [tensors[name] for name in self.names], [value for _, value in fitting]
        # A tensor that is fed in has no mask of its own.
        self._masks = [*[None] * len(inputs), *(getattr(value, "_keras_mask", None) for value in found)]
        self.values = [keras.ops.convert_to_numpy(value) for value in found]
        outputs = keras.tree.flatten(q_model.outputs)
        self._behind = function_behind(q_model, [*q_model.inputs, *first], outputs)
        self._run = for_few_calls(q_model, self._computed, [*self._given, *found])

    def outputs(self, values: Arrays) -> list[np.ndarray]:
        """Return the outputs of the model for other values of the tensors, one array each."""
        safe_point()
        found = self._run([*self._given, *(tf.constant(array) for array in values)])
        return [np.asarray(keras.ops.convert_to_numpy(value), np.float32) for value in found]

    def _computed(self, tensors: list[Any]) -> list[Any]:
        fed = [tf.identity(tensor) for tensor in tensors]
        for tensor, mask in zip(fed, self._masks, strict=True):
            if mask is not None:
                tensor._keras_mask = mask  # noqa: SLF001 - Keras has no public name for it
        return self._behind(fed)


def _equal(ours: np.ndarray, own: np.ndarray) -> bool:
    return ours.shape == own.shape and np.allclose(ours, own, rtol=_SAME_RATIO, atol=_SAME)
