"""Learning the rounding of one unit so that its outputs match those of the float model.

    loss = sum over the compared tensors of mean |y_float - y_quantized|^2 / e0  +  penalty * mean of f(v)

e0 is the same error with nearest rounding, f and v are defined in `weights`. The unit reads the outputs of the
quantized part in front of it; the targets are the float model's (AdaRound, equation 25). The penalty is off for the
first fifth of the steps; then beta falls from 20 to 2 until four fifths, so that the last steps can correct the errors
of the last decisions. The optimizer is Adam with its usual constants (Kingma and Ba 2015, arXiv:1412.6980).

While learning, each input of the unit is replaced by the float model's value, and each output of a Q/DQ pair by its
unquantized input, with probability `drop` per value: QDrop (Wei et al. 2022, arXiv:2203.05740), for activations of few
bits.

Compared outputs of a softmax are compared as logits: by their logarithms minus the mean of these. Positions that the
mask of a compared tensor leaves out, such as padding, do not count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from qdq_workbench._interrupts import safe_point
from qdq_workbench.calibration.failures import failures_named
from qdq_workbench.calibration.padding import mask_of
from qdq_workbench.conversion.engine.traced import traced
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph_builder import Call, describe_layer
from qdq_workbench.post_training.rounding.compute import compute
from qdq_workbench.post_training.rounding.learners import Learner
from qdq_workbench.post_training.rounding.units import Unit
from qdq_workbench.wrappers import BaseQuantizeWrapper

Array = npt.NDArray[Any]
FIRST_BETA, LAST_BETA = 20.0, 2.0
WARM_UP, ANNEALED = 0.2, 0.8
_MEAN, _SQUARES, _SMALLEST = 0.9, 0.999, 1e-8  # Adam's constants
_BIAS_RATE = 1e-3  # falls to 0
_LEAST_PROBABILITY = 1e-9  # keeps the logarithm of 0 finite
_LEAST_ERROR = 1e-20  # keeps 1 / e0 finite if nearest rounding is exact
_EVALUATED = 128  # samples per batch of an evaluation


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of learning.

    Args:
        steps: Steps of the optimizer per unit.
        batch_size: Samples per step.
        learning_rate: The learning rate of Adam.
        penalty: Weight of the regularizer that drives every value to one of its two roundings.
        drop: The probability that a value stays unquantized while learning.
        biases: Whether the biases are learned too.
        seed: Seed of the batches and of the dropped values.
    """

    steps: int
    batch_size: int
    learning_rate: float
    penalty: float
    drop: float
    biases: bool
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a JSON-compatible dictionary."""
        return dataclasses.asdict(self)


class Reconstruction:
    """The optimization of one unit.

    Args:
        unit: The unit.
        learners: Its learned layers.
        settings: The settings of learning.
        place: Index of the unit in the model, which gives each unit its own random numbers.
    """

    def __init__(self, unit: Unit, learners: Sequence[Learner], settings: Settings, place: int) -> None:
        self._unit, self._learners = unit, learners
        self._settings = dataclasses.replace(settings, seed=(settings.seed + 7919 * place) % 2**31)
        self.weights = [weight for learner in learners for weight in learner.weights]
        self._states = [tf.Variable(weight.start) for weight in self.weights]
        with_bias = [learner for learner in learners if learner.bias is not None]
        self._biases = [learner.bias for learner in with_bias]
        self._bias_states = [tf.Variable(tf.convert_to_tensor(bias.value)) for bias in self._biases]
        learned = [*self._states, *self._bias_states]
        self._moments = [(tf.Variable(tf.zeros_like(each)), tf.Variable(tf.zeros_like(each))) for each in learned]
        self._probabilities = probabilities_of(unit)

    def learn(
        self, read: Mapping[str, Array], floats: Mapping[str, Array], targets: Mapping[str, Array], error: float
    ) -> None:
        """Run all steps; the variables of the model do not change.

        `read` and `floats` are the unit's inputs in the quantized and in the float model, `targets` the compared
        tensors of the float model, with their masks; `error` is that of nearest rounding.
        """
        settings = self._settings
        count = len(next(iter(targets.values())))
        factor = tf.constant(1.0 / max(error, _LEAST_ERROR), tf.float32)
        step: Any = None
        for position, chosen in enumerate(_batches(count, settings)):
            given = (
                # A tensor, because a Python number would become a constant of the trace.
                tf.constant(position),
                *({name: _tensor(part[chosen]) for name, part in all_.items()} for all_ in (read, floats, targets)),
                factor,
            )
            if step is None:
                step = tf.function(self._step, autograph=False).get_concrete_function(*given)
            step(*given)
            safe_point()

    def result(self) -> tuple[list[Array], list[Array]]:
        """Return the new values of the weights and of the biases."""
        weights = [weight.rounded(state.numpy()) for weight, state in zip(self.weights, self._states, strict=True)]
        return weights, [state.numpy() for state in self._bias_states]

    @property
    def variables(self) -> list[Any]:
        """The Keras variables of the learned weights, then those of the learned biases."""
        return [*(weight.variable for weight in self.weights), *self._biases]

    def _given(self) -> dict[str, list[tuple[Any, Any]]]:
        """Return the soft weights of every layer, between their two roundings, with its biases and fixed weights."""
        states, biases = iter(self._states), iter(self._bias_states)
        found = {}
        for learner in self._learners:
            given = [(weight.variable, weight.soft(next(states))) for weight in learner.weights]
            if learner.bias is not None:
                given.append((learner.bias, next(biases) + 0.0))
            found[learner.wrapper.name] = [*given, *learner.fixed]
        return found

    def _step(self, position: Any, read: Any, floats: Any, targets: Any, factor: Any) -> None:
        settings = self._settings
        done = tf.cast(position, tf.float32) / settings.steps
        drops = _Drops(settings, position)
        values = {name: drops.mixed(value, floats[name]) for name, value in read.items()}
        with tf.GradientTape() as tape:
            made = compute(self._unit.calls, values, self._given(), drops.between if settings.drop else None)
            loss = factor * error_of(self._unit, self._probabilities, targets, made)
            loss += tf.where(done < WARM_UP, 0.0, settings.penalty) * self._penalty(_beta(done))
        learned = [*self._states, *self._bias_states]
        rates = [settings.learning_rate] * len(self._states) + [_BIAS_RATE * (1.0 - done)] * len(self._bias_states)
        gradients = tape.gradient(loss, learned, unconnected_gradients="zero")
        times = tf.cast(position, tf.float32) + 1.0
        # Adam with both bias corrections in the rate (Kingma and Ba 2015, end of section 2).
        unbiased = tf.sqrt(1.0 - _SQUARES**times) / (1.0 - _MEAN**times)
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]  # an embedding's holds the rows in use alone
        for state, gradient, (mean, squares), rate in zip(learned, dense, self._moments, rates, strict=True):
            mean.assign(_MEAN * mean + (1.0 - _MEAN) * gradient)
            squares.assign(_SQUARES * squares + (1.0 - _SQUARES) * gradient**2)
            state.assign_sub(rate * unbiased * mean / (tf.sqrt(squares) + _SMALLEST))

    def _penalty(self, beta: Any) -> Any:
        count = max(1, sum(weight.free for weight in self.weights))
        parts = [weight.penalty(state, beta) for weight, state in zip(self.weights, self._states, strict=True)]
        return tf.add_n(parts) / count


class _Drops:
    """Replaces quantized values by unquantized ones at random in one step (QDrop)."""

    def __init__(self, settings: Settings, position: Any) -> None:
        self._drop = settings.drop
        self._seed = tf.stack([tf.constant(settings.seed, tf.int32), tf.cast(position, tf.int32)])
        self._count = 0

    def mixed(self, quantized: Any, unquantized: Any) -> Any:
        """Return the quantized tensor, each value replaced by the unquantized one with probability `drop`."""
        if not self._drop or not quantized.dtype.is_floating:
            return quantized
        # Every tensor of a step gets random numbers of its own.
        self._count += 1
        draws = tf.random.stateless_uniform(tf.shape(quantized), tf.add(self._seed, (self._count * 1_000_003, 0)))
        return tf.where(draws < self._drop, tf.cast(unquantized, quantized.dtype), quantized)

    def between(self, layer: Any, unquantized: Any, quantized: Any) -> Any:  # noqa: ARG002 - as `compute` calls it
        """Return the tensor to continue with behind a Q/DQ layer."""
        return self.mixed(quantized, unquantized)


def _beta(done: Any) -> Any:
    share = tf.clip_by_value((done - WARM_UP) / (ANNEALED - WARM_UP), 0.0, 1.0)
    return FIRST_BETA + (LAST_BETA - FIRST_BETA) * share


def _batches(count: int, settings: Settings) -> Iterator[Array]:
    """Yield the sample indices of every step: repeated random permutations, without their incomplete last batches."""
    generator = np.random.default_rng(settings.seed)
    size = min(settings.batch_size, count)
    order = np.zeros(0, np.int64)
    for _ in range(settings.steps):
        if len(order) < size:
            order = generator.permutation(count)
        yield np.sort(order[:size])
        order = order[size:]


def probabilities_of(unit: Unit) -> frozenset[str]:
    """Return the compared tensors that a softmax produces."""
    made_by = {name: call for call in unit.calls for name in call.node.outputs}
    return frozenset(name for name in unit.compared if _node_of(made_by[name]).activation_name == "softmax")


def _node_of(call: Call) -> Node:
    """Return the node of a call; for a wrapper, that of the layer inside."""
    operation: Any = call.operation
    return describe_layer(operation.layer) if isinstance(operation, BaseQuantizeWrapper) else call.node


def error_of(unit: Unit, probabilities: Iterable[str], targets: Mapping[str, Any], made: Mapping[str, Any]) -> Any:
    """Return the sum over the compared tensors of the mean squared difference, of logits for `probabilities`.

    `targets` are of the float model, with the masks of those that carry one.
    """
    errors = []
    for name in unit.compared:
        target, found = (tf.cast(values[name], tf.float32) for values in (targets, made))
        if name in probabilities:
            target, found = _logits(target), _logits(found)
        errors.append(_mean_counted(tf.math.squared_difference(target, found), targets.get(mask_name(name))))
    return tf.add_n(errors)


def _mean_counted(squares: Any, mask: Any) -> Any:
    """Return the mean over the positions that a mask keeps; its axes are the first ones of the squares."""
    if mask is None:
        return tf.reduce_mean(squares)
    behind = tf.ones(len(squares.shape) - len(mask.shape), tf.int32)
    kept = tf.reshape(tf.cast(mask, tf.bool), tf.concat([tf.shape(mask), behind], 0))
    count = tf.reduce_sum(tf.cast(tf.broadcast_to(kept, tf.shape(squares)), squares.dtype))
    return tf.reduce_sum(tf.where(kept, squares, 0.0)) / tf.maximum(count, 1.0)


def _logits(probabilities: Any) -> Any:
    logarithms = tf.math.log(tf.maximum(probabilities, _LEAST_PROBABILITY))
    return logarithms - tf.reduce_mean(logarithms, axis=-1, keepdims=True)


def _tensor(values: Array) -> Any:
    return tf.convert_to_tensor(np.ascontiguousarray(values))


class Evaluation:
    """A function of tensors that is run over all samples in batches.

    Args:
        function: A function of tensors by name that returns tensors by name.
        names: Names of the returned tensors to keep.
    """

    def __init__(self, function: Callable[[dict[str, Any]], Mapping[str, Any]], names: Iterable[str]) -> None:
        self._names = tuple(names)

        def kept(values: dict[str, Any]) -> dict[str, Any]:
            found = function(values)
            made = {name: found[name] for name in self._names}
            masks = {mask_name(name): mask_of(tensor) for name, tensor in made.items()}
            return made | {name: mask for name, mask in masks.items() if mask is not None}

        self._kept = kept
        self._function: Any = None

    def __call__(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return the kept tensors and their masks over all samples, given the function's inputs over all samples."""
        count = len(next(iter(values.values())))
        if self._function is None:
            symbols = {name: tf.TensorSpec((None, *array.shape[1:]), array.dtype) for name, array in values.items()}
            self._function = traced(self._kept, symbols)
        pieces: list[dict[str, Array]] = []
        for start in range(0, count, _EVALUATED):
            piece = {name: _tensor(array[start : start + _EVALUATED]) for name, array in values.items()}
            with failures_named(list(piece.values())):
                pieces.append({name: np.asarray(value) for name, value in self._function(piece).items()})
            safe_point()
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def mask_name(tensor: str) -> str:
    """Return the name under which an evaluation returns the mask of a tensor that carries one."""
    return f"{tensor}:mask"
