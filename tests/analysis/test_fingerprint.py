"""A checkpoint is of one graph and one metric: what has the same name and weights may still be another one."""

import dataclasses
import importlib.util
import sys

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.analysis.fingerprint import fingerprint
from qdq_workbench.analysis.samples import read_samples
from qdq_workbench.errors import CheckpointError

QUIET = {"verbose": False}
DATA = np.random.default_rng(0).normal(size=(16, 4, 4, 1)).astype("float32")
LABELS = np.arange(16) % 2


TARGET = qdq.get_target("onnxruntime")


def net(activation="relu", strides=1, scale=1.0, swapped=False, function=None):
    """Networks of the same layer names and weights."""
    image = keras.Input((4, 4, 1), name="image")
    conv = layers.Conv2D(2, 3, strides, padding="same", kernel_initializer="ones", name="conv")(image)
    hidden = layers.Activation(function or activation, name="activation")(conv)
    hidden = layers.GlobalAveragePooling2D(name="pool")(hidden * scale)
    scores = layers.Dense(2, kernel_initializer=keras.initializers.Constant([[1, 2], [3, 4]]), name="head")(hidden)
    other = layers.Dense(2, kernel_initializer="ones", name="other")(hidden)
    return keras.Model(image, [other, scores] if swapped else [scores, other], name="net")


def plan_of(model):
    """The same placements for all of them."""
    spec = qdq.QuantizationSpec()
    spec.add("head")
    return qdq.plan_placement(model, "partial", spec)


def mark(model):
    return fingerprint(model, plan_of(model), read_samples(model, DATA), {})


def test_the_graph_counts_and_names_that_keras_gives_do_not():
    others = [net("gelu"), net(strides=2), net(scale=2.0), net(swapped=True), net(function=lambda x: x)]
    marks = [mark(net()), *map(mark, others)]
    assert len(set(marks)) == len(marks)
    assert mark(net()) == marks[0]  # the multiplication has another name
    assert mark(net(function=lambda x: x)) == marks[-1]


def test_a_saved_model_is_the_same(tmp_path):
    net().save(tmp_path / "net.keras")
    assert mark(keras.models.load_model(tmp_path / "net.keras")) == mark(net())


def test_the_own_code_of_a_layer_counts():
    def with_call(call):
        kind = type("Own", (layers.Layer,), {"call": call})
        image = keras.Input((4, 4, 1), name="image")
        return keras.Model(image, layers.Dense(2, kernel_initializer="ones", name="head")(kind(name="own")(image)))

    first, again, other = (lambda self, x: x + 1), (lambda self, x: x + 1), (lambda self, x: x - 1)
    assert mark(with_call(first)) == mark(with_call(again))
    assert mark(with_call(first)) != mark(with_call(other))


def test_a_sweep_of_another_activation_or_stride_is_refused(tmp_path):
    arguments = {"checkpoint": tmp_path / "sweep.json", **QUIET}
    for _ in range(2):
        model = net()
        qdq.sensitivity(model, DATA, plan=plan_of(model), **arguments)
    for other in (net("gelu"), net(strides=2)):
        with pytest.raises(CheckpointError, match="another sweep"):
            qdq.sensitivity(other, DATA, plan=plan_of(other), **arguments)


def test_a_search_for_an_altered_target_is_another_one(tmp_path):
    model, arguments = net(), {"accuracy_floor": 0.0, "checkpoint": tmp_path / "search.json", **QUIET}

    def searched(target):
        qdq.search(model, DATA, plan=qdq.plan_placement(model, target=target), evaluate=len_of_layers, **arguments)

    searched(TARGET)
    searched(dataclasses.replace(TARGET))
    with pytest.raises(CheckpointError, match="the plan"):
        searched(dataclasses.replace(TARGET, bias="float"))


def len_of_layers(model):
    return float(len(model.layers))


def metric(factor, added=0.0):
    def scaled(reference, outputs):
        return factor * float(np.mean(outputs[0])) + added

    return scaled


def test_another_metric_of_the_same_name_is_refused(tmp_path):
    model, arguments = net(), {"checkpoint": tmp_path / "sweep.json", **QUIET}
    first = qdq.sensitivity(model, DATA, metric=metric(1.0), **arguments)
    assert qdq.sensitivity(model, DATA, metric=metric(1.0), **arguments) == first
    for other in (metric(-1.0), metric(1.0, added=1.0)):
        with pytest.raises(CheckpointError, match="the metric"):
            qdq.sensitivity(model, DATA, metric=other, **arguments)


def test_another_evaluation_of_the_same_name_is_refused(tmp_path):
    judged = []

    def evaluation(value):
        def evaluate(_):
            judged.append(1)  # what it fills is not what it computes
            return value

        return evaluate

    model, arguments = net(), {"accuracy_floor": 0.5, "checkpoint": tmp_path / "search.json", **QUIET}
    qdq.search(model, DATA, evaluate=evaluation(0.9), **arguments)
    count = len(judged)
    qdq.search(model, DATA, evaluate=evaluation(0.9), **arguments)
    assert len(judged) == count > 0
    with pytest.raises(CheckpointError, match="another search"):
        qdq.search(model, DATA, evaluate=evaluation(0.4), **arguments)


SCRIPT = """
import sys
import keras, numpy as np
from keras import layers
from qdq_workbench.analysis.identity import identity_of
from qdq_workbench.analysis.fingerprint import fingerprint
from qdq_workbench.analysis.samples import read_samples
import qdq_workbench as qdq

WEIGHTS = {"b": 2.0, "a": 1.0}

def helper(x):
    return x in {"one", "two", "three"}

class Judge:
    kinds = frozenset(("x", "y", "z"))
    def __init__(self):
        self.floor = np.float32(0.5)
    def __call__(self, reference, outputs):
        return WEIGHTS["a"] * helper(outputs)

def marks(path):
    model = keras.models.load_model(path, safe_mode=False)
    data = np.ones((2, 3), "float32")
    return fingerprint(model, qdq.plan_placement(model), read_samples(model, data), {}, Judge())
"""


def test_another_process_finds_the_same(fresh, tmp_path):
    x = keras.Input((3,), name="x")
    hidden = layers.Lambda(lambda tensor: tensor * 2.0, name="twice")(layers.Dense(2, name="hidden")(x))
    keras.Model(x, layers.Bidirectional(layers.LSTM(2), name="both")(hidden[:, None] + 1.0)).save(tmp_path / "m.keras")
    (tmp_path / "judging.py").write_text(SCRIPT)
    specification = importlib.util.spec_from_file_location("judging", tmp_path / "judging.py")
    judging = importlib.util.module_from_spec(specification)
    sys.modules["judging"] = judging
    specification.loader.exec_module(judging)
    here = judging.marks(tmp_path / "m.keras")
    code = f"import judging; print(judging.marks({str(tmp_path / 'm.keras')!r}))"
    there = fresh.run(code, path=[str(tmp_path), *sys.path])
    del sys.modules["judging"]
    assert there.returncode == 0, there.stderr[-2000:]
    assert there.stdout.split()[-1] == here
