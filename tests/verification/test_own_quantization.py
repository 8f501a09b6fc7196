"""What ONNX Runtime quantizes by itself explains a difference as far as rounding to 8 bits does, and no further."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from onnx import numpy_helper
from qdq_files import FileMaker
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.onnx_graph.batches import run_session
from qdq_workbench.onnx_graph.sessions import make_session
from qdq_workbench.verification.alone import OptimizationParity
from qdq_workbench.verification.own_quantization import in_eight_bits, moved_by_own_quantization
from qdq_workbench.verification.parity import Parity
from qdq_workbench.verification.sensitivity import ELSEWHERE, OWN_QUANTIZATION, TOO_FAR

IMAGES = {"x": np.random.default_rng(0).uniform(-10, 10, (4, 2, 4, 4)).astype("float32")}
SIGNED = {"zero": 0, "dtype": np.int8}


def float_convolution():
    """Return a file with a convolution with float weight and bias between pairs."""
    maker, generator = FileMaker(("n", 2, 4, 4)), np.random.default_rng(1)
    weight = maker.constant("weight", generator.normal(size=(2, 2, 3, 3)).astype("float32"))
    bias = maker.constant("bias", generator.normal(size=2).astype("float32"))
    product = maker.node("Conv", [maker.pair("x", "first", **SIGNED), weight, bias], "conv", pads=[1, 1, 1, 1])
    return maker.model(maker.pair(product, "last", scale=0.4, **SIGNED))


def float_bias():
    """Return a file with a Gemm's float bias beside integer weights; its flattened input has a pair."""
    maker = FileMaker(("n", 2, 4, 4))
    flat = maker.node("Flatten", [maker.pair("x", "first", **SIGNED)], "flat")
    bias = maker.constant("bias", np.linspace(-0.01, 0.01, 3).astype("float32"))
    product = maker.node("Gemm", [flat, maker.weight("weight", (32, 3), axis=1, scale=0.02), bias], "gemm")
    back = maker.node("Reshape", [product, maker.constant("shape", np.array([-1, 3, 1, 1]))], "back")
    return maker.model(maker.pair(back, "last", scale=0.2, **SIGNED))


def float_input():
    """Return a file with a product of a float input and integer weights in blocks."""
    maker = FileMaker(("n", 2, 4, 4))
    codes = maker.constant("codes", np.random.default_rng(2).integers(-8, 8, (32, 8)).astype("int8"))
    scales, zeros = np.full((1, 8), 0.05, "float32"), np.zeros((1, 8), "int8")
    flat = maker.node("Reshape", ["x", maker.constant("shape", np.array([-1, 32]))], "flat")
    weight = maker.node(
        "DequantizeLinear",
        [codes, maker.constant("scales", scales), maker.constant("zeros", zeros)],
        "weight",
        axis=0,
        block_size=32,
    )
    product = maker.node("MatMul", [flat, weight], "product")
    model = maker.model(maker.node("Reshape", [product, maker.constant("full", np.array([-1, 8, 1, 1]))], "y"))
    model.opset_import[0].version, model.ir_version = 21, 10
    return model


def two_pairs():
    maker = FileMaker(("n", 2, 4, 4))
    first = maker.pair("x", "first", scale=0.05, zero=100)
    return maker.model(maker.pair(first, "second", scale=0.07, zero=120))


FILES = {each.__name__: each for each in (float_convolution, float_bias, float_input, two_pairs)}


def run(model, inputs, *, optimized):
    return next(iter(run_session(make_session(model, optimized=optimized), inputs).values()))


@pytest.mark.parametrize("case", ["float_convolution", "two_pairs"])
def test_the_copy_computes_what_onnx_runtime_makes_of_the_file(case):
    model = FILES[case]()
    before, copy = model.SerializeToString(), in_eight_bits(model)
    onnx.checker.check_model(copy)
    planned, found, wanted = (
        run(model, IMAGES, optimized=False),
        run(copy, IMAGES, optimized=False),
        run(model, IMAGES, optimized=True),
    )
    step = 0.4 if case == "float_convolution" else 0.07
    apart = np.abs(found - wanted)
    assert apart.max() <= step * 1.01
    assert (apart > 1e-4).mean() < 0.03 < (np.abs(planned - wanted) > 1e-4).mean()
    assert model.SerializeToString() == before


