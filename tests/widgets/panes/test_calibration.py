"""What the calibration pane asks the bench for."""

import pytest

from qdq_widgets.panes.calibration import CalibrationPane


@pytest.mark.parametrize(
    ("method", "rounded", "given"),
    [
        ("minmax", False, {}),
        ("minmax", True, {"power_of_two": True}),
        ("power_of_two", True, {}),  # which rounds by itself
        ("percentile", True, {"percentile": 99.99, "power_of_two": True}),
    ],
)
def test_powers_of_two_are_asked_for_beside_the_methods_that_do_not_round_to_them(
    bench, monkeypatch, method, rounded, given
):
    pane = bench.view.pane(CalibrationPane)
    bench.view.work.open(CalibrationPane)
    asked = []
    monkeypatch.setattr(pane.bench, "calibrate", lambda method, **settings: asked.append((method, settings)))
    pane.method.value, pane.rounded.value = method, rounded

    pane.run.click()

    assert pane.bench.jobs.wait(120)
    assert pane.errors.message == ""
    assert asked == [(method, {"steps": None, "batch_size": 32, **given})]
