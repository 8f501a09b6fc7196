"""Files whose floats are in half precision: their types, what stays in float32 and why; nothing else changes."""

from __future__ import annotations

import collections
import functools

import keras
import numpy as np
import onnx
import pytest
from keras import layers, ops
from onnx import TensorProto, numpy_helper
from small_models import residual_net, samples, two_headed_net

import qdq_workbench as qdq
from qdq_workbench.errors import ExportError
from qdq_workbench.export.half.rounding import constant_fits, rounded_scale, scale_fits
from qdq_workbench.export.passes import to_half
from qdq_workbench.graph.half_precision import FLOAT_TYPES, HALF_TYPES
from qdq_workbench.onnx_graph.batches import run_session
from qdq_workbench.onnx_graph.element_types import element_types
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.onnx_graph.sessions import make_session

FLOAT16, BFLOAT16 = HALF_TYPES["float16"], HALF_TYPES["bfloat16"]
HALVES = {TensorProto.FLOAT16, TensorProto.BFLOAT16}


def lstm_net():
    steps = keras.Input((5, 4), name="steps")
    x = layers.LSTM(6, return_sequences=True, name="lstm")(steps)
    return keras.Model(steps, layers.Dense(3, activation="tanh", name="head")(x))


def attention_net():
    tokens = keras.Input((6, 8), name="tokens")
    x = layers.MultiHeadAttention(2, 4, name="attention")(tokens, tokens)
    x = layers.LayerNormalization(name="norm")(layers.Add(name="add")([tokens, x]))
    x = layers.Dense(8, activation="gelu", name="dense")(x)
    return keras.Model(tokens, layers.Softmax(name="scores")(layers.GlobalAveragePooling1D(name="pool")(x)))


def dead_depthwise_net():
    """A depthwise network: one channel of its first kernel is nearly dead, one of its last is all zero."""
    image = keras.Input((8, 8, 3), name="image")
    first = layers.DepthwiseConv2D(3, use_bias=False, name="depthwise")
    last = layers.Conv2D(4, 1, name="pointwise")
    model = keras.Model(image, last(layers.ReLU(name="relu")(first(image))))
    kernel = np.array(first.kernel)
    kernel[:, :, 1] *= 1e-6
    first.kernel.assign(kernel)
    kernel = np.array(last.kernel)
    kernel[..., 2] = 0.0
    last.kernel.assign(kernel)
    return model


def large_net():
    """Beyond float16: a constant of 1e5 and a tensor that calibration sees to be as large; an epsilon below it."""
    image = keras.Input((4, 4, 2), name="image")
    x = layers.Conv2D(4, 3, name="conv")(image)
    x = layers.ReLU(name="relu")(layers.Rescaling(1e5, name="up")(x))
    x = layers.Rescaling(1e-5, name="down")(x)
    x = ops.sigmoid(x) + 1e-9
    return keras.Model(image, layers.Dense(3, name="head")(layers.Flatten(name="flat")(x)))


def embedding_net():
    tokens = keras.Input((5,), dtype="int32", name="tokens")
    x = layers.Embedding(7, 4, name="table")(tokens)
    x = layers.Conv1D(4, 3, name="conv")(x)
    return keras.Model(tokens, layers.Dense(2, name="head")(x))


def float_heavy_net():
    """Most of its weights stay in float: nobody quantizes the products of the first layers."""
    image = keras.Input((16,), name="image")
    x = layers.Dense(256, activation="relu", name="one")(image)
    x = layers.Dense(256, activation="relu", name="two")(x)
    return keras.Model(image, layers.Dense(4, name="head")(x))


MODELS = {
    make.__name__: make
    for make in (
        residual_net,
        lstm_net,
        attention_net,
        dead_depthwise_net,
        large_net,
        embedding_net,
        two_headed_net,
        float_heavy_net,
    )
}


def quantized(name, target="tensorrt"):
    keras.utils.set_random_seed(0)
    model = MODELS[name]()
    spec = None
    if name == "float_heavy_net":
        spec = qdq.QuantizationSpec()
        spec.add(["one", "two"], quantize_input=False, quantize_weight=False)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    data = np.random.default_rng(0).integers(0, 7, (16, 5)) if name == "embedding_net" else samples(model, 16)
    qdq.calibrate(q_model, data, verbose=False)
    return q_model, data


@functools.cache
def calibrated(name):
    """A calibrated model for TensorRT and its samples."""
    return quantized(name)


def node_types(proto):
    """The types that every node writes, by its name."""
    types = element_types(Graph(proto))
    return {node.name: {types[tensor] for tensor in node.output} for node in proto.graph.node}


