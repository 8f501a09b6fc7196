"""Observers: each reads the batches of one tensor and says what range it should have; one method per file."""

from __future__ import annotations

from qdq_workbench.calibration.observers.minmax import MinMaxObserver
from qdq_workbench.calibration.observers.moving_average import MovingAverageObserver
from qdq_workbench.calibration.observers.observer import Observer, make_observer, observer_names
from qdq_workbench.calibration.observers.percentile import PercentileObserver

__all__ = [
    "MinMaxObserver",
    "MovingAverageObserver",
    "Observer",
    "PercentileObserver",
    "make_observer",
    "observer_names",
]
