"""Files are timed in turns of a tenth of their length: most tests ask what becomes of times, not how exact they are.

A measurement works for as long as its turns are told to last, a second for a file with its baseline, however small the
file is. tests/profiling, which is about the times themselves, has turns of full length.
"""

import sys

_MODULE = "qdq_workbench.profiling.stopwatch"
_LENGTHS = ("_PLAIN_SECONDS", "_PROFILED_SECONDS")
_SHORTER = 10


class ShortTurns:
    """Shortens the turns once the tests are known."""

    def pytest_collection_finish(self):
        if _MODULE in sys.modules:
            times(1 / _SHORTER, setattr)


def full_length(monkeypatch):
    """Undo it until a monkeypatch is undone."""
    times(_SHORTER, monkeypatch.setattr)


def times(factor, change):
    """Multiply the lengths of the turns."""
    stopwatch = sys.modules[_MODULE]
    for name in _LENGTHS:
        change(stopwatch, name, factor * getattr(stopwatch, name))
