"""One small file and its model, compared part by part; what a report makes of it is in `test_verify.py`."""

import copy
import dataclasses

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from onnx import numpy_helper

import qdq_workbench as qdq
from qdq_workbench.quantizers import numerics
from qdq_workbench.verification.differences import TensorParity
from qdq_workbench.verification.parity import Parity
from qdq_workbench.verification.sensitivity import ROUNDED_OUTPUT

DATA = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
STEPS = np.random.default_rng(0).uniform(1, 2, size=(8, 2, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    keras.utils.set_random_seed(0)
    image = keras.Input((4,), name="image")
    hidden = layers.Dense(6, activation="relu", bias_initializer="ones", name="hidden")(image)
    head = layers.Dense(3, bias_initializer="ones", name="head")(hidden)
    spec = qdq.QuantizationSpec()
    # Sums of 7 bits are exact on every processor.
    spec.add(["hidden", "head"], quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 7}))
    q_model = qdq.quantize_model(keras.Model(image, [hidden, head]), quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, DATA, verbose=False)
    path = qdq.export_onnx(q_model, tmp_path_factory.mktemp("files") / "model.onnx").path
    return q_model, onnx.load(path)


@pytest.fixture(scope="module")
def parity(files):
    q_model, proto = files
    return Parity(proto, q_model, {"image": DATA})


def changed(files, name, change, data=DATA):
    """Compare a file one constant of which was changed."""
    q_model, proto = files
    proto = copy.deepcopy(proto)
    tensor = next(tensor for tensor in proto.graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), name))
    return Parity(proto, q_model, {"image": data})


def test_every_pair_of_the_file_is_compared(parity):
    found = parity.tensors()
    assert [tensor.tensor for tensor in found] == ["image", "hidden"]
    assert [tensor.elements for tensor in found] == [32, 48]
    assert max(tensor.worst for tensor in found) <= 1
    found.clear()
    assert len(parity.tensors()) == 2


def test_a_pair_that_the_file_lacks_is_left_out(files):
    q_model, proto = files
    proto = copy.deepcopy(proto)
    for node in proto.graph.node:
        node.name = node.name.replace("hidden/", "other/")
    assert [tensor.tensor for tensor in Parity(proto, q_model, {"image": DATA}).tensors()] == ["image"]


