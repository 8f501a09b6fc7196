"""Computing the float model in a quantized one, without changing the model's switches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from qdq_workbench._interrupts import interrupts_held

_here = threading.local()


@contextmanager
def float_only() -> Iterator[None]:
    """Bypass every quantizer that this thread calls, so that functions traced inside compute the float model.

    A graph traced without quantizers is smaller than one whose quantizers are switched off, and TensorFlow fuses its
    operations like the float model's. Other threads and the model's own switches are not affected.

    Example:
        >>> with float_only():
        ...     computes_float()
        True
        >>> computes_float()
        False
    """
    with interrupts_held():
        before = computes_float()
        _here.on = True
        try:
            yield
        finally:
            _here.on = before


def computes_float() -> bool:
    """Return whether this thread is inside of `float_only`."""
    return getattr(_here, "on", False)
