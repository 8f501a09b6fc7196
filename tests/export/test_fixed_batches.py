"""A file with a fixed batch computes what the one with an open batch does, whatever the layers."""

import keras
import numpy as np
import onnxruntime
import pytest
from agreement.networks import SMALL
from families.test_contracts import GROUPS, quantized
from small_models import samples

import qdq_workbench as qdq


def of_families(families):
    _, q_model, data = quantized(families, "onnxruntime")
    return q_model, data


def of_network(name):
    model = SMALL[name]()
    data = samples(model)
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, data, verbose=False)
    return q_model, data


CASES = [(of_families, group) for group in GROUPS] + [(of_network, name) for name in SMALL]


def outputs(path, data):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    fed = zip(session.get_inputs(), keras.tree.flatten(data), strict=True)
    return session.run(None, {given.name: np.asarray(array)[:1] for given, array in fed})


@pytest.mark.parametrize(
    ("made", "what"), CASES, ids=[str(what if isinstance(what, str) else what[0]) for _, what in CASES]
)
def test_one_sample_has_the_same_outputs(made, what, tmp_path):
    q_model, data = made(what)
    either = [
        outputs(qdq.export_onnx(q_model, tmp_path / f"{is_open}.onnx", dynamic_batch=is_open).path, data)
        for is_open in (True, False)
    ]
    assert either[0]
    for is_open, is_fixed in zip(*either, strict=True):
        np.testing.assert_array_equal(is_fixed, is_open)