@pytest.mark.parametrize(
    ("name", "float_type"),
    [
        *((name, "float16") for name in MODELS if name != "float_heavy_net"),
        *((name, "bfloat16") for name in ("attention_net", "float_heavy_net")),
    ],
)
def test_a_file_has_consistent_types_and_is_verified(name, float_type, tmp_path):
    q_model, data = calibrated(name)
    report = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type=float_type)
    proto = onnx.load(report.path)
    onnx.checker.check_model(proto, full_check=True)
    onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
    ends = {value.type.tensor_type.elem_type for value in (*proto.graph.input, *proto.graph.output)}
    assert not ends & HALVES
    assert list(to_half.PASS.denied_by(Graph(proto))) == []
    writers = {tensor: node.op_type for node in proto.graph.node for tensor in node.output}
    casts = [node for node in proto.graph.node if node.op_type == "Cast"]
    assert not any(writers.get(node.input[0]) == "Cast" for node in casts)
    readers = collections.Counter(tensor for node in proto.graph.node for tensor in node.input)
    assert all(readers[node.output[0]] or node.output[0] in {o.name for o in proto.graph.output} for node in casts)
    assert (report.opset, report.float_type) == (HALF_TYPES[float_type].opset, float_type)
    assert report.half_nodes == sum(
        bool(types & HALVES)
        for node, types in node_types(proto).items()
        if not node.endswith(("Linear", f"/to_{float_type}"))
    )
    verification = qdq.verify_onnx(report.path, q_model, data)
    assert verification.passed, verification.summary()


@pytest.mark.parametrize(
    ("name", "float_type"),
    [*((name, "float16") for name in MODELS if name != "float_heavy_net"), ("float_heavy_net", "bfloat16")],
)
def test_ends_in_half_precision(name, float_type, tmp_path):
    q_model, data = calibrated(name)
    report = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type=float_type, keep_io_types=False)
    proto = onnx.load(report.path)
    onnx.checker.check_model(proto, full_check=True)
    onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
    ends = {value.type.tensor_type.elem_type for value in (*proto.graph.input, *proto.graph.output)}
    kind = TensorProto.DataType.Value(float_type.upper())
    assert ends - {TensorProto.INT32, TensorProto.INT64} == {kind}
    assert list(to_half.PASS.denied_by(Graph(proto))) == []
    casts = [node for node in proto.graph.node if node.op_type == "Cast"]
    wide = [node for node in casts if node.output[0] in {value.name for value in proto.graph.output}]
    assert all(node.name.endswith(f"/float32/to_{float_type}") for node in wide)
    verification = qdq.verify_onnx(report.path, q_model, data)
    assert verification.passed, verification.summary()
    alone = qdq.verify_onnx(report.path)
    assert alone.passed, alone.summary()


def contents(path):
    """What a file holds; the converter numbers constants that it made itself in any order."""
    graph = onnx.load(path).graph
    nodes = [(node.op_type, node.name, list(node.output)) for node in graph.node]
    values = collections.Counter((tensor.data_type, tensor.raw_data) for tensor in graph.initializer)
    return nodes, values, list(graph.input), list(graph.output)


@pytest.mark.parametrize(("name", "float_type"), [("embedding_net", "float16"), ("float_heavy_net", "bfloat16")])
def test_a_file_is_verified_without_its_model(name, float_type, tmp_path):
    q_model, data = calibrated(name)
    path = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type=float_type).path
    alone = qdq.verify_onnx(path, data=data)
    assert alone.passed, alone.summary()


@pytest.mark.parametrize("name", ["residual_net", "dead_depthwise_net"])
def test_codes_are_those_of_the_float32_file_and_its_files_do_not_change(name, tmp_path):
    q_model, _ = calibrated(name)
    before = qdq.export_onnx(q_model, tmp_path / "before.onnx", opset=19)
    half = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type="float16")
    after = qdq.export_onnx(q_model, tmp_path / "after.onnx", opset=19, float_type="float32")
    assert contents(before.path) == contents(after.path)
    assert (after.half_nodes, after.float32_nodes) == (0, {})
    held = [
        sorted(
            numpy_helper.to_array(tensor).tobytes()
            for tensor in onnx.load(report.path).graph.initializer
            if tensor.data_type in (TensorProto.INT8, TensorProto.UINT8)
        )
        for report in (before, half)
    ]
    assert held[0] == held[1]


def reasons_of(report):
    return {node: reason for reason, nodes in report.float32_nodes.items() for node in nodes}


