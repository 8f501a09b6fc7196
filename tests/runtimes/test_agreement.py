"""The explanation for ONNX Runtime, checked by execution: statuses of random toggles, and one planted fault at a time.

In CI a few toggles per network; `make agreement` runs QDQ_AGREEMENT_TOGGLES of them (200) and prints the figures.
"""

import os

import keras
import numpy as np
import pytest
from runtimes_agreement import branching_net, compare, random_toggles, sequence_net
from small_models import nested_net, residual_net, samples
from target_models import dense_net, inception_net, zoo_net

import qdq_workbench as qdq

TOGGLES = int(os.environ.get("QDQ_AGREEMENT_TOGGLES", "2"))
NETS = (residual_net, branching_net, nested_net, zoo_net, inception_net, dense_net, sequence_net)


@pytest.mark.parametrize("make", NETS)
def test_random_toggles(make, tmp_path):
    model = make()
    generator = np.random.default_rng(11)
    total = 0
    for attempt in range(TOGGLES):
        spec = random_toggles(model, generator) if attempt else qdq.QuantizationSpec()
        q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
        qdq.calibrate(q_model, samples(model), verbose=False)
        compared, differing = compare(q_model, tmp_path / "model.onnx")
        assert differing == [], spec.to_dict()
        total += compared
        if attempt % 20 == 19:
            keras.backend.clear_session()
    assert total >= 3 * TOGGLES
    print(f"{model.name}: {TOGGLES} plans, {total} statuses compared, 0 disagreements")
