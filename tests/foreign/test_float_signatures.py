"""Tensors by the operations that compute them: what two files have in common, and what stands on each tensor."""

import numpy as np
import onnx
import pytest
from pass_graphs import model_of

from qdq_workbench.foreign import float_signatures
from qdq_workbench.foreign.float_signatures import ImportedQuantizer, ImportedTensor, match_tensors, read_float_view

IMAGE = {"x": (1, 2, 4, 4)}
KERNEL, MATRIX = np.ones((2, 2, 3, 3), np.float32), np.ones((4, 4), np.float32)
GRID = {"s": np.float32(0.5), "z": np.uint8(3)}


def view(rows, outputs="y", constants=None, inputs=None, opset=17):
    return read_float_view(model_of(rows, inputs or IMAGE, outputs, constants, opset=opset))


def pair(source, name):
    """The halves of a pair, named as this exporter names them."""
    return [
        ("QuantizeLinear", f"{source},s,z", f"{name}/QuantizeLinear"),
        ("DequantizeLinear", f"{name}/QuantizeLinear,s,z", name),
    ]


def signature(*rows, constants=None, inputs=None):
    """The signature of the last tensor."""
    return list(view(rows, rows[-1][2].split(",")[0], constants, inputs).values())[-1].signature


# What has one signature


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([("Gemm", "x,w", "y")], [("MatMul", "x,w", "y")]),
        ([("ReduceMean", "x", "y", {"axes": [1]})], [("GlobalAveragePool", "x", "y")]),
        ([("ReduceMax", "x", "y", {"axes": [1]})], [("GlobalMaxPool", "x", "y")]),
        ([("Sigmoid", "x", "y")], [("Sigmoid", "x", "other_name")]),
    ],
)
def test_operations_of_two_names_are_one(ours, theirs):
    inputs = {"x": (4, 4)}
    assert signature(*ours, constants={"w": MATRIX}, inputs=inputs) == signature(
        *theirs, constants={"w": MATRIX}, inputs=inputs
    )


def test_operations_differ_by_kind_inputs_and_their_order():
    found = {
        signature(("Sigmoid", "x", "y")),
        signature(("Tanh", "x", "y")),
        signature(("Sigmoid", "x", "a"), ("Sigmoid", "a", "y")),
        signature(("Sigmoid", "x", "a"), ("Sub", "a,x", "y")),
        signature(("Sigmoid", "x", "a"), ("Sub", "x,a", "y")),
    }
    assert len(found) == 5
    two = {"x": (2, 2), "v": (2, 2)}
    assert signature(("Tanh", "x", "y"), inputs=two) != signature(("Tanh", "v", "y"), inputs=two)


def test_weights_count_by_their_number_of_values_in_any_layout():
    def conv(kernel, **attributes):
        return signature(("Conv", "x,w", "y", attributes), constants={"w": kernel})

    assert conv(KERNEL) == conv(KERNEL.reshape(2, 2, 9, 1))
    assert conv(KERNEL) != conv(KERNEL[..., :1])
    assert conv(KERNEL[:, :1], group=2) != conv(KERNEL[:, :1])
    turned = [("Transpose", "w", "t", {"perm": [1, 0, 2, 3]}), ("Conv", "x,t", "y")]
    assert signature(*turned, constants={"w": KERNEL}) == conv(KERNEL)
    dequantized = [("DequantizeLinear", "w,s", "t"), ("Conv", "x,t", "y")]
    assert signature(*dequantized, constants={"w": KERNEL.astype(np.int8), "s": np.float32(1)}) == conv(KERNEL)
    assert signature(("Abs", "x", "t"), ("Conv", "x,t", "y")) != conv(KERNEL)  # a computed weight


def test_the_outputs_of_one_operation_differ():
    found = view([("Split", "x,sizes", "a,b"), ("Tanh", "b", "y")], "a,y", {"sizes": np.array([1, 1])})
    assert list(found) == ["x", "a", "b", "y"]
    assert len({tensor.signature for tensor in found.values()}) == 4


