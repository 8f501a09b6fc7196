"""Verification counts the operators of every layer: what the plan says decides, not the exporter."""

import collections
import dataclasses
import importlib

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.conversion.engine import folding
from qdq_workbench.export.onnx_export import build_proto
from qdq_workbench.export.passes import fold_bias_additions, fold_pads
from qdq_workbench.verification.lowered import layer_operators, lowering_differences


def build_net():
    """Padding, a constant, a normalization, a dropout: something for every step."""
    image = keras.Input((8, 8, 3), name="image")
    x = layers.ZeroPadding2D(1, name="pad")(image)
    x = layers.Conv2D(4, 3, name="conv", use_bias=False)(x)
    x = layers.BatchNormalization(name="bn", beta_initializer="ones")(x)
    x = layers.ReLU(name="relu")(x)
    x = layers.Conv2D(4, 1, name="project")(x) + np.float32(3.0)
    x = layers.Dropout(0.1, name="drop")(x)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(image, layers.Dense(2, activation="softmax", name="head")(x))


@pytest.fixture(scope="module")
def q_model():
    """A quantized model whose plan folds, absorbs and leaves out."""
    keras.backend.clear_session()  # the sum has the name that Keras gives it
    model = build_net()
    q_model = qdq.quantize_model(model, target="tensorrt")
    qdq.calibrate(q_model, samples(model), verbose=False)
    return q_model


@pytest.fixture(scope="module")
def nodes(q_model, tmp_path_factory):
    """The nodes of the file as it should be; tests only read them."""
    return list(onnx.load(qdq.export_onnx(q_model, tmp_path_factory.mktemp("whole") / "m.onnx").path).graph.node)


@pytest.fixture
def exported(q_model, tmp_path):
    """Return the file's model as it is exported just now."""
    return lambda: onnx.load(qdq.export_onnx(q_model, tmp_path / "model.onnx").path)


def test_a_file_holds_what_the_plan_says(q_model, nodes):
    assert {node.node: node.step for node in q_model.plan.lowering.nodes.values() if not node.has_operators} == {
        "pad": "absorbed",
        "bn": "folded",
        "add": "absorbed",
        "drop": "vanishes",
    }
    found = {item.layer: (item.expected, item.found) for item in layer_operators(q_model.plan, nodes)}
    assert set(found) == set(q_model.plan.graph.layers)
    assert {layer for layer, (expected, held) in found.items() if expected != held} == set()
    assert found["head"][1] == collections.Counter({"MatMul": 1, "Softmax": 1})


FAULTS = {
    "the padding stays": (fold_pads, "of 'pad' the file holds 1 Pad, expected nothing ('conv' pads instead)"),
    "the constant stays": (fold_bias_additions, "of 'add' the file holds 1 Add, expected nothing"),
}


def test_the_report_counts_the_layers_that_explain_counts(q_model, tmp_path):
    report = qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, q_model)
    (check,) = [check for check in report.checks if check.name == "operators"]
    assert f" of {len(qdq.explain(q_model).layers)} layers" in check.detail


@pytest.mark.parametrize("fault", FAULTS)
def test_a_pass_that_does_nothing_is_found(fault, q_model, exported, monkeypatch, tmp_path):
    module, said = FAULTS[fault]
    build_onnx = importlib.import_module("qdq_workbench.export.build_onnx")  # the package's own name is the function
    idle = dataclasses.replace(module.PASS, run=lambda _: None)
    passes = tuple(idle if graph_pass is module.PASS else graph_pass for graph_pass in build_onnx.JOINED.passes)
    monkeypatch.setattr(build_onnx, "JOINED", dataclasses.replace(build_onnx.JOINED, passes=passes))
    (problem,) = lowering_differences(q_model.plan, exported().graph.node)
    assert said in problem
    report = qdq.verify_onnx(tmp_path / "model.onnx", q_model)  # the file is as the exporter makes it
    checks = {check.name: check.passed for check in report.checks}
    assert (checks["structure"], checks["operators"]) == (True, False)
    alone = qdq.verify_onnx(tmp_path / "model.onnx")
    assert {check.name: check.passed for check in alone.checks}["operators"] is False


