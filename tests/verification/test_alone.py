"""A file without its Keras model: ONNX Runtime's optimized run is judged by its plain one."""

import base64
import dataclasses
import json
import zlib

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from onnx import numpy_helper
from qdq_files import FileMaker, save
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.export.metadata import graph_digest, read_metadata
from qdq_workbench.verification import forms
from qdq_workbench.verification.alone import OptimizationParity, random_samples
from qdq_workbench.verification.structure_reader import read_structure


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    image = keras.Input((3,), name="image")
    model = keras.Model(image, layers.Dense(2, name="head", bias_initializer="ones")(image))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model, 32), verbose=False)
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    qdq.export_onnx(q_model, path)
    return path


def signed_again(proto):
    """Write the digest of a changed graph into the exporter's note: only the numbers can tell then."""
    noted = {**read_metadata(proto), "graph_sha256": graph_digest(proto)}
    proto.metadata_props[0].value = base64.b85encode(zlib.compress(json.dumps(noted).encode())).decode()


def test_a_difference_between_the_optimized_and_the_plain_run_fails(exported, tmp_path, monkeypatch):
    """ONNX Runtime takes the scale of a Gemm's bias for granted, whatever stands in the file."""
    monkeypatch.setattr(forms, "form_differences", lambda *_: [])  # it finds that scale before the file runs
    assert qdq.verify_onnx(exported).passed
    proto = onnx.load(exported)
    scale = next(tensor for tensor in proto.graph.initializer if tensor.name == "head/bias/scale")
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(1001.0), scale.name))
    signed_again(proto)
    onnx.save(proto, tmp_path / "changed.onnx")
    for data in (np.ones((2, 3), "float32"), None):
        report = qdq.verify_onnx(tmp_path / "changed.onnx", data=data)
        assert [check.name for check in report.checks if not check.passed] == ["output 'head' runs in ONNX Runtime"]


def test_a_pair_with_less_than_8_bits_has_the_range_of_its_clip(tmp_path):
    image = keras.Input((3,), name="image")
    model = keras.Model(image, layers.Dense(2, name="head")(image))
    target = qdq.targets.get_target("onnxruntime")
    target = dataclasses.replace(target, activation=target.activation.replace(num_bits=4))
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, samples(model, 32), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    low, high = q_model.activation_ranges()["image"]
    step = (high - low) / 15

    drawn = random_samples(onnx.load(path))["image"]
    assert low - step <= drawn.min() < low + 2 * step
    assert high - 2 * step < drawn.max() <= high + step
    np.testing.assert_allclose(qdq.certify(path).pairs["image"]["range"], [low, high], atol=step)


@pytest.mark.parametrize("bounds", [(), ("low",), ("", "high"), ("low", "high")])
def test_a_clip_that_another_exporter_named_alike_may_lack_a_bound(bounds, tmp_path):
    """PyTorch names nodes "/features/Clip" and "/features/QuantizeLinear"."""
    f = FileMaker()
    f.constant("low", np.float32(0.0))
    f.constant("high", np.float32(6.0))
    clipped = f.node("Clip", ["x", *bounds], "/features/Clip")
    codes = f.quantize(clipped, "/features/QuantizeLinear", scale=0.05)
    values = f.dequantize(codes, "/features/DequantizeLinear", scale=0.05)
    proto = onnx.load(save(f.model(f.conv(values, "conv")), tmp_path / "model.onnx"))
    known = (0.0, 6.0) if bounds == ("low", "high") else None
    assert read_structure(proto).pairs["/features"].bounds == known
    low, high = known or (-1.0, 1.0)
    drawn = random_samples(proto)["x"]
    assert low <= drawn.min() < drawn.max() <= high


