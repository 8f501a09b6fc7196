"""The same model gives the same file, byte for byte, whatever was exported before and in any process."""

import hashlib

import keras
import numpy as np
import pytest
import tf2onnx.utils
from keras import layers, ops

import qdq_workbench as qdq


@keras.saving.register_keras_serializable(package="same_file")
class Branching(layers.Layer):
    """A loop with a branch in it; both read the input, and each has a layer that Keras names."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.first, self.second = layers.Softmax(), layers.ReLU()

    def call(self, inputs):
        def step(index, values):
            kept = ops.cond(ops.sum(values) > 0, lambda: values * 0.5 + inputs, lambda: values + self.second(inputs))
            return index + 1, kept

        return ops.while_loop(lambda index, values: index < 3, step, (0, self.first(inputs)))[1]


def modelled(shape, *made):
    x = keras.Input(shape, name="x")
    y = x
    for layer in made:
        y = layer(y)
    return keras.Model(x, y, name="model")


def frames():
    return modelled((3, 4, 4, 2), layers.ConvLSTM2D(2, 3, name="frames"))


def steps():
    return modelled((None, 4), layers.GRU(3, activation="softplus", name="steps"))


def branching():
    return modelled((5, 4), Branching(name="branching"), layers.Dense(2, name="head"))


def attention():
    x, y = keras.Input((5, 4), name="x"), keras.Input((None, 4), name="y")
    return keras.Model([x, y], layers.MultiHeadAttention(2, 3, name="attention")(x, y, return_attention_scores=True))


def separable():
    return modelled((8, 4), layers.SeparableConv1D(3, 3, name="separable"))


MODELS = [frames, steps, branching, attention, separable]


def quantized(make):
    keras.utils.set_random_seed(0)
    model = make()
    q_model = qdq.quantize_model(model, target="onnxruntime")
    generator = np.random.default_rng(0)
    samples = [generator.normal(size=(2, *(size or 5 for size in x.shape[1:]))).astype("float32") for x in model.inputs]
    qdq.calibrate(q_model, samples if len(samples) > 1 else samples[0], verbose=False)
    return q_model


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_a_second_export_writes_the_same_bytes(make, tmp_path, monkeypatch):
    model, q_model = make(), quantized(make)
    written = []
    # Names are sorted, and `__100` comes before `__99`: somewhere in these ranges the names get one more digit.
    for number in (70, 9_940):
        monkeypatch.setattr(tf2onnx.utils, "INTERNAL_NAME", number)
        qdq.export_float_onnx(model, tmp_path / "float.onnx")
        monkeypatch.setattr(tf2onnx.utils, "INTERNAL_NAME", number)
        qdq.export_onnx(q_model, tmp_path / "quantized.onnx")
        written.append([(tmp_path / name).read_bytes() for name in ("float.onnx", "quantized.onnx")])
        qdq.export_float_onnx(modelled((5, 4), layers.SimpleRNN(2), layers.Softmax()), tmp_path / "other.onnx")
    assert written[0] == written[1]


IN_ANOTHER = """
import keras, qdq_workbench as qdq
model = keras.models.load_model({model!r})
qdq.export_float_onnx(model, {file!r})
"""


@pytest.mark.parametrize("make", [frames, attention], ids=lambda make: make.__name__)
def test_another_process_writes_the_same_bytes(make, tmp_path, fresh):
    model = make()
    model.save(tmp_path / "model.keras")
    qdq.export_float_onnx(model, tmp_path / "here.onnx")
    code = IN_ANOTHER.format(model=str(tmp_path / "model.keras"), file=str(tmp_path / "there.onnx"))
    done = fresh.run(code)
    assert not done.returncode, done.stderr
    here, there = ((tmp_path / name).read_bytes() for name in ("here.onnx", "there.onnx"))
    assert hashlib.sha256(here).hexdigest() == hashlib.sha256(there).hexdigest()
