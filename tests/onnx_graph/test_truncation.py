"""Releases of ONNX Runtime before 1.30 truncate float16 values where a QuantizeLinear is to round them."""

import numpy as np
from pass_graphs import computed, model_of
from releases import ONNXRUNTIME

from qdq_workbench.onnx_graph.truncation import halves_are_truncated


def test_it_is_what_a_file_shows():
    rows = [("Cast", "x", "h", {"to": 10}), ("QuantizeLinear", "h,s,z", "q")]
    rows += [("Cast", "h", "exact", {"to": 1}), ("DequantizeLinear", "q,t,z", "y")]
    constants = {"s": np.float16(0.25), "t": np.float32(1), "z": np.int8(0)}
    exact, found = computed(model_of(rows, {"x": (8, 8)}, "exact,y", constants, opset=19))

    np.testing.assert_array_equal(found, (np.trunc if halves_are_truncated() else np.rint)(exact * 4))
    assert halves_are_truncated() == (ONNXRUNTIME < (1, 30))
