"""Records of training runs, which become code."""

import json

import pytest

from qdq_widgets.curves import TrainingRun
from qdq_widgets.errors import BenchError
from qdq_widgets.fits import Fit, begun_epochs, reached


def test_a_record_survives_json():
    fit = Fit(3, 1e-3, 16, {"method": "minmax", "steps": None, "batch_size": 8}, 2.5)
    assert Fit.from_dict(json.loads(json.dumps(fit.to_dict()))) == fit
    assert fit.note == "stopped after 2.5 epochs"
    assert Fit(1, None, 32).note == ""


def test_settings_that_would_become_other_code_are_refused():
    held = Fit(1, None, 32).to_dict()
    with pytest.raises(BenchError, match="no settings of a calibration"):
        Fit.from_dict({**held, "calibration": {"a=1); print(": 2}})
    with pytest.raises(ValueError, match="could not convert"):
        Fit.from_dict({**held, "stopped_after": "1\nimport os"})


def test_a_stopped_run_counts_the_epochs_that_it_began():
    run = TrainingRun("QAT 1", "tensorrt", 3, loss_trace=((0.5, 1.0), (1.25, 0.5)))
    assert reached(run) is None
    assert reached(run.replace(state="stopped")) == 1.25
    assert begun_epochs(1.25) == 2
    assert begun_epochs(0.0) == 1
