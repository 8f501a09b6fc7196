"""Holding Python's garbage collector back while very many objects are made that all stay.

Layers, graph nodes and tensors come by the thousand while a model is built or written, and hardly any of them is
garbage. The collector looks through everything that the process holds every time their number has grown by a quarter,
so the time per layer grows with the model: at 800 layers it is a tenth of both.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Hold the collector back inside; afterwards it runs again, if it ran before.

    Works as a decorator too. What only reference counting frees is freed all the same.

    Example:
        >>> import gc
        >>> with collector_paused():
        ...     gc.isenabled()
        False
        >>> gc.isenabled()
        True
    """
    if not gc.isenabled():  # by the user, or by a caller of ours
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