def test_a_normalization_that_is_not_folded_is_found(q_model, exported, monkeypatch):
    whole = folding.FoldingRebuilder.__init__
    monkeypatch.setattr(folding.FoldingRebuilder, "__init__", lambda self, bound, _: whole(self, bound, ()))
    (problem,) = lowering_differences(q_model.plan, exported().graph.node)
    assert problem.startswith("of 'bn' the file holds")
    assert "it becomes a part of the weights and the bias of 'conv'" in problem


def test_a_convolution_is_found_that_tensorflow_names_after_the_constant_in_its_bias(tmp_path):
    image = keras.Input((8, 8, 3), name="image")
    x = layers.BatchNormalization(name="bn")(layers.Conv2D(4, 3, name="conv")(image))
    model = keras.Model(image, layers.Add(name="sum")([x + np.arange(4, dtype="float32"), x]))
    biased = keras.Model(image, x + np.arange(4, dtype="float32"))
    for net in (model, biased):
        q_model = qdq.quantize_model(net, target="onnxruntime")
        qdq.calibrate(q_model, samples(net), verbose=False)
        report = qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, q_model)
        assert report.passed, report.summary()


@pytest.mark.parametrize("operator", ["Conv", "Relu"])
def test_an_operation_that_comes_twice_is_found(operator, q_model, nodes):
    again = next(node for node in nodes if node.op_type == operator)
    (problem,) = lowering_differences(q_model.plan, [*nodes, again])
    assert f"2 {operator}" in problem


def test_a_convolution_that_is_missing_is_found(q_model, nodes):
    kept = [node for node in nodes if not (node.op_type == "Conv" and node.name.startswith("project"))]
    assert len(kept) == len(nodes) - 1
    (problem,) = lowering_differences(q_model.plan, kept)
    assert problem == "of 'project' the file holds nothing, expected 1 Conv"


