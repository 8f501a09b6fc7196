"""One test for everything that tf2onnx 1.17 or TensorFlow's tracing got wrong on the way, and for our way around it."""

from __future__ import annotations

import dataclasses
import logging

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from onnx import TensorProto, helper

import qdq_workbench as qdq
from qdq_workbench.errors import ExportError
from qdq_workbench.export.keras_side import float_graph
from qdq_workbench.export.keras_side.float_graph import convert_float
from qdq_workbench.placement.targets import get_target
from tests.export.cutting import Cutter
from tests.export.running import build, exported, ops, random_data, run


@pytest.fixture
def cut():
    keras.utils.set_random_seed(0)
    return Cutter(dataclasses.replace(get_target("onnxruntime"), bias="float"))


@pytest.mark.parametrize("channels", [3, 200])
def test_normalization_constants_do_not_leak_as_inputs(cut, channels):
    x = keras.Input((6, 6, channels))
    h = layers.Normalization(mean=np.arange(channels) * 0.1, variance=np.arange(channels) + 1.0)(x)
    model, differences = exported(cut, x, cut.layer(layers.Conv2D(4, 3), cut.pair(h)))
    assert [value.name for value in model.graph.input] == ["x"]
    assert max(differences) < 1e-5


def test_grouped_convolution_is_not_a_compiled_call(cut):
    x = keras.Input((6, 6, 4))
    model, differences = exported(cut, x, cut.layer(layers.Conv2D(8, 3, groups=2), cut.pair(x)))
    assert ops(model)["Conv"] == 1
    assert max(differences) < 1e-5


def test_exact_gelu_has_no_erfc(cut):
    x = keras.Input((6, 6, 4))
    model, differences = exported(cut, x, cut.layer(layers.Conv2D(8, 3, activation="gelu"), cut.pair(x)))
    assert ops(model)["Erf"] == 1
    assert max(differences) < 1e-5


def test_no_transpose_between_the_halves_of_a_pair_or_behind_one(cut):
    x = keras.Input((6, 6, 3))
    h = cut.layer(layers.Conv2D(4, 3, activation="relu"), cut.pair(x))
    model, _ = exported(cut, x, cut.layer(layers.Conv2D(4, 3), cut.pair(h)))
    producers = {output: node.op_type for node in model.graph.node for output in node.output}
    behind_integers = [
        node.name
        for node in model.graph.node
        if node.op_type == "Transpose" and producers.get(node.input[0]) in ("QuantizeLinear", "DequantizeLinear")
    ]
    assert behind_integers == []
    assert ops(model)["Transpose"] == 2


def test_batch_norm_is_not_folded_into_quantized_weights(cut):
    x = keras.Input((6, 6, 3))
    h = cut.layer(layers.DepthwiseConv2D(3, use_bias=False), cut.pair(x))
    model, differences = exported(cut, x, layers.BatchNormalization()(h))
    codes = [tensor for tensor in model.graph.initializer if tensor.name.endswith("kernel/quantized")]
    assert [list(tensor.dims) for tensor in codes] == [[3, 1, 3, 3]]
    assert max(differences) < 1e-5


def test_quantized_lstm_kernels_become_a_loop(cut):
    x = keras.Input((6, 4))
    layer = layers.LSTM(5, return_sequences=True)
    y = layer(cut.pair(x))
    cut.weight("lstm/kernel", layer.cell.kernel, axis=1)
    cut.weight("lstm/recurrent_kernel", layer.cell.recurrent_kernel, axis=1)
    model, differences = exported(cut, x, y)
    assert ops(model)["Loop"] == 1
    assert ops(model)["DequantizeLinear"] == 3
    assert max(differences) < 1e-5


def test_float_lstm_stays_lstm(cut):
    x = keras.Input((6, 4))
    model, differences = exported(cut, x, cut.layer(layers.Dense(3), cut.pair(layers.LSTM(5)(x))))
    assert ops(model)["LSTM"] == 1
    assert max(differences) < 1e-5


def test_attention_is_matmul_without_shapes_computed_at_run_time(cut):
    x = keras.Input((6, 8))
    layer = layers.MultiHeadAttention(2, 4)
    pair = cut.pair(x)
    y = layer(pair, pair)
    for part in ("query", "key", "value", "output"):
        cut.weight(f"attention/{part}/kernel", getattr(layer, f"_{part}_dense").kernel)
    model, differences = exported(cut, x, y)
    counted = ops(model)
    assert (counted["MatMul"], counted["Einsum"], counted["Shape"]) == (6, 0, 0)
    assert counted["DequantizeLinear"] == 5
    assert max(differences) < 1e-5


