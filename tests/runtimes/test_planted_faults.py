"""One planted fault per branch of one network: the explanation must name it, and ONNX Runtime must confirm it.

All branches live in one model, so one export and one optimized graph check them all.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops
from keras.src.applications.inception_resnet_v2 import CustomScaleLayer  # what its model files hold; not public
from runtimes_agreement import compare
from small_models import samples

import qdq_workbench as qdq

SHAPE = (8, 8, 4)


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault in a branch.

    Args:
        id: Its name, and the prefix of the branch's layers.
        build: Builds the branch on the image; gets a function that prefixes layer names.
        layer: The layer that it concerns, without prefix.
        rule: The rule that names it.
        says: What the reason says.
        entries: Specification entries, names without prefix.
    """

    id: str
    build: Callable[[Any, Callable[[str], str]], Any]
    layer: str
    rule: str
    says: str
    entries: tuple[dict[str, Any], ...] = ()


def conv(name, **options):
    return layers.Conv2D(4, 3, padding="same", name=name, **options)


def one(make):
    """A branch: a good convolution, the layer `x`, another good convolution."""
    return lambda image, n: conv(n("last"))(make(n("x"))(conv(n("first"))(image)))


def two(make):
    """A branch: two good convolutions whose results meet in the layer `x`, another good convolution."""

    def build(image, n):
        return conv(n("last"))(make(n("x"))([conv(n("left"))(image), conv(n("right"))(image)]))

    return build


def named(function):
    """Turn an operation into something that takes a name: a Lambda-free op cannot be named, so it keeps its own."""
    return lambda _: function


class Halved(layers.Layer):
    """A layer of a user's own, whose inside nobody sees."""

    def call(self, inputs):
        return inputs * 0.5


def bn_behind_pair(image, n):
    return conv(n("last"))(layers.BatchNormalization(name=n("x"))(conv(n("first"))(image)))


def bn_behind_fan_out(image, n):
    hidden = conv(n("first"))(image)
    return conv(n("last"))(layers.Add(name=n("add"))([layers.BatchNormalization(name=n("x"))(hidden), hidden]))


def bn_behind_multiplier(image, n):
    hidden = layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2, name=n("first"))(image)
    return conv(n("last"))(layers.BatchNormalization(name=n("x"))(hidden))


def bn_behind_shared(image, n):
    shared = conv(n("first"))
    hidden = layers.BatchNormalization(name=n("x"))(shared(shared(image)))
    return conv(n("last"))(hidden)


def relu_behind_float(image, n):
    hidden = layers.Conv2DTranspose(4, 3, padding="same", name=n("first"))(image)
    return conv(n("last"))(layers.ReLU(name=n("x"))(hidden))


def same_operand(image, n):
    hidden = conv(n("first"))(image)
    return conv(n("last"))(layers.Add(name=n("x"))([hidden, hidden]))


def three_operands(image, n):
    return conv(n("last"))(layers.Add(name=n("x"))([conv(n(side))(image) for side in "abc"]))


def clipped_behind_a_constant(image, n):
    features = layers.Dense(4, name=n("first"))(layers.GlobalAveragePooling2D(name=n("pool"))(image))
    return layers.Dense(4, name=n("last"))(layers.ReLU(name=n("x"))(ops.multiply(features, 2.0)))


def joined_with_float(image, n):
    left, right = conv(n("left"))(image), layers.Conv2DTranspose(4, 3, padding="same", name=n("right"))(image)
    return conv(n("last"))(layers.Concatenate(name=n("x"))([left, right]))


def dense(image, n):
    return layers.Dense(3, name=n("x"))(layers.GlobalAveragePooling2D(name=n("gap"))(image))


def dense_relu(image, n):
    hidden = layers.GlobalAveragePooling2D(name=n("gap"))(image)
    return layers.Activation("tanh", name=n("tanh"))(layers.Dense(3, activation="relu", name=n("x"))(hidden))


