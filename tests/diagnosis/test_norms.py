"""Statistics of batch normalizations that were taken from the data are no cause."""

import types

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.analysis.samples import read_samples
from qdq_workbench.correction import estimate_statistics
from qdq_workbench.diagnosis.evidence import read_evidence
from qdq_workbench.diagnosis.norms import stale_statistics


def test_padding_does_not_count():
    keras.utils.set_random_seed(0)
    tokens = keras.Input((6,), dtype="int32", name="tokens")
    hidden = layers.Embedding(10, 4, mask_zero=True, name="table")(tokens)
    model = keras.Model(tokens, layers.BatchNormalization(epsilon=1e-6, name="norm")(hidden))
    x = np.array([[1 + (row + step) % 9 if step <= row % 3 else 0 for step in range(6)] for row in range(30)])
    estimate_statistics(model, x, verbose=False)
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, x, verbose=False)
    evidence = read_evidence(q_model, read_samples(q_model, x), types.SimpleNamespace(total=0.0))
    assert not list(stale_statistics(evidence))
    # What padding itself is counts for the range, as it does for `calibrate`.
    table = model.get_layer("table").embeddings.numpy()
    assert evidence.statistics["table"].low == pytest.approx(table.min())

    q_model.get_layer("norm").moving_mean.assign_add(keras.ops.ones_like(model.get_layer("norm").moving_mean))
    evidence = read_evidence(q_model, read_samples(q_model, x), types.SimpleNamespace(total=0.0))
    assert [finding.tensor for finding in stale_statistics(evidence)] == ["table"]


def test_a_normalization_of_another_axis_is_not_compared_with_channels():
    steps = keras.Input((4, 4), name="steps")
    model = keras.Model(steps, layers.BatchNormalization(axis=1, name="norm")(steps))
    x = np.random.default_rng(0).normal(size=(64, 4, 4)).astype("float32") + np.arange(4.0)[:, None]
    estimate_statistics(model, x, verbose=False)
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, x, verbose=False)
    evidence = read_evidence(q_model, read_samples(q_model, x), types.SimpleNamespace(total=0.0))
    assert not list(stale_statistics(evidence))


@pytest.mark.parametrize(("stale", "told"), [("first", "first"), ("second", "second"), ("both", "second")])
def test_a_variance_alone_may_be_stale_and_the_worst_normalization_is_told(stale, told):
    rows = keras.Input((3,), name="rows")
    model = keras.Model(rows, [layers.BatchNormalization(name=name)(rows) for name in ("first", "second")])
    x = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
    estimate_statistics(model, x, verbose=False)
    for name, factor in (("first", 4.0), ("second", 16.0)):
        if stale in (name, "both"):
            variance = model.get_layer(name).moving_variance
            variance.assign(variance * factor)
    spec = qdq.QuantizationSpec()
    for name in ("first", "second"):
        spec.add(name, quantize_input=True)
    q_model = qdq.quantize_model(model, quantization_spec=spec)
    qdq.calibrate(q_model, x, verbose=False)
    evidence = read_evidence(q_model, read_samples(q_model, x), types.SimpleNamespace(total=0.0))

    (finding,) = stale_statistics(evidence)

    assert finding.layer == told
    assert ("; one more normalization is off" in finding.evidence) == (stale == "both")
