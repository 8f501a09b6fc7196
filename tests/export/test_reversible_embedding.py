"""A ReversibleEmbedding looks up in its table, and multiplies with it for the logits of a language model."""

import keras
import numpy as np
import pytest
from keras import layers
from qdq_files import integer_share

import qdq_workbench as qdq
from qdq_workbench.verification.integer_kernels import count_integer_kernels

WORDS = np.random.default_rng(0).integers(0, 20, (8, 5)).astype("int32")


@pytest.mark.parametrize("tied", [True, False])
def test_the_product_runs_on_integers_and_is_counted_by_call(tied, tmp_path):
    words = keras.Input((5,), dtype="int32", name="words")
    # Not 20 words: ONNX Runtime before 1.25 miscomputes 33 rows or more by 17 to 31 columns on processors with AMX.
    table = layers.ReversibleEmbedding(32, 8, tie_weights=tied, name="table")
    model = keras.Model(words, table(layers.Dense(8, name="dense")(table(words)), reverse=True))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, WORDS, verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    qdq.verify_onnx(report.path, q_model, WORDS).raise_if_failed()
    assert integer_share(count_integer_kernels(report.path), "MatMul", "Gemm") == 1.0
    explanation = qdq.explain(q_model)
    entry = explanation.for_layer("table")
    # The lookup has no kernel.
    assert (entry.status, entry.macs, entry.int8_macs) == ("partial", 5 * 8 * 32, 5 * 8 * 32)
    assert explanation.coverage["macs"] == 1.0