def pool_with_two_readers(image, n):
    hidden = layers.MaxPooling2D(2, name=n("x"))(conv(n("first"), activation="relu")(image))
    return layers.Subtract(name=n("subtract"))([conv(n("last"))(hidden), hidden])


def shifted_by_three(image, n):
    """The gate of MobileNetV3: `relu6(conv + 3) / 6`; the export makes the 3 a part of the convolution's bias."""
    gate = layers.ReLU(6.0, name=n("relu6"))(conv(n("x"))(conv(n("first"))(image)) + 3.0)
    return conv(n("last"))(layers.Rescaling(1 / 6, name=n("sixth"))(gate))


def scaled_by_half(image, n):
    return conv(n("last"))(layers.ReLU(name=n("relu"))(conv(n("x"))(conv(n("first"))(image)) * 0.5))


def scaled_behind_relu(image, n):
    hidden = layers.ReLU(name=n("relu"))(conv(n("x"))(conv(n("first"))(image)))
    return conv(n("last"))(hidden * np.full(4, 0.5, "float32"))


def shifted_by_position(image, n):
    hidden = conv(n("x"))(conv(n("first"))(image)) + np.linspace(0, 1, 256, dtype="float32").reshape(8, 8, 4)
    return conv(n("last"))(layers.ReLU(name=n("relu"))(hidden))


OFF = {"quantize_input": False, "quantize_weight": False}
NO_INPUT, NO_WEIGHT = {"quantize_input": False}, {"quantize_weight": False}
PLAIN = one(conv)

