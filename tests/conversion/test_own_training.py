"""Models of a class of the user's own keep its way of training when they are quantized, saved and stripped."""

from __future__ import annotations

import contextlib
import pickle
import re
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import qdq_workbench as qdq


@keras.saving.register_keras_serializable("test_own_training")
class Distiller(keras.Model):
    """Learns from a teacher, as Keras's examples do it."""

    temperature = 1.0

    def compile(self, optimizer, temperature=1.0):
        super().compile(optimizer, loss="mse")
        self.temperature = temperature

    def get_compile_config(self):
        return {"optimizer": "sgd", "temperature": self.temperature}

    def compile_from_config(self, config):
        self.compile(**config)

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = ops.mean((self(data[0], training=True) - self.teacher(data[0])) ** 2) / self.temperature
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        self.tracker.update_state(loss)
        return {"distilled": self.tracker.result()}


@keras.saving.register_keras_serializable("test_own_training")
class Weighted(keras.Model):
    """Builds its graph in its own constructor, and has a loss of its own."""

    def __init__(self, units, factor):
        image = keras.Input((4,), name="image")
        self.hidden = layers.Dense(units, name="hidden")
        super().__init__(image, layers.Dense(2, name="head")(self.hidden(image)), name="weighted")
        self.factor = factor

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return self.factor * ops.mean((y - y_pred) ** 2)


SAMPLES = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
TARGETS = np.zeros((16, 2), "float32")


def distiller():
    image = keras.Input((4,), name="image")
    first = layers.Dense(3, name="first")
    model = Distiller(image, layers.Dense(2, name="second")(first(image)))
    model.teacher = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    model.teacher.trainable = False
    model.tracker = keras.metrics.Mean(name="loss")
    model.first = first
    model.parts = [first, (1, "a"), {"none": None}]
    model.share = keras.Variable(2.0, trainable=False, name="share")
    return model


@pytest.fixture(scope="module")
def trained():
    model = distiller()
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, SAMPLES, verbose=False)
    q_model.compile("sgd", temperature=2.0)
    history = q_model.fit(SAMPLES, TARGETS, epochs=2, verbose=0).history
    return model, q_model, history


def test_the_users_steps_train_the_quantized_model(trained):
    model, q_model, history = trained
    assert list(history) == ["distilled"]
    assert history["distilled"][1] < history["distilled"][0]
    assert isinstance(q_model, Distiller)
    assert isinstance(q_model, qdq.QuantizedModel)
    assert not np.array_equal(model.first.kernel, q_model.get_layer("quant_first").layer.kernel)


def test_what_the_user_set_on_the_model_comes_along(trained):
    model, q_model, _ = trained
    assert q_model.teacher is model.teacher
    assert q_model.first is q_model.get_layer("quant_first")
    assert q_model.parts[0] is q_model.first
    assert q_model.parts[1:] == [(1, "a"), {"none": None}]
    assert q_model.tracker is not model.tracker
    assert q_model.share is not model.share
    assert float(q_model.share) == 2.0
    assert model.first is model.get_layer("first")


def test_saved_and_loaded(trained, tmp_path):
    _, q_model, _ = trained
    q_model.share.assign(5.0)
    q_model.save(tmp_path / "model.keras")
    q_model.share.assign(2.0)
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is type(q_model)
    assert loaded.plan == q_model.plan
    assert loaded.parts[0] is loaded.first is loaded.get_layer("quant_first")
    assert loaded.parts[1:] == [(1, "a"), {"none": None}]
    assert loaded.temperature == 2.0
    assert float(loaded.share) == 5.0
    for ours, theirs in ((loaded, q_model), (loaded.teacher, q_model.teacher)):
        np.testing.assert_array_equal(ours.predict(SAMPLES, verbose=0), theirs.predict(SAMPLES, verbose=0))
    assert list(loaded.fit(SAMPLES, TARGETS, verbose=0).history) == ["distilled"]


