"""The explanation for ONNX Runtime, checked by execution: random plans of small networks, node by node.

`make agreement` does the same with 200 plans for every oracle network and every model of keras.applications.
"""

import numpy as np
import pytest
from agreement.fast_export import FastExport
from agreement.networks import SMALL, build
from agreement.statuses import compare
from agreement.toggles import other_grids_plan, random_plan

import qdq_workbench as qdq

PLANS = 12
OTHER_GRIDS = 4


@pytest.mark.parametrize("name", SMALL)
def test_random_plans(name, tmp_path):
    export = FastExport(build(name))
    total = 0
    for number in range(PLANS):
        plan = random_plan(export.graph, np.random.default_rng([11, number]), plain=number == 0)
        compared, differing = compare(qdq.explain(plan), export.build(plan, seed=number), tmp_path)
        assert differing == [], (number, plan.summary())
        total += compared
    assert total >= 3 * PLANS
    for number in range(OTHER_GRIDS):
        plan = other_grids_plan(export.graph, np.random.default_rng([12, number]))
        _, differing = compare(qdq.explain(plan), export.build(plan, seed=number), tmp_path)
        assert differing == [], (number, plan.summary())
