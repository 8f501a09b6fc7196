"""Observers: each reads the batches of one tensor and determines its range; one method per file."""

from __future__ import annotations

from qdq_workbench.calibration.observers.entropy import EntropyObserver
from qdq_workbench.calibration.observers.histogram import Histogram
from qdq_workbench.calibration.observers.histogram_observer import HistogramObserver
from qdq_workbench.calibration.observers.kl import KLObserver
from qdq_workbench.calibration.observers.lp import LpObserver
from qdq_workbench.calibration.observers.mae import MAEObserver
from qdq_workbench.calibration.observers.minmax import MinMaxObserver
from qdq_workbench.calibration.observers.moving_average import MovingAverageObserver
from qdq_workbench.calibration.observers.mse import MSEObserver
from qdq_workbench.calibration.observers.observer import Observer, make_observer, observer_names
from qdq_workbench.calibration.observers.percentile import PercentileObserver
from qdq_workbench.calibration.observers.power_of_two import PowerOfTwoObserver

__all__ = [
    "EntropyObserver",
    "Histogram",
    "HistogramObserver",
    "KLObserver",
    "LpObserver",
    "MAEObserver",
    "MSEObserver",
    "MinMaxObserver",
    "MovingAverageObserver",
    "Observer",
    "PercentileObserver",
    "PowerOfTwoObserver",
    "make_observer",
    "observer_names",
]