def test_a_class_that_is_not_registered_is_named_when_the_file_is_loaded(tmp_path):
    class Unknown(keras.Model):
        def train_step(self, data):
            return super().train_step(data)

    image = keras.Input((4,), name="image")
    qdq.quantize_model(Unknown(image, layers.Dense(2)(image))).save(tmp_path / "model.keras")
    with pytest.raises(Exception, match=r"register_keras_serializable.*own_class='Unknown'"):
        keras.models.load_model(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", custom_objects={"Unknown": Unknown})
    assert isinstance(loaded, Unknown)


def test_a_fresh_process_loads_the_file(fresh, trained, tmp_path):
    trained[1].save(tmp_path / "model.keras")
    code = (
        "import keras, qdq_workbench\n"
        "@keras.saving.register_keras_serializable('test_own_training')\n"
        "class Distiller(keras.Model):\n"
        "    def compile_from_config(self, config): pass\n"
        "    def train_step(self, data): return super().train_step(data)\n"
        f"model = keras.models.load_model({str(tmp_path / 'model.keras')!r})\n"
        "print(type(model).__name__, isinstance(model, Distiller), len(model.plan.tensors))\n"
    )
    done = fresh.run(code)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["QuantizedDistiller", "True", str(len(trained[1].plan.tensors))]


def test_stripped_retargeted_cloned_folded(trained):
    model, q_model, _ = trained
    stripped = qdq.strip(q_model)
    assert type(stripped) is Distiller
    assert stripped.first is stripped.get_layer("first")
    other = qdq.retarget(q_model, "onnxruntime")
    assert type(other) is type(q_model)
    assert other.first is other.get_layer("quant_first")
    assert keras.models.clone_model(q_model).plan == q_model.plan
    assert type(qdq.fold_batch_norm(model)) is Distiller


def test_a_stripped_model_is_saved_as_the_users_own(tmp_path):
    image = keras.Input((4,), name="image")
    stripped = qdq.strip(qdq.quantize_model(Distiller(image, layers.Dense(2)(image))))
    stripped.save(tmp_path / "float.keras")
    assert type(keras.models.load_model(tmp_path / "float.keras", compile=False)) is Distiller


def test_the_file_for_a_runtime_is_as_of_any_model(trained, tmp_path):
    qdq.export_onnx(trained[1], tmp_path / "model.onnx")
    qdq.verify_onnx(tmp_path / "model.onnx", trained[1], SAMPLES).raise_if_failed()


@contextlib.contextmanager
def warned_here(match):
    """Expect a warning, which points at a line of this file."""
    with pytest.warns(UserWarning, match=match) as caught:
        yield
    assert {warning.filename for warning in caught if re.search(match, str(warning.message))} == {__file__}


def test_a_class_with_a_constructor_of_its_own():
    model = Weighted(3, 7.0)
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, SAMPLES, verbose=False)
    assert q_model.hidden is q_model.get_layer("quant_hidden")
    q_model.compile("sgd", "mse")
    found = q_model.evaluate(SAMPLES, TARGETS, verbose=0)
    expected = 7.0 * np.mean(q_model.predict(SAMPLES, verbose=0) ** 2)
    assert found == pytest.approx(expected, rel=1e-5)
    with warned_here(r"Weighted has its own compute_loss.*no constructor of its own"):
        stripped = qdq.strip(q_model)
    assert not isinstance(stripped, Weighted)


def test_parts_of_the_graph_without_counterpart_are_named():
    class Trained(keras.Model):
        def train_step(self, data):
            return super().train_step(data)

    image = keras.Input((4,), name="image")
    backbone = keras.Sequential([keras.Input((4,)), layers.Dense(3, name="inside")], name="backbone")
    model = Trained(image, layers.Dense(2)(backbone(image)))
    model.backbone, model.entry, model.alpha = backbone, image, 3
    model.step = types.MethodType(lambda self: self, model)
    with warned_here("lacks attributes of the Trained: backbone, entry"):
        q_model = qdq.quantize_model(model)
    assert q_model.alpha == 3
    assert q_model.step() is q_model
    assert not hasattr(q_model, "backbone")


def test_attributes_that_no_file_holds_are_named(tmp_path):
    model = distiller()
    model.schedule = lambda epoch: epoch
    q_model = qdq.quantize_model(model)
    assert q_model.schedule(3) == 3
    with warned_here("not read again: schedule"):
        q_model.save(tmp_path / "model.keras")
    assert not hasattr(keras.models.load_model(tmp_path / "model.keras", compile=False), "schedule")


def unregistered_loss(target, output):
    return target - output


def softmax(x):
    return -x


class Plain(keras.Model):
    def train_step(self, data):
        return super().train_step(data)


