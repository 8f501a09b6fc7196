"""The fast way from a plan to a file is as good as the exporter's: the same kernels, node by node."""

import numpy as np
import pytest
from agreement.fast_export import FastExport
from agreement.networks import SMALL, build
from agreement.toggles import random_plan, random_wishes
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.verification import count_integer_kernels


@pytest.mark.parametrize("name", SMALL)
def test_the_same_kernels_as_the_exporter(name, tmp_path):
    model = build(name)
    export = FastExport(model)
    plan = random_plan(export.graph, np.random.default_rng(5))
    spec, cases = random_wishes(export.graph, np.random.default_rng(5))
    q_model = qdq.quantize_model(model, quantization_spec=spec, custom_qdq_cases=cases, target="onnxruntime")
    assert q_model.plan.placements == plan.placements
    qdq.calibrate(q_model, samples(model), verbose=False)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    theirs, ours = count_integer_kernels(tmp_path / "model.onnx"), count_integer_kernels(export.build(plan))
    assert ours.counts == theirs.counts
    # What a folded bias is called depends on who folds it; the layer's name comes first.
    assert {n.split("/")[0] for n in ours.integer_nodes} == {n.split("/")[0] for n in theirs.integer_nodes}
