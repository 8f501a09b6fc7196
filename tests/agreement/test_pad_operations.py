"""`ops.pad` with zeros is what a layer of zero padding is; with anything else it is an operator of its own."""

import dataclasses

import keras
import numpy as np
import onnx
import pytest
from keras import layers, ops
from runtimes_agreement import compare
from small_models import samples

import qdq_workbench as qdq

SPATIAL = ((0, 0), (1, 1), (1, 0), (0, 0))
#: How a pad is written, and the step of the lowering in front of a convolution and in front of a maximum.
PADS = {
    "zeros": (lambda x: ops.pad(x, SPATIAL), "absorbed", "absorbed"),
    "zeros given": (lambda x: ops.pad(x, SPATIAL, constant_values=np.float32(0.0)), "absorbed", "absorbed"),
    "ones": (lambda x: ops.pad(x, SPATIAL, constant_values=1.0), "written", "written"),
    "mirrored": (lambda x: ops.pad(x, SPATIAL, mode="reflect"), "written", "written"),
    "behind it nothing": (lambda x: layers.Identity()(ops.pad(x, SPATIAL)), "absorbed", "absorbed"),
    "a layer, behind it nothing": (lambda x: layers.Dropout(0.1)(layers.ZeroPadding2D(1)(x)), "absorbed", "absorbed"),
    "channels too": (lambda x: ops.pad(x, ((0, 0), (1, 1), (1, 0), (0, 1))), "written", "written"),
    "as wide as the window": (lambda x: ops.pad(x, ((0, 0), (2, 0), (1, 0), (0, 0))), "absorbed", "written"),
}


def padded_net(pad):
    """A pad in front of a convolution, and one in front of a maximum of values that are never negative."""
    keras.utils.set_random_seed(3)
    image = keras.Input((9, 9, 4), name="image")
    x = layers.Conv2D(4, 3, activation="relu", name="first")(image)
    x = layers.DepthwiseConv2D(3, strides=2, activation="relu", name="second")(pad(x))
    x = layers.MaxPooling2D(2, name="most")(pad(x))
    return keras.Model(image, layers.Dense(3, name="head")(layers.Flatten(name="flat")(x)))


@pytest.mark.parametrize("completed", [True, False])
@pytest.mark.parametrize("kind", PADS)
def test_plan_explanation_and_file_agree(kind, completed, tmp_path):
    pad, before_convolution, before_maximum = PADS[kind]
    model = padded_net(pad)
    cases = [qdq.AutoQDQCase()] if completed else []
    q_model = qdq.quantize_model(model, target="onnxruntime", custom_qdq_cases=cases)
    qdq.calibrate(q_model, samples(model), verbose=False)
    steps = [node.step for node in q_model.plan.lowering.nodes.values() if "pad" in node.node]
    assert steps == [before_convolution, before_maximum]
    compared, different = compare(q_model, tmp_path / "model.onnx")
    assert compared >= 5
    assert different == []
    qdq.verify_onnx(tmp_path / "model.onnx", q_model, data=samples(model)).raise_if_failed()
    operators = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert operators.count("Pad") == steps.count("written")


@pytest.mark.parametrize("bits", [4, 8])
def test_padding_in_front_of_a_clip_to_few_bits_is_folded(bits, tmp_path):
    model = padded_net(PADS["zeros"][0])
    target = qdq.targets.get_target("onnxruntime")
    target = dataclasses.replace(target, activation=target.activation.replace(num_bits=bits))
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, samples(model), verbose=False)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert "Pad" not in [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    qdq.verify_onnx(tmp_path / "model.onnx", q_model, data=samples(model)).raise_if_failed()


@pytest.mark.parametrize("case", [[], [qdq.AutoQDQCase()]], ids=["rules", "case"])
@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt"])
def test_two_equal_paddings_of_one_tensor_are_folded_though_the_converter_merges_them(target, case, tmp_path):
    keras.utils.set_random_seed(3)
    image = keras.Input((9, 9, 4), name="image")
    x = layers.Conv2D(4, 3, activation="tanh", name="stem")(image)
    ways = (
        layers.ZeroPadding2D(1),
        lambda x: layers.ZeroPadding2D(1)(layers.Identity()(x)),
        lambda x: ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))),
    )
    model = keras.Model(image, layers.Add(name="sum")([layers.Conv2D(4, 3, strides=2)(way(x)) for way in ways]))
    q_model = qdq.quantize_model(model, target=target, custom_qdq_cases=case)
    qdq.calibrate(q_model, samples(model), verbose=False)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert "Pad" not in [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    qdq.verify_onnx(tmp_path / "model.onnx", q_model, data=samples(model)).raise_if_failed()


class Pad(keras.Operation):
    """An operation of the user's own, which only has the name of Keras's."""

    def call(self, x):
        return x + 1.0

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, x.dtype)


def test_an_operation_of_the_same_name_pads_nothing():
    (node,) = [node for node in qdq.build_graph(padded_net(Pad(name="pad"))).nodes if node.name == "pad"]
    assert node.settings == {}