def test_layer_normalization_is_no_global_pool(cut):
    x = keras.Input((6, 8))
    h = layers.LayerNormalization()(cut.layer(layers.Conv1D(4, 3), cut.pair(x)))
    model, differences = exported(cut, x, cut.layer(layers.Conv1D(4, 3), cut.pair(h)))
    assert ops(model)["GlobalAveragePool"] == 0
    assert max(differences) < 1e-5


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_upsampling_is_resize(cut, interpolation):
    x = keras.Input((6, 6, 3))
    h = cut.pair(cut.layer(layers.Conv2D(4, 3), cut.pair(x)))
    h = layers.UpSampling2D((2, 3), interpolation=interpolation)(h)
    if interpolation == "nearest":  # what is interpolated may round to the next integer in one of the two runtimes
        h = cut.pair(h)
    model, differences = exported(cut, x, cut.layer(layers.Conv2D(4, 1), h))
    counted = ops(model)
    assert (counted["Resize"], counted["Tile"], counted["Transpose"]) == (1, 0, 2)
    assert max(differences) < 1e-5


@pytest.mark.parametrize("size", [(1, 2), (2, 1)])
def test_upsampling_along_one_axis_is_resize_in_the_layout_of_its_convolutions(cut, size):
    x = keras.Input((6, 6, 3))
    h = cut.pair(layers.UpSampling2D(size)(cut.pair(cut.layer(layers.Conv2D(4, 3), cut.pair(x)))))
    model, differences = exported(cut, x, cut.layer(layers.Conv2D(4, 1), h))
    counted = ops(model)
    assert (counted["Resize"], counted["Tile"], counted["Transpose"]) == (1, 0, 2)
    assert max(differences) < 1e-5


@pytest.mark.parametrize("nothing", [layers.UpSampling2D(1), layers.Reshape((4, 4, 4))])
def test_a_layer_that_does_nothing_leaves_no_transpose_between_convolutions(cut, nothing):
    x = keras.Input((6, 6, 3))
    h = cut.pair(cut.layer(layers.Conv2D(4, 3), cut.pair(x)))
    model, differences = exported(cut, x, cut.layer(layers.Conv2D(4, 1), cut.pair(nothing(h))))
    counted = ops(model)
    assert (counted["Conv"], counted["Transpose"], counted["Reshape"]) == (2, 2, 0)
    assert max(differences) < 1e-5


@pytest.mark.parametrize(
    ("before", "after"), [((6, 6), (5, 4)), ((10, 12), (7, 5)), ((3, 6), (6, 5)), ((6, 4), (4, 6))]
)
def test_the_nearest_pixel_is_tensorflow_s(cut, before, after):
    x = keras.Input((*before, 1), name="x")
    resized = layers.Resizing(*after, interpolation="nearest")(cut.pair(x))
    net = cut.finish(x, layers.Conv2D(1, 1, kernel_initializer="ones")(resized))
    data = {"x": np.arange(2 * np.prod(before), dtype=np.float32).reshape(2, *before, 1)}
    (expected,) = net.calibrate(data).values()
    np.testing.assert_allclose(run(build(net), data)[0], expected, rtol=1e-6)


def test_unknown_spatial_sizes(cut):
    x = keras.Input((None, None, 3))
    h = cut.layer(layers.Conv2D(4, 3, padding="same", activation="relu"), cut.pair(x))
    net = cut.finish(x, cut.layer(layers.Conv2D(4, 3, padding="same"), cut.pair(layers.UpSampling2D()(h))))
    net.calibrate_by_hand(-3.0, 3.0)
    model = build(net)
    shapes = [run(model, random_data(net, unknown=size))[0].shape for size in (4, 7)]
    assert shapes == [(2, 8, 8, 4), (2, 14, 14, 4)]


def test_onnxruntime_does_not_fold_zero_padding_into_max_pools_of_negative_values(cut):
    x = keras.Input((6, 6, 3))
    conv = layers.Conv2D(4, 1)
    h = layers.MaxPooling2D(3, strides=2)(layers.ZeroPadding2D(1)(cut.layer(conv, cut.pair(x))))
    net = cut.finish(x, cut.layer(layers.Conv2D(2, 1), cut.pair(h)))
    conv.bias.assign([-5.0] * 4)
    data = random_data(net)
    expected = net.calibrate(data)["y"]
    model = build(net)
    for optimize in (False, True):
        np.testing.assert_allclose(run(model, data, optimize=optimize)[0], expected, atol=1e-5)


