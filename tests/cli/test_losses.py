"""Which loss the command line trains on: decided by the labels and by what the model's outputs are."""

import keras
import numpy as np
import pytest

from qdq_workbench import QuantizationSpec, calibrate, quantize_model
from qdq_workbench.cli.losses import choose_loss, gives_probabilities, named_loss, output_activation
from qdq_workbench.errors import DataError, QDQError

SAMPLES = np.random.default_rng(0).standard_normal((6, 4)).astype("float32")
NUMBERS = np.array([0, 1, 2, 1, 0, 2])
ONE_HOT = np.eye(3)[NUMBERS]
SEVERAL = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0], [0, 0, 1], [1, 0, 0]])


def net(activation=None, units=3, *behind):
    inputs = keras.Input((4,))
    outputs = keras.layers.Dense(units, activation=activation)(inputs)
    for layer in behind:
        outputs = layer(outputs)
    return keras.Model(inputs, outputs)


def chosen(labels, model):
    found = choose_loss(model, SAMPLES, np.asarray(labels), "data.npz")
    return found.name, found.from_logits


@pytest.mark.parametrize("dtype", ["int64", "float32", "bool"])
@pytest.mark.parametrize(("activation", "from_logits"), [("softmax", False), (None, True)])
def test_one_hot_rows_are_classes(dtype, activation, from_logits):
    assert chosen(ONE_HOT.astype(dtype), net(activation)) == ("categorical_crossentropy", from_logits)


def test_rows_are_one_hot_at_every_step_of_a_sequence():
    model = keras.Sequential([keras.Input((2, 4)), keras.layers.Dense(3, activation="softmax")])
    for labels, name in (
        (np.stack([ONE_HOT, ONE_HOT], axis=1), "categorical_crossentropy"),
        (np.stack([NUMBERS, NUMBERS], axis=1), "sparse_categorical_crossentropy"),
        (np.stack([NUMBERS, NUMBERS], axis=1)[..., None], "sparse_categorical_crossentropy"),
    ):
        assert choose_loss(model, np.zeros((6, 2, 4)), labels, "data.npz").name == name


@pytest.mark.parametrize(
    ("labels", "activation", "units", "expected"),
    [
        (NUMBERS, None, 3, ("sparse_categorical_crossentropy", True)),
        (NUMBERS[:, None], "softmax", 3, ("sparse_categorical_crossentropy", False)),
        (NUMBERS.astype("float64"), "softmax", 3, ("sparse_categorical_crossentropy", False)),
        (SEVERAL, "sigmoid", 3, ("binary_crossentropy", False)),
        (SEVERAL.astype("float32"), "sigmoid", 3, ("binary_crossentropy", False)),
        (ONE_HOT, "sigmoid", 3, ("binary_crossentropy", False)),
        (SEVERAL, None, 3, ("mean_squared_error", None)),
        (SAMPLES[:, :3], None, 3, ("mean_squared_error", None)),
        (3 * ONE_HOT.astype(int), None, 3, ("mean_squared_error", None)),
        (np.full((6, 3), 1 / 3), "softmax", 3, ("categorical_crossentropy", False)),
        (np.full((6, 3), 1 / 3), None, 3, ("mean_squared_error", None)),
        (NUMBERS % 2, "sigmoid", 1, ("binary_crossentropy", False)),
        (NUMBERS[:, None] % 2, None, 1, ("binary_crossentropy", True)),
        (NUMBERS % 2.0, "sigmoid", 1, ("binary_crossentropy", False)),
        (NUMBERS % 2.0, None, 1, ("mean_squared_error", None)),
        (SAMPLES[:, 0], None, 1, ("mean_squared_error", None)),
    ],
)
def test_other_labels_are_not_taken_for_one_hot(labels, activation, units, expected):
    assert chosen(labels, net(activation, units)) == expected