def test_sums_normalizations_and_softmax_stay_in_float32(tmp_path):
    q_model, _ = calibrated("attention_net")
    report = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type="float16")
    types = node_types(onnx.load(report.path))
    reasons = reasons_of(report)
    assert reasons["attention/Softmax"] == reasons["scores/Softmax"] == "a softmax sums exponentials"
    (normalization,) = (node for node in reasons if node.startswith("norm/"))
    assert "a normalization" in reasons[normalization]
    assert {node for node, found in types.items() if node.startswith("norm/") and found & HALVES} <= {
        node for node in types if node.endswith("DequantizeLinear")
    }
    products = [node for node in types if node.endswith("MatMul")]
    assert len(products) == 5
    assert all(types[node] == {TensorProto.FLOAT16} for node in products)
    assert report.summary().count("float16") >= 2


def test_a_state_stays_in_float32(tmp_path):
    q_model, _ = calibrated("lstm_net")
    report = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type="float16")
    assert any("state" in reason for reason in report.float32_nodes)
    types = node_types(onnx.load(report.path))
    product = "head/Tensordot/MatMul" if "head/Tensordot/MatMul" in types else "head/MatMul"  # Keras before 3.15
    assert types[product] == {TensorProto.FLOAT16}


def test_scales_that_float16_does_not_hold_stay_in_float32_and_dead_channels_do_not_count(tmp_path):
    q_model, _ = calibrated("dead_depthwise_net")
    report = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type="float16")
    proto = onnx.load(report.path)
    scales = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer if "scale" in tensor.name
    }
    assert scales["depthwise/kernel/scale"].dtype == np.float32
    dead = scales["pointwise/kernel/scale/float16"]
    assert dead.dtype == np.float16
    assert dead.min() >= FLOAT16.normal
    assert "eighth of a step" in reasons_of(report)["depthwise/depthwise"]


def test_what_overflows_stays_in_float32(tmp_path):
    q_model, data = calibrated("large_net")
    report = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type="float16")
    proto = onnx.load(report.path)
    reasons = reasons_of(report)
    added = next(
        node for node in reasons if node.startswith("add") and node.endswith("/Add")
    )  # Keras numbers its operations
    assert all("overflows" in reasons[node] for node in ("up/mul", "down/mul", added))  # 1e5, 1e-5, 1e-9
    assert "32,752" in reasons["relu/Relu"]
    outputs = run_session(make_session(proto, optimized=False), {"image": np.asarray(data, np.float32)})
    assert all(np.isfinite(values).all() for values in outputs.values())


def test_recorded_ranges_say_what_overflows(tmp_path):
    """The same network whose middle is large only by its data."""
    image = keras.Input((4, 4, 2), name="image")
    x = layers.Conv2D(4, 3, name="conv")(image)
    x = layers.ReLU(name="relu")(x)
    model = keras.Model(image, layers.Conv2D(2, 1, name="last")(x))
    q_model = qdq.quantize_model(model)
    data = samples(model, 8)
    qdq.calibrate(q_model, data, verbose=False)
    fine = qdq.export_onnx(q_model, tmp_path / "fine.onnx", float_type="float16")
    assert "conv/BiasAdd" not in reasons_of(fine)
    model.get_layer("conv").kernel.assign(model.get_layer("conv").kernel * 3e5)
    large = qdq.quantize_model(model)
    qdq.calibrate(large, data, verbose=False)
    report = qdq.export_onnx(large, tmp_path / "large.onnx", float_type="float16")
    found = [reason for node, reason in reasons_of(report).items() if node.startswith(("conv/", "relu/"))]
    assert found
    assert all("beyond 32,752" in reason or "outermost" in reason for reason in found)
    wide = qdq.export_onnx(large, tmp_path / "wide.onnx", float_type="bfloat16")
    assert not any("beyond" in reason for reason in wide.float32_nodes)


def test_floats_take_half_the_space(tmp_path):
    q_model, _ = calibrated("float_heavy_net")
    sizes = {kind: qdq.export_onnx(q_model, tmp_path / f"{kind}.onnx", float_type=kind).bytes for kind in FLOAT_TYPES}
    floats = 4 * (16 * 256 + 256 * 256 + 2 * 256)
    for kind in HALF_TYPES:
        assert sizes["float32"] - sizes[kind] == pytest.approx(floats / 2, rel=0.02)


def test_a_pair_with_readers_of_both_types_has_one_scale_in_both(tmp_path):
    """A tensor that a convolution and an average read: one QuantizeLinear, two DequantizeLinear, one value."""
    image = keras.Input((6, 6, 4), name="image")
    x = layers.ReLU(name="relu")(layers.Conv2D(4, 3, name="conv")(image))
    outputs = [layers.Conv2D(4, 3, name="next")(x), layers.GlobalAveragePooling2D(name="pool")(x)]
    model = keras.Model(image, outputs)
    q_model = qdq.quantize_model(model)
    data = samples(model, 8)
    qdq.calibrate(q_model, data, verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type="float16")
    proto = onnx.load(report.path)
    ends = [node for node in proto.graph.node if node.op_type == "DequantizeLinear" and "relu" in node.input[0]]
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    assert sorted(str(values[node.input[1]].dtype) for node in ends) == ["float16", "float32"]
    assert len({float(values[node.input[1]]) for node in ends}) == 1
    assert qdq.verify_onnx(report.path, q_model, data).passed
    assert not [finding for finding in qdq.lint_onnx(report.path).findings if finding.rule == "QDQ-MISMATCH"]