def test_what_is_wrong_in_front_of_a_pair_is_found_at_that_pair(files):
    wrong = changed(files, "hidden/kernel/quantized", lambda codes: codes // np.int8(2))
    worst = {tensor.tensor: tensor.worst for tensor in wrong.tensors()}
    assert worst["image"] == 0
    assert worst["hidden"] > 1
    assert max(wrong.forced_outputs().values()) <= 1.0  # what stands behind is fed the file's own values


def test_the_last_part_is_judged_on_the_files_own_values(parity, files):
    found = parity.forced_outputs()
    assert list(found) == ["hidden", "head"]
    assert max(found.values()) <= 1.0
    wrong = changed(files, "head/kernel/quantized", lambda codes: codes // np.int8(2))
    assert max(tensor.worst for tensor in wrong.tensors()) <= 1
    assert wrong.forced_outputs()["head"] > 1.0 >= wrong.forced_outputs()["hidden"]


@pytest.mark.parametrize("optimized", [True, False])
def test_a_good_file_passes_from_end_to_end_without_an_explanation(parity, optimized):
    for found in parity.end_to_end(optimized=optimized):
        assert (found.optimized, found.passed, found.rewrite, found.saturated) == (optimized, True, "", None)
        assert 0.0 <= found.mean_difference <= found.max_difference
        assert found.allowed > 0.0
        assert found.agreement >= 0.75


@pytest.mark.parametrize("optimized", [True, False])
def test_a_wrong_file_fails_from_end_to_end(files, optimized):
    wrong = changed(files, "head/kernel/quantized", lambda codes: codes // np.int8(2))
    hidden, head = wrong.end_to_end(optimized=optimized)
    assert (hidden.output, head.output) == ("hidden", "head")
    assert (hidden.passed, head.passed) == (True, False)
    assert head.mean_difference > head.allowed
    assert head.saturated is None


def test_the_numbers_are_those_of_the_outputs(parity, files):
    q_model, _ = files
    ours = np.asarray(q_model(DATA)[1])
    found = parity._compare_output("head", ours + np.float32(0.5) * (np.arange(3) == 0), optimized=True)
    assert found.max_difference == pytest.approx(0.5, rel=1e-5)
    assert found.mean_difference == pytest.approx(0.5 / 3, rel=1e-5)


def test_an_output_may_be_the_value_that_its_pair_rounds_to(parity, files):
    q_model, _ = files
    pair = next(tensor for tensor in q_model.plan.tensors if tensor.name == "hidden")
    grid = numerics.qparams_from_range(*q_model.activation_ranges()["hidden"], pair.quantizer)
    rounded = numerics.dequantize(numerics.quantize(np.asarray(q_model(DATA)[0]), grid), grid)
    failed = dataclasses.replace(parity.end_to_end(optimized=False)[0], mean_difference=9.0)
    again = parity._compare_rounded(failed, rounded)
    assert (again.rewrite, again.mean_difference) == (ROUNDED_OUTPUT, 0.0)
    assert parity._compare_rounded(failed, rounded + np.float32(9.0)) is failed
    without_pair = dataclasses.replace(parity.end_to_end(optimized=False)[1], mean_difference=9.0)
    assert parity._compare_rounded(without_pair, np.asarray(q_model(DATA)[1])) is without_pair


@pytest.mark.parametrize(("off_by_one", "moved"), [(0, 1), (8, 1), (9, 2)])
def test_as_many_values_are_moved_as_differ_and_at_least_one(off_by_one, moved, files):
    q_model, proto = files
    parity = Parity(proto, q_model, {"image": DATA})
    vars(parity)["_tensors"] = [TensorParity("image", 32, off_by_one, 1)]
    found = parity._perturb("image", DATA, np.random.default_rng(0))
    assert (found != DATA).sum(axis=1).tolist() == [moved] * len(DATA)


def test_vectors_have_one_layout(parity):
    values = np.zeros((2, 3))
    for shape in ((None, 3), (None, 2)):
        assert parity._layouts("hidden", values, shape)[0] is values
    image = np.arange(8.0).reshape(1, 2, 2, 2)
    assert len(parity._layouts("hidden", image, (None, 2, 2, 2))) > 1


def test_a_constant_that_the_rounding_of_its_bias_moves_over_a_tie_is_allowed(tmp_path):
    """A convolution that reads nothing but padding writes its bias: one flip is one in all samples."""
    keras.utils.set_random_seed(0)
    dot = keras.Input((1, 1, 1), name="dot")
    conv = layers.Conv2D(6, 2, dilation_rate=2, padding="same", bias_initializer="normal", name="conv")
    q_model = qdq.quantize_model(keras.Model(dot, conv(dot)), target="onnxruntime")
    data = np.random.default_rng(0).normal(size=(13, 1, 1, 1)).astype(np.float32)
    qdq.calibrate(q_model, data, verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    parity = Parity(onnx.load(path), q_model, {"dot": data})
    allowed = dict(parity._keras_outputs[1])
    found = [tensor.explained for tensor in parity._compared_tensors(known_errors=True)]
    assert sum(np.count_nonzero(steps) for steps in found if steps is not None) == len(data)
    (found,) = parity.end_to_end(optimized=False)
    assert found.passed
    assert found.mean_difference > allowed["conv"]


@pytest.fixture(scope="module")
def saturated(tmp_path_factory):
    """A GRU whose states are 1 and -1, half a step from two integers; those of ONNX Runtime are 1.0000005."""
    values = keras.Input((2, 2), name="image")
    kernel = keras.initializers.Constant([[-60.0, -60.0, 60.0, 60.0, 60.0, -60.0]] * 2)
    spec = qdq.QuantizationSpec()
    spec.add("gru", quantize_output=True)
    model = keras.Model(values, layers.GRU(2, kernel_initializer=kernel, name="gru")(values))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, STEPS, verbose=False)
    return q_model, onnx.load(qdq.export_onnx(q_model, tmp_path_factory.mktemp("saturated") / "model.onnx").path)


def test_a_state_that_an_error_of_its_functions_moves_over_a_tie_is_allowed(saturated):
    q_model, proto = saturated
    parity = Parity(proto, q_model, {"image": STEPS})
    allowed = dict(parity._keras_outputs[1])
    (found,) = parity.end_to_end(optimized=False)
    assert found.passed
    assert found.mean_difference > allowed["gru"]
    nothing, steps = (tensor.explained for tensor in parity._excused_tensors)
    assert nothing is None
    assert np.count_nonzero(steps) == len(STEPS)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("gru/scale", lambda scale: scale / np.float32(2)),
        ("gru/zero_point", lambda zero: np.uint8(zero - 4)),
        ("gru/cell/kernel/quantized", lambda codes: np.roll(codes, 2, axis=1)),
        ("gru/cell/kernel/quantized", lambda codes: codes[:, ::-1].copy()),
    ],
    ids=["scale", "zero point", "order of the gates", "order of the units"],
)
def test_values_at_ties_excuse_no_fault(name, change, saturated):
    parity = changed(saturated, name, change, STEPS)
    (found,) = parity.end_to_end(optimized=False)
    assert not found.passed


COARSE = {
    "a channel of all samples": ((3,), layers.Dense, (3,), []),
    "a channel at all places": ((16, 16, 1), layers.Conv2D, (3, 2), [layers.GlobalAveragePooling2D()]),
}


@pytest.fixture(scope="module", params=COARSE)
def coarse(request, tmp_path_factory):
    """A layer whose bias of nearly half a step, several of those of the pair behind it, is 0 in the file.

    Its input lies on a grid of 4 bits, so that moving it by 1/255 of its range moves nothing.
    """
    keras.utils.set_random_seed(0)
    shape, made, sizes, between = COARSE[request.param]
    values = keras.Input(shape, name="image")
    hidden, head = made(*sizes, name="hidden"), layers.Dense(2, name="head")
    model = keras.Model(values, keras.Sequential([*between, head], name="last")(hidden(-values)))
    kernel = np.random.default_rng(3).choice([-1.0, 1.0], hidden.kernel.shape)
    hidden.set_weights([kernel, np.array([-0.49, 0.0, 0.0]) / 7])
    bits = {"weight": {"num_bits": 2}, "activation": {"num_bits": 4, "symmetric": True, "narrow_range": True}}
    spec = qdq.QuantizationSpec()
    spec.add("hidden", quantize_input=True, quantize_config=qdq.LayerQuantizeConfig(**bits))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    data = (np.random.default_rng(0).integers(-7, 8, (13, *shape)) / 7).astype(np.float32)
    qdq.calibrate(q_model, data, verbose=False)
    proto = onnx.load(qdq.export_onnx(q_model, tmp_path_factory.mktemp("coarse") / "model.onnx").path)
    return q_model, proto, data


def test_the_channel_that_the_rounding_of_a_coarse_bias_moves_is_allowed(coarse):
    q_model, proto, data = coarse
    parity = Parity(proto, q_model, {"image": data})
    allowed = dict(parity._keras_outputs[1])
    for optimized in (False, True):
        (found,) = parity.end_to_end(optimized=optimized)
        assert found.passed
        assert found.mean_difference > 10 * allowed["last"]
        assert found.allowed - found.mean_difference == pytest.approx(allowed["last"], rel=0.1)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("hidden/scale", lambda scale: scale / np.float32(1.5)),
        ("hidden/zero_point", lambda zero: np.uint8(zero - 1)),
        ("hidden/zero_point", lambda zero: np.uint8(zero + 4)),
        ("hidden/bias/quantized", lambda codes: codes + np.int32([1, 0, 0])),
        ("hidden/bias/quantized", lambda codes: codes + np.int32([0, 0, 1])),
        ("last/head/kernel/quantized", lambda codes: codes[::-1].copy()),
        ("last/head/kernel/scale", lambda scale: scale * np.float32(1.01)),
    ],
    ids=["scale", "a step", "four steps", "its bias", "another bias", "order of the weights", "scale behind"],
)
def test_a_coarse_bias_excuses_no_fault(name, change, coarse):
    q_model, proto, data = coarse
    parity = changed((q_model, proto), name, change, data)
    (found,) = parity.end_to_end(optimized=False)
    assert parity.differing() or not found.passed


