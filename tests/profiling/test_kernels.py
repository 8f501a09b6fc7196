"""Which nodes of a file every kernel computes, on graphs that ONNX Runtime rewrites in each of its ways."""

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from keras import layers
from onnx import TensorProto, helper, numpy_helper
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.profiling.kernels import match_kernels


@pytest.fixture(scope="module")
def optimized(tmp_path_factory):
    """Return the graph that ONNX Runtime makes of a file."""

    def make(file):
        folder = tmp_path_factory.mktemp("optimized")
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(folder / "optimized.onnx")
        options.log_severity_level = 4
        onnxruntime.InferenceSession(file.SerializeToString(), options, ["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)

    return make


@pytest.fixture(scope="module")
def files(folder):
    return {kind: onnx.load(folder / f"{kind}.onnx") for kind in ("float", "int8")}


def layers_of(kernel):
    names = (name for name in kernel.nodes if not name.endswith("Linear"))
    return list(dict.fromkeys(name.split("/")[0] for name in names))


def test_integer_kernels_take_activations_and_pairs(files, optimized):
    found = [kernel for kernel in match_kernels(files["int8"], optimized(files["int8"])) if kernel.leader]
    assert [(kernel.operator, kernel.leader.split("/")[0], layers_of(kernel)) for kernel in found] == [
        ("QLinearConv", "stem", ["image", "stem", "stem_relu"]),
        ("QLinearConv", "conv", ["conv"]),
        ("QLinearAdd", "add", ["add", "relu"]),
        ("QLinearGlobalAveragePool", "pool", ["pool"]),
        ("Squeeze", "pool", ["pool"]),
        ("MatMulIntegerToFloat", "head", ["head"]),
    ]


def test_float_kernels_in_blocks_of_channels_take_the_sum_behind_them(files, optimized):
    kernels = match_kernels(files["float"], optimized(files["float"]))
    led = {kernel.leader.split("/")[0]: layers_of(kernel) for kernel in kernels if kernel.operator == "Conv"}
    assert led == {"stem": ["stem", "stem_relu"], "conv": ["conv", "add", "relu"]}


@pytest.mark.parametrize("kind", ["float", "int8"])
def test_every_node_that_computes_has_one_kernel(files, optimized, kind):
    kernels = match_kernels(files[kind], optimized(files[kind]))
    leaders = [kernel.leader for kernel in kernels if kernel.leader]
    owned = [name for kernel in kernels for name in kernel.nodes]
    assert len(set(leaders)) == len(leaders)
    assert len(set(owned)) == len(owned)
    assert set(leaders) <= set(owned)
    constants = {tensor.name for tensor in files[kind].graph.initializer}
    computing = {node.name for node in files[kind].graph.node if not set(node.input) <= constants}
    assert computing <= set(owned)


def test_what_the_runtime_puts_in_has_no_leader(files, optimized):
    inserted = [k.operator for k in match_kernels(files["int8"], optimized(files["int8"])) if k.leader is None]
    assert inserted == ["QuantizeLinear", "Transpose"]  # of the input; behind the pooling, whose channels come last
    inserted = [k.operator for k in match_kernels(files["float"], optimized(files["float"])) if k.leader is None]
    assert inserted == ["ReorderOutput", "ReorderOutput"]  # out of blocks of channels


def test_a_fusion_of_many_operators_takes_them_all(optimized):
    """Gelu written out: one kernel, which keeps no operator of the file; the product in front of it has its own."""
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    scalars = [numpy_helper.from_array(np.float32(v), n) for n, v in (("r", 2**0.5), ("one", 1.0), ("half", 0.5))]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("Div", ["h", "r"], ["a"], name="divide"),
        helper.make_node("Erf", ["a"], ["b"], name="erf"),
        helper.make_node("Add", ["b", "one"], ["c"], name="plus"),
        helper.make_node("Mul", ["h", "c"], ["d"], name="times"),
        helper.make_node("Mul", ["d", "half"], ["y"], name="halve"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "gelu", ends[:1], ends[1:], [weight, *scalars])
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    kernels = match_kernels(file, optimized(file))
    assert [(kernel.operator, kernel.leader, kernel.nodes) for kernel in kernels] == [
        ("MatMul", "product", ("product",)),
        ("Gelu", "halve", ("divide", "erf", "plus", "times", "halve")),
    ]


def test_weights_that_are_dequantized_at_every_run_are_the_runtimes(tmp_path, optimized):
    keras.utils.set_random_seed(0)
    sequence = keras.Input((4, 3), name="sequence")
    model = keras.Model(sequence, layers.LSTM(4, name="lstm")(sequence))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    file = onnx.load(qdq.export_onnx(q_model, tmp_path / "lstm.onnx").path)
    kernels = {kernel.name: kernel for kernel in match_kernels(file, optimized(file))}
    assert kernels["lstm/cell/kernel/DequantizeLinear"].leader is None
    assert next(kernel.leader for kernel in kernels.values() if kernel.operator == "LSTM") == "lstm/LSTM"


def test_conversions_that_the_runtime_moves_and_copies_are_called_after_the_nodes_of_the_file(tmp_path, optimized):
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 3), name="image")
    first = layers.Conv2D(4, 3, padding="same", name="first")(image)
    floating = layers.Conv2D(4, 3, padding="same", name="floating")(first)
    both = layers.Add(name="both")([first, floating])
    model = keras.Model(image, layers.Conv2D(4, 1, name="last")(both))
    spec = qdq.QuantizationSpec()
    spec.add("floating", quantize_input=False, quantize_weight=False)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    file = onnx.load(qdq.export_onnx(q_model, tmp_path / "model.onnx").path)
    kernels = [kernel for kernel in match_kernels(file, optimized(file)) if kernel.operator.endswith("Linear")]
    found = [(kernel.pair, kernel.operator) for kernel in kernels if kernel.pair != kernel.name]
    assert set(found) == {
        ("image/QuantizeLinear", "QuantizeLinear"),
        ("first/QuantizeLinear", "QuantizeLinear"),
        ("first/DequantizeLinear", "DequantizeLinear"),
    }
    assert {kernel.pair for kernel in kernels} <= {node.name for node in file.graph.node}


def test_of_pairs_that_share_a_scale_only_names_tell_which_one_it_is():
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    scale = numpy_helper.from_array(np.float32(1), "scale")

    def graph(*operators_and_names):
        nodes = [helper.make_node(op, ["x", "scale"], [f"{name} out"], name=name) for op, name in operators_and_names]
        return helper.make_model(helper.make_graph(nodes, "pairs", ends[:1], ends[1:], [scale]))

    def pairs(file):
        inner = [("QuantizeLinear", "x_q"), ("DequantizeLinear", "b/D/duplicated_token_1")]
        return [kernel.pair for kernel in match_kernels(file, graph(*inner))]

    one = [("QuantizeLinear", "b/Q"), ("DequantizeLinear", "b/D")]
    assert pairs(graph(*one)) == ["b/Q", "b/D"]
    assert pairs(graph(*one, ("DequantizeLinear", "a/D"))) == ["", "b/D"]
