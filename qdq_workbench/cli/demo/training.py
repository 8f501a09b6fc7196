"""Training and scoring of the demo's models, with progress that the caller draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from qdq_workbench.cli.demo.data import OTHER_MODELS, ImageData
from qdq_workbench.cli.losses import gives_probabilities
from qdq_workbench.errors import DataError

BATCH = 32
SCORING_BATCH = 256

OnEpoch = Callable[[int, float], None]


def train(model: Any, data: ImageData, *, epochs: int, learning_rate: float, on_epoch: OnEpoch) -> list[float]:
    """Train a classifier in place, and return the test accuracy after each epoch.

    The order of the batches depends only on the seed set here. A cosine schedule lowers the learning rate to zero;
    `on_epoch` gets the number of the epoch, from 1, and the test accuracy.
    """
    import keras

    steps = epochs * -(-len(data.x_train) // BATCH)
    schedule = keras.optimizers.schedules.CosineDecay(learning_rate, max(steps, 1))
    model.compile(
        optimizer=keras.optimizers.Adam(schedule),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=not gives_probabilities(model, data.x_train[:16])),
    )
    history: list[float] = []

    def end_of_epoch(epoch: int, _logs: Any) -> None:
        history.append(accuracy(model, data))
        on_epoch(epoch + 1, history[-1])

    keras.utils.set_random_seed(0)
    model.fit(
        data.x_train,
        data.y_train,
        batch_size=BATCH,
        epochs=epochs,
        verbose=0,
        callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=end_of_epoch)],
    )
    return history


def accuracy(model: Any, data: ImageData) -> float:
    """Return the share of the test images that a Keras model classifies correctly."""
    return share_correct(model.predict(data.x_test, batch_size=SCORING_BATCH, verbose=0), data.y_test)


def share_correct(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of the rows of `scores` [N, classes] whose highest score is the label's."""
    return float((np.argmax(scores, axis=-1) == labels).mean())


def check_fits(model: Any, data: ImageData) -> None:
    """Check that a model can classify these images.

    Raises:
        DataError: If the model has several inputs or outputs, or shapes or the number of classes do not fit.
    """
    expected = tuple(model.inputs[0].shape[1:])
    received = data.x_train.shape[1:]
    fits = len(model.inputs) == 1 and len(model.outputs) == 1 and len(expected) == len(received)
    fits = fits and all(size in (None, got) for size, got in zip(expected, received, strict=True))
    inputs, outputs = ([tuple(tensor.shape) for tensor in ends] for ends in (model.inputs, model.outputs))
    if not fits or (model.outputs[0].shape[-1] or data.classes) < data.classes:
        raise DataError(
            "The model cannot classify these images. Expected one image input and one row of class scores; give the "
            f"data that the model was made for with --data. {OTHER_MODELS} Received: model inputs {inputs}, outputs "
            f"{outputs}; images {received} of {data.classes} classes"
        )
