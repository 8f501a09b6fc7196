"""The linter: nothing to say about our own files; one planted fault per rule is found and named."""

import re

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from qdq_files import FileMaker, save
from small_models import nested_net, residual_net, samples
from target_models import zoo_net

import qdq_workbench as qdq
from qdq_workbench.errors import FileAccessError
from qdq_workbench.foreign.lint_rules import RULES


def good(f):
    return f.conv(f.pair("x", "in"), "conv")


def q_alone(f):
    f.quantize("x", "lost")
    return good(f)


def dq_of_input(f):
    f.inputs.append(onnx.helper.make_tensor_value_info("codes", onnx.TensorProto.UINT8, (1, 2, 4, 4)))
    return f.conv(f.dequantize("codes", "lost"), "conv")


def other_scale(f):
    return f.conv(f.dequantize(f.quantize("x", "in"), "out", scale=0.2), "conv", bias=False)


def twice(f):
    return f.node("Tanh", [f.pair(f.pair("x", "in"), "again")], "tanh")


def zero_scale(f):
    return f.conv(f.pair("x", "in", scale=0.0), "conv", bias=False)


def several_scales(f):
    options = {"scale": [0.1, 0.2], "zero": [0, 0], "axis": 1}
    return f.conv(f.pair("x", "in", **options), "conv", bias=False)


def wrong_axis(f):
    return f.node("Conv", [f.pair("x", "in"), f.weight("w", axis=1)], "conv")


def float_weight(f):
    kernel = f.constant("kernel", np.ones((2, 2, 3, 3), np.float32))
    return f.node("Conv", [f.pair("x", "in"), f.pair(kernel, "w", dtype=np.int8)], "conv")


def one_float_bias(f):
    hidden = f.pair(good(f), "mid")
    bias = f.constant("b", np.ones(2, np.float32))
    return f.node("Conv", [hidden, f.weight("w"), bias], "second")


def wrong_bias_scale(f):
    return f.node("Conv", [f.pair("x", "in"), f.weight("w"), f.bias("b", scale=0.5)], "conv")


def batch_norm(f):
    parameters = [f.constant(name, np.ones(2, np.float32)) for name in ("g", "b", "m", "v")]
    return f.node("BatchNormalization", [good(f), *parameters], "norm")


def product_behind(f):
    return f.node("Mul", [good(f), f.constant("g", np.ones((1, 2, 1, 1), np.float32))], "gain")


def product_with_the_gain_first(f):
    return f.node("Mul", [f.constant("g", np.ones((1, 2, 1, 1), np.float32)), good(f)], "gain")


def product_behind_transposed(f):
    weight = f.weight("w", shape=(2, 3, 3, 3), axis=1)
    result = f.node("ConvTranspose", [f.pair("x", "in"), weight], "conv", pads=[1, 1, 1, 1])
    return f.node("Mul", [result, f.constant("g", np.ones((1, 3, 1, 1), np.float32))], "gain")


def float_input(f):
    return f.node("Conv", ["x", f.weight("w")], "conv")


def plain_kernel(f):
    return f.node("Conv", [f.pair("x", "in"), f.constant("kernel", np.ones((2, 2, 3, 3), np.float32))], "conv")


def half_joined(f):
    return f.node("Concat", [f.pair("x", "in"), f.node("Tanh", ["x"], "tanh")], "join", axis=1)


def rescaling_pool(f):
    pooled = f.node("MaxPool", [f.pair("x", "in")], "pool", kernel_shape=[2, 2])
    return f.pair(pooled, "out", scale=0.3)


def half_added(f):
    left = f.pair("x", "in")
    return f.pair(f.node("Add", [left, f.node("Tanh", ["x"], "tanh")], "add"), "out")


def silu(f):
    inside = f.pair(good(f), "mid")
    gate = f.node("Sigmoid", [inside], "sigmoid")
    return f.pair(f.node("Mul", [inside, gate], "silu"), "out")


