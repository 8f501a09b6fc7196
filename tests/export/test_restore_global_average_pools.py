"""Which means become GlobalAveragePool: those of flipped nodes and those between pairs, and no other."""

import keras
import numpy as np
import pytest
from keras import layers
from pass_graphs import assert_same, model_of, operators
from runtimes_agreement import compare
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.export.passes.restore_global_average_pools import PASS, restore_global_average_pools
from qdq_workbench.onnx_graph.graph import Graph

CONSTANTS = {"scale": np.float32(0.02), "zero": np.uint8(128)}


def mean_of(axes, shape=(2, 4, 5, 3), *, keepdims=0, before=(), behind=(), pairs=True):
    """A mean between two pairs; with rows between the pair and the mean on both sides."""
    first = [("QuantizeLinear", "x,scale,zero", "q"), ("DequantizeLinear", "q,scale,zero", "dequantized")]
    rows = [*(first if pairs else []), *before]
    source = rows[-1][2] if rows else "x"
    rows += [("ReduceMean", source, "mean", {"axes": list(axes), "keepdims": keepdims}), *behind]
    last = rows[-1][2]
    if pairs:
        rows += [("QuantizeLinear", f"{last},scale,zero", "r"), ("DequantizeLinear", "r,scale,zero", "y")]
    return model_of(rows, {"x": shape}, "y" if pairs else last, CONSTANTS if pairs else {})


def run_on(model, *, flipped=False):
    graph = Graph(model)
    if flipped:
        graph.channels_first.update({node: None for node in graph.nodes if node.op == "ReduceMean"})
    restore_global_average_pools(graph)
    assert not list(PASS.denied_by(graph))
    return graph


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(
    ("axes", "shape", "moves"),
    [
        ((1, 2), (2, 4, 5, 3), 1),
        ((-2, -3), (2, 4, 5, 3), 1),
        ((2, 3), (2, 3, 4, 5), 0),
        ((1, 3), (2, 4, 5, 3), 1),
        ((-1, 1), (2, 1, 5, 1), 1),
        ((1,), (2, 6, 3), 1),
        ((2,), (2, 6, 3), 0),
        ((1, 2, 3), (2, 2, 3, 4, 3), 1),
        ((1, 2, 4), (2, 2, 3, 4, 3), 1),
        ((1, 3, 4), (2, 2, 3, 4, 3), 1),
    ],
)
@pytest.mark.parametrize("flipped", [False, True])
def test_a_mean_between_pairs_becomes_a_pool_whichever_axis_it_keeps(axes, shape, moves, keepdims, flipped):
    model = mean_of(axes, shape, keepdims=keepdims)
    graph = run_on(model, flipped=flipped)
    assert_same(model, graph, atol=0.0201)  # another order of summation may move a value over a tie
    found = operators(graph)
    assert "ReduceMean" not in found
    assert found.count("Transpose") == moves * (2 if keepdims else 1)
    pool = next(node for node in graph.nodes if node.op == "GlobalAveragePool")
    assert pool.name == "mean"


def test_movements_may_stand_between_pair_and_mean():
    before, behind = [("Transpose", "dequantized", "turned", {"perm": [0, 2, 1, 3]})], [("Flatten", "mean", "flat")]
    model = mean_of((1, 2), before=before, behind=behind)
    graph = run_on(model)
    assert "GlobalAveragePool" in operators(graph)
    assert_same(model, graph, atol=0.0201)


def test_a_transpose_that_is_there_is_used():
    rows = [
        ("QuantizeLinear", "x,scale,zero", "q"),
        ("DequantizeLinear", "q,scale,zero", "dequantized"),
        ("Transpose", "dequantized", "last", {"perm": [0, 2, 3, 1]}),
        ("ReduceMean", "dequantized", "mean", {"axes": [1, 3], "keepdims": 0}),
        ("QuantizeLinear", "mean,scale,zero", "r"),
        ("DequantizeLinear", "r,scale,zero", "y"),
        ("Relu", "last", "z"),
    ]
    model = model_of(rows, {"x": (2, 3, 4, 5)}, "y,z", CONSTANTS)
    graph = run_on(model, flipped=True)
    assert_same(model, graph, atol=0.0201)
    assert operators(graph).count("Transpose") == operators(graph).count("GlobalAveragePool") == 1


