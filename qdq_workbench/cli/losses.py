"""Choice of the loss that fits a model's output and its labels, with a text that describes the choice."""

from __future__ import annotations

import dataclasses
from typing import Any

from qdq_workbench.errors import DataError, QDQError
from qdq_workbench.graph.kinds import RESHAPINGS, VANISHING
from qdq_workbench.graph.op_kinds import is_product

_PROBABILITIES = ("softmax", "sigmoid")
# These layers leave the values of their input as they are, so the activation may be in front of them.
_MOVING = (*RESHAPINGS, *VANISHING)
_SUM_TOLERANCE = 1e-2  # the probabilities of an output on an 8-bit grid do not sum to exactly 1


@dataclasses.dataclass(frozen=True)
class ChosenLoss:
    """A loss with its metrics, its name and a description.

    Args:
        loss: The loss for `compile`.
        metrics: The metrics for `compile`.
        name: Keras's name of the loss, such as "categorical_crossentropy".
        text: Description of the loss, with the reason for the choice.
        from_logits: Whether the outputs are logits; None for a loss without this argument.
    """

    loss: Any
    metrics: list[Any]
    name: str
    text: str
    from_logits: bool | None = None


def output_activation(model: Any) -> str:
    """Return the activation of a model's first output, "linear" for none; "" if the graph does not show it."""
    from qdq_workbench.graph_builder import build_graph

    plan = getattr(model, "plan", None)
    graph = build_graph(model) if plan is None else plan.graph
    node = graph.producer(graph.outputs[0])
    while not node.opaque and len(node.inputs) == 1:
        name = node.activation_name
        # A linear Activation computes nothing, so the search goes on in front of it.
        if name != "linear" and node.is_activation:
            return name
        if is_product(node):
            return name
        if not (node.is_activation or node.is_a(*_MOVING)):
            break
        node = graph.producer(node.inputs[0])
    return ""


def gives_probabilities(model: Any, inputs: Any) -> bool:
    """Return whether a model outputs probabilities, by its last activation, else by its values for some samples."""
    import numpy as np

    # The graph first: a softmax of many classes on an 8-bit grid does not sum to 1.
    last = output_activation(model)
    if last:
        return last in _PROBABILITIES
    scores = np.asarray(model.predict(inputs, verbose=0))
    if not bool(np.all((scores >= 0) & (scores <= 1 + _SUM_TOLERANCE))):
        return False
    return scores.shape[-1] == 1 or bool(np.allclose(scores.sum(axis=-1), 1.0, atol=_SUM_TOLERANCE))


def choose_loss(model: Any, inputs: Any, labels: Any, path: str) -> ChosenLoss:
    """Return the loss that fits a model's output and the labels.

    Class numbers, one-hot rows, and binary labels per output get the cross-entropy of their kind, and so do rows of
    probabilities if the model ends in a softmax. Other labels of the output's shape get the mean squared error.
    """
    import keras

    shape = tuple(model.outputs[0].shape)
    kind = _kind(labels, shape, output_activation(model), path)
    if kind == "values":
        text = "mean squared error (the labels are taken for values, not for classes; --loss names another)"
        return ChosenLoss(keras.losses.MeanSquaredError(), [], "mean_squared_error", text)
    classes: dict[str, tuple[Any, str]] = {
        "numbers": (keras.losses.SparseCategoricalCrossentropy, "class numbers"),
        "one-hot": (keras.losses.CategoricalCrossentropy, "one-hot labels"),
        "shares": (keras.losses.CategoricalCrossentropy, "labels that are probabilities"),
        "yes or no": (keras.losses.BinaryCrossentropy, "labels of 0 and 1"),
    }
    loss, what = classes[kind]
    return _cross_entropy(loss(from_logits=not gives_probabilities(model, inputs)), what, shape)