@pytest.mark.parametrize("last_axis", [(), (1,)], ids=["without a last axis", "with one"])
@pytest.mark.parametrize(
    ("dtype", "activation", "from_logits"),
    [("float32", "sigmoid", False), ("int64", "sigmoid", False), (int, None, True)],
)
def test_labels_of_0_and_1_per_pixel_of_an_image_of_any_size(dtype, activation, from_logits, last_axis):
    model = keras.Sequential([keras.Input((None, None, 2)), keras.layers.Conv2D(1, 1, activation=activation)])
    labels = (np.arange(32) % 2).astype(dtype).reshape(2, 4, 4, *last_axis)
    found = choose_loss(model, np.zeros((2, 4, 4, 2)), labels, "data.npz")
    assert (found.name, found.from_logits) == ("binary_crossentropy", from_logits)


@pytest.mark.parametrize(
    ("labels", "units", "says"),
    [
        (NUMBERS + 1, 3, "from 0 to 2"),
        (NUMBERS + 0.5, 3, "class numbers, one per row"),
        (np.zeros((6, 5), int), 3, "class numbers, one per row"),
        (NUMBERS, 1, "from 0 to 1; give --loss"),
    ],
)
def test_labels_that_fit_nothing_are_refused(labels, units, says):
    with pytest.raises(DataError, match=says):
        chosen(labels, net(None, units))


def test_the_last_function_is_found_behind_layers_that_only_move_values():
    layers = keras.layers
    assert output_activation(net(None, 3, layers.Softmax(), layers.Dropout(0.1), layers.Reshape((3, 1)))) == "softmax"
    assert output_activation(net("relu", 3, layers.Activation("linear"))) == "relu"
    assert output_activation(net("softmax", 3, layers.Rescaling(0.5))) == ""


def test_a_grid_on_the_output_does_not_make_logits_of_probabilities():
    """A softmax of many classes on 8 bits does not add up to 1: only the graph tells."""
    spec = QuantizationSpec()
    spec.add("scores", quantize_output=True)
    inputs = keras.Input((4,))
    scores = keras.layers.Dense(1000, activation="softmax", name="scores")(inputs)
    wide = quantize_model(keras.Model(inputs, scores), quantization_spec=spec)
    calibrate(wide, np.concatenate([SAMPLES, 1e3 * SAMPLES]), verbose=False)  # flat rows round to zero
    assert not np.allclose(wide.predict(SAMPLES, verbose=0).sum(axis=-1), 1.0, atol=1e-2)
    assert gives_probabilities(wide, SAMPLES)
    assert chosen(np.arange(6), wide) == ("sparse_categorical_crossentropy", False)


def test_a_cross_entropy_named_by_the_user_takes_logits_where_the_model_gives_logits():
    for name in ("categorical_crossentropy", "CategoricalCrossentropy"):
        found = named_loss(name, net(None), SAMPLES, ONE_HOT)
        assert (found.name, found.from_logits) == ("categorical_crossentropy", True)
        assert named_loss(name, net("softmax"), SAMPLES, ONE_HOT).from_logits is False
    assert named_loss("huber", net(None), SAMPLES, ONE_HOT).name == "huber"
    with pytest.raises(QDQError, match="no loss of that name"):
        named_loss("hubert", net(None), SAMPLES, ONE_HOT)


def test_the_accuracy_of_logits_counts_from_zero():
    metric = choose_loss(net(None, 1), SAMPLES, NUMBERS % 2, "data.npz").metrics[0]
    metric.update_state(np.array([[1.0]]), np.array([[0.2]]))
    assert float(metric.result()) == 1.0


@pytest.mark.parametrize(("activation", "outputs"), [("softmax", "probabilities"), (None, "logits")])
def test_the_description_says_what_the_outputs_are(activation, outputs):
    found = choose_loss(net(activation), SAMPLES, NUMBERS, "data.npz")
    assert found.text.startswith(f"sparse categorical cross-entropy of {outputs} (")