def test_what_is_computed_from_constants_alone_is_no_activation():
    assert list(view([("Neg", "c", "n"), ("Max", "x,n", "y")], constants={"c": np.ones(4, np.float32)})) == ["x", "y"]


# What is looked through


@pytest.mark.parametrize(
    ("rows", "constants"),
    [
        ([("Reshape", "a,shape", "y")], {"shape": np.array([1, 32])}),
        ([("Transpose", "a", "y", {"perm": [0, 2, 3, 1]})], {}),
        ([("Flatten", "a", "y")], {}),
        ([("Cast", "a", "y", {"to": 1})], {}),
        ([("BatchNormalization", "a,g,b,m,v", "y")], {name: np.ones(2, np.float32) for name in "gbmv"}),
        ([("Add", "a,c", "y")], {"c": np.float32(1)}),
        ([("Mul", "c,a", "y")], {"c": np.float32(1)}),
        ([("Relu", "a", "y")], {}),
        ([("Clip", "a,c", "y")], {"c": np.float32(1)}),
        ([("Max", "a,c", "y")], {"c": np.float32([1])}),
        (pair("a", "y"), GRID),
    ],
)
def test_movements_constants_and_clips_leave_the_signature(rows, constants):
    assert len(view([("Tanh", "x", "a"), *rows], constants=constants)) == 2


@pytest.mark.parametrize(
    ("rows", "constants"),
    [
        ([("Slice", "a,c,c", "y")], {"c": np.array([1])}),
        ([("Gather", "a,c", "y")], {"c": np.array([1])}),
        ([("MaxPool", "a", "y", {"kernel_shape": [2, 2]})], {}),
        ([("Tile", "a,c", "y")], {"c": np.ones(4, np.int64)}),
        ([("Add", "a,a", "y")], {}),
        ([("Add", "a,x", "y")], {}),
        ([("Max", "a,x", "y")], {}),
        ([("Max", "a,c", "y")], {"c": np.float32([1, 2, 3, 4])}),
        ([("Sum", "a,c", "y")], {"c": np.float32(1)}),
    ],
)
def test_what_changes_values_has_a_signature_of_its_own(rows, constants):
    found = view([("Tanh", "x", "a"), *rows], constants=constants)
    assert list(found) == ["x", "a", "y"]


def test_a_clip_of_an_input_is_an_operation_since_no_exporter_may_fold_it():
    assert list(view([("Relu", "x", "y")])) == ["x", "y"]
    assert list(view([*pair("x", "p"), ("Relu", "p", "y")], constants=GRID)) == ["x", "y"]


# Stages of a chain


def test_every_relu_is_a_stage_and_a_pair_is_at_its_own():
    rows = [("Tanh", "x", "a"), ("Relu", "a", "b"), *pair("b", "p"), ("Clip", "p,zero", "c"), *pair("c", "y")]
    (_, found) = view(rows, constants={**GRID, "zero": np.float32(0)}).values()
    assert (found.name, found.stages, found.value) == ("c", 2, "y")
    assert [(item.node, item.stage) for item in found.quantizers] == [("p/QuantizeLinear", 1), ("y/QuantizeLinear", 2)]


def test_a_clip_in_two_operators_is_one_stage():
    numbers = {"low": np.float32(0), "high": np.float32([6])}
    rows = [("Tanh", "x", "a"), ("Max", "a,low", "b"), ("Min", "b,high", "y")]
    (_, found) = view(rows, constants=numbers).values()
    assert (found.name, found.stages) == ("y", 1)
    (_, found) = view([rows[0], ("Min", "a,high", "b"), ("Max", "b,low", "y")], constants=numbers).values()
    assert found.stages == 2


NARROW = {**GRID, "low": np.float32(-1), "high": np.float32(6)}


@pytest.mark.parametrize("first", [[("Tanh", "x", "a")], [("Identity", "x", "a")]], ids=["result", "input"])
def test_the_clip_of_a_narrow_pair_is_a_part_of_the_pair(first):
    rows = [*first, ("Clip", "a,low,high", "conv/Clip"), *pair("conv/Clip", "conv")]
    found = list(view([*rows, ("Tanh", "conv", "y")], constants=NARROW).values())[-2]
    assert (found.stages, [item.stage for item in found.quantizers]) == (0, [0])
    assert found.name == ("a" if first[0][0] == "Tanh" else "x")
    assert found.value == "conv"