def test_an_operation_without_onnx_form_is_named(cut):
    x = keras.Input((4, 4, 3))

    class Unwritable(layers.Layer):
        def call(self, inputs):
            import tensorflow as tf

            return tf.raw_ops.Betainc(a=tf.abs(inputs), b=tf.abs(inputs), x=tf.sigmoid(inputs))

    h = cut.layer(layers.Conv2D(3, 1), cut.pair(x))
    net = cut.finish(x, Unwritable()(h))
    with pytest.raises(ExportError, match="Betainc"):
        convert_float(net.cut, opset=17, dynamic_batch=True)


@pytest.mark.parametrize(("kernel", "strides", "padding"), [(1, 2, "same"), (1, 2, "valid"), (2, 3, "same")])
def test_transposed_convolutions_with_more_stride_than_kernel_have_no_negative_padding(cut, kernel, strides, padding):
    x = keras.Input((5, 5, 3))
    layer = layers.Conv2DTranspose(2, kernel, strides=strides, padding=padding)
    model, differences = exported(cut, x, cut.layer(layer, cut.pair(x)))
    assert ops(model)["ConvTranspose"] == 1
    assert max(differences) < 1e-5


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (layers.SeparableConv2D(4, 3), (6, 6, 3)),
        (layers.SeparableConv1D(4, 3), (6, 3)),
        (layers.Conv2D(4, 3), (6, 6, 3)),
    ],
)
@pytest.mark.parametrize("options", [{}, {"opset": 21}])
def test_a_vector_added_to_a_convolution_is_no_second_bias(layer, shape, options, tmp_path):
    layer = type(layer).from_config({**layer.get_config(), "bias_initializer": "ones"})
    x = keras.Input(shape)
    vector = np.arange(4, dtype=np.float32)
    net = keras.Model(x, layer(x) + vector)
    model = onnx.load(str(qdq.export_float_onnx(net, tmp_path / "net.onnx", **options)))
    constants = {tensor.name for tensor in model.graph.initializer}
    for node in (node for node in model.graph.node if node.op_type == "Conv"):
        assert len(node.input) <= 3
        assert constants.issuperset(node.input[1:])
    data = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)
    (got,) = run(model, {model.graph.input[0].name: data})
    np.testing.assert_allclose(got, net(data), rtol=1e-5, atol=1e-5)


@keras.saving.register_keras_serializable("float_graph")
class Padder(layers.Layer):
    """As the one of Whisper: pads in code that planning does not know."""

    def call(self, x):
        return keras.ops.pad(x, ((0, 0), (1, 1), (0, 0)))


@keras.saving.register_keras_serializable("float_graph")
class Branching(layers.Layer):
    """Reads an input of the model in both branches of an `If`."""

    def call(self, x, other):
        empty = keras.ops.equal(keras.ops.shape(other)[1], 0)
        return keras.ops.cond(empty, lambda: keras.ops.zeros_like(x), lambda: x + keras.ops.mean(other))


@keras.saving.register_keras_serializable("float_graph")
class EagerOnly(layers.Layer):
    def call(self, x):
        return x * 2 if keras.ops.max(x) > 0 else x

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, dtype=x.dtype)


def quantized(inputs, x, data):
    model = keras.Model(inputs, layers.Dense(3, name="head")(x))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, data, verbose=False)
    return q_model


@pytest.mark.filterwarnings("ignore::qdq_workbench.errors.LowCoverageWarning")
def test_padding_of_an_unknown_layer_stays_in_front_of_its_pair(tmp_path):
    x = keras.Input((8, 4), name="x")
    h = layers.Conv1D(4, 3, padding="same", name="first")(x)
    h = layers.Conv1D(4, 3, 2, name="second")(Padder(name="padder")(h))
    data = np.random.default_rng(0).normal(size=(4, 8, 4)).astype("float32")
    q_model = quantized(x, h, data)
    report = qdq.export_onnx(q_model, tmp_path / "q.onnx")
    assert qdq.verify_onnx(report.path, q_model, data).passed