def named_loss(name: str, model: Any, inputs: Any, labels: Any) -> ChosenLoss:
    """Return the loss of that name in Keras; a cross-entropy gets `from_logits` as the model's output needs it."""
    import keras

    try:
        found: Any = keras.losses.get(name)
    except ValueError as error:
        raise QDQError(f"Keras has no loss of that name. Received: {name!r}") from error
    made: dict[Any, type[Any]] = {
        keras.losses.binary_crossentropy: keras.losses.BinaryCrossentropy,
        keras.losses.binary_focal_crossentropy: keras.losses.BinaryFocalCrossentropy,
        keras.losses.categorical_crossentropy: keras.losses.CategoricalCrossentropy,
        keras.losses.categorical_focal_crossentropy: keras.losses.CategoricalFocalCrossentropy,
        keras.losses.sparse_categorical_crossentropy: keras.losses.SparseCategoricalCrossentropy,
    }
    kind = next((known for function, known in made.items() if found is function or isinstance(found, known)), None)
    if kind is not None and len(model.outputs) == 1:
        logits = not gives_probabilities(model, inputs)
        return _cross_entropy(kind(from_logits=logits), "--loss", tuple(model.outputs[0].shape))
    is_class = len(model.outputs) == 1 and _is_integer(labels) and not _fits(labels, tuple(model.outputs[0].shape))
    shown = str(getattr(found, "__name__", name))
    return ChosenLoss(found, ["accuracy"] if is_class else [], shown, f"{shown.replace('_', ' ')} (--loss)")


def _cross_entropy(loss: Any, reason: str, shape: tuple[int | None, ...]) -> ChosenLoss:
    """Return a cross-entropy with its accuracy metric."""
    import keras

    metric: Any = "accuracy"
    # Keras would compare with 0.5, where logits need 0, the inverse sigmoid of 0.5. For several binary outputs it
    # would resolve "accuracy" to that of the largest output.
    if isinstance(loss, (keras.losses.BinaryCrossentropy, keras.losses.BinaryFocalCrossentropy)) or shape[-1] == 1:
        metric = keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0 if loss.from_logits else 0.5)
    outputs = "logits" if loss.from_logits else "probabilities"
    words = loss.name.replace("_", " ").replace("crossentropy", "cross-entropy")
    text = f"{words} of {outputs} ({reason})"
    return ChosenLoss(loss, [metric], loss.name, text, bool(loss.from_logits))


def _kind(labels: Any, shape: tuple[int | None, ...], last: str, path: str) -> str:
    """Return the kind of labels: class "numbers", "one-hot", "shares" (of probability), "yes or no" or "values"."""
    import numpy as np

    is_binary = bool(np.isin(labels, (0, 1)).all())
    if shape[-1] == 1 and (_fits(labels, shape) or _fits(labels, shape[:-1])):
        if _is_integer(labels):
            _check_classes(labels, 2, path)
            return "yes or no"
        # Floats that are all 0 or 1 may be values of a regression; a sigmoid makes them labels.
        return "yes or no" if is_binary and last == "sigmoid" else "values"
    if not _fits(labels, shape):
        _check_numbers(labels, shape, path)
        return "numbers"
    if is_binary and last == "sigmoid":  # independent binary outputs, even if every row happens to be one-hot
        return "yes or no"
    sums_to_one = bool(np.allclose(labels.sum(axis=-1, dtype=np.float64), 1.0, atol=1e-3))
    if is_binary and sums_to_one:
        return "one-hot"
    return "shares" if last == "softmax" and sums_to_one and bool((labels >= 0).all()) else "values"


def _is_integer(labels: Any) -> bool:
    import numpy as np

    return bool(np.issubdtype(labels.dtype, np.integer) or labels.dtype == bool)


def _fits(labels: Any, shape: tuple[int | None, ...]) -> bool:
    """Return whether labels have the shape of an output."""
    return labels.ndim == len(shape) and all(
        want in (None, have) for have, want in zip(labels.shape[1:], shape[1:], strict=True)
    )


def _check_numbers(labels: Any, shape: tuple[int | None, ...], path: str) -> None:
    """Raise DataError unless the labels are class numbers, one per row of the output."""
    import numpy as np

    rows = shape[:-1]
    # Keras takes class numbers with a last axis of length 1, too.
    single = labels[..., 0] if labels.ndim == len(shape) and labels.shape[-1] == 1 else labels
    if not (_fits(single, rows) and bool((np.mod(single, 1) == 0).all())):
        raise DataError(
            f"Labels must be class numbers, one per row of the output, or have the shape of the output, {shape}. "
            f"Received: shape {labels.shape} of {labels.dtype} in {path!r}; give --loss if they are meant otherwise"
        )
    _check_classes(single, shape[-1], path)


def _check_classes(labels: Any, classes: int | None, path: str) -> None:
    if labels.min() < 0 or (classes is not None and labels.max() >= classes):
        raise DataError(
            f"The model has {classes} classes, so labels must be from 0 to {(classes or 1) - 1}; give --loss if they "
            f"are meant otherwise. Received: labels from {labels.min()} to {labels.max()} in {path!r}"
        )
