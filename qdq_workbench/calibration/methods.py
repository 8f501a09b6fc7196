"""`calibration_methods`: what `calibrate(method=)` accepts."""

from __future__ import annotations

from qdq_workbench.calibration.observers import observer_names


def calibration_methods() -> list[str]:
    """Return the names of the calibration methods, the default first, the others sorted.

    Returns:
        What `calibrate(method=)` accepts.

    Example:
        >>> calibration_methods()[0], "percentile" in calibration_methods()
        ('minmax', True)
    """
    return sorted(observer_names(), key=lambda name: (name != "minmax", name))
