"""Where a network can be cut, and how many bytes are kept there."""

import keras

from qdq_workbench.analysis.segments import find_boundaries
from qdq_workbench.graph_builder import bind_graph


def test_a_kept_tensor_has_the_bytes_of_its_type():
    value = image = keras.Input((10,), name="image")
    for dtype in ("uint8", "int16", "bool", "uint64", "float16", "float32"):
        value = keras.ops.cast(value, dtype)

    found = find_boundaries(bind_graph(keras.Model(image, keras.layers.Dense(2)(value))), lambda name: True)

    assert [boundary.bytes // 10 for boundary in found] == [1, 2, 1, 8, 2, 4]
