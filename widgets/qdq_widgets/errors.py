"""The errors of the bench; like every error of the library they derive from `QDQError`."""

from __future__ import annotations

from qdq_workbench import QDQError


class BenchError(QDQError, RuntimeError):
    """A step is not possible now; the message says what to do first."""


class BenchBusyError(BenchError):
    """A long task was started while another one is running."""


class BenchStoppedError(BenchError):
    """A long task was stopped on request; nothing failed."""
