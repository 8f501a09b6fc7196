"""What moves into the layout of convolutions: where a Transpose is cancelled, and nowhere else."""

import numpy as np
import pytest
from pass_graphs import assert_same, model_of, operators

from qdq_workbench.export.passes.move_to_channels_first import PASS, move_to_channels_first
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.onnx_graph.snapshot import snapshot

IMAGE = (1, 4, 5, 3)
KERNEL = np.random.default_rng(0).normal(size=(3, 3, 1, 1)).astype(np.float32)
CONSTANTS = {"w": KERNEL, "s": np.float32(0.1), "z": np.uint8(128), "c": np.float32([1, 2, 3]), "s2": np.float32(0.2)}


def conv(source, name):
    """A convolution of a channels-last image as TensorFlow's converters write it."""
    return [
        ("Transpose", source, f"{name}/in", {"perm": [0, 3, 1, 2]}),
        ("Conv", f"{name}/in,w", f"{name}/conv"),
        ("Transpose", f"{name}/conv", name, {"perm": [0, 2, 3, 1]}),
    ]


def pair(source, name, scale="s"):
    return [
        ("QuantizeLinear", f"{source},{scale},z", f"{name}/q"),
        ("DequantizeLinear", f"{name}/q,{scale},z", name),
    ]


def moved(rows, outputs="y", inputs=None, atol=1e-5):
    """Run the pass; check that values, shapes and contract hold, and that a second run changes nothing."""
    used = {name: value for name, value in CONSTANTS.items() if any(name in row[1].split(",") for row in rows)}
    model = model_of(rows, inputs or {"x": IMAGE}, outputs, used)
    graph = Graph(model)
    move_to_channels_first(graph)
    assert_same(model, graph, atol)
    assert list(PASS.denied_by(graph)) == []
    after = snapshot(graph)
    move_to_channels_first(graph)
    assert snapshot(graph) == after
    return graph


def test_between_two_convolutions_everything_moves_and_is_remembered():
    rows = [*conv("x", "a"), ("Add", "a,c", "b"), ("Relu", "b", "r"), *pair("r", "p"), *conv("p", "y")]
    graph = moved(rows)
    middle = ["Conv", "Add", "Relu", "QuantizeLinear", "DequantizeLinear", "Conv"]
    assert operators(graph) == ["Transpose", *middle, "Transpose"]
    assert [node.op for node in graph.channels_first] == middle[1:5]


def test_a_pair_behind_the_last_convolution_stays_since_nothing_would_be_cancelled():
    graph = moved([*conv("x", "a"), *pair("a", "y")])
    assert operators(graph) == ["Transpose", "Conv", "Transpose", "QuantizeLinear", "DequantizeLinear"]
    assert not graph.channels_first


def test_of_pairs_in_sequence_the_last_decides():
    rows = [*conv("x", "a"), *pair("a", "p"), *pair("p", "r", "s2")]
    assert operators(moved([*rows, *conv("r", "y")])).count("Transpose") == 2
    assert not moved([*rows, ("Flatten", "r", "y")]).channels_first


def test_a_pair_in_front_of_an_operation_that_moves_too_moves():
    graph = moved([*conv("x", "a"), *pair("a", "p"), ("Relu", "p", "y")])
    assert operators(graph) == ["Transpose", "Conv", "QuantizeLinear", "DequantizeLinear", "Relu", "Transpose"]


def test_a_pair_of_a_model_input_moves_in_front_of_a_convolution():
    graph = moved([*pair("x", "p"), *conv("p", "y")])
    assert operators(graph)[:3] == ["Transpose", "QuantizeLinear", "DequantizeLinear"]


def test_an_operation_with_one_computed_input_moves_for_the_readers_behind_it():
    graph = moved([("Relu", "x", "r"), *conv("r", "a"), *conv("r", "b"), ("Add", "a,b", "y")])
    assert operators(graph).count("Transpose") == 2
    assert operators(graph)[0] == "Transpose"


