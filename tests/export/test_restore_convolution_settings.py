"""The padding that tf2onnx leaves to the runtime."""

import numpy as np
import pytest
from pass_graphs import assert_same, model_of

from qdq_workbench.export.passes.restore_convolution_settings import PASS, restore_convolution_settings
from qdq_workbench.onnx_graph.graph import Graph

KERNEL = np.random.default_rng(0).normal(size=(2, 3, 3, 2)).astype(np.float32)


@pytest.mark.parametrize(
    ("settings", "pads"),
    [({}, [1, 0, 1, 1]), ({"strides": [1, 1]}, [1, 0, 1, 1]), ({"strides": [2, 1]}, None), ({"strides": [1, 2]}, None)],
    ids=str,
)
def test_the_padding_of_strides_of_one_is_written_and_that_of_larger_ones_stays_open(settings, pads):
    rows = [("Conv", "x,w", "y", {"auto_pad": "SAME_UPPER", **settings})]
    model = model_of(rows, {"x": (1, 3, 7, 7)}, "y", {"w": KERNEL})
    graph = Graph(model)
    assert [node.name for node in PASS.denied_by(graph)] == ([] if pads is None else ["y"])

    restore_convolution_settings(graph)

    (conv,) = graph.nodes
    assert (conv.get("pads"), conv.get("auto_pad")) == ((None, b"SAME_UPPER") if pads is None else (pads, None))
    assert_same(model, graph, atol=1e-5)
    assert list(PASS.denied_by(graph)) == []