def test_a_step_of_the_kernel_of_a_softmax_is_allowed(tmp_path):
    """ONNX Runtime's softmax of integers returns the integer below 1 for 1; one sample has few others beside it."""
    keras.utils.set_random_seed(0)
    logits = keras.Input((6, 6), name="logits")
    model = keras.Model(logits, layers.Dense(1, name="head")(layers.Softmax(name="softmax")(logits)))
    spec = qdq.QuantizationSpec()
    spec.add("softmax", quantize_output=True)
    spec.add("head", quantize_input=False, quantize_weight=False)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    data = 1e6 * np.eye(6, dtype=np.float32)[None]
    qdq.calibrate(q_model, np.concatenate([data, -data]), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    parity = Parity(onnx.load(path), q_model, {"logits": data})
    allowed = parity._keras_outputs[1]["head"]
    (found,) = parity.end_to_end(optimized=True)
    moved = parity._moved_by_kernels["head"]
    assert allowed < found.mean_difference <= found.allowed == parity._keras_outputs[1]["head"] + moved


def test_kernels_move_nothing_without_a_softmax(parity):
    assert set(parity._moved_by_kernels.values()) == {0.0}


def test_values_are_moved_until_the_difference_is_explained(files):
    """Each pair whose values are moved takes runs of the whole model."""
    q_model, proto = files
    compared = Parity(proto, q_model, {"image": DATA})
    _, head = compared.end_to_end(optimized=False)
    allowed = compared._keras_outputs[1]
    first, other = allowed["head"], {"hidden": allowed["hidden"]}
    compared.__dict__["_raises"] = raises = iter([{**other, "head": first / 2}, {**other, "head": 9.0}, {"head": 99.0}])
    found = [dataclasses.replace(head, mean_difference=5.0)]
    assert compared._raised_for_known_errors(found)
    assert allowed["head"] == 9.0  # what allows less lowers nothing
    assert list(raises) == [{"head": 99.0}]
    assert not compared._raised_for_known_errors(found)
