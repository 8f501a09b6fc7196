"""A tiny model with data, and benches on it, for the tests of the notebook front end."""

import contextlib

import keras
import numpy as np
from keras import layers


def tiny_model(name="tiny", conv="conv"):
    """A residual network with five layers that compute."""
    keras.utils.set_random_seed(0)
    image = keras.Input((6, 6, 2), name="image")
    stem = layers.ReLU(name="relu")(layers.Conv2D(3, 3, padding="same", name="stem")(image))
    branch = layers.BatchNormalization(name="norm")(layers.Conv2D(3, 3, padding="same", name=conv)(stem))
    pooled = layers.GlobalAveragePooling2D(name="pool")(layers.Add(name="add")([branch, stem]))
    model = keras.Model(image, layers.Dense(3, activation="softmax", name="head")(pooled), name=name)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def tiny_data(count=48):
    generator = np.random.default_rng(0)
    images = generator.standard_normal((count, 6, 6, 2)).astype("float32")
    return images, generator.integers(0, 3, count)


@contextlib.contextmanager
def stopped_when(bench, condition):
    """Stop the running job of a bench as soon as the condition holds for it."""

    def listen(event):
        job = bench.jobs.current
        if event == "job" and job is not None and condition(job):
            job.stop()

    forget = bench.subscribe(listen)
    try:
        yield
    finally:
        forget()