@pytest.mark.parametrize(
    ("low", "high", "clipped"),
    [(-1.0, 6.0, (1, 15)), (-9.0, 6.0, (0, 15)), (-1.5, 200.0, None), (2.0, 2.0, None), (3.0, 2.0, None)],
)
def test_the_clip_of_a_pair_tells_the_integers_that_it_lets_through_if_they_are_several(low, high, clipped):
    rows = [("Tanh", "x", "a"), ("Clip", "a,low,high", "conv/Clip"), *pair("conv/Clip", "conv")]
    constants = {**GRID, "low": np.float32(low), "high": np.float32(high)}
    (_, found) = view(rows, "conv", constants).values()
    assert [item.clipped for item in found.quantizers] == [clipped]


def test_a_narrow_pair_in_front_of_a_relu_is_not_behind_it():
    rows = [("Tanh", "x", "a"), ("Clip", "a,low,high", "conv/Clip"), *pair("conv/Clip", "conv"), ("Relu", "conv", "y")]
    (_, found) = view(rows, constants=NARROW).values()
    assert (found.stages, [item.stage for item in found.quantizers]) == (1, [0])


@pytest.mark.parametrize("behind", [pair("conv/Clip", "other"), [("Tanh", "conv/Clip", "y")]])
def test_another_clip_of_such_a_name_is_a_stage(behind):
    rows = [("Tanh", "x", "a"), ("Clip", "a,low,high", "conv/Clip"), *behind]
    found = list(view(rows, behind[-1][2], NARROW).values())
    assert found[1].stages == 1
    assert found[1].name == "conv/Clip"


# Names and values


def test_a_tensor_is_called_by_the_last_tensor_of_its_chain_in_front_of_a_pair():
    constants = {**GRID, "c": np.float32(1), "shape": np.array([1, 32])}
    rows = [("Tanh", "x", "a"), ("Add", "a,c", "b"), *pair("b", "p"), ("Mul", "p,c", "d"), ("Reshape", "d,shape", "y")]
    (_, found) = view(rows, constants=constants).values()
    assert (found.name, found.value) == ("b", "p")
    (_, found) = view(rows[:2], "b", constants).values()
    assert (found.name, found.value) == ("b", "b")


def test_what_a_pair_in_front_of_a_relu_gives_is_not_the_value_behind_it():
    (_, found) = view([("Tanh", "x", "a"), *pair("a", "p"), ("Relu", "p", "y")], constants=GRID).values()
    assert (found.name, found.value, found.stages) == ("y", "y", 1)


def test_readers_without_a_pair_are_counted():
    rows = [*pair("x", "p"), ("Tanh", "p", "a"), ("Tanh", "x", "b"), ("Add", "x,b", "c"), ("Add", "a,c", "y")]
    found = view(rows, constants=GRID)
    assert {name: tensor.raw_readers for name, tensor in found.items()} == {"x": 2, "a": 1, "b": 1, "c": 1, "y": 0}


# Pairs and weights


@pytest.mark.parametrize(
    ("scale", "zero", "reason"),
    [
        (np.float32([0.5]), np.uint8([3]), None),
        (np.float32([0.5, 1]), np.uint8([3, 0]), "has 2 scales"),
        (None, np.uint8(3), "is computed"),
    ],
)
def test_pairs_and_why_some_are_not_imported(scale, zero, reason):
    constants = {"z": zero} | ({} if scale is None else {"s": scale})
    rows = [*([("Abs", "x", "s")] if scale is None else []), *pair("x", "p"), ("Tanh", "p", "y")]
    found = view(rows, constants=constants)["x"]
    if reason is None:
        assert found.quantizers == (ImportedQuantizer("p/QuantizeLinear", 0.5, 3, "uint8", 0),)
        assert found.quantizers[0].range == (-1.5, 126.0)
        return
    assert found.quantizers == ()
    assert len(found.not_imported) == 1
    assert reason in found.not_imported[0]