def test_equal_operations_may_be_merged(tmp_path):
    image = keras.Input((4,), name="image")
    one, two = layers.ReLU(name="one")(image), layers.ReLU(name="two")(image)
    shared = layers.Dense(4, name="shared")
    model = keras.Model(image, [layers.Add(name="sum")([one, two]), shared(image), shared(image)])
    q_model = qdq.quantize_model(model, target="tensorrt")
    qdq.calibrate(q_model, samples(model), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    found = {item.layer: item.found for item in layer_operators(q_model.plan, onnx.load(path).graph.node)}
    assert sum(found["one"].values()) + sum(found["two"].values()) == 1
    assert qdq.verify_onnx(path, q_model).passed


def test_a_merged_padding_counts_for_the_layer_that_has_it_in_the_file(tmp_path):
    """One of two equal ones is absorbed by its convolution, and the average behind the other reads the Pad."""
    image = keras.Input((8, 8, 2), name="image")
    x = layers.Conv2D(2, 3, activation="tanh", name="stem")(image)
    taken = layers.Conv2D(2, 3, strides=2, name="conv")(layers.ZeroPadding2D(1, name="taken")(x))
    kept = layers.AveragePooling2D(3, 2, name="mean")(layers.ZeroPadding2D(1, name="kept")(x))
    model = keras.Model(image, [taken, kept])
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    found = {item.layer: item.found for item in layer_operators(q_model.plan, onnx.load(path).graph.node)}
    assert (found["taken"], found["kept"]) == ({}, {"Pad": 1})
    assert qdq.verify_onnx(path, q_model).passed


def test_what_only_moves_values_computes_nothing():
    image = keras.Input((4, 4, 2), name="image")
    net = keras.Model(image, layers.Dense(2, name="head")(layers.Flatten(name="flat")(image)))
    moving = qdq.quantize_model(net, target="tensorrt")
    assert moving.plan.lowering.nodes["flat"].step == "moved"
    reshape = onnx.helper.make_node("Reshape", ["x", "shape"], ["y"], "flat/Reshape")
    relu = onnx.helper.make_node("Relu", ["y"], ["z"], "flat/Relu")
    head = [
        onnx.helper.make_node("DequantizeLinear", ["w", "s"], ["d"], "head/kernel/DequantizeLinear"),
        onnx.helper.make_node("MatMul", ["z", "d"], ["o"], "head/MatMul"),
    ]
    assert lowering_differences(moving.plan, [reshape, *head]) == []
    (problem,) = lowering_differences(moving.plan, [reshape, relu, *head])
    assert problem == "of 'flat' the file holds 1 Relu, expected nothing that computes: it only moves values"


def kept_by_plan(plan, *names):
    """The plan with nodes that its file shall hold, though the exporter could join them with their readers."""
    known = plan.onnx_lowering
    nodes = {
        name: dataclasses.replace(node, step="written", into=(), operators=("Pad",) if "pad" in name else ("Add",))
        if name in names
        else node
        for name, node in known.nodes.items()
    }
    changed = dataclasses.replace(plan)
    changed.__dict__["onnx_lowering"] = dataclasses.replace(known, nodes=nodes)
    return changed


def test_the_passes_join_what_the_plan_joins_and_nothing_else(q_model, monkeypatch):
    """A plan that keeps the padding and the constant is carried out as it stands: the passes do not decide anew."""
    target = q_model.plan.target_object
    plan = kept_by_plan(q_model.plan, "pad", "add")
    monkeypatch.setattr(q_model, "_own_plan", plan)
    proto, _ = build_proto(q_model, target, opset=None, dynamic_batch=True)
    assert collections.Counter(node.op_type for node in proto.graph.node)["Pad"] == 1
    assert lowering_differences(plan, proto.graph.node) == []


def test_an_onnx_file_of_a_litert_model_is_what_its_plan_says(tmp_path):
    keras.backend.clear_session()
    model = build_net()
    q_model = qdq.quantize_model(model, target="litert")
    qdq.calibrate(q_model, samples(model), verbose=False)
    nodes = onnx.load(qdq.export_onnx(q_model, tmp_path / "model.onnx").path).graph.node
    assert [q_model.plan.onnx_lowering.nodes[name].step for name in ("pad", "bn", "drop")] == [
        "absorbed",
        "folded",
        "vanishes",
    ]
    found = {item.layer: (item.expected, item.found) for item in layer_operators(q_model.plan, nodes)}
    assert {layer for layer, (expected, held) in found.items() if expected != held} == set()
    assert {"conv", "project", "head"} <= set(found)


@pytest.mark.parametrize(
    ("shape", "settings", "size", "absorbed"),
    [
        ((6,), {}, 4, True),
        ((6,), {"use_bias": False}, 4, True),
        ((6,), {"use_bias": False}, 1, False),  # one value for all units
        ((6,), {"activation": "relu"}, 4, False),
        ((5, 6), {"use_bias": False}, 4, False),  # no Gemm, but a MatMul and an Add
    ],
)
def test_a_constant_behind_a_dense_layer_is_where_the_plan_says(shape, settings, size, absorbed, tmp_path):
    keras.backend.clear_session()
    image = keras.Input(shape, name="image")
    hidden = layers.Dense(4, name="hidden", **settings)(image) + np.arange(1, size + 1, dtype="float32")
    model = keras.Model(image, layers.Dense(3, name="head")(hidden))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)

    nodes = onnx.load(qdq.export_onnx(q_model, tmp_path / "model.onnx").path).graph.node

    added = q_model.plan.lowering.nodes["add"]
    assert (added.step, added.into) == (("absorbed", ("hidden",)) if absorbed else ("written", ()))
    names = [node.name for node in nodes if node.op_type == "Add" and node.name.startswith("add")]
    assert bool(names) != absorbed
    explained = {layer.layer: layer.status for layer in qdq.explain(q_model).layers}
    assert (explained["add"] == explained["hidden"] == "int8") == absorbed
    assert qdq.verify_onnx(tmp_path / "model.onnx", q_model, data=samples(model)).passed
