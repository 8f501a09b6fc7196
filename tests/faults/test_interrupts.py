"""Ctrl-C at random moments of our calls; `python tests/faults/interrupts.py` presses it more often."""

import itertools

from faults.interrupts import Trials


def test_later_calls_go_as_if_nothing_had_been(tmp_path):
    kinds = ("quantize_model", "export_onnx")
    trials = Trials(tmp_path, seed=0, kinds=kinds)
    for kind in kinds:
        # A call may be over before its moment, on a machine that has less to do than when the last one was timed.
        outcomes = itertools.takewhile(lambda outcome: outcome == "finished", (trials.run(kind) for _ in range(20)))
        assert len(list(outcomes)) < 20, "no call was interrupted"
