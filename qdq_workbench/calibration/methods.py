"""`calibration_methods`: the names that `calibrate(method=)` accepts."""

from __future__ import annotations

from qdq_workbench.calibration.observers import observer_names


def calibration_methods() -> list[str]:
    """Return the names of the calibration methods, the default first, the others sorted.

    Returns:
        The names that `calibrate(method=)` accepts.

    Example:
        >>> calibration_methods()[0], "percentile" in calibration_methods()
        ('minmax', True)
    """
    return sorted(observer_names(), key=lambda name: (name != "minmax", name))