@pytest.mark.parametrize(
    "model",
    [
        mean_of((1, 2), pairs=False),
        mean_of((2, 3), pairs=False),
        mean_of((1,)),
        mean_of((1, 2, 3)),
        mean_of((1, 2), before=[("Relu", "dequantized", "clipped")]),
        mean_of((1, 2), behind=[("Relu", "mean", "clipped")]),
        mean_of((1,), (4, 3)),
        mean_of((0, 1), (4, 5, 3)),
    ],
    ids=[
        "no pairs",
        "no pairs, first",
        "one of three axes",
        "all axes",
        "a float before",
        "a float behind",
        "a row",
        "the batch",
    ],
)
def test_other_means_stay(model):
    before = operators(Graph(model))
    assert operators(run_on(model)) == before


def test_a_mean_that_is_read_in_float_too_stays():
    rows = [
        ("QuantizeLinear", "x,scale,zero", "q"),
        ("DequantizeLinear", "q,scale,zero", "dequantized"),
        ("ReduceMean", "dequantized", "mean", {"axes": [1, 2], "keepdims": 0}),
        ("QuantizeLinear", "mean,scale,zero", "r"),
        ("DequantizeLinear", "r,scale,zero", "y"),
    ]
    model = model_of(rows, {"x": (2, 4, 5, 3)}, "y,mean", CONSTANTS)
    assert "GlobalAveragePool" not in operators(run_on(model))


@pytest.mark.parametrize(("axes", "pools"), [((2, 3), True), ((1, 2), False), ((1, 3), False)])
def test_a_flipped_mean_needs_no_pairs(axes, pools):
    model = mean_of(axes, (2, 3, 4, 5), pairs=False)
    graph = run_on(model, flipped=True)
    assert_same(model, graph)
    assert ("GlobalAveragePool" in operators(graph)) == pools


PLACES = {
    "behind a Dense": lambda x: layers.GlobalAveragePooling2D(name="pool")(layers.Dense(3, name="dense")(x)),
    "on the input": layers.GlobalAveragePooling2D(keepdims=True, name="pool"),
    "in front of another one": lambda x: layers.GlobalAveragePooling2D(name="last")(
        layers.GlobalAveragePooling2D(keepdims=True, name="pool")(x)
    ),
    "channels first": layers.GlobalAveragePooling2D(data_format="channels_first", name="pool"),
    "channels first behind channels last": lambda x: layers.GlobalAveragePooling2D(
        data_format="channels_first", name="pool"
    )(layers.Conv2D(3, 2, name="conv")(x)),
    "axes kept, channels first behind channels last": lambda x: layers.GlobalAveragePooling2D(
        keepdims=True, data_format="channels_first", name="pool"
    )(layers.MaxPooling2D(2, name="max")(x)),
    "channels last behind channels first": lambda x: layers.GlobalAveragePooling2D(name="pool")(
        layers.Conv2D(3, 2, data_format="channels_first", name="conv")(x)
    ),
    "of a sequence, channels first behind channels last": lambda x: layers.GlobalAveragePooling1D(
        data_format="channels_first", name="pool"
    )(layers.Conv1D(3, 2, name="conv")(layers.Reshape((16, 2), name="flat")(x))),
    "of volumes, channels first behind channels last": lambda x: layers.GlobalAveragePooling3D(
        data_format="channels_first", name="pool"
    )(layers.Conv3D(3, (1, 2, 1), name="conv")(layers.Reshape((4, 2, 2, 2), name="box")(x))),
    "of a sequence": lambda x: layers.GlobalAveragePooling1D(name="pool")(
        layers.LayerNormalization(name="norm")(layers.Reshape((16, 2), name="flat")(x))
    ),
    "of volumes": lambda x: layers.GlobalAveragePooling3D(name="pool")(layers.Reshape((4, 2, 2, 2), name="box")(x)),
}


@pytest.mark.parametrize("place", PLACES)
def test_it_runs_on_integers_wherever_the_layer_stands(place, tmp_path):
    """ONNX Runtime has an integer kernel for GlobalAveragePool and none for ReduceMean."""
    keras.utils.set_random_seed(0)
    image = keras.Input((4, 4, 2), name="image")
    model = keras.Model(image, layers.Dense(2, name="head")(layers.Flatten(name="rows")(PLACES[place](image))))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    compared, differing = compare(q_model, tmp_path / "model.onnx")
    assert qdq.explain(q_model).for_layer("pool").status == "int8"
    assert compared > 1
    assert differing == []
    report = qdq.verify_onnx(tmp_path / "model.onnx", q_model)
    assert report.passed, report.summary()
    assert not report.form_remark
