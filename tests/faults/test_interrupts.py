"""Ctrl-C at random moments of our calls; `python tests/faults/interrupts.py` presses it more often."""

import pytest
from faults.interrupts import Trials


@pytest.mark.slow  # the calls that are interrupted, and those that must go on as before, take their time
def test_later_calls_go_as_if_nothing_had_been(tmp_path):
    kinds = ("quantize_model", "export_onnx")
    trials = Trials(tmp_path, seed=0, kinds=kinds)
    outcomes = [trials.run(kind) for kind in [*kinds, *(4 * ["quantize_model"])]]
    assert "interrupted" in outcomes
