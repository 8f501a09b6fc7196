"""Small Keras models with every operator that firmware has, calibrated."""

import functools
import json
import platform

import keras
import numpy as np
import onnx
import onnxruntime
from keras import layers
from small_models import shake

import qdq_workbench as qdq
from qdq_workbench.export.firmware import interpreter
from qdq_workbench.onnx_graph.sessions import with_outputs

#: Elsewhere ONNX Runtime adds and averages integers in fixed point of its own.
IS_X86 = platform.machine() in ("x86_64", "AMD64")


def mobile_net(size=12):
    """Depthwise blocks with strides, ReLU6, an inverted residual, a global average and a softmax."""
    keras.utils.set_random_seed(4)
    image = keras.Input((size, size, 3), name="image")

    def unit(x, layer, name, *, activation=True):
        x = layers.BatchNormalization(name=f"{name}_norm")(layer(x))
        return layers.ReLU(6.0, name=f"{name}_relu")(x) if activation else x

    def conv(width, name, kernel=1, strides=1):
        return layers.Conv2D(width, kernel, strides, padding="same", use_bias=False, name=name)

    x = unit(image, conv(8, "stem", 3, 2), "stem")
    for number, strides in enumerate((1, 2, 1), start=1):
        name, source = f"block{number}", x
        x = unit(x, conv(16, f"{name}_widen"), f"{name}_widen")
        depthwise = layers.DepthwiseConv2D(3, strides, padding="same", use_bias=False, name=f"{name}_depthwise")
        x = unit(x, depthwise, f"{name}_depthwise")
        x = unit(x, conv(8, f"{name}_narrow"), f"{name}_narrow", activation=False)
        x = layers.Add(name=f"{name}_add")([source, x]) if number == 3 else x
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return shake(keras.Model(image, layers.Dense(5, activation="softmax", name="head")(x), name="mobile"))


def branched_net():
    """Pools of both kinds, padded ones too, concatenations of other scales, a flattening and two matrix products."""
    keras.utils.set_random_seed(5)
    image = keras.Input((9, 9, 3), name="image")
    x = layers.Conv2D(6, 3, padding="same", activation="relu", name="stem")(image)
    mean = layers.AveragePooling2D(3, strides=2, padding="same", name="mean")(x)
    most = layers.MaxPooling2D(3, strides=2, padding="same", name="most")(x)
    conv = layers.Conv2D(4, 3, strides=2, padding="same", activation="relu", name="conv")(x)
    x = layers.Concatenate(name="join")([mean, most, conv])
    x = layers.AveragePooling2D(2, strides=1, name="smooth")(x)
    x = layers.Dropout(0.1, name="drop")(layers.Flatten(name="flat")(x))
    x = layers.Dense(7, activation="relu", name="hidden")(x)
    return shake(keras.Model(image, layers.Dense(4, name="head")(x), name="branched"))


def padded_net():
    """Zero padding in front of everything that takes it, groups, dilation, a depth multiplier, a reshaping."""
    keras.utils.set_random_seed(6)
    image = keras.Input((8, 10, 4), name="image")
    x = layers.ZeroPadding2D(((1, 0), (2, 1)), name="pad")(image)
    x = layers.Conv2D(8, 3, groups=2, name="grouped")(x)
    x = layers.ReLU(name="grouped_relu")(layers.BatchNormalization(name="grouped_norm")(x))
    x = layers.MaxPooling2D(3, strides=2, name="most")(layers.ZeroPadding2D(1, name="pad_most")(x))
    x = layers.Conv2D(6, 3, dilation_rate=2, padding="same", name="dilated")(x)
    x = layers.DepthwiseConv2D(3, depth_multiplier=2, padding="same", activation="relu", name="deep")(x)
    x = layers.GlobalMaxPooling2D(name="highest")(x)
    x = layers.Reshape((12,), name="same")(x)
    return shake(keras.Model(image, layers.Dense(3, name="head")(x), name="padded"))