FAULTS = (
    (q_alone, "QDQ-DANGLING", "lost", "nothing reads its result"),
    (dq_of_input, "QDQ-DANGLING", "lost", "an input of the model"),
    (other_scale, "QDQ-MISMATCH", "out", "not that of 'in'"),
    (twice, "QDQ-REPEATED", "again_q", "drop both"),
    (zero_scale, "QDQ-SCALE", "in_q", "1 of 1 scales are zero"),
    (several_scales, "QDQ-PER-TENSOR", "in_q", "one scale"),
    (wrong_axis, "QDQ-AXIS", "w", "along axis 1; the output channels of Conv are axis 0"),
    (float_weight, "QDQ-FLOAT-WEIGHT", "w_q", "store the integers"),
    (one_float_bias, "QDQ-BIAS", "second", "its bias is float"),
    (wrong_bias_scale, "QDQ-BIAS", "conv", "not input scale times weight scale"),
    (batch_norm, "QDQ-UNFOLDED", "norm", "fold it into the weights of 'conv'"),
    (product_behind, "QDQ-UNFOLDED", "gain", "fold it into the weights of 'conv'"),
    (product_with_the_gain_first, "QDQ-UNFOLDED", "gain", "fold it into the weights of 'conv'"),
    (product_behind_transposed, "QDQ-UNFOLDED", "gain", "fold it into the weights of 'conv'"),
    (float_input, "QDQ-OPERAND", "conv", "its input is not quantized"),
    (plain_kernel, "QDQ-OPERAND", "conv", "its weight is not quantized"),
    (half_joined, "QDQ-JOIN", "join", "input 1 is float"),
    (rescaling_pool, "QDQ-RESCALE", "pool", "give them one scale"),
    (half_added, "QDQ-ISLAND", "add", "quantize both or none"),
)


def lint(build, path):
    maker = FileMaker()
    return qdq.lint_onnx(save(maker.model(build(maker)), path / "model.onnx"))


def test_a_good_file_has_no_findings(tmp_path):
    report = lint(good, tmp_path)
    assert report.findings == ()
    assert (report.passed, report.pairs, report.weights) == (True, 1, 2)


def test_an_activation_function_of_two_operators_is_no_island(tmp_path):
    assert lint(silu, tmp_path).findings == ()


@pytest.mark.parametrize(("build", "rule", "node", "says"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_fault_is_found(build, rule, node, says, tmp_path):
    report = lint(build, tmp_path)
    found = [finding for finding in report.findings if (finding.rule, finding.node) == (rule, node)]
    assert len(found) == 1, report.summary()
    assert says in found[0].message
    assert not report.passed
    assert report.counts[rule] >= 1
    assert f"{rule}  {node}" in report.summary()
    assert report.to_dict()["findings"][0]["rule"] in report.counts


def test_every_rule_has_a_planted_fault():
    assert len(RULES) <= len({rule for _, rule, _, _ in FAULTS})


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt"])
@pytest.mark.parametrize("make", [residual_net, nested_net])
def test_our_own_files_have_no_findings(make, target, tmp_path):
    model = make()
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, samples(model), verbose=False)
    assert qdq.lint_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path).summary().endswith(" 0 findings")
    keras.backend.clear_session()


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt"])
def test_our_own_files_with_everything_placed_have_no_findings(target, tmp_path):
    model = zoo_net()
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target=target)
    qdq.calibrate(q_model, samples(model), verbose=False)
    assert qdq.lint_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path).summary().endswith(" 0 findings")


class Mixer(keras.layers.Layer):
    def build(self, shape):
        self.mix = self.add_weight(shape=(shape[-1], 4), name="mix")

    def call(self, x):
        return keras.ops.matmul(x, self.mix)


def mixed_net():
    """A sum of one branch, a product and a join that the plan for ONNX Runtime leaves in float between integers."""
    image, meta = keras.Input((8, 8, 3), name="image"), keras.Input((4,), name="meta")
    x = keras.layers.GlobalAveragePooling2D(name="pool")(keras.layers.Conv2D(4, 3, name="conv")(image))
    y = keras.layers.Dense(4, name="dense")(meta)
    joined = keras.layers.Concatenate(name="join")([x, y])
    product = keras.layers.Multiply(name="product")([x, y])
    outputs = keras.layers.Dense(2, name="head")(keras.layers.Add()([Mixer(name="mixer")(x), product]))
    return keras.Model([image, meta], [outputs, keras.layers.Dense(2, name="other")(joined)])


@pytest.fixture
def mixed_file(tmp_path):
    model = mixed_net()
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    return qdq.export_onnx(q_model, tmp_path / "model.onnx").path


def test_what_the_plan_of_our_own_file_leaves_in_float_is_a_note(mixed_file):
    path = mixed_file
    report = qdq.lint_onnx(path)
    assert report.passed
    assert {rule for note in report.notes for rule in re.findall(r"QDQ-\w+", note)} == {"QDQ-JOIN", "QDQ-OPERAND"}
    assert "leaves values of 'mixer' in float" in report.summary()

    proto = onnx.load(path)
    del proto.metadata_props[:]  # without the plan, nobody knows that it was meant
    onnx.save(proto, path)
    assert qdq.lint_onnx(path).counts == {"QDQ-JOIN": 1, "QDQ-OPERAND": 1}