def test_one_reason_is_given_once():
    rows = [*pair("x", "p"), ("Tanh", "p", "a"), *pair("x", "q")]
    rows[3] = ("QuantizeLinear", "x,s,z", "p/QuantizeLinear2")
    found = view(rows[:4], "a", {"s": np.float32([1, 2]), "z": np.uint8([0, 0])})["x"]
    assert len(found.not_imported) == 2
    model = model_of(rows[:4], IMAGE, "a", {"s": np.float32([1, 2]), "z": np.uint8([0, 0])})
    model.graph.node[3].name = model.graph.node[0].name
    assert len(read_float_view(model)["x"].not_imported) == 1


def weighted(constants, op="Conv", **attributes):
    rows = [("DequantizeLinear", "w,ws,wz", "k", attributes), (op, "x,k", "y")]
    return view(rows, constants=constants, inputs=IMAGE if op == "Conv" else {"x": (4, 4)}, opset=21)["y"]


def test_a_weight_is_described_by_its_scales_type_and_blocks():
    constants = {"w": KERNEL.astype(np.int8), "ws": np.float32([0.5, 1]), "wz": np.int8([0, 0])}
    found = weighted(constants, axis=0)
    assert (found.weight_scale, found.weight_dtype, found.weight_block) == ((0.5, 1.0), "int8", 0)
    assert found.weight_is_symmetric
    found = weighted({**constants, "wz": np.int8([0, 1])}, axis=0)
    assert not found.weight_is_symmetric
    constants = {"w": MATRIX.astype(np.int16), "ws": np.ones((2, 4), np.float32), "wz": np.zeros((2, 4), np.int16)}
    found = weighted(constants, "MatMul", axis=0, block_size=2)
    assert (len(found.weight_scale), found.weight_dtype, found.weight_block) == (8, "int16", 2)


def test_a_weight_of_floats_has_no_scale():
    found = view([("Conv", "x,w", "y")], constants={"w": KERNEL})["y"]
    assert (found.weight_scale, found.weight_dtype, found.not_imported) == ((), "", ())


# Layers in several steps


def gelu(steps):
    if not steps:
        return [("Gelu", "x", "y")]
    return [
        ("Div", "x,root", "d"),
        ("Erf", "d", "e"),
        ("Add", "e,one", "s"),
        ("Mul", "x,s", "p"),
        ("Mul", "p,half", "y"),
    ]


NUMBERS = {"root": np.float32(np.sqrt(2)), "one": np.float32(1), "half": np.float32(0.5)}


@pytest.mark.parametrize("limit", [10**9, 0])
def test_a_layer_in_steps_is_one_operation(limit, monkeypatch):
    monkeypatch.setattr(float_signatures, "SINGLE_FILE_LIMIT", limit)  # beyond it, no shapes are inferred
    steps = view(gelu(steps=True), constants=NUMBERS)
    whole = view(gelu(steps=False), opset=20)
    assert list(steps) == list(whole) == ["x", "y"]
    assert steps["y"].signature == whole["y"].signature
    assert (steps["x"].raw_readers, whole["x"].raw_readers) == (1, 1)


def test_what_reads_the_middle_of_a_layer_does_not_break_it():
    rows = [*gelu(steps=True), ("Tanh", "e", "z")]
    model = model_of(rows, IMAGE, "y,z", NUMBERS)
    assert "y" in read_float_view(model)
    assert onnx.checker.check_model(model) is None


# Matching


def tensor(name, number):
    return ImportedTensor(name, number, ())


def test_equal_signatures_are_matched_in_their_order_and_each_once():
    ours = {name: tensor(name, number) for name, number in (("a", 1), ("b", 2), ("c", 1), ("d", 1), ("e", 3))}
    theirs = {name: tensor(name, number) for name, number in (("p", 2), ("q", 1), ("r", 1), ("s", 4))}
    assert match_tensors(ours, theirs) == {"a": "q", "b": "p", "c": "r"}
    assert match_tensors({}, theirs) == match_tensors(ours, {}) == {}
