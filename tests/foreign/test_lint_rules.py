"""Both sides of every rule: files by hand in which one detail decides whether there is a finding."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from qdq_files import FileMaker

from qdq_workbench.foreign import lint_rules as rules
from qdq_workbench.onnx_graph.qdq_graph import QDQGraph


def found(rule, maker, *outputs):
    """The node and the message of every finding."""
    return [(finding.node, finding.message) for finding in rule(QDQGraph(maker.model(*outputs)))]


def nodes(rule, maker, *outputs):
    return [node for node, _ in found(rule, maker, *outputs)]


def per_channel(size=2, **options):
    return {"scale": [0.1] * size, "zero": [0] * size, "axis": 1, **options}


# Dangling halves


@pytest.mark.parametrize(
    ("op", "said"),
    [
        ("Tanh", "only Tanh reads its result"),
        ("Reshape", None),
        ("MaxPool", None),
        ("Concat", None),
        ("TopK", None),
        ("QLinearSoftmax", None),
        ("ConvInteger", None),
    ],
)
def test_what_may_read_integers(op, said):
    f = FileMaker()
    f.node(op, [f.quantize("x", "q")], "y")
    assert found(rules.dangling, f, "y") == ([("q", f"{said}; put a DequantizeLinear behind it")] if said else [])


def test_all_readers_count_each_operator_once_in_its_order():
    f = FileMaker()
    q = f.quantize("x", "q")
    for name in ("b", "a"):
        f.node("Tanh", [q], name)
    f.node("Abs", [q], "c")
    f.dequantize(q, "y")
    assert found(rules.dangling, f, "y")[0][1].startswith("only Abs, Tanh reads its result")


def test_integers_that_are_an_output_are_read_by_the_user():
    f = FileMaker()
    assert nodes(rules.dangling, f, f.quantize("x", "q")) == []
    assert found(rules.dangling, f, "x") == [("q", "nothing reads its result; put a DequantizeLinear behind it")]


@pytest.mark.parametrize(
    ("op", "dangles"),
    [("Tanh", True), ("ArgMax", False), ("QLinearConv", False), ("DynamicQuantizeLinear", False), ("Cast", True)],
)
def test_what_may_give_integers(op, dangles):
    f = FileMaker()
    f.dequantize(f.node("Transpose", [f.node(op, ["x"], "codes")], "moved"), "y")
    said = [("y", f"it dequantizes what {op} gives, not a QuantizeLinear")] if dangles else []
    assert found(rules.dangling, f, "y") == said


def test_an_input_that_was_moved_is_still_an_input():
    f = FileMaker()
    f.dequantize(f.node("Transpose", ["x"], "moved"), "y")
    assert found(rules.dangling, f, "y")[0][1].startswith("it dequantizes what an input of the model gives")
    f = FileMaker()
    f.dequantize(f.node("Transpose", [f.constant("codes", np.ones((2, 2), np.uint8))], "moved"), "y")
    assert found(rules.dangling, f, "y") == []


# Parameters of both halves


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({}, {}, True),
        ({"scale": 0.1}, {"scale": 0.2}, False),
        ({"zero": 3}, {"zero": 4}, False),
        ({"dtype": np.uint8}, {"dtype": np.int8}, False),
        ({"scale": [0.1], "zero": [0]}, {"scale": 0.1, "zero": 0}, True),
        (per_channel(), per_channel(axis=2), False),
        (per_channel(), per_channel(), True),
        (per_channel(1), per_channel(1, axis=2), True),  # one scale has no axis
        (per_channel(), per_channel(zero=[0, 1]), False),
    ],
    ids=str,
)
def test_a_pair_has_one_grid(one, other, same):
    f = FileMaker()
    f.dequantize(f.quantize("x", "q", **one), "y", **other)
    assert found(rules.mismatched, f, "y") == ([] if same else [("y", "its scale or zero point is not that of 'q'")])


def test_a_scale_in_half_precision_is_the_same_number():
    f = FileMaker()
    f.quantize("x", "q", scale=0.5)
    f.constant("half", np.float16(0.5))
    f.node("DequantizeLinear", ["q", "half", "q_z"], "y")
    assert found(rules.mismatched, f, "y") == []


@pytest.mark.parametrize(("shared", "same"), [(True, True), (False, False)])
def test_computed_scales_are_equal_if_they_are_one_tensor(shared, same):
    f = FileMaker()
    f.constant("z", np.uint8(0))
    for name in ("one", "other"):
        f.node("Abs", ["x"], name)
    f.node("QuantizeLinear", ["x", "one", "z"], "q")
    f.node("DequantizeLinear", ["q", "one" if shared else "other", "z"], "y")
    assert (found(rules.mismatched, f, "y") == []) is same


@pytest.mark.parametrize(("scale", "repeats"), [(0.1, True), (0.2, False)])
def test_a_second_pair_of_the_same_grid_is_repeated(scale, repeats):
    f = FileMaker()
    f.pair(f.pair("x", "one"), "two", scale=scale)
    assert nodes(rules.repeated, f, "two_dq") == (["two_q"] if repeats else [])


@pytest.mark.parametrize(
    ("pads", "second", "repeats"),
    [([1, 1, 1, 1], None, False), ([0, 0, 0, 0], None, True), (None, None, True), ([0, 0, 0, 1], [0, 0, 0, 0], True)],
)
def test_a_second_pair_in_front_of_padding_may_have_padding_between_them(pads, second, repeats):
    f = FileMaker()
    tensor = f.pair(f.pair("x", "one"), "two")
    f.node("MaxPool", [tensor], "y", kernel_shape=[2, 2], **({} if pads is None else {"pads": pads}))
    if second is not None:
        f.node("MaxPool", [tensor], "z", kernel_shape=[2, 2], pads=second)
    assert nodes(rules.repeated, f, "y") == (["two_q"] if repeats else [])


# Scales


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (0.0, "1 of 1 scales are zero, negative or not finite"),
        (-0.1, "1 of 1 scales are zero, negative or not finite"),
        (np.inf, "1 of 1 scales are zero, negative or not finite"),
        (np.nan, "1 of 1 scales are zero, negative or not finite"),
        ([0.1, 0.0, np.nan], "2 of 3 scales are zero, negative or not finite"),
        ([0.1, 0.1], "an activation has one scale; this one has several"),
        ([0.1], None),
    ],
    ids=str,
)
def test_scales_of_activations(scale, said):
    f = FileMaker()
    f.quantize("x", "q", scale=scale, zero=np.zeros(np.shape(scale)))
    assert found(rules.scales, f, "q") == ([] if said is None else [("q", said)])


def test_several_scales_are_for_weights_stored_as_floats_and_for_dequantizers():
    f = FileMaker()
    f.node("Transpose", [f.constant("w", np.ones((2, 2), np.float32))], "moved")
    f.pair("moved", "w", **per_channel())
    f.dequantize("x", "codes", **per_channel())
    assert found(rules.scales, f, "w_dq") == []


def test_computed_scales_are_named_unless_they_are_those_of_dynamic_quantization():
    f = FileMaker()
    f.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["codes", "s", "z"], name="dynamic"))
    f.node("DequantizeLinear", ["codes", "s", "z"], "y")
    f.node("QuantizeLinear", ["x", f.node("Abs", ["x"], "computed")], "q")
    assert found(rules.scales, f, "y") == [("q", "its scale or zero point is computed; make it a constant")]


# Weights


def test_only_a_constant_itself_is_a_float_weight():
    f = FileMaker()
    f.quantize(f.constant("w", np.ones(3, np.float32)), "q")
    f.quantize("x", "p")
    assert found(rules.float_weights, f, "p") == [("q", "it quantizes a constant; store the integers themselves")]


# What could be folded


def scaled(factor, *, op="Conv", first=False, result=False, shared=False, weight=True):
    f = FileMaker()
    axis = 1 if op == "ConvTranspose" else 0
    shape = (2, 3, 3, 3) if op == "ConvTranspose" else (3, 2, 3, 3)
    kernel = f.weight("w", shape=shape, axis=axis) if weight else f.constant("w", np.ones(shape, np.float32))
    f.node(op, [f.pair("x", "in"), kernel], "conv")
    second = "x" if factor is None else f.constant("g", np.ones(factor, np.float32))
    f.node("Mul", [second, "conv"] if first else ["conv", second], "y")
    if result:
        f.node("Tanh", ["conv"], "z")
    if shared:
        f.node("Conv", ["x", kernel], "z")
    return nodes(rules.unfolded, f, "y")


@pytest.mark.parametrize(
    ("given", "finds"),
    [
        ({"factor": (1, 3, 1, 1)}, True),
        ({"factor": (1, 3, 1, 1), "first": True}, True),
        ({"factor": (1, 3, 1, 1), "op": "ConvTranspose"}, True),
        ({"factor": (1, 2, 1, 1), "op": "ConvTranspose"}, False),
        ({"factor": (1, 3, 4, 4)}, False),
        ({"factor": ()}, False),
        ({"factor": None}, False),
        ({"factor": (1, 3, 1, 1), "result": True}, False),
        ({"factor": (1, 3, 1, 1), "shared": True}, False),
        ({"factor": (1, 3, 1, 1), "weight": False}, False),
        ({"factor": (1, 3, 1, 1), "op": "MatMul"}, False),
    ],
    ids=str,
)
def test_a_factor_per_channel_belongs_into_the_weights(given, finds):
    assert scaled(**given) == (["y"] if finds else [])


def test_the_channels_of_a_grouped_transposed_convolution_are_those_of_all_groups():
    f = FileMaker()
    f.node("ConvTranspose", [f.pair("x", "in"), f.weight("w", shape=(2, 3, 3, 3), axis=1)], "conv", group=2)
    f.node("Mul", ["conv", f.constant("g", np.ones((1, 6, 1, 1), np.float32))], "y")
    assert nodes(rules.unfolded, f, "y") == ["y"]


# Operands


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum"])
@pytest.mark.parametrize(("integer", "missing"), [((0,), "weight"), ((1,), "input"), ((0, 1), None), ((), None)])
def test_both_operands_are_quantized_or_none(op, integer, missing):
    f = FileMaker()
    kernel = f.weight("w") if 1 in integer else f.constant("w", np.ones((2, 2, 3, 3), np.float32))
    f.node(op, [f.pair("x", "in") if 0 in integer else "x", kernel], "y")
    said = [("y", f"its {missing} is not quantized, so it is computed in float")] if missing and op != "Einsum" else []
    assert found(rules.operands, f, "y") == said


@pytest.mark.parametrize(("block", "finds"), [(0, True), (2, False)])
def test_weights_in_blocks_are_read_beside_floats(block, finds):
    f = FileMaker()
    codes = f.constant("codes", np.ones((4, 4), np.int8))
    options = {"scale": np.ones((2, 4)), "zero": np.zeros((2, 4)), "dtype": np.int8, "axis": 0, "block_size": block}
    f.node("MatMul", ["x", f.dequantize(codes, "w", **options)], "y")
    assert nodes(rules.operands, f, "y") == (["y"] if finds else [])
    f.node("MatMul", [f.pair("x", "in"), f.constant("k", np.ones((4, 4), np.float32))], "z")
    assert nodes(rules.operands, f, "y")[-1] == "z"


@pytest.mark.parametrize(
    ("kinds", "index"), [("iif", 2), ("fii", 0), ("iii", None), ("fff", None), ("f", None), ("i", None)]
)
def test_a_join_has_integers_on_all_sides_or_none(kinds, index):
    f = FileMaker()
    tensors = [f.pair("x", f"p{n}") if kind == "i" else f.node("Tanh", ["x"], f"t{n}") for n, kind in enumerate(kinds)]
    f.node("Concat", tensors, "y", axis=1)
    said = [] if index is None else [("y", f"input {index} is float while others are quantized")]
    assert found(rules.joins, f, "y") == said


# Rescaling


@pytest.mark.parametrize(
    ("op", "scale", "finds"),
    [
        ("MaxPool", 0.2, True),
        ("MaxPool", 0.1, False),
        ("Reshape", 0.2, True),
        ("Tanh", 0.2, False),
        ("Pad", 0.2, False),
    ],
)
def test_a_movement_between_two_grids_rescales(op, scale, finds):
    f = FileMaker()
    f.pair(f.node(op, [f.pair("x", "in")], "move"), "out", scale=scale)
    assert nodes(rules.shared_scales, f, "out_dq") == (["move"] if finds else [])


def test_a_movement_of_a_weight_or_for_several_readers_may_rescale():
    f = FileMaker()
    f.pair(f.node("Reshape", [f.weight("w")], "move"), "out", scale=0.5)
    assert found(rules.shared_scales, f, "out_dq") == []
    f = FileMaker()
    moved = f.node("Reshape", [f.pair("x", "in")], "move")
    f.pair(moved, "out", scale=0.5)
    f.node("Tanh", [moved], "y")
    assert found(rules.shared_scales, f, "y") == []
    f = FileMaker()
    f.node("Tanh", [f.node("Reshape", [f.pair("x", "in")], "move")], "y")
    assert found(rules.shared_scales, f, "y") == []


# Islands


def sum_of(float_side, *, op="Add", quantized=True, more=False):
    f = FileMaker()
    left = f.pair("x", "in")
    f.node(op, [left, float_side(f, left)], "sum")
    if quantized:
        f.pair("sum", "out")
    if more:
        f.node("Tanh", ["sum"], "z")
    return nodes(rules.islands, f, "sum")


def tanh(f, _):
    return f.node("Tanh", ["x"], "tanh")


def conv(*behind):
    def build(f, left):
        tensor = f.node("Conv", [left, f.weight("w")], "conv")
        for op in behind:
            tensor = f.node(op, [tensor], f"behind_{op}")
        return tensor

    return build


@pytest.mark.parametrize(
    ("given", "finds"),
    [
        ({"float_side": tanh}, True),
        ({"float_side": tanh, "op": "Mul"}, True),
        ({"float_side": tanh, "op": "Sub"}, False),
        ({"float_side": tanh, "quantized": False}, False),
        ({"float_side": tanh, "more": True}, False),
        ({"float_side": lambda f, _: f.pair("x", "right")}, False),
        ({"float_side": lambda f, _: f.constant("c", np.float32(1))}, False),
        ({"float_side": lambda *_: "x"}, True),
        ({"float_side": conv()}, False),
        ({"float_side": conv("Relu", "Clip")}, False),
        ({"float_side": conv("Tanh")}, True),
        ({"float_side": conv(), "op": "Mul"}, True),
        ({"float_side": lambda f, left: f.node("Sigmoid", [left], "gate"), "op": "Mul"}, False),
        ({"float_side": lambda f, left: f.node("Clip", [left, f.constant("c", 0.0)], "gate"), "op": "Mul"}, False),
        ({"float_side": lambda f, left: f.node("Sub", [left, "x"], "gate"), "op": "Mul"}, True),
    ],
)
def test_a_float_operand_between_integers(given, finds):
    assert sum_of(**given) == (["sum"] if finds else [])


def test_two_float_operands_are_no_island():
    f = FileMaker()
    f.pair(f.node("Add", ["x", f.node("Tanh", ["x"], "tanh")], "sum"), "out")
    assert found(rules.islands, f, "out_dq") == []


# Branches


def test_branches_may_take_and_give_integers():
    f = FileMaker()
    f.constant("flag", np.array(True))
    ends = [helper.make_tensor_value_info("t", TensorProto.UINT8, None)]
    branch = helper.make_graph([helper.make_node("Identity", ["q"], ["t"], "same")], "branch", [], ends)
    f.quantize("x", "q")
    f.nodes.append(helper.make_node("If", ["flag"], ["codes"], "if", then_branch=branch, else_branch=branch))
    f.dequantize("codes", "y")
    assert found(rules.dangling, f, "y") == []
