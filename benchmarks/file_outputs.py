"""Outputs of exported files in ONNX Runtime, with exact sums: accuracy must not depend on the processor."""

import pathlib

import numpy as np
import onnx

from qdq_workbench.verification.saturation import exact_session


def outputs_of(path: str | pathlib.Path, samples: np.ndarray, piece: int = 250) -> np.ndarray:
    """Return the first output of a file with one input.

    Args:
        path: The file.
        samples: Values of the input.
        piece: How many samples are computed at once.
    """
    session = exact_session(onnx.load(path))
    (first,) = session.get_inputs()
    starts = range(0, len(samples), piece)
    return np.concatenate([session.run(None, {first.name: samples[i : i + piece]})[0] for i in starts])
