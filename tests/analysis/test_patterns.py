"""Equal places of repeated blocks share one decision, where that is asked for."""

import itertools

import numpy as np
import pytest
from searched_nets import QUIET

import qdq_workbench as qdq
from qdq_workbench.analysis.levels import FLOAT, raise_layers
from qdq_workbench.analysis.patterns import group_equal
from qdq_workbench.analysis.search_result import cost_of
from qdq_workbench.conversion.engine.retarget import replan


def test_layers_are_equal_by_place_not_by_name(residual):
    plan = residual[0].plan

    groups = group_equal(plan, plan.graph.layers)

    # The first block reads the stem and the second one a sum; the sums are read by different layers too.
    assert groups["a_out"] == ("a_out", "b_out")
    assert groups["stem"] == ("stem",)
    spec = qdq.QuantizationSpec()
    spec.add("b_out", quantize_weight=False)
    other = qdq.plan_placement(residual[3], quantization_spec=spec, target="tensorrt")
    assert group_equal(other, ["a_out", "b_out"]) == {"a_out": ("a_out",), "b_out": ("b_out",)}


@pytest.fixture(scope="module")
def coarse(residual):
    """Weights of 2 bits, so that every group of layers costs accuracy."""
    _, x, y, model = residual
    spec = qdq.QuantizationSpec()
    names = [layer.name for layer in model.layers if layer.weights]
    spec.add(names, quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 2}))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="tensorrt")
    qdq.calibrate(q_model, x, verbose=False)
    return q_model, x, y


def test_equal_layers_take_one_level_and_the_best_of_all_is_found(coarse):
    q_model, x, y = coarse
    arguments = {"accuracy_floor": 0.9, "bits": (), "confirmation_data": (x, y), **QUIET}

    result = qdq.search(q_model, (x, y), share="patterns", **arguments)

    plan = q_model.plan
    ranked = [layer for layer in plan.graph.layers if any(p.layer == layer for p in plan.placements)]
    groups = group_equal(plan, ranked)
    assert len(groups) < len(ranked)
    for step in result.history:
        assert all(len({step.levels.get(member) for member in members}) == 1 for members in groups.values())
    costs = []
    for chosen in itertools.product((False, True), repeat=len(groups)):
        floats = [m for members, is_float in zip(groups.values(), chosen, strict=True) if is_float for m in members]
        other = raise_layers(plan, dict.fromkeys(floats, FLOAT))
        if cost_of(other) < result.best.cost:  # what is dearer need not be run
            answers = np.argmax(replan(q_model, other)(x), axis=-1)
            costs.append(float(np.mean(answers == y)))
    assert (result.met, result.exact) == (True, True)
    assert all(accuracy < 0.9 for accuracy in costs)
    assert len(costs) > 0