FAULTS = (
    Fault(
        "conv_input",
        PLAIN,
        "x",
        "ORT-INPUT",
        "input is not quantized",
        ({"name": "first", **OFF}, {"name": "x", **NO_INPUT}),
    ),
    Fault("conv_all", PLAIN, "x", "ORT-WEIGHT", "'kernel' stays in float", ({"name": ["first", "x"], **OFF},)),
    Fault("conv_weight", PLAIN, "x", "ORT-WEIGHT", "'kernel' stays in float", ({"name": "x", **NO_WEIGHT},)),
    Fault(
        "dense_input", dense, "x", "ORT-WEIGHT-ONLY", "input is not quantized", ({"name": ["gap", "x"], **NO_INPUT},)
    ),
    Fault("dense_weight", dense, "x", "ORT-WEIGHT", "'kernel' stays in float", ({"name": "x", **NO_WEIGHT},)),
    Fault("own_silu", one(lambda n: conv(n, activation="silu")), "x", "ORT-ACTIVATION", "silu cannot be fused"),
    Fault("own_tanh", one(lambda n: conv(n, activation="tanh")), "x", "ORT-ACTIVATION", "tanh cannot be fused"),
    Fault("own_sigmoid", one(lambda n: conv(n, activation="sigmoid")), "x", "ORT-ACTIVATION", "sigmoid cannot be"),
    Fault("own_elu", one(lambda n: conv(n, activation="elu")), "x", "ORT-ACTIVATION", "elu cannot be fused"),
    Fault("gelu", one(lambda n: layers.Activation("gelu", name=n)), "x", "ORT-ACTIVATION", "gelu is computed in"),
    Fault("tanh", one(lambda n: layers.Activation("tanh", name=n)), "x", "ORT-ACTIVATION", "tanh is computed in"),
    Fault("hard_silu", one(lambda n: layers.Activation("hard_silu", name=n)), "x", "ORT-ACTIVATION", "hard_silu is"),
    Fault("softplus", one(lambda n: layers.Activation("softplus", name=n)), "x", "ORT-ACTIVATION", "softplus is"),
    Fault(
        "clip", one(lambda n: layers.ReLU(max_value=4.0, name=n)), "x", "ORT-FUSED", "integer kernel of 'clip.first'"
    ),
    Fault("dense_relu", dense_relu, "x", "ORT-OUTPUT", "has one reader, and no Q/DQ pair"),
    Fault("pool_readers", pool_with_two_readers, "x", "ORT-SCALE", "others do not", ({"name": "x", **OFF},)),
    Fault("prelu", one(lambda n: layers.PReLU(name=n)), "x", "ORT-ACTIVATION", "prelu is computed in float"),
    Fault("relu_alone", relu_behind_float, "x", "ORT-ACTIVATION", "no integer kernel stands before it"),
    Fault("transposed", relu_behind_float, "first", "ORT-NO-KERNEL", "no integer kernel for Conv2DTranspose"),
    Fault(
        "bn_pair",
        bn_behind_pair,
        "x",
        "ORT-FOLD",
        "stands between",
        ({"name": "first", "quantize_output": True},),
    ),
    Fault("bn_fan_out", bn_behind_fan_out, "x", "ORT-FOLD", "needed elsewhere too"),
    Fault("bn_multiplier", bn_behind_multiplier, "x", "ORT-FOLD", "change the integers"),
    Fault("bn_shared", bn_behind_shared, "x", "ORT-FOLD", "called several times, not always"),
    Fault("constant_relu", clipped_behind_a_constant, "x", "ORT-ACTIVATION", "computes them"),
    Fault("three", three_operands, "x", "ORT-OPERANDS", "3 tensor operands"),
    Fault(
        "add_one",
        two(lambda n: layers.Add(name=n)),
        "x",
        "ORT-INPUT",
        "is not quantized",
        ({"name": "left", **OFF}, {"name": "x", "quantization_index": [1]}),
    ),
    Fault(
        "mul_one",
        two(lambda n: layers.Multiply(name=n)),
        "x",
        "ORT-INPUT",
        "is not quantized",
        ({"name": "left", **OFF}, {"name": "x", "quantization_index": [1]}),
    ),
    Fault("subtract", two(lambda n: layers.Subtract(name=n)), "x", "ORT-NO-KERNEL", "no integer kernel for Subtract"),
    Fault(
        "scaled_sum",
        two(lambda n: CustomScaleLayer(0.5, name=n)),
        "x",
        "ORT-NO-KERNEL",
        "scaled by a float",
    ),
    Fault(
        "scaled_sum_by_one",
        two(lambda n: CustomScaleLayer(1.0, name=n)),
        "x",
        "ORT-INTEGER",
        "are quantized",
        ({"name": "x", "quantization_index": [0, 1]},),
    ),
    Fault("maximum", two(lambda n: layers.Maximum(name=n)), "x", "ORT-NO-KERNEL", "no integer kernel for Maximum"),
    Fault("average", two(lambda n: layers.Average(name=n)), "x", "ORT-NO-KERNEL", "no integer kernel for Average"),
    Fault("concat", joined_with_float, "x", "ORT-INPUT", "input 1 is not quantized"),
    Fault(
        "pool_off",
        one(lambda n: layers.MaxPooling2D(2, name=n)),
        "x",
        "ORT-INTEGER",
        "the pair behind it moves",
        ({"name": "x", **NO_INPUT}, {"name": "first", **OFF}),
    ),
    Fault(
        "mean_off",
        one(lambda n: layers.AveragePooling2D(2, name=n)),
        "x",
        "ORT-INPUT",
        "is not quantized",
        ({"name": "x", **NO_INPUT}, {"name": "first", **OFF}),
    ),
    Fault(
        "bilinear",
        one(lambda n: layers.UpSampling2D(2, interpolation="bilinear", name=n)),
        "x",
        "ORT-NO-KERNEL",
        "bilinear interpolation",
    ),
    Fault("normalized", one(lambda n: layers.LayerNormalization(name=n)), "x", "ORT-NO-KERNEL", "LayerNormalization"),
    Fault(
        "separable",
        one(lambda n: layers.SeparableConv2D(4, 3, padding="same", name=n)),
        "x",
        "ORT-NO-KERNEL",
        "no Q/DQ pair between them",
    ),
    Fault("own_layer", one(lambda n: Halved(name=n)), "x", "ORT-OPAQUE", "nothing is known about its inside"),
    Fault("leaky", one(lambda n: layers.LeakyReLU(name=n)), "x", "ORT-INTEGER", "between two pairs"),
    Fault(
        "softmax",
        one(lambda n: layers.Softmax(name=n)),
        "x",
        "ORT-ACTIVATION",
        "its input is not quantized",
        ({"name": "first", **OFF},),
    ),
    Fault(
        "wide_weight",
        PLAIN,
        "x",
        "ORT-GRID",
        "more than 8 bits",
        ({"name": "x", "quantize_config": qdq.LayerQuantizeConfig(weight={"num_bits": 16})},),
    ),
    # Not faults: what looks like one and runs on integers all the same.
    Fault("same", same_operand, "x", "ORT-INTEGER", "are quantized"),
    Fault("grouped", one(lambda n: conv(n, groups=2)), "x", "ORT-INTEGER", "are quantized"),
    Fault("dilated", one(lambda n: conv(n, dilation_rate=2)), "x", "ORT-INTEGER", "are quantized"),
    Fault("strided", one(lambda n: layers.Conv2D(4, 3, strides=2, name=n)), "x", "ORT-INTEGER", "are quantized"),
    Fault("own_relu6", one(lambda n: conv(n, activation="relu6")), "x", "ORT-INTEGER", "are quantized"),
    Fault(
        "shifted",
        shifted_by_three,
        "x",
        "ORT-WEIGHT",
        "stays in float",
        ({"name": "x", **NO_WEIGHT}, {"name": "relu6", "quantize_weight": False, "quantize_output": True}),
    ),
    Fault("scaled", scaled_by_half, "x", "ORT-WEIGHT", "stays in float", ({"name": "x", **NO_WEIGHT},)),
    Fault("scaled_relu", scaled_behind_relu, "x", "ORT-WEIGHT", "stays in float", ({"name": "x", **NO_WEIGHT},)),
    Fault("by_position", shifted_by_position, "x", "ORT-WEIGHT", "stays in float", ({"name": "x", **NO_WEIGHT},)),
    Fault("operation", one(named(ops.relu)), "first", "ORT-INTEGER", "are quantized"),
)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The explanation of the network of all faults, and the layers where ONNX Runtime disagrees."""
    keras.utils.set_random_seed(8)
    image = keras.Input(SHAPE, name="image")
    outputs, spec = [], qdq.QuantizationSpec()
    for fault in FAULTS:
        outputs.append(fault.build(image, lambda name, prefix=fault.id: f"{prefix}.{name}"))
        for entry in fault.entries:
            names = [entry["name"]] if isinstance(entry["name"], str) else entry["name"]
            spec.add(**{**entry, "name": [f"{fault.id}.{name}" for name in names]})
    model = keras.Model(image, outputs, name="faults")
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    count, differing = compare(q_model, tmp_path_factory.mktemp("faults") / "model.onnx")
    assert count > len(FAULTS)
    return qdq.explain(q_model), {layer: found for layer, *found in differing}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_the_reason_names_the_fault_and_the_runtime_confirms_it(fault, compared):
    explanation, differing = compared
    found = explanation.for_layer(f"{fault.id}.{fault.layer}")
    assert (found.rule, found.reason) == (fault.rule, found.reason)
    assert fault.says in found.reason
    assert {layer: found for layer, found in differing.items() if layer.startswith(f"{fault.id}.")} == {}


@pytest.mark.parametrize(("target", "rule"), [("onnxruntime", "ORT-OPERANDS"), ("litert", "LITERT-OPERANDS")])
def test_a_product_with_a_constant_is_called_one(target, rule):
    image = keras.Input(SHAPE)
    model = keras.Model(image, conv("last")(conv("first")(image) * 2.0))
    plan = qdq.plan_placement(model, target=target)
    (product,) = (node for node in plan.graph.nodes if node.is_a("Multiply"))
    found = qdq.explain(plan).for_layer(product.layer)
    assert (found.rule, found.reason) == (rule, "its other operand is a constant, which has no Q/DQ pair")
