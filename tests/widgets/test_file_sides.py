"""A file and its kernels as sides of a comparison, on graphs and kernels made by hand."""

import dataclasses
import pathlib
from types import SimpleNamespace

import pytest
from mock_graphs import GraphMaker, chain

import qdq_workbench as qdq
from qdq_widgets.errors import BenchError
from qdq_widgets.file_sides import file_side, runtime_side

PATH = pathlib.Path("folder/net.onnx")
GRAPH = chain(
    ("Conv2D", "block/conv"),
    ("BatchNormalization", "block/norm"),
    ("ReLU", "relu"),
    ("Dropout", "drop"),
    ("MaxPooling2D", "pool"),
    ("Flatten", "flat"),
    ("Dense", "head"),
)
PLAN = qdq.plan_placement(GRAPH, target="onnxruntime")
PLACES = {node.name: place for place, node in enumerate(GRAPH.nodes)}


def cards_of(side):
    names = {str(place): name for name, place in PLACES.items()}
    return {names[place]: text for place, text in side.look["cards"].items()}


# ---------------------------------------------------------------------- files


def grid_of(quantizer):
    return qdq.files.FileGrid(str(quantizer.label).partition("/")[0], 1, 0.5, 0)


def held(plan=PLAN, *, missing=(), **fields):
    usual = {
        "pairs": {t.name: grid_of(t.quantizer) for t in plan.tensors if t.kind == "activation"},
        "weights": {t.name: grid_of(t.quantizer) for t in plan.tensors if t.kind == "weight"},
        "operators": {"block/conv": {"Conv": 1}, "relu": {"Relu": 1}, "head": {"MatMul": 1, "Add": 2}},
    }
    for name in missing:
        del usual["weights" if "kernel" in name else "pairs"][name]
    return qdq.files.FileLayers(PATH, plan, **{**usual, **fields})


def test_a_file_shows_its_operators_and_what_became_of_the_other_layers():
    side = file_side(held())
    assert cards_of(side) == {
        "block/conv": "Conv",
        "block/norm": "folded into conv",
        "relu": "Relu",
        "drop": "vanishes",
        "pool": "moves",
        "flat": "moves",
        "head": "MatMul + 2 Add",
    }
    assert side.look["faded"] == sorted(PLACES[name] for name in ("block/norm", "drop"))
    assert side.title == "net.onnx"
    pairs = sum(tensor.kind == "activation" for tensor in PLAN.tensors)
    assert side.note == f"5 operators, {pairs} Q/DQ pairs, 2 integer weights"
    assert (side.grids, side.remarks) == ("file onnxruntime", ())
    assert file_side(held(), "Mine").title == "Mine"


def test_many_operators_are_grouped_by_thousands():
    assert file_side(held(operators={"head": {"Add": 12345}})).note.startswith("12,345 operators, ")


@pytest.mark.parametrize(
    ("name", "gone"),
    [("block/conv/kernel", ("weights", ("block/conv", "block/conv/kernel"))), ("image", ("pairs", "image"))],
)
def test_what_the_file_lacks_is_in_no_field_of_its_side(name, gone):
    whole, side = file_side(held()), file_side(held(missing=[name]))
    field, key = gone
    before, after = getattr(whole, field), getattr(side, field)
    assert {key: before[key], **after} == before
    assert key not in after
    assert len(side.plan.placements) < len(PLAN.placements)
    assert side.state["states"][1] != whole.state["states"][1]


def test_pairs_are_drawn_with_the_grids_in_the_file():
    side = file_side(held())
    assert side.state["pairs"][str(PLACES["image"])] == ["uint8, scale 0.5, zero point 0"]
    assert side.pairs["image"] == "uint8"
    assert set(side.state["pairs"]) == {str(PLACES[tensor]) for tensor in side.pairs}


def test_a_problem_is_remarked_at_the_layer_that_it_names():
    problems = ("of 'head' the file holds nothing, expected 1 MatMul", "the file has 3 operators of no layer")
    assert file_side(held(problems=problems)).remarks == (("head", "!", problems[0]), ("image", "!", problems[1]))


# ---------------------------------------------------------------------- kernels


def kernel(operator, *layers, on_integers=True, behind=""):
    return qdq.profiling.RuntimeKernel("k", operator, on_integers, layers, behind)


KERNELS = (
    kernel("QuantizeLinear", behind="image"),
    kernel("QLinearConv", "block/conv", "relu"),
    kernel("MaxPool", "pool"),
    kernel("MatMul", "head", on_integers=False),
)


def runtime(*kernels, plan=PLAN, **fields):
    return runtime_side(qdq.profiling.RuntimeGraph(PATH, kernels or KERNELS, "1.0", plan), **fields)


def test_a_file_without_a_plan_has_no_layers_to_compare():
    with pytest.raises(BenchError, match=r"carries no plan.*Received: 'folder/net.onnx'"):
        runtime(plan=None)


def test_every_layer_has_its_kernel_or_that_of_another_layer():
    side = runtime(*KERNELS, kernel("Add", "head", on_integers=False), kernel("Add", "head", on_integers=False))
    assert cards_of(side) == {
        "block/conv": "QLinearConv",
        "block/norm": "folded into conv",
        "relu": "in QLinearConv of conv",
        "drop": "vanishes",
        "pool": "MaxPool",
        "flat": "no kernel",
        "head": "MatMul + 2 Add",
    }
    faded = ("block/norm", "relu", "drop", "flat")
    assert side.look["faded"] == [PLACES[name] for name in faded]
    assert side.merged == {name: cards_of(side)[name] for name in faded}
    assert (side.title, side.note) == ("ONNX Runtime", "5 kernels, 2 on integers, 1 conversions")


