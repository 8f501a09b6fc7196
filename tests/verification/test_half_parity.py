"""A file in half precision is compared with its float32 form, within what rounding to its type explains."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from onnx import TensorProto, numpy_helper
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.graph.half_precision import HALF_TYPES
from qdq_workbench.onnx_graph.batches import run_session
from qdq_workbench.onnx_graph.sessions import make_session
from qdq_workbench.verification import half_parity, verify
from qdq_workbench.verification.half_parity import HalfParity, run_of_half
from qdq_workbench.verification.rounded_form import float_type_of, rounded_form, type_differences
from qdq_workbench.verification.rounding_noise import RoundingNoise

KIND = HALF_TYPES["float16"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model, its samples, its file in float16 and the same file in float32."""
    model = residual_net()
    image = keras.Input((8, 8, 2), name="image")
    logits = layers.Activation("tanh", name="bend")(model(image))
    model = keras.Model(image, layers.Softmax(name="scores")(logits))
    q_model = qdq.quantize_model(model)
    data = samples(model, 16)
    qdq.calibrate(q_model, data, verbose=False)
    folder = tmp_path_factory.mktemp("files")
    half = qdq.export_onnx(q_model, folder / "half.onnx", float_type="float16").path
    twin = qdq.export_onnx(q_model, folder / "twin.onnx", opset=19).path
    return q_model, np.asarray(data, np.float32), half, onnx.load(half), onnx.load(twin)


def copy(proto):
    copied = onnx.ModelProto()
    copied.CopyFrom(proto)
    return copied


def failing(proto, twin, data):
    checks = HalfParity(proto, twin, run_of_half(proto, KIND), {"image": data}).checks()
    return [check.name for check in checks if not check.passed]


def constant(proto, name):
    return next(tensor for tensor in proto.graph.initializer if tensor.name == name)


def scale(proto, name, factor):
    found = constant(proto, name)
    values = numpy_helper.to_array(found)
    found.CopyFrom(numpy_helper.from_array((values * factor).astype(values.dtype), name))


def test_a_good_file_passes(files):
    _, data, _, proto, twin = files
    assert (float_type_of(proto), float_type_of(twin)) == ("float16", "float32")
    assert failing(proto, twin, data) == []
    assert type_differences(proto, proto) == []


@pytest.mark.parametrize(
    ("name", "factor"), [("kernel/scale/float16", 1.02), ("relu/scale/float16", 0.98), ("bias", 1.5)]
)
def test_a_constant_that_is_off_is_found_by_its_numbers(files, name, factor):
    _, data, _, proto, twin = files
    planted = copy(proto)
    convolution = next(node for node in proto.graph.node if node.op_type == "Conv" and len(node.input) > 2)
    known = [tensor.name for tensor in proto.graph.initializer if tensor.name.endswith(name)]
    scale(planted, convolution.input[2] if name == "bias" else known[0], factor)
    assert failing(planted, twin, data)


def test_faults_are_found_with_the_model(files, tmp_path):
    """One scale changed by a thousandth; a part in another type; a file of another type than it says."""
    q_model, data, path, proto, _ = files
    planted = copy(proto)
    found = next(tensor.name for tensor in proto.graph.initializer if tensor.name.endswith("kernel/scale/float16"))
    scale(planted, found, 1.002)
    other = copy(proto)
    cast = next(node for node in other.graph.node if node.op_type == "Cast")
    reader = next(node for node in other.graph.node if cast.output[0] in node.input)
    reader.input[:] = [cast.input[0] if name == cast.output[0] else name for name in reader.input]
    for case, word in ((planted, "scale"), (other, "")):
        onnx.save(case, tmp_path / "planted.onnx")
        report = qdq.verify_onnx(tmp_path / "planted.onnx", q_model, data)
        assert not report.passed
        assert word in report.summary()
    assert not qdq.verify_onnx(tmp_path / "planted.onnx", data=data).passed
    assert qdq.verify_onnx(path, q_model, data).passed


@pytest.mark.parametrize("truncated", [True, False])
def test_a_release_that_truncates_float16_values_is_not_asked_about_them(files, truncated, monkeypatch):
    _, data, _, proto, twin = files
    monkeypatch.setattr(half_parity, "halves_are_truncated", lambda: truncated)
    assert ("truncates" in run_of_half(proto, KIND).why_not) == truncated
    assert run_of_half(twin, KIND).why_not == ""  # whose pairs read float32
    if truncated:
        assert failing(proto, twin, data) == []
        planted = copy(proto)
        scale(planted, next(tensor.name for tensor in proto.graph.initializer if "relu/scale/" in tensor.name), 0.98)
        assert failing(planted, twin, data)


def test_nodes_in_another_type_are_named(files):
    _, _, _, proto, twin = files
    differences = type_differences(proto, twin)
    assert any("computes in float, expected float16" in sentence for sentence in differences)
    assert any("is missing" in sentence for sentence in differences)


def test_the_rounded_form_is_what_onnx_runtime_computes(files):
    _, data, _, proto, _ = files
    form = rounded_form(proto)
    held = {tensor.data_type for tensor in form.graph.initializer}
    assert not held & {TensorProto.FLOAT16, TensorProto.BFLOAT16}
    ours, theirs = (run_session(make_session(m, optimized=False), {"image": data})["scores"] for m in (form, proto))
    np.testing.assert_allclose(ours, theirs, atol=4 * KIND.roundoff)


def test_noise_moves_as_far_as_rounding_can_and_no_farther(files):
    """By u of the size of a value in half precision and half the smallest number, up or down; in float32 by nothing."""
    x = onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, [4096])
    y, z = (onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, [4096]) for name in "yz")
    make = onnx.helper.make_node

    def built(half):
        nodes = [make("Relu", ["x"], ["y"], "kept")]
        if half:
            nodes += [make("Cast", ["y"], ["c"], "y/to_float16", to=10), make("Neg", ["c"], ["n"], "negated")]
            nodes += [make("Cast", ["n"], ["z"], "n/to_float32", to=1)]
        else:
            nodes += [make("Neg", ["y"], ["z"], "negated")]
        graph = onnx.helper.make_graph(nodes, "g", [x], [y, z])
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9)

    twin = built(half=False)
    noise = RoundingNoise(twin, built(half=True), KIND)
    values = np.random.default_rng(0).uniform(0.1, 3.0, 4096).astype(np.float32)
    exact = run_session(make_session(twin, optimized=False), {"x": values})
    for seed in noise.seeds:
        moved = run_session(make_session(noise.copy(twin, seed), optimized=False), {"x": values})
        error = (moved["z"] - exact["z"]) / exact["z"]
        assert np.abs(error).max() <= 2.01 * KIND.roundoff  # its source is rounded, and so is the value itself
        assert np.abs(error).max() >= 1.9 * KIND.roundoff
        assert 0.2 < (error > KIND.roundoff).mean() < 0.3  # both up; one up and one down cancel


@pytest.mark.parametrize("with_model", [True, False])
def test_whether_the_runtime_runs_a_file_is_found_out_once(files, monkeypatch, with_model):
    q_model, data, half, *_ = files
    asked = []
    monkeypatch.setattr(verify, "run_of_half", lambda *args: asked.append(args) or run_of_half(*args))
    assert qdq.verify_onnx(half, q_model if with_model else None, data).passed
    assert len(asked) == 1
