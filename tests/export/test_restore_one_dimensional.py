"""One-dimensional convolutions and pools out of two-dimensional ones: the same values, and what stays."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from pass_graphs import assert_same, model_of, operators

from qdq_workbench.export.passes.restore_one_dimensional import PASS, restore_one_dimensional
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.onnx_graph.snapshot import snapshot

LAST, FIRST = (2, 8, 3), (2, 3, 8)  # batch, steps, channels; batch, channels, steps


def around(op, place, *, last=True, kernel=None, axis=None, more=(), outputs="y", squeezed=None, **attributes):
    """A windowed node over an axis that is inserted as the first (0) or second (1) spatial one; more rows behind it."""
    axis = (place + (1 if last else 2)) if axis is None else axis
    constants = {"axes": np.atleast_1d(axis), "squeezed": np.atleast_1d(axis if squeezed is None else squeezed)}
    inside, result = ("t", "l") if last else ("u", "c")
    if kernel is not None:
        constants |= {"w": np.random.default_rng(0).normal(size=kernel).astype(np.float32), "b": np.float32([1, 2])}
        inside += ",w,b"
    rows = [
        ("Unsqueeze", "x,axes", "u"),
        *([("Transpose", "u", "t", {"perm": [0, 3, 1, 2]})] if last else []),
        (op, inside, "c", attributes),
        *([("Transpose", "c", "l", {"perm": [0, 2, 3, 1]})] if last else []),
        ("Squeeze", f"{result},squeezed", "y"),
        *more,
    ]
    return model_of(rows, {"x": LAST if last else FIRST}, outputs, constants)


def along(place, size, other=1):
    """Two numbers, one per spatial axis: that of the inserted axis at `place`."""
    return [other, size] if place == 0 else [size, other]


def one_dimensional(model):
    graph = Graph(model)
    assert [node.name for node in PASS.denied_by(graph)] == ["c"]
    restore_one_dimensional(graph)
    assert_same(model, graph, atol=1e-5)
    assert not {"Unsqueeze"} & set(operators(graph))
    (node,) = [node for node in graph.nodes if node.op in ("Conv", "ConvTranspose", "MaxPool", "AveragePool")]
    assert len(node.get("kernel_shape")) == 1
    assert list(PASS.denied_by(graph)) == []
    after = snapshot(graph)
    restore_one_dimensional(graph)
    assert snapshot(graph) == after
    return graph, node


def kept(model):
    graph = Graph(model)
    before = snapshot(graph)
    assert [node.name for node in PASS.denied_by(graph)] == []
    restore_one_dimensional(graph)
    assert snapshot(graph) == before


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
@pytest.mark.parametrize("place", [0, 1])
def test_every_size_of_a_convolution_loses_the_axis(place, last):
    graph, node = one_dimensional(
        around(
            "Conv",
            place,
            last=last,
            kernel=(2, 3, *along(place, 3)),
            kernel_shape=along(place, 3),
            strides=along(place, 2),
            dilations=along(place, 2),
            pads=[*along(place, 1, 0), *along(place, 2, 0)],
        )
    )
    sizes = {key: node.get(key) for key in ("kernel_shape", "strides", "dilations", "pads")}
    assert sizes == {"kernel_shape": [3], "strides": [2], "dilations": [2], "pads": [1, 2]}
    # No node: ONNX Runtime would compute it, and take the weight for one to quantize.
    assert graph.constant(node.inputs[1]).shape == (2, 3, 3)
    assert node.inputs[2] == "b"


def test_a_kernel_whose_integers_come_later_is_reduced_by_a_node():
    model = around("Conv", 0, kernel=(2, 3, 1, 3), kernel_shape=[1, 3])
    (kernel,) = [tensor for tensor in model.graph.initializer if len(tensor.dims) == 4]
    model.graph.initializer.remove(kernel)
    model.graph.input.append(helper.make_tensor_value_info(kernel.name, TensorProto.FLOAT, kernel.dims))
    graph = Graph(model)
    restore_one_dimensional(graph)
    (node,) = [node for node in graph.nodes if node.op == "Conv"]
    squeeze = graph.producer(node.inputs[1])
    assert (squeeze.op, squeeze.name, graph.shape(squeeze.output)) == ("Squeeze", "c/kernel", (2, 3, 3))


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pools(op, place, last):
    graph, node = one_dimensional(around(op, place, last=last, kernel_shape=along(place, 2), strides=along(place, 2)))
    assert len(node.inputs) == 1
    assert operators(graph) == (["Transpose", op, "Transpose"] if last else [op])


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("more", ["output_padding", "output_shape"])
def test_transposed_convolutions(place, more):
    attributes = {"output_padding": along(place, 1, 0), "output_shape": along(place, 18)}
    _, node = one_dimensional(
        around(
            "ConvTranspose",
            place,
            kernel=(3, 2, *along(place, 3)),
            kernel_shape=along(place, 3),
            strides=along(place, 2),
            **{more: attributes[more]},
        )
    )
    assert len(node.get(more)) == 1


@pytest.mark.parametrize(("axis", "last"), [(-3, True), (-2, True), (-2, False), (-1, False)])
def test_a_negative_axis_counts_from_the_end(axis, last):
    place = axis % 4 - (1 if last else 2)
    one_dimensional(around("MaxPool", place, last=last, axis=axis, kernel_shape=along(place, 2)))


@pytest.mark.parametrize("last", [True, False])
def test_all_readers_of_the_result_are_served(last):
    source = "l" if last else "c"
    more = [("Squeeze", f"{source},squeezed", "z"), ("Relu", "z", "r")]
    graph = Graph(model := around("MaxPool", 1, last=last, kernel_shape=[2, 1], more=more, outputs="y,r"))
    restore_one_dimensional(graph)
    assert_same(model, graph)
    (node,) = [node for node in graph.nodes if node.op == "MaxPool"]
    assert graph.shape(node.output) == (2, 3, 7)
    assert "Squeeze" not in operators(graph)


def test_a_result_of_several_layout_changes_is_served():
    more = [("Transpose", "c", "m", {"perm": [0, 2, 3, 1]}), ("Squeeze", "m,squeezed", "z")]
    graph = Graph(model := around("MaxPool", 1, kernel_shape=[2, 1], more=more, outputs="y,z"))
    restore_one_dimensional(graph)
    assert_same(model, graph)
    assert "Squeeze" not in operators(graph)


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("side", [0, 2])
def test_padding_along_the_inserted_axis_stays(side, place, last):
    pads = [0, 0, 0, 0]
    pads[side + place] = 1
    kernel = along(place, 2)
    model = around("Conv", place, last=last, kernel=(2, 3, *kernel), kernel_shape=kernel)
    conv = next(node for node in model.graph.node if node.op_type == "Conv")
    conv.attribute.append(helper.make_attribute("pads", pads))
    kept(model)


def test_a_kernel_that_reaches_along_the_inserted_axis_stays():
    kernel = [2, 3]
    model = around("MaxPool", 0, last=False, kernel_shape=kernel, pads=[0, 0, 1, 0])
    kept(model)
    model = around("MaxPool", 1, last=True, kernel_shape=[3, 2], pads=[0, 1, 0, 0])
    kept(model)


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
def test_a_result_that_is_read_with_the_axis_stays(last):
    more = [("Relu", "l" if last else "c", "r")]
    kept(around("MaxPool", 1, last=last, kernel_shape=[2, 1], more=more, outputs="y,r"))
    kept(around("MaxPool", 1, last=last, kernel_shape=[2, 1], outputs="y,c"))
    if last:
        kept(around("MaxPool", 1, last=True, kernel_shape=[2, 1], outputs="y,l"))
        more = [("Transpose", "c", "z", {"perm": [0, 3, 2, 1]})]
        kept(around("MaxPool", 1, last=True, kernel_shape=[2, 1], more=more, outputs="y,z"))


def test_another_axis_that_is_removed_stays():
    model = around("MaxPool", 1, last=False, kernel_shape=[8, 1], squeezed=2)
    kept(model)


def test_two_inserted_axes_stay():
    rows = [
        ("Unsqueeze", "x,axes", "u"),
        ("MaxPool", "u", "c", {"kernel_shape": [1, 1]}),
        ("Squeeze", "c,axes", "y"),
    ]
    kept(model_of(rows, {"x": (2, 3)}, "y", {"axes": np.array([2, 3])}))


def test_operators_of_other_domains_stay():
    graph = Graph(around("MaxPool", 1, last=False, kernel_shape=[2, 1]))
    graph.producer("c").domain = "own.domain"
    assert list(PASS.denied_by(graph)) == []
    restore_one_dimensional(graph)
    assert "Unsqueeze" in operators(graph)