def test_a_folded_layer_has_the_status_of_the_layer_it_is_a_part_of():
    values = runtime().values
    assert values["block/norm"] == {"status": "int8", "reason": "folded into conv"}
    assert values["head"]["status"] == "float"
    assert "flat" not in values  # no kernel: nothing is known
    assert "image" not in values


def states_of(*kernels):
    return dict(zip(PLACES, runtime(*kernels).state["states"], strict=True))


def test_an_input_is_on_where_a_kernel_on_integers_reads_integers():
    states = states_of()
    assert (states["block/conv"], states["pool"], states["head"]) == ("1:0:0", "1:0:0", "0:0:0")
    assert states["drop"] == "1:0:0"  # it vanishes, and what it reads goes through
    assert states_of(*KERNELS[1:])["block/conv"] == "0:0:0"  # nothing quantizes the image


def test_readers_of_a_conversion_to_integers_get_integers_from_a_float_kernel_too():
    floats = (
        kernel("Conv", "block/conv", "relu", on_integers=False),
        kernel("MaxPool", "pool", on_integers=False),
        kernel("QGemm", "head"),
    )
    assert states_of(*floats)["head"] == "0:0:0"
    assert states_of(*floats, kernel("QuantizeLinear", behind="flat"))["head"] == "1:0:0"
    assert states_of(*floats, kernel("DequantizeLinear", behind="flat"))["head"] == "0:0:0"


def test_conversions_stand_behind_the_last_node_of_the_kernel():
    side = runtime(
        *KERNELS[1:],
        kernel("DequantizeLinear", behind="block/conv"),
        kernel("QuantizeLinear", behind="relu"),
        kernel("DequantizeLinear", behind="relu"),
        kernel("Cast", behind="nowhere"),
    )
    # The normalization is folded into the convolution, and the dropout behind the activation vanishes.
    assert side.look["pills"] == {str(PLACES["block/norm"]): "DQ", str(PLACES["drop"]): "Q·DQ"}
    assert side.remarks == (
        ("block/norm", "⇄", "converted behind block/norm: DQ"),
        ("drop", "⇄", "converted behind drop: Q · DQ"),
    )
    assert side.note.endswith("4 conversions")


def test_a_pill_counts_conversions_of_one_kind_and_shows_four_kinds():
    operators = ["ReorderInput", "Transpose", "QuantizeLinear", "Cast", "Reshape", "DequantizeLinear"]
    side = runtime(*KERNELS[1:], *(kernel(operator, behind="pool") for operator in operators))
    assert side.look["pills"] == {str(PLACES["pool"]): "2 layout·Q·Cast·Reshape"}
    assert [text for _, _, text in side.remarks] == ["converted behind pool: Q · Cast · Reshape · DQ"]


@pytest.mark.parametrize(
    ("operator", "behind"), [("ReorderOutput", "pool"), ("QuantizeLinear", "image"), ("DequantizeLinear", "head")]
)
def test_changes_of_layout_and_conversions_at_the_ends_are_drawn_and_no_remark(operator, behind):
    side = runtime(*KERNELS[1:], kernel(operator, behind=behind))
    assert str(PLACES[behind]) in side.look["pills"]
    assert side.remarks == ()


def test_a_group_is_what_one_kernel_computes_with_what_is_folded_into_it():
    assert runtime().look["groups"] == [[PLACES[name] for name in ("block/conv", "block/norm", "relu")]]


def test_a_layer_with_several_calls_is_in_no_group():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("Conv2D", "conv#1", "conv", layer="conv")
    maker.add("ReLU", "relu", "conv#1")
    plan = qdq.plan_placement(maker.graph("relu"), target="onnxruntime")
    assert runtime(kernel("QLinearConv", "conv", "relu"), plan=plan).look["groups"] == []


def test_times_are_those_of_the_layers_of_the_model():
    times = {"head": 0.5, "pool": 0.0004, "block/conv": -0.1, "elsewhere": 9.0}
    report = SimpleNamespace(layers=[SimpleNamespace(layer=name, ms=ms) for name, ms in times.items()], total_ms=0.625)
    side = runtime(latency=report)
    head, pool, conv = (str(PLACES[name]) for name in ("head", "pool", "block/conv"))
    assert side.look["labels"] == {head: "0.5 ms", pool: "0.0004 ms", conv: "-0.1 ms"}
    assert side.look["bars"] == {head: 1.0, pool: 0.001, conv: 0.0}
    assert side.note.endswith(", 0.625 ms measured")
    assert "labels" not in runtime().look


def test_times_of_nothing_make_no_bars():
    report = SimpleNamespace(layers=[], total_ms=0.5)
    assert runtime(latency=report).look["bars"] == {}
    report.layers.append(SimpleNamespace(layer="head", ms=0.0))
    assert runtime(latency=report).look["bars"] == {str(PLACES["head"]): 0.0}


def test_the_state_is_that_of_the_kernels_and_not_of_the_plan():
    side = runtime()
    assert (side.state["pairs"], side.state["target"], side.grids) == ({}, "onnxruntime", "kernels")
    assert (side.pairs, side.weights, side.inputs) == (None, None, None)
    assert dataclasses.replace(side, title="x").graph is GRAPH
