"""Scales along an axis that products are summed up over: no integer kernel, and a named failure instead of a crash."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq

CASES = {
    "convolution along its input": (layers.Conv2D(3, 2, name="layer"), (4, 4, 2), "kernel", 2, False),
    "product along its input": (layers.Dense(3, name="layer"), (4,), "kernel", 0, False),
    "depthwise along its multiplier": (
        *(layers.DepthwiseConv2D(2, depth_multiplier=2, name="layer"), (4, 4, 2)),
        *("kernel", 3, True),
    ),
}


def exported(layer, shape, weight, axis, path):
    keras.utils.set_random_seed(0)
    image, spec = keras.Input(shape, name="image"), qdq.QuantizationSpec()
    model = keras.Model(image, layer(image))
    spec.add("layer", quantize_config=qdq.LayerQuantizeConfig(weight={weight: {"axis": axis, "per_axis": True}}))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, np.random.default_rng(0).normal(size=(4, *shape)).astype(np.float32), verbose=False)
    qdq.export_onnx(q_model, path)
    return q_model


@pytest.mark.parametrize("case", CASES)
def test_explain_promises_integers_only_where_the_file_runs(case, tmp_path):
    layer, shape, weight, axis, runs = CASES[case]
    config = layer.get_config()
    q_model = exported(type(layer).from_config(config), shape, weight, axis, tmp_path / "model.onnx")
    report = qdq.verify_onnx(tmp_path / "model.onnx", q_model)
    assert report.passed == runs
    entry = qdq.explain(q_model).for_layer("layer")
    assert entry.status == ("int8" if runs else "float")
    if not runs:
        assert f"lie along axis {axis}, over which an integer kernel sums up" in entry.reason
        failed = next(check for check in report.checks if not check.passed)
        assert failed.name == "runs in ONNX Runtime"
        assert "opens the file and fails to run it" in failed.detail
        assert "its scales lie along axis" in failed.detail
        assert "per_axis=False" in failed.detail


def test_a_file_alone_fails_by_name_too(tmp_path):
    layer, shape, weight, axis, _ = CASES["product along its input"]
    exported(type(layer).from_config(layer.get_config()), shape, weight, axis, tmp_path / "model.onnx")
    report = qdq.verify_onnx(tmp_path / "model.onnx", data=np.zeros((2, *shape), np.float32))
    assert [check.name for check in report.checks if not check.passed] == ["runs in ONNX Runtime"]


@pytest.mark.parametrize("target", qdq.target_names())
def test_no_target_sums_up_over_several_scales(target):
    image, spec = keras.Input((4, 4, 2), name="image"), qdq.QuantizationSpec()
    x = layers.TimeDistributed(layers.Dense(3), name="steps")(layers.SpectralNormalization(layers.Conv2D(3, 1))(image))
    model = keras.Model(image, layers.Conv2D(3, 2, name="layer")(x))
    spec.add("layer", quantize_output=True, quantize_config=qdq.LayerQuantizeConfig(weight={"axis": 1}))
    spec.add("steps", quantize_config=qdq.LayerQuantizeConfig(weight={"layer/kernel": {"axis": 0, "per_axis": True}}))
    found = qdq.explain(qdq.plan_placement(model, quantization_spec=spec, target=target))
    for name in ("layer", "steps"):
        assert found.for_layer(name).status == "float"
        assert "over which an integer kernel sums up" in found.for_layer(name).reason
