"""Import of Keras with the TensorFlow backend, without the log messages at start-up."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator


def import_keras() -> None:
    """Import Keras on TensorFlow without its log messages; show them only if the import fails."""
    # Model files do not depend on a backend and the library needs this one, so a value set by the user is overridden.
    os.environ["KERAS_BACKEND"] = "tensorflow"
    # TensorFlow's C++ code reads the level when it is loaded. A level that the user has set stays.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with _stderr_held_back():
        import keras  # noqa: F401 - imported for its effect: later imports are silent
    # Several models in one process cause TensorFlow's retracing warnings, which are harmless here.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)


@contextlib.contextmanager
def _stderr_held_back() -> Iterator[None]:
    """Buffer file descriptor 2, because TensorFlow's C++ code logs before its log level can be set."""
    # Text that Python still buffers would go to the held file, which is dropped after a good import.
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            os.write(saved, held.read())
            raise
        finally:
            os.dup2(saved, 2)
            os.close(saved)