def plain(**attributes):
    image = keras.Input((4,), name="image")
    model = Plain(image, layers.Dense(2)(image))
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def test_functions_that_keras_cannot_find_again_are_named(tmp_path):
    q_model = qdq.quantize_model(plain(a=unregistered_loss, b=dict, c="x".upper, d=softmax, e=keras.activations.relu))
    with warned_here(r"not read again: a, b, c, d\. Register"):
        q_model.save(tmp_path / "model.keras")
    with warned_here(r"cannot read attributes .*: a, b, c\. Set them again"):
        loaded = keras.models.load_model(tmp_path / "model.keras", custom_objects={"Plain": Plain})
    assert loaded.e is keras.activations.relu
    assert not hasattr(loaded, "a")
    assert not hasattr(loaded, "d")
    given = {"Plain": Plain, "unregistered_loss": unregistered_loss}
    with warned_here(r"cannot read attributes .*: b, c\. Set them again"):
        loaded = keras.models.load_model(tmp_path / "model.keras", custom_objects=given)
    assert loaded.a is unregistered_loss


def test_keys_of_dictionaries_are_kept_in_the_file(tmp_path):
    q_model = qdq.quantize_model(plain(table={(1, 2): "a", 1: "b", "k": {None: [1.5]}}))
    q_model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", custom_objects={"Plain": Plain})
    assert loaded.table == {(1, 2): "a", 1: "b", "k": {None: [1.5]}}


def test_pickled(trained):
    copy = pickle.loads(pickle.dumps(trained[1]))  # noqa: S301 - our own bytes
    assert type(copy) is type(trained[1])
    assert copy.plan == trained[1].plan
    np.testing.assert_array_equal(copy.predict(SAMPLES, verbose=0), trained[1].predict(SAMPLES, verbose=0))


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_a_file_in_hdf5(trained, tmp_path):
    trained[1].save(tmp_path / "model.h5")
    with warned_here(r"attributes of the model are lost: teacher, tracker\."):
        loaded = qdq.load_model(tmp_path / "model.h5")
    assert type(loaded) is type(trained[1])
    assert loaded.plan == trained[1].plan
    assert float(loaded.share) == float(trained[1].share)
    assert loaded.parts[0] is loaded.first is loaded.get_layer("quant_first")
    np.testing.assert_array_equal(loaded.predict(SAMPLES, verbose=0), trained[1].predict(SAMPLES, verbose=0))


def test_variables_of_tensorflow_are_copied(tmp_path):
    model = plain(count=tf.Variable(2.0, trainable=False))
    q_model = qdq.quantize_model(model)
    q_model.count.assign(5.0)
    assert float(model.count) == 2.0
    with warned_here("cannot write, or not read again: count"):
        q_model.save(tmp_path / "model.keras")


def test_a_model_that_holds_itself(tmp_path):
    model = plain()
    model.myself = model
    q_model = qdq.quantize_model(model)
    assert q_model.myself is q_model
    with warned_here("cannot write, or not read again: myself"):
        q_model.save(tmp_path / "model.keras")
    keras.models.load_model(tmp_path / "model.keras", custom_objects={"Plain": Plain})


def test_attributes_that_cannot_be_set_or_copied_are_named():
    class Fixed(keras.Model):
        @property
        def rate(self):
            return 1

        def train_step(self, data):
            return super().train_step(data)

    class Odd(keras.metrics.Mean):
        def __init__(self, needed):
            super().__init__()

    image = keras.Input((4,), name="image")
    model = Fixed(image, layers.Dense(2)(image))
    vars(model)["rate"] = 3
    model.odd = Odd(1)
    with warned_here("lacks attributes of the Fixed: rate, odd"):
        assert qdq.quantize_model(model).rate == 1


@pytest.mark.parametrize("name", ["plan", "record", "quantizers_off"])
def test_names_that_a_quantized_model_has_already(name):
    class Named(keras.Model):
        def train_step(self, data):
            return super().train_step(data)

    image = keras.Input((4,), name="image")
    model = Named(image, layers.Dense(2)(image))
    setattr(model, name, 1)
    with warned_here(rf"Named has its own train_step.*rename .*\({name}\)"):
        assert type(qdq.quantize_model(model)) is qdq.QuantizedModel


def test_a_sequential_class_is_told_what_to_derive_from():
    class Chain(keras.Sequential):
        def train_step(self, data):
            return super().train_step(data)

    model = Chain([keras.Input((4,)), layers.Dense(2)])
    with warned_here(r"Chain has its own train_step.*derive the class from keras\.Model"):
        assert type(qdq.quantize_model(model)) is qdq.QuantizedModel