def test_an_operation_with_two_computed_inputs_stays_in_front():
    graph = moved([("Add", "x,x2", "r"), *conv("r", "y")], inputs={"x": IMAGE, "x2": IMAGE})
    assert operators(graph)[:2] == ["Add", "Transpose"]


@pytest.mark.parametrize("outputs", ["y", "y,r"])
def test_an_operation_whose_result_is_read_in_its_own_layout_too_stays(outputs):
    rows = [("Relu", "x", "r"), *conv("r", "y")]
    if outputs == "y":
        rows += [("Neg", "r", "n"), ("ReduceMax", "n", "m"), ("Add", "y,m", "last")]
        outputs = "last"
    assert operators(moved(rows, outputs))[0] == "Relu"


def test_a_transpose_to_channels_first_for_another_reader_moves_nothing():
    rows = [("Relu", "x", "r"), ("Transpose", "r", "t", {"perm": [0, 3, 1, 2]}), ("Flatten", "t", "y")]
    graph = moved(rows)
    assert operators(graph) == ["Relu", "Transpose", "Flatten"]
    assert operators(moved([rows[0], ("Transpose", "r", "y", {"perm": [0, 3, 1, 2]})])) == ["Relu", "Transpose"]


def test_matrices_and_operators_of_other_domains_stay():
    rows = [("Transpose", "x", "t", {"perm": [1, 0]}), ("Relu", "t", "r"), ("Transpose", "r", "y", {"perm": [1, 0]})]
    assert operators(moved(rows, inputs={"x": (3, 4)})) == ["Transpose", "Relu", "Transpose"]
    rows = [*conv("x", "a"), ("Relu", "a", "r"), *conv("r", "y")]
    graph = Graph(model_of(rows, {"x": IMAGE}, "y", {"w": KERNEL}))
    graph.producer("r").domain = "own.domain"
    move_to_channels_first(graph)
    assert operators(graph).count("Transpose") == 4


def test_a_sum_of_two_convolutions_and_a_vector_takes_the_rank_of_the_result():
    rows = [*conv("x", "a"), *conv("x", "b"), ("Add", "a,b", "c2"), ("Mul", "v,c2", "y")]
    graph = moved(rows, inputs={"x": IMAGE, "v": (3,)})
    assert operators(graph)[-1] == "Transpose"
    assert [node.op for node in graph.channels_first] == ["Add", "Mul"]


def test_an_operation_of_unknown_rank_stays():
    rows = [*conv("x", "a"), ("Add", "a,v", "y")]
    graph = Graph(model_of(rows, {"x": IMAGE, "v": None}, "y", {"w": KERNEL}))
    move_to_channels_first(graph)
    assert operators(graph)[-1] == "Add"


def test_what_parts_the_halves_of_a_pair_from_a_convolution_denies_the_contract():
    rows = [
        ("Conv", "x,w", "a"),
        ("Transpose", "a", "t", {"perm": [0, 2, 3, 1]}),
        *pair("t", "p"),
        ("Transpose", "p", "u", {"perm": [0, 3, 1, 2]}),
        ("Conv", "u,w", "y"),
    ]
    constants = {name: CONSTANTS[name] for name in "wsz"}
    denied = [node.name for node in PASS.denied_by(Graph(model_of(rows, {"x": (1, 3, 4, 5)}, "y", constants)))]
    assert denied == ["u"]
    rows[4] = ("Transpose", "p", "u", {"perm": [0, 2, 1, 3]})  # not the inverse of the one in front
    assert list(PASS.denied_by(Graph(model_of(rows, {"x": (1, 3, 4, 5)}, "y", constants)))) == []


def test_a_transpose_that_does_nothing_denies_the_contract_but_for_the_name_of_an_output():
    same = {"perm": [0, 1, 2, 3]}
    rows = [("Transpose", "x", "t", same), ("Relu", "t", "r"), ("Transpose", "r", "y", same)]
    graph = Graph(model_of(rows, {"x": IMAGE}, "y"))
    assert [node.name for node in PASS.denied_by(graph)] == ["t"]
    move_to_channels_first(graph)
    assert operators(graph) == ["Relu", "Transpose"]
