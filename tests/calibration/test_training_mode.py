"""Ranges that do not serve in training, because normalizations have not seen the data: found, said, and found anew."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.errors import UnsettledStatisticsWarning

TARGETS = ["tensorrt", "onnxruntime", "openvino", "litert"]
WAYS = [("tensorrt", "as it is"), ("openvino", "as it is"), ("litert", "saved"), ("tensorrt", "for another target"),
        ("onnxruntime", "by a saved result")]  # fmt: skip


def network(momentum=0.5, **settings):
    """Two normalized layers whose inputs are far from the initial statistics."""
    keras.utils.set_random_seed(0)
    image = keras.Input((6, 6, 2), name="image")
    x = layers.Conv2D(4, 3, use_bias=False, name="conv")(image)
    x = layers.BatchNormalization(momentum=momentum, name="norm", **settings)(x)
    x = layers.Dropout(0.5, name="dropout")(layers.ReLU(name="relu")(x))
    x = layers.Conv2D(4, 3, use_bias=False, name="second")(x)
    x = layers.ReLU(name="last")(layers.BatchNormalization(momentum=momentum, name="norm2")(x))
    return keras.Model(image, layers.Conv2D(3, 2, name="head")(x))


def images(count=32, size=1e-3):
    return (size * np.random.default_rng(0).normal(size=(count, 6, 6, 2))).astype("float32")


def frozen(q_model):
    return {layer.tensor for layer in q_model.activation_quantizers if bool(layer.frozen.numpy())}


def settled(model, x):
    """Let the normalizations see the data, as training does."""
    for _ in range(12):
        model(x, training=True)
    return model


def test_it_is_noticed_with_evidence_and_a_way_out():
    q_model = qdq.quantize_model(network())
    before = [weight.copy() for weight in q_model.get_weights() if weight.dtype != bool]
    with pytest.warns(UnsettledStatisticsWarning, match="train the float model longer") as caught:
        result = qdq.calibrate(q_model, images(), verbose=False)
    (warning,) = caught
    assert warning.filename == __file__
    assert "`fit` will determine these ranges again" in str(warning.message)
    assert set(result.in_training) == {"dropout", "last"}
    for name in ("dropout", "last"):
        found, training = result.in_training[name]
        assert found == pytest.approx(result.ranges[name], rel=1e-4)
        assert training[1] > 20 * found[1]
    assert "Received: 2 tensors with other ranges in training: 'dropout' 0 .. 0.00" in str(warning.message)
    after = [weight for weight in q_model.get_weights() if weight.dtype != bool]
    statistics = [(a, b) for a, b in zip(before, after, strict=True) if a.shape]
    assert all((a == b).all() for a, b in statistics)


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (lambda: settled(network(), images()), images()),
        (lambda: settled(network(), images()), images()[:20] * 1.5),
        (lambda: network(trainable=False), images()),
        (network, images(size=1.0)),
        (network, images(15)),
    ],
    ids=["trained", "other data", "the first one frozen", "initial statistics that fit", "too few samples to say"],
)
def test_other_models_stay_as_they_were(make, x, recwarn):
    model = make()
    if not model.get_layer("norm").trainable:
        model.get_layer("norm2").trainable = False
    q_model = qdq.quantize_model(model)
    result = qdq.calibrate(q_model, x, verbose=False)
    assert not [warning for warning in recwarn if warning.category is UnsettledStatisticsWarning]
    assert (result.in_training, "in_training" in result.to_dict()) == ({}, False)
    assert frozen(q_model) == {layer.tensor for layer in q_model.activation_quantizers}
    assert "begins_anew" not in q_model.calibration
    ranges = q_model.activation_ranges()
    q_model.compile("sgd", "mse")
    q_model.fit(x, np.zeros((len(x), 1, 1, 3)), verbose=0)
    assert q_model.activation_ranges() == ranges


@pytest.mark.parametrize(("target", "how"), WAYS)
def test_training_finds_the_ranges_anew_and_the_inputs_stay(target, how, tmp_path):
    q_model = qdq.quantize_model(network(), target=target)
    result = qdq.calibrate(q_model, images(), verbose=False)
    if how == "saved":
        q_model.save(tmp_path / "model.keras")
        q_model = keras.models.load_model(tmp_path / "model.keras")
    elif how == "for another target":
        q_model = qdq.retarget(q_model, TARGETS[TARGETS.index(target) - 1])
    elif how == "by a saved result":
        result.save(tmp_path / "ranges.json")
        q_model = qdq.quantize_model(network(), target=target)
        qdq.apply_calibration(q_model, qdq.CalibrationResult.load(tmp_path / "ranges.json"))
    calibrated = q_model.activation_ranges()
    assert frozen(q_model) == {"image"}
    assert calibrated["last"][1] < 0.1  # a file can be made of it at once
    q_model.compile(keras.optimizers.SGD(0.0), "mse")
    q_model.fit(images(), np.zeros((32, 1, 1, 3)), verbose=0)
    trained = q_model.activation_ranges()
    assert trained["image"] == calibrated["image"]
    assert trained["last"][1] > 1.0
    q_model.fit(images(), np.zeros((32, 1, 1, 3)), verbose=0)
    assert q_model.activation_ranges()["last"] == pytest.approx(
        trained["last"], rel=0.1
    )  # a moving average from now on


def test_who_asks_for_frozen_or_moving_ranges_gets_them():
    x, y = images(), np.zeros((32, 1, 1, 3))
    kept = qdq.quantize_model(network())
    with pytest.warns(UnsettledStatisticsWarning, match="freeze=True keeps them for training"):
        qdq.calibrate(kept, x, verbose=False, freeze=True)
    ranges = kept.activation_ranges()
    kept.compile("sgd", "mse")
    kept.fit(x, y, verbose=0)
    assert kept.activation_ranges() == ranges
    moving = qdq.quantize_model(network())
    qdq.calibrate(moving, x, verbose=False, freeze=False)
    assert frozen(moving) == set()
    moving.compile("sgd", "mse")
    moving.train_on_batch(x, y)
    assert moving.activation_ranges()["last"][1] > 1.0


def test_layers_that_the_user_froze_keep_their_ranges():
    q_model = qdq.quantize_model(network())
    qdq.calibrate(q_model, images(), verbose=False)
    (last,) = (layer for layer in q_model.activation_quantizers if layer.tensor == "last")
    last.trainable = False
    ranges = q_model.activation_ranges()
    q_model.compile("sgd", "mse")
    q_model.fit(images(), np.zeros((32, 1, 1, 3)), verbose=0)
    assert q_model.activation_ranges()["last"] == ranges["last"]
    assert q_model.activation_ranges()["dropout"][1] > 20 * ranges["dropout"][1]


def test_learned_steps_begin_anew_too():
    spec = qdq.QuantizationSpec()
    spec.add("head", quantize_config=qdq.LayerQuantizeConfig(activation={"quantizer": "lsq"}))
    q_model = qdq.quantize_model(network(), quantization_spec=spec)
    qdq.calibrate(q_model, images(), verbose=False)
    before = q_model.activation_ranges()["last"]
    q_model.compile(keras.optimizers.SGD(0.0), "mse")
    q_model.fit(images(), np.zeros((32, 1, 1, 3)), verbose=0)
    assert q_model.activation_ranges()["last"][1] > 20 * before[1]


def test_several_small_batches_and_parts_tell_as_much(tmp_path):
    q_model = qdq.quantize_model(network())
    parts = [qdq.calibrate(q_model, images()[i : i + 16], batch_size=3, verbose=False) for i in (0, 16)]
    assert all(set(part.in_training) == {"dropout", "last"} for part in parts)
    assert set(parts[0].merge(parts[1]).in_training) == {"dropout", "last"}
