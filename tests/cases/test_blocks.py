"""`AutoQDQCase` on the kinds of blocks that keras.applications are made of: all kernels that exist run on integers."""

import keras
import onnx
import pytest
from agreement.statuses import compared_layers
from keras import layers
from small_models import samples, shake

import qdq_workbench as qdq

# What ONNX Runtime has integer kernels for: each such layer of each block must run on one.
WITH_KERNELS = (
    "Add",
    "AveragePooling2D",
    "Concatenate",
    "Conv2D",
    "Dense",
    "DepthwiseConv2D",
    "GlobalAveragePooling2D",
    "MaxPooling2D",
    "Multiply",
)


def conv_norm(x, filters, size, name, *, activation="relu", **options):
    x = layers.Conv2D(filters, size, padding="same", use_bias=False, name=f"{name}.conv", **options)(x)
    x = layers.BatchNormalization(name=f"{name}.norm")(x)
    return layers.Activation(activation, name=f"{name}.act")(x) if activation else x


def squeeze_and_excite(x, n):
    """EfficientNet and MobileNetV3: a gate, activations inside its convolutions, a skip branch."""
    hidden = conv_norm(x, 8, 1, n("expand"), activation="swish")
    hidden = layers.DepthwiseConv2D(3, padding="same", name=n("depthwise"))(hidden)
    gate = layers.GlobalAveragePooling2D(keepdims=True, name=n("squeeze"))(hidden)
    gate = layers.Conv2D(2, 1, activation="swish", name=n("reduce"))(gate)
    gate = layers.Conv2D(8, 1, activation="sigmoid", name=n("gate"))(gate)
    hidden = layers.Multiply(name=n("scaled"))([hidden, gate])
    return layers.Add(name=n("add"))([conv_norm(hidden, 4, 1, n("project"), activation=None), x])


def convnext(x, n):
    """ConvNeXt: a normalization over channels and dense layers on a tensor of rank 4."""
    hidden = layers.DepthwiseConv2D(3, padding="same", name=n("depthwise"))(x)
    hidden = layers.Dense(8, name=n("wide"))(layers.LayerNormalization(name=n("norm"))(hidden))
    hidden = layers.Dense(4, name=n("narrow"))(layers.Activation("gelu", name=n("gelu"))(hidden))
    return layers.Add(name=n("add"))([x, hidden])


def before_activation(x, n):
    """ResNetV2: normalization and ReLU in front of the convolutions, pooling on the skip branch."""
    hidden = layers.ReLU(name=n("first_relu"))(layers.BatchNormalization(name=n("first_norm"))(x))
    skip = layers.MaxPooling2D(1, strides=2, name=n("pool"))(x)
    hidden = conv_norm(hidden, 4, 1, n("a"))
    hidden = conv_norm(hidden, 4, 3, n("b"), strides=2)
    return layers.Add(name=n("add"))([skip, layers.Conv2D(4, 1, name=n("c"))(hidden)])


def inception(x, n):
    """InceptionV3: branches of convolutions and pooling that meet in a concatenation."""
    pooled = layers.AveragePooling2D(3, strides=1, padding="same", name=n("average"))(x)
    branches = [
        conv_norm(x, 3, 1, n("one")),
        conv_norm(conv_norm(x, 2, 1, n("five_a")), 3, 5, n("five_b")),
        conv_norm(pooled, 2, 1, n("pooled")),
        layers.MaxPooling2D(3, strides=1, padding="same", name=n("max"))(x),
    ]
    return layers.Concatenate(name=n("concat"))(branches)


def dense_block(x, n):
    """DenseNet: every step is joined to all before it; the normalization behind the joint cannot be folded."""
    for step in "ab":
        hidden = layers.BatchNormalization(name=n(f"{step}_norm"))(x)
        hidden = layers.ReLU(name=n(f"{step}_relu"))(hidden)
        hidden = layers.Conv2D(2, 3, padding="same", name=n(f"{step}_conv"))(conv_norm(hidden, 4, 1, n(step)))
        x = layers.Concatenate(name=n(f"{step}_concat"))([x, hidden])
    return layers.AveragePooling2D(2, name=n("pool"))(conv_norm(x, 4, 1, n("transition")))


