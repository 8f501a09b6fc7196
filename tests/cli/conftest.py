"""A tiny residual model on disk, with data that fit it: what every command's test starts from."""

import keras
import numpy as np
import pytest


def small_residual_model():
    """Build Conv-BN-ReLU, a residual block and a classifier, small enough for any number of tests."""
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 3), name="image")
    x = keras.layers.Conv2D(4, 3, padding="same", name="stem")(image)
    x = keras.layers.ReLU(name="stem_relu")(keras.layers.BatchNormalization(name="stem_bn")(x))
    y = keras.layers.BatchNormalization(name="block_bn")(
        keras.layers.Conv2D(4, 3, padding="same", name="block_conv")(x)
    )
    x = keras.layers.ReLU(name="block_relu")(keras.layers.Add(name="block_add")([y, x]))
    x = keras.layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(image, keras.layers.Dense(3, activation="softmax", name="classes")(x), name="small")


@pytest.fixture(scope="session")
def workplace(tmp_path_factory):
    """Return a folder with model.keras, images.npy and images.npz; commands may add to it."""
    folder = tmp_path_factory.mktemp("cli")
    small_residual_model().save(folder / "model.keras")
    images = np.random.default_rng(0).standard_normal((32, 8, 8, 3)).astype(np.float32)
    np.save(folder / "images.npy", images)
    np.savez(folder / "images.npz", image=images)
    return folder


@pytest.fixture
def cli(workplace, monkeypatch, capsys):
    """Run one command in the workplace; returns exit code, standard output and standard error."""
    from qdq_workbench.cli.main import main

    monkeypatch.chdir(workplace)

    def run(*arguments):
        code = main(list(arguments))
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run
