import io

import pytest
from rich.console import Console

from qdq_workbench.cli.demo.steps import Steps


def test_a_finished_step_is_one_line_with_its_result():
    out = io.StringIO()

    with Steps(Console(file=out, width=120)).step("Calibrate", 2) as step:
        step.advance("half")
        step.advance("on 2 [bold]batches")

    (line,) = out.getvalue().splitlines()
    assert line.startswith("  Calibrate")
    assert line.endswith("s  on 2 [bold]batches")


def test_a_failing_step_leaves_its_error():
    with pytest.raises(ZeroDivisionError), Steps(Console(file=io.StringIO())).step("Divide"):
        1 / 0  # noqa: B018 - raised on purpose
