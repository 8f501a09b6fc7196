"""Comparing an explanation with what ONNX Runtime makes of the exported file, node by node."""

import keras
import onnx
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.verification import count_integer_kernels

# The operators that decide about a layer; others of its nodes only prepare or add a bias.
_DECIDING = {
    ("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D"): "Conv",
    ("Conv1DTranspose", "Conv2DTranspose"): "ConvTranspose",
    ("Dense", "EinsumDense", "Matmul"): "Gemm MatMul",
    ("Add", "Subtract", "Multiply", "Concatenate", "Divide"): "Add Sub Mul Concat Div",
    ("AveragePooling1D", "AveragePooling2D", "AveragePooling3D"): "AveragePool",
    ("GlobalAveragePooling1D", "GlobalAveragePooling2D", "GlobalAveragePooling3D"): "GlobalAveragePool ReduceMean",
    ("MaxPooling1D", "MaxPooling2D", "GlobalMaxPooling2D"): "MaxPool GlobalMaxPool",
    ("UpSampling2D", "Resizing"): "Resize",
    ("Activation", "LeakyReLU", "Sigmoid", "Softmax", "Tanh"): "LeakyRelu Sigmoid Softmax Tanh",
    ("BatchNormalization",): "Mul Add BatchNormalization",
}
DECIDING = {name: operators.split() for names, operators in _DECIDING.items() for name in names}


def compare(q_model, path):
    """Export a model; return how many statuses were compared, and those that differ from the optimized graph."""
    qdq.export_onnx(q_model, path)
    kernels = count_integer_kernels(path)
    operators = {node.name: node.op_type for node in onnx.load(path).graph.node}
    compared, differing = 0, []
    for entry in qdq.explain(q_model.plan).layers:
        name = entry.layer.replace("/", ".")
        runs = {
            status
            for status, nodes in (("int8", kernels.integer_nodes), ("float", kernels.float_nodes))
            for node in nodes
            if (node == name or node.startswith(f"{name}/")) and operators[node] in DECIDING.get(entry.class_name, ())
        }
        if not runs or entry.rule == "ORT-WEIGHT-ONLY":  # MatMulNBits or float, by the sizes; neither computes integers
            continue
        compared += 1
        expected = {"int8", "float"} if entry.status == "partial" else {entry.status}
        if runs != expected:
            differing.append((entry.layer, entry.class_name, entry.status, entry.rule, sorted(runs)))
    return compared, differing


def random_toggles(model, generator):
    """Return a specification that switches about a third of the layers in random ways."""
    spec = qdq.QuantizationSpec()
    for layer in qdq.build_graph(model).layers:
        node = qdq.build_graph(model).calls(layer)[0]
        if node.class_name not in DECIDING and node.class_name != "ReLU":
            continue
        if generator.random() < 0.35:
            flags = {key: bool(generator.random() < 0.6) for key in ("quantize_input", "quantize_weight")}
            spec.add(layer, **flags, quantize_output=bool(generator.random() < 0.3))
    return spec


def branching_net():
    """Activations of every kind, a gate, pooling, and a branch behind a concatenation."""
    image = keras.Input((8, 8, 4), name="image")
    left = layers.DepthwiseConv2D(3, padding="same", name="depthwise")(image)
    left = layers.ReLU(max_value=6.0, name="relu6")(left)
    right = layers.MaxPooling2D(3, strides=1, padding="same", name="pool")(image)
    right = layers.Conv2D(4, 1, activation="silu", name="silu_conv")(right)
    joined = layers.Concatenate(name="concat")([left, right])
    scaled = layers.Multiply(name="scale")([joined, layers.Conv2D(8, 1, name="gate")(joined)])
    mean = layers.AveragePooling2D(2, name="mean")(scaled)
    return keras.Model(image, layers.Dense(3, name="head")(layers.Flatten(name="flatten")(mean)), name="branching")


def sequence_net():
    """Matrix products over sequences, in one dimension and by einsum."""
    keras.utils.set_random_seed(4)
    tokens = keras.Input((8, 6), name="tokens")
    x = layers.Conv1D(6, 3, padding="same", activation="relu", name="conv")(tokens)
    x = layers.EinsumDense("abc,cd->abd", output_shape=(None, 6), bias_axes="d", name="einsum")(x)
    y = layers.Dense(6, activation="tanh", name="wide")(x)
    x = layers.Add(name="add")([x, y])
    x = layers.AveragePooling1D(2, name="mean")(x)
    x = layers.GlobalAveragePooling1D(name="gap")(layers.LeakyReLU(name="leaky")(x))
    return keras.Model(tokens, layers.Softmax(name="soft")(layers.Dense(3, name="head")(x)), name="sequence")
