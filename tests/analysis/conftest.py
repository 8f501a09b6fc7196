"""What several tests of the search share."""

import numpy as np
import pytest
from searched_nets import residual_net

import qdq_workbench as qdq


@pytest.fixture(scope="session")
def residual():
    model = residual_net()
    x = np.random.default_rng(0).normal(size=(32, 6, 6, 2)).astype("float32")
    y = np.argmax(model.predict(x, verbose=0), axis=-1)
    q_model = qdq.quantize_model(model, target="tensorrt")
    qdq.calibrate(q_model, x, verbose=False)
    return q_model, x, y, model