@pytest.mark.parametrize("case", FILES)
def test_eight_bits_explain_what_onnx_runtime_does_to_a_file(case):
    model = FILES[case]()
    plain = run_session(make_session(model, optimized=False), IMAGES)
    (name,) = plain
    allowed = moved_by_own_quantization(model, IMAGES, plain)[name]
    # One flipped rounding in a hundred values remains where the rounded bias moves nothing.
    assert np.abs(plain[name] - run(model, IMAGES, optimized=True)).mean() <= allowed + 0.002
    assert all(check.passed for check in OptimizationParity(model, IMAGES).checks())


def test_a_file_with_nothing_to_round_has_no_copy():
    maker = FileMaker(("n", 2, 4, 4))
    model = maker.model(maker.pair(maker.conv(maker.pair("x", "first"), "conv", bias=False), "last"))
    plain = run_session(make_session(model, optimized=False), IMAGES)
    assert in_eight_bits(model) is None
    assert moved_by_own_quantization(model, IMAGES, plain) == dict.fromkeys(plain, 0.0)


def nearly_without_weights(target):
    """Return a model whose bias is all that its output is made of, and samples."""
    keras.utils.set_random_seed(0)
    x = keras.Input((8,), name="x")
    model = keras.Model(x, layers.Dense(4, name="dense")(x))
    model.layers[1].kernel.assign(1e-9 * np.random.default_rng(0).normal(size=(8, 4)))
    model.layers[1].bias.assign([-6.0, -2.0, 3.0, 6.0])
    spec = qdq.QuantizationSpec()
    spec.add("dense", quantize_output=True)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    data = samples(model)
    qdq.calibrate(q_model, data, verbose=False)
    return q_model, np.asarray(data)


def with_float_bias(proto, finer):
    """Make a file's bias float, and its weights, which are nearly nothing beside it, `finer` times smaller."""
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in [each for each in proto.graph.node if each.op_type == "DequantizeLinear" and "bias" in each.output[0]]:
        codes, scale = (numpy_helper.to_array(constants[name]) for name in node.input[:2])
        proto.graph.initializer.append(numpy_helper.from_array((codes * scale).astype("float32"), node.output[0]))
        proto.graph.node.remove(node)
    weight = constants["dense/kernel/scale"]
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) / np.float32(finer), weight.name))
    return proto


@pytest.mark.parametrize(
    ("target", "finer", "passed", "rewrite"),
    [("onnxruntime", 1.0, True, ""), ("onnxruntime", 1e6, False, TOO_FAR), ("tensorrt", 1e6, True, ELSEWHERE)],
)
def test_a_bias_that_onnx_runtime_casts_beyond_int32_is_not_excused(target, finer, passed, rewrite, tmp_path):
    """But for a file for another runtime."""
    q_model, data = nearly_without_weights(target)
    proto = with_float_bias(onnx.load(qdq.export_onnx(q_model, tmp_path / "model.onnx").path), finer)
    assert finer == 1.0 or np.abs(run(proto, {"x": data}, optimized=True) - np.array(q_model(data))).mean() > 1.0
    parity = Parity(proto, q_model, {"x": data})
    assert all(output.passed for output in parity.end_to_end(optimized=False))
    (found,) = parity.end_to_end(optimized=True)
    assert (found.passed, found.rewrite) == (passed, rewrite)
    checks = list(OptimizationParity(proto, {"x": data}).checks())
    assert [check.passed for check in checks if check.name.startswith("output")] == [passed]


def test_weights_that_onnx_runtime_rounds_are_still_excused(tmp_path):
    """In files for other runtimes, which have no Clip in front of a float convolution."""
    keras.utils.set_random_seed(0)
    image = keras.Input((6, 6, 3), name="image")
    model = keras.Model(image, layers.Conv2D(4, 3, name="conv")(image))
    # One large weight, so that the others are rounded coarsely by the runtime, which has one scale for all.
    model.layers[1].kernel.assign(
        model.layers[1].kernel.numpy() + 30.0 * np.eye(1, 108, dtype="float32").reshape(3, 3, 3, 4)
    )
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_weight=False, quantize_output=True)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="tensorrt")
    data = np.asarray(samples(model))
    qdq.calibrate(q_model, data, verbose=False)
    proto = onnx.load(qdq.export_onnx(q_model, tmp_path / "model.onnx").path)
    (found,) = Parity(proto, q_model, {"image": data}).end_to_end(optimized=True)
    assert (found.passed, found.rewrite) == (True, OWN_QUANTIZATION)
