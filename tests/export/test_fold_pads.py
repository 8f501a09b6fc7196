"""Which zero padding becomes the padding of a max pool: what ONNX Runtime computes is the same with it and without."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from qdq_workbench.export.passes.fold_pads import fold_pads
from qdq_workbench.onnx_graph.graph import Graph

VALUES = np.random.default_rng(0).normal(size=(1, 1, 6, 6)).astype(np.float32)


def pooled(pads, window, low, high, own=(0, 0, 0, 0)):
    """Return a file that clips, pads with zeros, and takes maxima over windows."""
    nodes = [
        helper.make_node("Clip", ["x", "low", "high"], ["c"], "clip"),
        helper.make_node("Pad", ["c", "pads"], ["p"], "pad"),
        helper.make_node("MaxPool", ["p"], ["y"], "pool", kernel_shape=[window, window], pads=list(own)),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 1, *[None] * 2)) for name in "xy"]
    constants = {"pads": np.array([0, 0, *pads[:2], 0, 0, *pads[2:]]), "low": np.float32(low), "high": np.float32(high)}
    weights = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    return helper.make_model(
        helper.make_graph(nodes, "pooled", ends[:1], ends[1:], weights),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


def run(model):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # it folds pads by itself
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": VALUES})[0]


def folded(model):
    """Return the file after the pass, and whether the padding is gone."""
    graph = Graph(model)
    fold_pads(graph)
    (pool,) = (node for node in graph.nodes if node.op == "MaxPool")
    again = onnx.ModelProto()
    again.CopyFrom(model)
    del again.graph.node[:], again.graph.initializer[:]
    for node in graph.sorted_nodes():
        proto = helper.make_node(node.op, node.inputs, node.outputs, node.name)
        proto.attribute.extend(node.attributes.values())
        again.graph.node.append(proto)
    again.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in graph.constants.items())
    return again, graph.producer(pool.inputs[0]).op != "Pad"


@pytest.mark.parametrize(
    ("pads", "window", "own", "folds"),
    [
        ((1, 1, 1, 1), 2, (0, 0, 0, 0), True),
        ((2, 2, 2, 2), 2, (0, 0, 0, 0), False),
        ((2, 0, 0, 0), 2, (0, 0, 0, 0), False),
        ((0, 0, 0, 2), 2, (0, 0, 0, 0), False),
        ((1, 1, 1, 1), 2, (1, 1, 1, 1), False),
        ((3, 3, 3, 3), 2, (0, 0, 0, 0), False),
    ],
    ids=["less", "as wide as the window", "at the top", "at the right", "with the pool's own", "wider"],
)
def test_padding_folds_where_it_is_less_than_the_window(pads, window, own, folds):
    model = pooled(pads, window, 0.0, 1.0, own)
    after, gone = folded(model)
    assert gone == folds
    np.testing.assert_allclose(run(after), run(model), atol=1e-30)  # what stays pads with the smallest normal number


@pytest.mark.parametrize(
    ("low", "high", "folds"), [(0.0, 1.0, True), (0.5, 1.0, True), (-0.5, 1.0, False), (-2.0, -1.0, False)]
)
def test_what_is_clipped_is_never_negative_where_its_lower_bound_is_not(low, high, folds):
    model = pooled((1, 1, 1, 1), 3, low, high)
    after, gone = folded(model)
    assert gone == folds
    np.testing.assert_allclose(run(after), run(model), atol=1e-30)


def test_what_cannot_be_folded_hides_no_padding_behind_it():
    model = pooled((1, 1, 1, 1), 3, 0.0, 1.0)
    edge = helper.make_node("Pad", ["x", "pads"], ["edged"], "edge", mode="edge")
    model.graph.node.insert(0, edge)
    model.graph.node[1].input[0] = "edged"
    after, gone = folded(model)
    assert gone
    np.testing.assert_allclose(run(after), run(model), atol=1e-30)
