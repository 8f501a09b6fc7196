"""Benches on a tiny model, shared by the tests of the panes."""

import pytest
from small_benches import tiny_data, tiny_model


@pytest.fixture(scope="session")
def model():
    return tiny_model()


@pytest.fixture
def bench(model):
    from qdq_widgets import Workbench

    return Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32))


@pytest.fixture(scope="module")
def calibrated(model):
    """A calibrated bench for tests that only look, or that put back what they change."""
    from qdq_widgets import Workbench

    bench = Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32))
    bench.calibrate()
    return bench