def nasnet_cell(x, n):
    """NASNet: sums of separable convolutions and pools, joined."""

    def separable(tensor, name):
        tensor = layers.SeparableConv2D(4, 3, padding="same", use_bias=False, name=n(name))(
            layers.ReLU(name=n(f"{name}_relu"))(tensor)
        )
        return layers.BatchNormalization(name=n(f"{name}_norm"))(tensor)

    previous = conv_norm(x, 4, 1, n("previous"), activation=None)
    pooled = layers.AveragePooling2D(3, strides=1, padding="same", name=n("average"))(x)
    first = layers.Add(name=n("first"))([separable(x, "left"), separable(previous, "right")])
    second = layers.Add(name=n("second"))([pooled, previous])
    third = layers.Add(name=n("third"))([separable(previous, "third_left"), x])
    return layers.Concatenate(name=n("concat"))([first, second, third, previous])


BLOCKS = (squeeze_and_excite, convnext, before_activation, inception, dense_block, nasnet_cell)


def named(block):
    """Return what makes the names of a block's layers."""
    return lambda name: f"{block.__name__}.{name}"


@pytest.fixture(scope="module")
def network():
    """All blocks in one network, on a stem; a convolution behind each."""
    keras.utils.set_random_seed(3)
    image = keras.Input((8, 8, 3), name="image")
    stem = conv_norm(image, 4, 3, "stem")
    ends = []
    for block in BLOCKS:
        n = named(block)
        hidden = layers.Conv2D(4, 1, name=n("last"))(block(stem, n))
        pooled = layers.GlobalAveragePooling2D(name=n("pooled"))(hidden)
        ends.append(layers.Dense(2, name=n("head"))(pooled))
    model = shake(keras.Model(image, ends, name="blocks"))
    return qdq.split_activations(qdq.split_separable_convolutions(model))


@pytest.fixture(scope="module")
def on_onnxruntime(network, tmp_path_factory):
    """How each layer runs in ONNX Runtime, with what was said of it."""
    folder = tmp_path_factory.mktemp("blocks")
    q_model = qdq.quantize_model(network, custom_qdq_cases=[qdq.AutoQDQCase("onnxruntime")], target="onnxruntime")
    qdq.calibrate(q_model, samples(network), verbose=False)
    report = qdq.export_onnx(q_model, folder / "model.onnx")
    return list(compared_layers(qdq.explain(q_model), onnx.load(report.path), folder))


def of_block(entries, block):
    return [entry for entry in entries if entry[0].layer.startswith(f"{block.__name__}.")]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__)
def test_everything_with_a_kernel_runs_on_integers_in_onnxruntime(block, on_onnxruntime):
    found = of_block(on_onnxruntime, block)
    assert [(entry.layer, entry.rule, runs) for entry, runs in found if runs != {entry.status}] == []
    with_kernels = [(entry, runs) for entry, runs in found if entry.class_name in WITH_KERNELS]
    assert len(with_kernels) >= 5
    assert [(entry.layer, entry.rule, entry.reason) for entry, runs in with_kernels if runs != {"int8"}] == []


@pytest.fixture(scope="module")
def on_tensorrt(network):
    """What is said of each layer for TensorRT."""
    plan = qdq.plan_placement(network, custom_qdq_cases=[qdq.AutoQDQCase("tensorrt")], target="tensorrt")
    return qdq.explain(plan).layers


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__)
def test_everything_with_a_kernel_is_quantized_for_tensorrt(block, on_tensorrt):
    found = [entry for entry in on_tensorrt if entry.layer.startswith(f"{block.__name__}.")]
    with_kernels = [entry for entry in found if entry.class_name in WITH_KERNELS]
    assert len(with_kernels) >= 5
    assert [(entry.layer, entry.rule, entry.reason) for entry in with_kernels if entry.status != "int8"] == []
