"""Products and extrema of masked tensors choose between values: what the files hold, and what is explained."""

import keras
import numpy as np
import pytest
from keras import layers
from runtimes_agreement import compare

import qdq_workbench as qdq
from qdq_workbench.export.litert.tflite_run import operators

WORDS = np.random.default_rng(0).integers(0, 10, (13, 5))
MERGES = (layers.Add, layers.Average, layers.Concatenate, layers.Maximum, layers.Minimum, layers.Multiply)


def net(kind, operands, *, mask=True):
    """A merge of embeddings: one with a mask, a layer behind it, which hands the mask on, and one without a mask."""
    keras.utils.set_random_seed(1)
    words = keras.Input((5,), dtype="int32", name="words")
    x = layers.Embedding(10, 4, mask_zero=mask, name="embedding")(words)
    tensors = {
        "first": x,
        "masked": layers.Dense(4, name="masked")(x),
        "plain": layers.Embedding(10, 4, name="plain")(words),
    }
    merge = kind(name="merge")([tensors[name] for name in operands])
    return keras.Model(words, layers.Dense(3, name="last")(merge))


def quantized(model, target):
    spec = qdq.QuantizationSpec()
    spec.add(name="*", match="glob", quantize_input=True, quantize_output=True)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    qdq.calibrate(q_model, WORDS, verbose=False)
    return q_model


@pytest.mark.parametrize("kind", MERGES)
@pytest.mark.parametrize("operands", [("first",), ("plain", "first")], ids="-".join)
def test_the_file_is_what_is_planned_and_runs_as_explained(kind, operands, tmp_path):
    q_model = quantized(net(kind, operands), "onnxruntime")
    compared, differing = compare(q_model, tmp_path / "model.onnx")
    assert compared
    assert not differing
    qdq.verify_onnx(tmp_path / "model.onnx", q_model, WORDS).raise_if_failed()


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt", "litert"])
def test_only_the_mask_makes_a_product_float(target):
    for mask, status in ((True, "float"), (False, "int8")):
        explained = qdq.explain(quantized(net(layers.Multiply, ("first", "masked"), mask=mask), target))
        assert explained.for_layer("merge").status == status, (target, mask)
        assert ("mask" in explained.for_layer("merge").reason) is mask


def test_planning_adds_no_pair_behind_what_runs_in_float():
    for mask in (True, False):
        spec = qdq.QuantizationSpec()
        spec.add(name=["embedding", "masked"], quantize_output=True)
        model = net(layers.Multiply, ("first", "masked"), mask=mask)
        plan = qdq.plan_placement(model, quantization_spec=spec, target="onnxruntime")
        assert (plan.output_placement("merge") is None) is mask


@pytest.mark.parametrize("kind", [layers.Maximum, layers.Minimum, layers.Multiply])
def test_litert_does_not_round_what_stands_in_for_masked_values(kind, tmp_path):
    """1 in place of a factor is beyond the range of embeddings of 0.05, to whose grid the converter would clip it."""
    q_model = quantized(net(kind, ("plain", "first")), "litert")
    path = tmp_path / "model.tflite"
    qdq.export_tflite(q_model, path)
    merges = [found for found in operators(path.read_bytes()) if any("merge" in name for name in found.results)]
    assert [found.writes_floats for found in merges if found.name.startswith("SELECT")] == [True]
    report = qdq.files.verify_tflite(path, q_model, WORDS)
    assert report.passed, report.summary()
