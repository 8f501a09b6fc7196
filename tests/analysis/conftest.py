"""What several tests of the search share."""

import numpy as np
import pytest
from searched_nets import Residual, residual_net

import qdq_workbench as qdq


@pytest.fixture(scope="session")
def residual():
    """A calibrated residual network, its float model, data with its answers, and a ranking of its layers."""
    model = residual_net()
    x = np.random.default_rng(0).normal(size=(32, 6, 6, 2)).astype("float32")
    y = np.argmax(model.predict(x, verbose=0), axis=-1)
    q_model = qdq.quantize_model(model, target="tensorrt")
    qdq.calibrate(q_model, x, verbose=False)
    return Residual(q_model, model, (x, y), qdq.sensitivity(q_model, x, verbose=False))
