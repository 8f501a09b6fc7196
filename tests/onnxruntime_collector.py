"""ONNX Runtime's own calibration of one tensor, and tensors to compare it on."""

import contextlib
import functools
import io

import numpy as np
from onnxruntime.quantization.calibrate import HistogramCollector


@functools.cache
def distributions():
    """Return tensors of the kinds that networks have; no percentile falls between two of their values."""
    rng = np.random.default_rng(0)
    normal = rng.normal(size=20_011)
    values = {
        "normal": normal,
        "behind a relu": np.maximum(normal, 0.0),
        "behind a swish": 2 * normal / (1 + np.exp(-2 * normal)),
        "laplace": rng.laplace(size=20_011),
        "heavy tails": rng.standard_t(3, size=20_011),
        "one-sided": rng.exponential(size=20_011),
        "negative": -rng.exponential(size=20_011),
        "pixels": rng.integers(0, 256, size=20_011),
    }
    return {name: array.astype(np.float32) for name, array in values.items()}


def onnxruntime_range(method, values, *, num_bins, num_quantized_bins=128, percentile=99.99):
    """Return the range that ONNX Runtime's collector gives to a tensor, on an asymmetric grid."""
    collector = HistogramCollector(method, False, num_bins, num_quantized_bins, percentile, "same")
    with contextlib.redirect_stdout(io.StringIO()):
        collector.collect({"x": values})
        low, high, *_ = collector.compute_collection_result()["x"]
    return float(low), float(high)
