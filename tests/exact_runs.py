"""Files in ONNX Runtime with exact sums, and floats that are equal up to the order of their sums."""

import numpy as np
import onnx

from qdq_workbench.onnx_graph.batches import run_session
from qdq_workbench.verification.saturation import exact_session


def run_file_exactly(path, inputs):
    """Return the outputs of a file, in its order; by default kernels saturate on processors without VNNI."""
    session = exact_session(onnx.load(path))
    found = run_session(session, inputs)
    return [found[output.name] for output in session.get_outputs()]


def assert_same_sums(found, expected, unit=2.0**-23):
    """Compare two forms of one product: which of its kernels adds up in which order differs between processors."""
    largest = float(np.abs(np.asarray(expected, np.float64)).max(initial=0.0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=8 * unit * largest)