def test_what_the_plan_does_not_say_stays_a_finding(mixed_file):
    path = mixed_file
    proto = onnx.load(path)
    nodes = {node.name: node for node in proto.graph.node}
    conv = next(node for node in nodes.values() if node.op_type == "Conv")
    conv.input[0] = "image"  # the pair in front of it is dropped
    onnx.save(proto, path)
    assert "QDQ-OPERAND" in qdq.lint_onnx(path).counts


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / "text.onnx").write_text("not a model")
    (tmp_path / "empty.onnx").touch()
    for name in ("text.onnx", "empty.onnx"):
        with pytest.raises(FileAccessError, match="not an ONNX model"):
            qdq.lint_onnx(tmp_path / name)
    with pytest.raises(FileAccessError, match="Cannot read"):
        qdq.lint_onnx(tmp_path / "missing.onnx")
    with pytest.raises(FileAccessError, match="must be a string"):
        qdq.lint_onnx(3)


def test_a_float_file_is_called_one(tmp_path):
    def float_only(f):
        return f.node("Conv", ["x", f.constant("w", np.ones((2, 2, 3, 3), np.float32))], "conv", pads=[1, 1, 1, 1])

    report = lint(float_only, tmp_path)
    assert (report.findings, report.pairs, report.weights) == ((), 0, 0)
    assert report.notes == ("nothing in this file is quantized, so there was nothing to check: it has no Q/DQ pair",)
    assert "nothing in this file is quantized" in report.summary()
    assert lint(good, tmp_path).notes == ()
    weights_alone = lint(lambda f: f.node("Conv", ["x", f.weight("w")], "conv", pads=[1, 1, 1, 1]), tmp_path)
    assert (weights_alone.pairs, weights_alone.weights, weights_alone.notes) == (0, 1, ())


def negative(scales, zeros, *, activation=False):
    def build(f):
        tensor = f.pair("x", "in", scale=-0.1) if activation else f.pair("x", "in")
        codes = f.constant("codes", np.ones((2, 2, 3, 3), np.int8))
        weight = f.dequantize(codes, "w", scale=scales, zero=zeros, dtype=np.int8, axis=0)
        return f.node("Conv", [tensor, weight], "conv", pads=[1, 1, 1, 1])

    return build


def test_negative_scales_of_symmetric_weights_are_no_fault(tmp_path):
    report = lint(negative([0.1, -0.1], [0, 0]), tmp_path)
    assert report.findings == ()
    assert report.notes[0].startswith("1 constants have negative scales")
    for scales, zeros, where in (([0.1, 0.0], [0, 0], "w"), ([-0.1, 0.0], [0, 0], "w"), ([0.1, -0.1], [0, 3], "w")):
        report = lint(negative(scales, zeros), tmp_path)
        assert [(finding.rule, finding.node) for finding in report.findings] == [("QDQ-SCALE", where)]
    report = lint(negative([0.1, 0.1], [0, 0], activation=True), tmp_path)
    assert {finding.node for finding in report.findings} == {"in_q", "in_dq"}


def test_onnxruntime_runs_symmetric_int4_with_negative_scales(tmp_path):
    x, y = (onnx.helper.make_tensor_value_info(name, 1, ("n", size)) for name, size in (("x", 32), ("y", 4)))
    codes = np.random.default_rng(0).integers(-8, 8, (32, 4))
    scales = np.array([0.1, -0.1, 0.2, -0.3], np.float32)
    nodes = [
        onnx.helper.make_node("DequantizeLinear", ["codes", "scales"], ["w"], name="w", axis=1),
        onnx.helper.make_node("MatMul", ["x", "w"], ["y"], name="y"),
    ]
    constants = [
        onnx.helper.make_tensor("codes", onnx.TensorProto.INT4, codes.shape, codes.reshape(-1).tolist()),
        onnx.numpy_helper.from_array(scales, "scales"),
    ]
    graph = onnx.helper.make_graph(nodes, "int4", [x], [y], constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "int4.onnx")
    assert "QDQ-SCALE" not in qdq.lint_onnx(tmp_path / "int4.onnx").counts
    data = np.ones((1, 32), np.float32)
    session = onnxruntime.InferenceSession(tmp_path / "int4.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": data})[0], data @ (codes * scales), rtol=0.02, atol=0.05)
