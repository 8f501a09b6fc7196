"""Which steps are a layer normalization: each form that Keras or another exporter writes, and nothing beside."""

import numpy as np
import onnx
import pytest
from pass_graphs import assert_same, computed, model_of, opened, operators, saved

from qdq_workbench.export.passes.restore_layer_normalizations import (
    PASS,
    find_layer_normalization,
    restore_layer_normalizations,
)
from qdq_workbench.onnx_graph.graph import Graph

SHAPE = (2, 3, 4)
CONSTANTS = {
    "eps": np.float32(0.01),
    "gamma": np.float32([1, 2, 3, 4]),
    "beta": np.float32([0.5, -1, 0, 2]),
    "two": np.float32(2),
    "three": np.float32(3),
}


def steps(axes=(-1,), opset=17, shape=SHAPE, replaced=None, dropped=(), **constants):
    """A model of the steps; `replaced` maps what a step writes to another form of the step."""
    kept, given = {}, {**CONSTANTS, **constants}
    if opset >= 18:
        given["axes"] = np.array(axes)
    else:
        kept["axes"] = list(axes)
    mean = "{}" if opset < 18 else "{},axes"
    rows = [
        ("ReduceMean", mean.format("x"), "mean", kept),
        ("Sub", "x,mean", "difference"),
        ("Mul", "difference,difference", "squares"),
        ("ReduceMean", mean.format("squares"), "variance", kept),
        ("Add", "variance,eps", "total"),
        ("Sqrt", "total", "root"),
        ("Reciprocal", "root", "inverse"),
        ("Mul", "inverse,gamma", "scale"),
        ("Mul", "x,scale", "scaled"),
        ("Neg", "mean", "minus"),
        ("Mul", "minus,scale", "shifted"),
        ("Add", "shifted,beta", "shift"),
        ("Add", "scaled,shift", "y"),
    ]
    rows = [(replaced or {}).get(row[2], row) for row in rows if row[2] not in dropped]
    names = {"scale": "inverse", "shift": "shifted"}
    rows = [
        (row[0], ",".join(names[name] if name in dropped else name for name in row[1].split(",")), *row[2:])
        for row in rows
    ]
    read = {name for row in rows for name in row[1].split(",")}
    inputs = {"x": shape, **{name: SHAPE for name in ("other", "computed") if name in read}}
    return model_of(rows, inputs, "y", {k: v for k, v in given.items() if k in read}, opset=opset)


def whole(model):
    """Check that the steps become one operator that computes the same; return its node and the graph."""
    graph = Graph(model)
    assert [node.name for node in PASS.denied_by(graph)] == ["y"]
    restore_layer_normalizations(graph)
    assert operators(graph) == ["LayerNormalization"]
    assert_same(model, graph, atol=1e-5)
    assert list(PASS.denied_by(graph)) == []
    return graph.producer("y"), graph


def stays(model):
    graph = Graph(model)
    before = operators(graph)
    assert list(PASS.denied_by(graph)) == []
    restore_layer_normalizations(graph)
    assert operators(graph) == before


@pytest.mark.parametrize("opset", [17, 18, 21])
def test_all_steps_are_one_operator(opset):
    node, graph = whole(steps(opset=opset))
    assert (node.name, node.get("axis")) == ("y", 2)
    assert node.get("epsilon") == pytest.approx(0.01)
    assert [graph.constant(tensor).tolist() for tensor in node.inputs[1:]] == [[1, 2, 3, 4], [0.5, -1, 0, 2]]


@pytest.mark.parametrize("dropped", [["scale"], ["shift"], ["scale", "shift"]])
def test_factors_and_additions_may_be_missing(dropped):
    node, graph = whole(steps(dropped=dropped))
    assert len(node.inputs) == (2 if "shift" in dropped else 3)
    assert (graph.constant(node.inputs[1]) == 1).all() == ("scale" in dropped)


@pytest.mark.parametrize(
    "replaced",
    [
        {"squares": ("Pow", "difference,two", "squares")},
        {"y": ("Add", "shift,scaled", "y")},
        {"scaled": ("Mul", "scale,x", "scaled"), "shifted": ("Mul", "scale,minus", "shifted")},
        {"shift": ("Add", "beta,shifted", "shift"), "scale": ("Mul", "gamma,inverse", "scale")},
        {"total": ("Add", "eps,variance", "total")},
    ],
    ids=["power", "sum turned", "products turned", "constants first", "epsilon first"],
)
def test_operands_stand_in_either_order(replaced):
    whole(steps(replaced=replaced))