def test_other_targets_keep_the_scales_that_their_kernels_read(tmp_path):
    q_model, data = quantized("residual_net", "onnxruntime")
    plain = qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "plain.onnx").path, q_model, data)
    report = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type="float16")
    verification = qdq.verify_onnx(report.path, q_model, data)
    assert verification.passed, verification.summary()
    assert verification.figures["integer_kernels"] == plain.figures["integer_kernels"]
    assert any("GPUs" in note for note in report.notes)


def test_what_onnx_runtime_computes_is_said_of_its_own_files_alone(tmp_path):
    q_model, _ = quantized("large_net")
    for target, said in (("onnxruntime", True), ("openvino", False), ("tensorrt", False)):
        report = qdq.export_onnx(q_model, tmp_path / f"{target}.onnx", target=target, float_type="bfloat16")
        assert any("ONNX Runtime" in note for note in report.notes) is said


def test_layers_of_a_mixed_precision_model_keep_their_float32(tmp_path):
    with_policy = keras.dtype_policies.DTypePolicy("mixed_float16")
    image = keras.Input((8,), name="image")
    x = layers.Dense(8, dtype=with_policy, name="inner")(image)
    model = keras.Model(image, layers.Dense(3, dtype="float32", name="head")(x))
    q_model = qdq.quantize_model(model)
    data = samples(model, 8)
    qdq.calibrate(q_model, data, verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type="float16")
    assert "own dtype policy" in reasons_of(report)["head/MatMul"]
    assert node_types(onnx.load(report.path))["inner/MatMul"] == {TensorProto.FLOAT16}
    assert qdq.verify_onnx(report.path, q_model, data).passed


def test_what_cannot_be_written_is_refused_by_name(tmp_path):
    q_model, _ = calibrated("two_headed_net")
    with pytest.raises(ExportError, match=r"'float32', 'float16', 'bfloat16'\. Received: float_type='half'"):
        qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type="half")
    with pytest.raises(ExportError, match=r"float16 scales from opset 19 on.*opset=17"):
        qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type="float16", opset=17)
    with pytest.raises(ExportError, match=r"files of half precision.*keep_io_types=False, float_type='float32'"):
        qdq.export_onnx(q_model, tmp_path / "half.onnx", keep_io_types=False)
    image = keras.Input((2,), name="image")
    wide = qdq.quantize_model(keras.Model(image, layers.Dense(1, name="head")(image)))
    qdq.calibrate(wide, np.array([[-1e5, 0.0]]), verbose=False)
    with pytest.raises(ExportError, match=r"holds values up to 65,504.*the input 'image'.*values up to 1"):
        qdq.export_onnx(wide, tmp_path / "half.onnx", float_type="float16", keep_io_types=False)
    assert list(tmp_path.iterdir()) == []
    report = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type="float16", opset=21)
    assert report.opset == 21


class TestRounding:
    def test_scales(self):
        farthest = np.array(128.0)
        for scale, fits in ((1.0, True), (0.0371, True), (1e-4, True), (3e-6, False), (1e-9, False), (7e4, False)):
            assert scale_fits(np.array(scale, np.float32), farthest, FLOAT16) is fits
        assert not scale_fits(np.array(0.0101, np.float32), farthest, BFLOAT16)
        assert scale_fits(np.array(0.0101, np.float32), np.array(7.0), BFLOAT16)  # 4 bits
        assert scale_fits(np.array(0.5, np.float32), farthest, BFLOAT16)  # a power of two
        assert not scale_fits(np.array(0.0371, np.float32), np.array(32768.0), FLOAT16)
        assert scale_fits(np.array([1e-9, 1.0], np.float32), np.array([0.0, 127.0]), FLOAT16)
        assert float(rounded_scale(np.array(1e-9, np.float32), FLOAT16)) == FLOAT16.normal

    def test_constants(self):
        weights = np.array([1.0, 1e-7, -0.3, 0.0], np.float32)
        assert constant_fits(weights, FLOAT16, elementwise=False)
        assert not constant_fits(weights, FLOAT16, elementwise=True)
        for value, fits in ((1e5, False), (65504.0, True), (1e-7, False), (1e-3, True), (-np.inf, True)):
            assert constant_fits(np.array(value, np.float32), FLOAT16, elementwise=True) is fits
        assert constant_fits(np.array([1e5, 1e-12], np.float32), BFLOAT16, elementwise=True)
