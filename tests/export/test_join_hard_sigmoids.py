"""A hard sigmoid is one operator in files for ONNX Runtime, and three in those for runtimes that fuse them."""

from collections import Counter

import keras
import numpy as np
import onnx
import onnx.reference
import pytest
from keras import layers
from pass_graphs import varied
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.export.passes.join_hard_sigmoids import join_hard_sigmoids

STEPS = {"Add": 1, "Clip": 1, "Mul": 1}


def file_of(activation, folder, target="onnxruntime", **options):
    """Return the file of two convolutions with an activation between them, verified."""
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Activation(activation, name="hard")(layers.Conv2D(4, 3, name="first")(image))
    model = keras.Model(image, layers.Conv2D(2, 3, name="last")(x))
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, samples(model), verbose=False)
    path = qdq.export_onnx(q_model, folder / "model.onnx", **options).path
    report = qdq.verify_onnx(path, q_model)
    assert report.passed, report.summary()
    assert not report.form_remark
    return onnx.load(path)


def of_layer(model):
    """Return the operators of the layer "hard", without changes of layout."""
    nodes = [node for node in model.graph.node if node.name.startswith("hard/")]
    return Counter(node.op_type for node in nodes if node.op_type in {*STEPS, "HardSigmoid"})


@pytest.mark.parametrize(("activation", "times"), [("hard_sigmoid", {}), ("hard_silu", {"Mul": 1})])
def test_it_is_one_operator_for_onnx_runtime_alone(activation, times, tmp_path):
    assert of_layer(file_of(activation, tmp_path)) == Counter({"HardSigmoid": 1, **times})
    assert of_layer(file_of(activation, tmp_path, "tensorrt")) == Counter(STEPS) + Counter(times)


def test_it_is_one_operator_inside_a_dense_layer_without_a_bias(tmp_path):
    x = keras.Input((3,), name="x")
    y = layers.Dense(1, use_bias=False, activation="hard_sigmoid", name="hard")(x)
    model = keras.Model(x, layers.Dense(2, name="last")(y))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    assert qdq.verify_onnx(path, q_model).passed
    assert of_layer(onnx.load(path)) == Counter({"HardSigmoid": 1})


def test_it_is_one_operator_beside_half_precision(tmp_path):
    assert of_layer(file_of("hard_silu", tmp_path, float_type="float16"))["HardSigmoid"] == 1


def test_values_at_the_ends_are_those_of_keras(tmp_path):
    ends = np.float32([-np.inf, -3.0000002, -3, -2.9999998, -0.0, 1e-30, 2.9999998, 3, 3.0000002, np.inf])
    node = onnx.helper.make_node("HardSigmoid", ["x"], ["y"], alpha=1 / 6, beta=0.5)
    found = onnx.reference.ReferenceEvaluator(node).run(None, {"x": ends})[0]
    np.testing.assert_allclose(found, keras.ops.convert_to_numpy(keras.ops.hard_sigmoid(ends)), atol=1e-7)


LINES = (
    "three = Constant <value = float {3}> ()",
    "zero = Constant <value = float {0}> ()",
    "six = Constant <value = float {6}> ()",
    "sixth = Constant <value = float {0.16666667}> ()",
    "sum = Add (x, three)",
    "cut = Clip (sum, zero, six)",
    "y = Mul (cut, sixth)",
)


def steps(text=""):
    """Return a hard sigmoid in steps, with other lines."""
    return varied("(float[2] x, float[2] other) => (float[2] y)", LINES, text)


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("", 1),
        ("sum = Add (three, x)\ny = Mul (sixth, cut)", 1),
        ("three = Constant <value = float {2.5}> ()", 0),
        ("six = Constant <value = float {5}> ()", 0),
        ("zero = Constant <value = float {1}> ()", 0),
        ("sixth = Constant <value = float {0.2}> ()", 0),
        ("three = Constant <value = float[2] {3, 3}> ()", 0),
        ("sum = Sub (x, three)", 0),
        ("sum = Add (x, other)", 0),
        ("cut = Relu (sum)", 0),
        ("cut = Clip (sum)", 0),
        ("y = Mul (cut, other)", 0),
        ("y = Add (cut, sixth)", 0),
        ("z = Mul (cut, sixth)\ny = Mul (z, cut)", 0),  # the result of the Clip is read twice
        ("z = Mul (cut, sixth)\ny = Mul (z, sum)", 0),  # and that of the Add
    ],
)
def test_only_its_own_three_steps_are_joined(text, joined):
    graph = steps(text)
    for _ in range(2):  # a second run changes nothing
        join_hard_sigmoids(graph)
        assert sum(node.op == "HardSigmoid" for node in graph.nodes) == joined


def test_steps_of_several_layers_stay_apart():
    graph = steps()
    graph.may_join = lambda part, _whole: part.op != "Add"
    join_hard_sigmoids(graph)
    assert sorted(node.op for node in graph.nodes) == ["Add", "Clip", "Mul"]


def test_a_float_file_is_written_for_a_runtime_or_for_all(tmp_path):
    image = keras.Input((8, 8, 3), name="image")
    model = keras.Model(image, layers.Activation("hard_silu", name="hard")(layers.Conv2D(4, 3, name="first")(image)))

    def held(**options):
        return of_layer(onnx.load(qdq.files.export_float_onnx(model, tmp_path / "float.onnx", **options)))

    assert held(target="onnxruntime") == Counter({"HardSigmoid": 1, "Mul": 1})
    assert held() == held(target="openvino") == Counter({**STEPS, "Mul": 2})
    with pytest.raises(qdq.errors.TargetError, match="There is no target of that name"):
        held(target="pytorch")