def test_kernels_that_round_by_more_than_a_step_are_named(exported, monkeypatch):
    proto = onnx.load(exported)
    inputs = random_samples(proto)
    good = list(OptimizationParity(proto, inputs).checks())
    assert [check.passed for check in good] == [True] * 2
    assert inputs["image"].shape == (8, 3)
    assert np.ptp(inputs["image"]) > 3.0  # drawn from the calibrated range, that of 96 normal numbers
    from qdq_workbench.verification import alone

    def coarser(proto, codes):
        cut = original(proto, codes)
        quantize = next(node for node in cut.graph.node if node.op_type == "QuantizeLinear")
        scale = next(tensor for tensor in cut.graph.initializer if tensor.name == quantize.input[1])
        finer = numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(0.9), "finer")
        cut.graph.initializer.append(finer)
        quantize.input[1] = "finer"
        return cut

    original = alone.cut_behind
    monkeypatch.setattr(alone, "cut_behind", coarser)
    bad = next(OptimizationParity(proto, inputs).checks())
    assert not bad.passed
    assert "differs from the plain run's by up to" in bad.detail


def test_the_runs_of_a_good_file_are_within_what_its_sensitivity_allows(tmp_path):
    model = residual_net()
    for target in ("onnxruntime", "tensorrt"):
        q_model = qdq.quantize_model(model, target=target)
        qdq.calibrate(q_model, samples(model, 32), verbose=False)
        qdq.export_onnx(q_model, tmp_path / "model.onnx", dynamic_batch=target != "tensorrt")
        report = qdq.verify_onnx(tmp_path / "model.onnx")
        assert report.passed, report.summary()
        assert "tensor by tensor in ONNX Runtime" in [check.name for check in report.checks]


def test_sizes_that_are_open_are_not_guessed(tmp_path):
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    pooled = layers.GlobalAveragePooling1D()(layers.Embedding(7, 4)(tokens))
    q_model = qdq.quantize_model(keras.Model(tokens, layers.Dense(2, name="head")(pooled)), target="onnxruntime")
    data = np.arange(14).reshape(2, 7).astype("int32") % 7
    qdq.calibrate(q_model, data, verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    alone = qdq.verify_onnx(path)
    assert alone.passed
    assert "not run, because sizes besides the batch are open" in alone.summary()
    fed = qdq.verify_onnx(path, data=data)
    assert fed.passed
    assert "output 'head' runs in ONNX Runtime" in fed.summary()


def test_a_fixed_batch_is_allowed_what_an_open_one_is():
    """Of a fixed batch the integers of one batch are compared, so what differs there is divided by its samples."""
    codes = np.random.default_rng(0).integers(-2, 3, (1, 2, 16, 16))
    data = np.repeat(codes.astype(np.float32) * np.float32(0.1), 16, 0)  # equal samples: every batch differs alike
    details = []
    for batch in (None, 1):
        f = FileMaker((batch, 2, 16, 16))
        conv = f.node("Conv", [f.pair("x", "in", zero=128), f.weight("w", scale=0.1)], "conv", pads=[1, 1, 1, 1])
        f.pair(conv, "out", zero=128)  # many sums are halfway between two steps, and kernels round them either way
        parity = OptimizationParity(f.model("out_dq"), {"x": data})
        details.append([check.detail for check in parity.checks()])
    (everything, of_open), (one_batch, of_fixed) = details
    apart = int(one_batch.split()[0])
    assert apart > 4
    assert int(everything.split()[0]) == 16 * apart
    assert of_fixed == of_open


@pytest.mark.parametrize("float_type", ["float32", "float16"])
def test_fewer_samples_than_a_fixed_batch_are_repeated(float_type, tmp_path):
    image = keras.Input(batch_shape=(16, 3), name="image")
    q_model = qdq.quantize_model(keras.Model(image, layers.Dense(2, name="head")(image)), target="onnxruntime")
    data = np.random.default_rng(0).normal(size=(16, 3)).astype("float32")
    qdq.calibrate(q_model, data, verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx", float_type=float_type).path
    for given in (None, q_model):
        report = qdq.verify_onnx(path, given, data=data[:8])
        assert report.passed, report.summary()
