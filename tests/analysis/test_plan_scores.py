"""Placements scored by switches have the values of models that were built for them."""

import numpy as np
import pytest
from small_benches import tiny_data, tiny_model

import qdq_workbench as qdq
from qdq_workbench.analysis import PlanScores


@pytest.fixture(scope="module")
def given():
    model = tiny_model()
    q_model = qdq.quantize_model(model, target="onnxruntime")
    ranges = qdq.calibrate(q_model, tiny_data()[0], verbose=False)
    return model, q_model, ranges


def without(model, **wishes):
    spec = qdq.QuantizationSpec()
    for layer, site in wishes.items():
        spec.add(layer, **{f"quantize_{site}": False})
    return qdq.plan_placement(model, "full", spec, target="onnxruntime")


def test_a_placement_scores_what_its_own_model_scores(given):
    model, q_model, ranges = given
    data = tiny_data()[0]
    reference = np.asarray(model(data))
    scores = PlanScores(q_model, data)
    assert scores.samples == len(data)
    found = []
    for plan in (q_model.plan, without(model, conv="weight"), without(model, conv="weight", head="weight")):
        built = qdq.quantize_model(model, plan=plan)
        qdq.apply_calibration(built, ranges)
        noise = np.sum((reference.astype(float) - np.asarray(built(data))) ** 2)
        own = 10 * np.log10(np.sum(reference.astype(float) ** 2) / noise)
        found.append(scores.measure(plan))
        assert found[-1] == pytest.approx(own, abs=0.01)
    assert len(set(found)) == 3


def test_pairs_that_the_model_lacks_are_for_another_model(given):
    model, q_model, _ = given
    spec = qdq.QuantizationSpec()
    spec.add("norm", quantize_input=True)
    more = qdq.plan_placement(model, "full", spec, target="onnxruntime")
    scores = PlanScores(q_model, tiny_data(), "accuracy")
    assert scores.measure(more) is None
    assert 0 <= scores.measure(q_model.plan) <= 1
    with pytest.raises(qdq.SpecError, match="same model"):
        scores.measure(qdq.plan_placement(tiny_model(conv="other")))