def shared_net():
    """A backbone inside a model, called twice, and two outputs."""
    keras.utils.set_random_seed(7)
    backbone = keras.Sequential(
        [
            keras.Input((6, 6, 3)),
            layers.Conv2D(4, 3, padding="same", name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.ReLU(name="relu"),
        ],
        name="backbone",
    )
    left, right = keras.Input((6, 6, 3), name="left"), keras.Input((6, 6, 3), name="right")
    both = layers.Add(name="both")([backbone(left), backbone(right)])
    pooled = layers.GlobalAveragePooling2D(name="pool")(both)
    outputs = {"kind": layers.Dense(3, name="kind")(pooled), "place": layers.Dense(2, name="place")(pooled)}
    return shake(keras.Model({"left": left, "right": right}, outputs, name="shared"))


def stepped_net():
    """Pairs where a runtime has none: in front of a ReLU, in front of a sum; scores as integers."""
    keras.utils.set_random_seed(8)
    image = keras.Input((6, 6, 3), name="image")
    x = layers.Conv2D(6, 3, padding="same", name="first")(image)
    y = layers.ReLU(2.0, name="first_relu")(x)
    y = layers.Conv2D(6, 3, padding="same", name="second")(y) + x
    x = layers.Dropout(0.2, name="drop")(layers.Activation("relu6", name="second_relu")(y))
    x = layers.MaxPooling2D(2, name="most")(layers.ZeroPadding2D(((0, 1), (1, 0)), name="pad")(x))
    x = layers.AveragePooling2D(2, name="mean")(layers.ZeroPadding2D(1, name="pad_mean")(x))
    return keras.Model(image, layers.Dense(3, name="head")(layers.Flatten(name="flat")(x)), name="stepped")


NETS = {net.__name__: net for net in (mobile_net, branched_net, padded_net, shared_net, stepped_net)}


def with_biases(model):
    """Give biases values, which Keras begins with zeros."""
    generator = np.random.default_rng(3)
    for variable in model.weights:
        if variable.path.endswith("bias"):
            variable.assign(generator.normal(0, 0.3, variable.shape))
    return model


def samples(model, count, seed=0):
    """Return samples by the names of a model's inputs."""
    generator = np.random.default_rng(seed)
    shapes = {tensor.name: tensor.shape[1:] for tensor in model.inputs}
    return {name: generator.normal(size=(count, *shape)).astype(np.float32) for name, shape in shapes.items()}


def given(model, inputs):
    """Return samples in the structure that a model takes."""
    return inputs if isinstance(model.input, dict) else next(iter(inputs.values()))


@functools.cache
def calibrated(name, target):
    """Return one of the nets, quantized for a target and calibrated."""
    if target != "onnxruntime":
        return qdq.retarget(calibrated(name, "onnxruntime"), target)
    model = with_biases(NETS[name]())
    spec = qdq.QuantizationSpec()
    if (
        name == "shared_net"
    ):  # with 7 bits the sums of two products fit into 16, as they must on processors without VNNI
        seven = qdq.spec.LayerQuantizeConfig(weight={"num_bits": 7})
        spec.add(["backbone/conv", "kind", "place"], quantize_config=seven)
    if name == "stepped_net":
        spec.add(["first", "head"], quantize_output=True)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    qdq.calibrate(q_model, given(model, samples(model, 32)), verbose=False)
    return q_model


def document(path):
    """Return what a file for firmware says of its model."""
    return json.loads(interpreter.read(path)["model.json"])


def run_file(path, inputs, wanted, *, optimized=True, exact_sums=True):
    """Return some tensors that ONNX Runtime computes of a file.

    Without VNNI its kernels for uint8 and int8 cut sums of two products to 16 bits; a setting makes them exact.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    proto = onnx.load(path)
    is_signed = any(
        i.data_type == onnx.TensorProto.INT8 and i.name.endswith("zero_point") and not i.dims
        for i in proto.graph.initializer
    )
    if is_signed:  # else it writes some int8 operators with uint8 and leaves others in float
        options.add_session_config_entry("session.qdqisint8allowed", "1")
    elif exact_sums:
        options.add_session_config_entry("session.x64quantprecision", "1")
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = with_outputs(proto, wanted).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    return dict(zip(wanted, session.run(wanted, inputs), strict=True))


def tensors_in(path):
    """Return the names of the tensors that the nodes of an ONNX file make."""
    return {name for node in onnx.load(path).graph.node for name in node.output}


def differing(ours, theirs):
    """Return how many values differ from those of a file, whose images may be channels-first."""
    candidates = [theirs, theirs.transpose(0, 2, 3, 1)] if theirs.ndim == 4 else [theirs.reshape(ours.shape)]
    return min(
        int((ours != other.reshape(ours.shape)).sum())
        for other in candidates
        if other.size == ours.size and (other.shape == ours.shape or ours.ndim != 4)
    )
