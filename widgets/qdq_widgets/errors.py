"""What the bench refuses to do; like every error of the library these derive from `QDQError`."""

from __future__ import annotations

from qdq_workbench import QDQError


class BenchError(QDQError, RuntimeError):
    """A step that the bench cannot take now, with what to do first."""


class BenchBusyError(BenchError):
    """Calibration, training or export was asked for while another of them is running."""


class BenchStoppedError(BenchError):
    """Work ended because somebody asked it to; nothing went wrong."""
