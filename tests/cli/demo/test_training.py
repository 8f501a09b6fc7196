import keras
import numpy as np
import pytest

from qdq_workbench.cli.demo.data import ImageData
from qdq_workbench.cli.demo.network import residual_network
from qdq_workbench.cli.demo.training import accuracy, check_fits, gives_probabilities, share_correct, train
from qdq_workbench.errors import DataError


@pytest.fixture(scope="module")
def data():
    """Two classes, told apart by their brightness."""
    random = np.random.default_rng(0)
    labels = np.arange(64) % 2
    images = (labels[:, None, None, None] + 0.1 * random.standard_normal((64, 8, 8, 1))).astype(np.float32)
    return ImageData("bright and dark", images, labels, images[:32], labels[:32])


def tiny(activation="softmax"):
    inputs = keras.Input((8, 8, 1))
    x = keras.layers.Conv2D(4, 3, activation="relu")(inputs)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, keras.layers.Dense(2, activation=activation)(x))


def test_share_correct_counts_rows():
    assert share_correct(np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), np.array([0, 1, 1])) == pytest.approx(2 / 3)


@pytest.mark.parametrize("activation", ["softmax", "linear"])
def test_training_learns_and_reports_every_epoch(data, activation):
    keras.utils.set_random_seed(1)
    model, seen = tiny(activation), []

    history = train(model, data, epochs=8, learning_rate=0.05, on_epoch=lambda *report: seen.append(report))

    assert [number for number, _ in seen] == list(range(1, 9))
    assert history == [value for _, value in seen]
    assert history[-1] == accuracy(model, data) > 0.9


def test_two_trainings_of_equal_models_are_equal(data):
    first, second = tiny(), tiny()
    second.set_weights(first.get_weights())

    histories = [
        train(model, data, epochs=2, learning_rate=0.01, on_epoch=lambda *_: None) for model in (first, second)
    ]

    assert histories[0] == histories[1]


def test_probabilities_and_logits_are_told_apart(data):
    assert gives_probabilities(tiny("softmax"), data)
    assert not gives_probabilities(tiny("linear"), data)


def test_the_demo_network_is_a_resnet_8():
    model = residual_network((16, 16, 1), 10)

    assert 75_000 < model.count_params() < 82_000
    assert sum(isinstance(layer, keras.layers.Add) for layer in model.layers) == 3


def test_a_model_for_other_images_is_refused(data):
    check_fits(tiny(), data)
    with pytest.raises(DataError, match="--data"):
        check_fits(residual_network((16, 16, 1), 2), data)
    with pytest.raises(DataError, match="2 classes"):
        check_fits(keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(1)]), data)