@pytest.mark.parametrize(
    ("axes", "axis", "gamma"),
    [
        ((1, 2), 1, (3, 4)),
        ((-1, -2), 1, (3, 4)),
        ((2, 1), 1, (1, 4)),
        ((0, 1, 2), 0, (2, 3, 4)),
        ((2,), 2, (1,)),
        ((2,), 2, ()),
        ((2,), 2, (1, 1, 4)),
    ],
)
def test_factors_take_the_shape_of_the_normalized_axes(axes, axis, gamma):
    values = np.random.default_rng(0).normal(size=gamma).astype(np.float32)
    node, graph = whole(steps(axes, gamma=values, beta=np.float32(1)))
    assert node.get("axis") == axis
    assert graph.constant(node.inputs[1]).shape == graph.constant(node.inputs[2]).shape == SHAPE[axis:]


def test_an_epsilon_may_have_an_axis():
    whole(steps(eps=np.float32([[0.01]])))


@pytest.mark.parametrize(
    "given",
    [
        {"opset": 16},
        {"axes": (1,), "gamma": np.ones((3, 1), np.float32), "beta": np.ones((3, 1), np.float32)},
        {"axes": (0, 2)},
        {"gamma": np.ones((3, 1), np.float32)},
        {"beta": np.ones((2, 1, 1), np.float32)},
        {"eps": np.float32([1, 2, 3]).reshape(3, 1)},
        {"shape": (2, 3, "n")},
        {"shape": None},
        {"replaced": {"scale": ("Mul", "inverse,computed", "scale")}},
        {"replaced": {"shift": ("Add", "shifted,computed", "shift")}},
        {"replaced": {"squares": ("Pow", "difference,three", "squares")}},
        {"replaced": {"squares": ("Pow", "difference,computed", "squares")}},
        {"replaced": {"squares": ("Mul", "difference,x", "squares")}},
        {"replaced": {"squares": ("Abs", "difference", "squares")}},
        {"replaced": {"difference": ("Sub", "x,other", "difference")}},
        {"replaced": {"difference": ("Add", "x,mean", "difference")}},
        {"replaced": {"minus": ("Abs", "mean", "minus")}},
        {"replaced": {"mean": ("ReduceMean", "other", "mean", {"axes": [-1]})}},
        {"replaced": {"mean": ("ReduceMax", "x", "mean", {"axes": [-1]})}},
        {"replaced": {"variance": ("ReduceMean", "squares", "variance", {"axes": [1, 2]})}},
        {"replaced": {"variance": ("ReduceMax", "squares", "variance", {"axes": [-1]})}},
        {"replaced": {"total": ("Mul", "variance,eps", "total")}},
        {"replaced": {"total": ("Add", "variance,variance", "total")}},
        {"replaced": {"root": ("Exp", "total", "root")}},
        {"replaced": {"inverse": ("Neg", "root", "inverse")}},
        {"replaced": {"scaled": ("Mul", "other,scale", "scaled")}},
        {"replaced": {"scaled": ("Div", "x,scale", "scaled")}},
        {"replaced": {"shifted": ("Mul", "minus,inverse", "shifted")}},
        {"replaced": {"y": ("Sub", "scaled,shift", "y")}},
    ],
    ids=str,
)
def test_other_steps_stay(given):
    stays(steps(**given))


def test_means_without_their_axes_kept_stay():
    """A scale of another rank than the mean's broadcasts along other axes."""
    kept = {"axes": [0, 1, 2], "keepdims": 0}
    stays(steps(axes=(0, 1, 2), replaced={"mean": ("ReduceMean", "x", "mean", kept)}))
    stays(steps(axes=(0, 1, 2), replaced={"variance": ("ReduceMean", "squares", "variance", kept)}))


def test_factors_of_another_type_stay():
    model = steps()
    for tensor in model.graph.initializer:
        if tensor.name == "gamma":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.ones(4), "gamma"))
    stays(model)


def test_steps_of_images_stay_where_transpositions_are_slow_and_are_known_all_the_same():
    for shape, kept in (((2, 3, 4), False), ((2, 3, 3, 4), True), ((2, 2, 3, 3, 4), True)):
        graph = Graph(steps(shape=shape))
        graph.slow_transposes = True
        assert (list(PASS.denied_by(graph)) == []) == kept
        assert find_layer_normalization(graph, graph.producer("y")).source == "x"
        restore_layer_normalizations(graph)
        assert ("LayerNormalization" not in operators(graph)) == kept


def test_tensors_that_are_read_elsewhere_are_still_computed():
    model = steps()
    model.graph.output.append(onnx.helper.make_tensor_value_info("mean", 1, (2, 3, 1)))
    graph = Graph(model)
    restore_layer_normalizations(graph)
    assert sorted(operators(graph)) == ["LayerNormalization", "ReduceMean"]
    for before, after in zip(computed(model), computed(saved(graph)), strict=True):
        np.testing.assert_allclose(after, before, atol=1e-5)


def test_a_sum_of_one_computed_tensor_is_no_normalization():
    graph = opened([("Relu", "x", "r"), ("Add", "r,beta", "y")], {"x": SHAPE}, "y", {"beta": np.ones(4, np.float32)})
    assert find_layer_normalization(graph, graph.producer("y")) is None
    assert find_layer_normalization(graph, graph.producer("r")) is None