@pytest.mark.filterwarnings("ignore::qdq_workbench.errors.LowCoverageWarning")
def test_a_branch_reads_inputs_by_their_final_names(tmp_path):
    x, other = keras.Input((6, 8), name="x"), keras.Input((None, 3), name="other")
    data = [np.ones((4, 6, 8), np.float32), np.full((4, 5, 3), 0.5, np.float32)]
    q_model = quantized([x, other], Branching(name="own")(layers.Dense(8, name="dense")(x), other), data)
    report = qdq.export_onnx(q_model, tmp_path / "q.onnx")
    assert qdq.verify_onnx(report.path, q_model, data).passed
    assert {node.op_type for node in onnx.load(report.path).graph.node} >= {"If"}


@pytest.mark.filterwarnings("ignore::qdq_workbench.errors.LowCoverageWarning")
@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
def test_a_layer_that_computes_in_eager_mode_alone_is_refused_with_a_remedy(suffix, tmp_path):
    x = keras.Input((8,), name="x")
    q_model = quantized(x, EagerOnly(name="own")(layers.Dense(8, name="dense")(x)), np.ones((4, 8), np.float32))
    export = qdq.export_onnx if suffix == "onnx" else qdq.export_tflite
    with pytest.raises(ExportError, match="computes in eager mode alone"):
        export(q_model, tmp_path / f"q.{suffix}")


# The parts around tf2onnx


def test_loggers_are_quiet_for_one_conversion_even_where_it_fails():
    loggers = {name: logging.getLogger(name) for name in ("tf2onnx", "tensorflow")}
    before = {name: logger.level for name, logger in loggers.items()}
    try:
        loggers["tf2onnx"].setLevel(logging.INFO)
        loggers["tensorflow"].setLevel(logging.ERROR)
        with pytest.raises(KeyError), float_graph._quiet():
            assert {logger.level for logger in loggers.values()} == {logging.CRITICAL}
            raise KeyError
        assert [logger.level for logger in loggers.values()] == [logging.INFO, logging.ERROR]
    finally:
        for name, logger in loggers.items():
            logger.setLevel(before[name])


def model_of_nodes(*nodes, outputs=(), opset=17):
    graph = helper.make_graph([helper.make_node(*node) for node in nodes], "nodes", [], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def test_operations_without_an_onnx_form_are_those_of_the_standard_that_the_opset_has_not():
    rows = [("Relu", "x", "a"), ("Zeta", "a", "b"), ("Gelu", "b", "c"), ("Zeta", "c", "d")]
    model = model_of_nodes(*((op, [read], [written]) for op, read, written in rows))
    model.graph.node.append(helper.make_node("Own", ["d"], ["e"], domain="own.domain"))
    model.graph.node.append(helper.make_node("Beta", ["d"], ["f"], domain="ai.onnx"))
    assert float_graph._unknown_operations(model) == ["Beta", "Gelu", "Zeta"]
    model.opset_import[0].version = 20  # which has Gelu
    assert float_graph._unknown_operations(model) == ["Beta", "Zeta"]


def test_a_graph_that_cannot_be_raised_names_both_opsets(monkeypatch):
    def refuse(_, opset):
        raise RuntimeError(f"no adapter to {opset}")

    monkeypatch.setattr("onnx.version_converter.convert_version", refuse)
    with pytest.raises(ExportError, match=r"raised from opset 18; .*opset=21, RuntimeError: no adapter to 21"):
        float_graph._upgrade(model_of_nodes(), 21)


class Inferred:
    """The shapes that a conversion knows, by tensor."""

    def __init__(self, **shapes):
        self.get_shape = shapes.get

    def get_dtype(self, tensor):
        return None if tensor == "typeless" else TensorProto.FLOAT


def test_inferred_shapes_of_reshapes_are_kept_with_a_name_for_every_open_size():
    known = helper.make_tensor_value_info("known", TensorProto.FLOAT, (7,))
    reshapes = [("Reshape", ["x", "s"], [name]) for name in ("open", "known", "rankless", "typeless")]
    model = model_of_nodes(*reshapes, ("Relu", ["open"], ["other"]), outputs=[known])
    inferred = Inferred(open=[-1, 3, -1, 0], known=[1], typeless=[1], other=[1])
    float_graph._add_known_shapes(model, inferred)
    (added,) = model.graph.value_info
    sizes = [dim.dim_param or dim.dim_value for dim in added.type.tensor_type.shape.dim]
    assert (added.name, sizes) == ("open", ["open_0", 3, "open_2", 0])
