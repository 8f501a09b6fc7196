"""Every pass of the export keeps its contract, works on some model, and is where the order says."""

import dataclasses
import importlib

import keras
import numpy as np
import onnx
import pytest
from keras import layers, ops
from pass_contracts import contracts_watched
from pass_models import (
    centered,
    images,
    in_blocks,
    looping,
    partly_float,
    quantized,
    sequences,
    transformed,
    volumes,
)
from releases import KERAS
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.cut import cut_model
from qdq_workbench.errors import ExportError
from qdq_workbench.export import onnx_export, show_passes
from qdq_workbench.export.metadata import graph_digest
from qdq_workbench.export.onnx_export import build_proto
from qdq_workbench.export.passes import fold_bias_additions, fold_pads, order
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.onnx_graph.qdq_graph import QDQGraph
from qdq_workbench.onnx_graph.snapshot import difference, snapshot
from qdq_workbench.verification import parity
from qdq_workbench.verification.forms import form_differences, with_shapes
from qdq_workbench.verification.loops import loop_differences
from qdq_workbench.verification.lowered import lowering_differences
from qdq_workbench.verification.presence import presence_differences

PASSES = {graph_pass.name: graph_pass for stage in order.STAGES for graph_pass in stage.passes}
_CONVERTED, _CUTS = {}, {}  # what `building` converts once


#: Passes that have nothing to do with Keras before 3.15, which multiplies tensors of any rank as they are.
IDLE = {"restore_matmul_rank"} if KERAS < (3, 15) else set()
WORKING = [name for name in PASSES if name not in IDLE]
#: Passes without which the files of these models compute the same with the same kernels.
SAME_NUMBERS = {
    "drop_identities": "every runtime removes them itself",
    "correct_resizes": "ONNX Runtime picks the same pixels for these sizes; of others the values tell",
    "fix_reshape_sizes": "the passes behind it understand computed sizes, in these models",
    "simplify_reshapes": "it leaves a Transpose of axes of size 1 and a Reshape, on floats",
    "keep_means_in_float": "ONNX Runtime opens the file and fails to run it, which verification does",
    "restore_convolution_settings": "ONNX Runtime does not open a file with other groups, which verification does",
    "to_half": "a file in float32 is valid; that it was to be in half precision is in its notes and its model",
}


#: What is said of a file that is as good as with the pass.
UNCHANGED = {"", "the same file"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The models, each with the path of its file and the passes that worked on it; every contract was kept."""
    # A worker that takes tests from another one makes the models a second time, with equal names and other numbers.
    _CONVERTED.clear()
    _CUTS.clear()
    found = {}
    # The cheapest first: one each is enough.
    for make in (in_blocks, partly_float, centered, volumes, sequences, transformed, images, looping):
        q_model = quantized(make)
        with contracts_watched() as seen:
            path = qdq.export_onnx(q_model, tmp_path_factory.mktemp(make.__name__) / "model.onnx").path
        found[make.__name__] = (q_model, path, seen.working)
    with contracts_watched() as seen:
        path = qdq.export_onnx(q_model, path.with_name("half.onnx"), float_type="float16").path
    found["half"] = (q_model, path, seen.working)
    return found


@pytest.fixture
def building(monkeypatch):
    """The module that runs the passes; every model is cut and converted once: the passes begin with what that gives."""
    module = importlib.import_module("qdq_workbench.export.build_onnx")  # the package's own name is the function
    convert = module.convert_float

    def once(cut, **options):
        key = (*cut.inputs, *cut.outputs, *cut.pairs, *cut.weights, *options.values())
        if key not in _CONVERTED:
            _CONVERTED[key] = convert(cut, **options)
        return _CONVERTED[key]

    monkeypatch.setattr(module, "convert_float", once)
    for user in (onnx_export, parity):
        monkeypatch.setattr(user, "cut_model", cut_once)
    return module


def cut_once(q_model, **options):
    """Return a model of the module fixture cut in parts, each time the same ones."""
    key = (id(q_model), *sorted(options.items()))
    if key not in _CUTS:
        _CUTS[key] = (q_model, cut_model(q_model, **options))
    return _CUTS[key][1]


STAGES = ("OPENED", "FLOAT", "JOINED", "INT32_BIASES", "BLOCKS", "HARD_SIGMOIDS", "HALF", "FLOAT_WEIGHTS", "PAIRS")


def with_pass(building, monkeypatch, name, change):
    """Let the stages of an export run a changed pass in place of the one of that name."""
    for stage in STAGES:
        known = getattr(order, stage)
        passes = tuple(p if p.name != name else dataclasses.replace(p, run=change(p.run)) for p in known.passes)
        changed = dataclasses.replace(known, passes=passes)
        for module in (order, building):
            monkeypatch.setattr(module, stage, changed, raising=False)


def test_every_pass_works_on_some_model_and_the_files_verify(exported):
    assert PASSES.keys() - set().union(*(working for _, _, working in exported.values())) == IDLE
    for q_model, path, _ in exported.values():
        report = qdq.verify_onnx(path, q_model)
        assert report.passed, report.summary()


def by_plan(plan, proto):
    """What verification says of a file by its plan alone."""
    yield from lowering_differences(plan, proto.graph.node)
    yield from presence_differences(plan, proto)
    yield from form_differences(plan, with_shapes(proto))
    yield from loop_differences(QDQGraph(proto))


@pytest.mark.parametrize("name", WORKING)
def test_a_pass_that_does_nothing_is_found_without_the_exporter(name, exported, building, monkeypatch):
    """Verification finds the file wrong by what the plan says: neither building it again nor the contracts help."""
    with_pass(building, monkeypatch, name, lambda _: nothing)
    target = qdq.targets.get_target("onnxruntime")
    found = set()
    for q_model, path, working in exported.values():
        if name in working and not found - UNCHANGED:
            try:
                proto, _ = build_proto(q_model, target, opset=None, dynamic_batch=True)
            except ExportError:
                found.add("refused by onnx.checker")
                continue
            same = graph_digest(proto) == graph_digest(onnx.load(path))
            found.add("the same file" if same else "; ".join(by_plan(q_model.plan, proto)))
    assert bool(found - UNCHANGED) != (name in SAME_NUMBERS)


#: Operators whose results are shapes, indices or integers.
NO_VALUES = {"Cast", "Concat", "Gather", "QuantizeLinear", "Shape", "Slice", "Squeeze", "Unsqueeze"}


def losing_values(run):
    """A pass that also replaces by zeros what the last node that it wrote, or wrote in front of, computes."""

    def faulty(graph):
        before = snapshot(graph)
        run(graph)
        after = snapshot(graph)
        changed = [node for node in graph.sorted_nodes() if before.get(node.name) != after[node.name]]
        node = next((node for node in reversed(changed) if node.op not in NO_VALUES), None)
        if node is None or any(other.name.endswith("fault") for other in graph.nodes):
            return
        for index, written in enumerate(list(node.outputs)):
            graph.set_output(node, graph.fresh(f"{written}/value"), index)
            graph.add("Sub", [node.outputs[index]] * 2, f"{node.name}/{index}/fault", output=written)

    return faulty


@pytest.mark.parametrize("name", WORKING)
def test_a_pass_that_writes_a_wrong_value_is_found(name, exported, building, monkeypatch, tmp_path):
    """Building the file again would write the same value: what finds it are the values of Keras, and the plan."""
    with_pass(building, monkeypatch, name, losing_values)
    model = next(model for model, (_, _, working) in exported.items() if name in working)
    q_model, path, _ = exported[model]
    options = {"float_type": "float16"} if model == "half" else {}
    try:
        path = qdq.export_onnx(q_model, tmp_path / "model.onnx", **options).path
    except ExportError as error:
        assert "onnx.checker" in str(error)  # noqa: PT017 - either is enough
        return
    assert any(node.name.endswith("fault") for node in onnx.load(path).graph.node)
    report = qdq.verify_onnx(path, q_model)
    assert not report.passed, report.summary()
    assert {check.name for check in report.checks if check.passed} >= {"onnx.checker", "structure"}


@pytest.mark.parametrize("name", PASSES)
def test_a_contract_is_told_in_sentences(name):
    graph_pass = PASSES[name]
    assert graph_pass.run.__module__ == f"qdq_workbench.export.passes.{name}"
    for sentence in (graph_pass.summary, graph_pass.needs, graph_pass.holds, graph_pass.refuses):
        assert sentence.endswith(".")
        assert len(sentence) < 300


def padded():
    """A graph with one Pad in front of one convolution."""
    make = onnx.helper.make_node
    constants = {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "w": np.zeros((2, 2, 3, 3), np.float32)}
    graph = onnx.helper.make_graph(
        [make("Pad", ["x", "pads"], ["p"], "pad"), make("Conv", ["p", "w"], ["y"], "conv")],
        "padded",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 2, 4, 4))],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 2, 4, 4))],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return Graph(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]))


def test_what_denies_a_contract_is_named_until_the_pass_has_run():
    graph = padded()
    before = snapshot(graph)
    assert [node.name for node in fold_pads.PASS.denied_by(graph)] == ["pad"]
    fold_pads.PASS.run(graph)
    assert list(fold_pads.PASS.denied_by(graph)) == []
    assert difference(before, snapshot(graph)) == "-1 Pad; changed conv"
    assert difference(before, before) == "nothing"


def biased():
    """A graph with one constant per channel behind one convolution."""
    make = onnx.helper.make_node
    constants = {"c": np.ones((1, 3, 1, 1), np.float32), "w": np.zeros((3, 2, 3, 3), np.float32)}
    graph = onnx.helper.make_graph(
        [make("Conv", ["x", "w"], ["p"], "conv"), make("Add", ["p", "c"], ["y"], "add")],
        "biased",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 2, 6, 6))],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 3, 4, 4))],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    return Graph(onnx.shape_inference.infer_shapes(model))


@pytest.mark.parametrize(("make", "graph_pass"), [(padded, fold_pads.PASS), (biased, fold_bias_additions.PASS)])
def test_a_pass_joins_only_what_the_plan_joins(make, graph_pass):
    graph, asked = make(), []
    graph.may_join = lambda part, whole: asked.append((part.name, whole.name))
    before = snapshot(graph)
    graph_pass.run(graph)
    assert difference(before, snapshot(graph)) == "nothing"
    assert list(graph_pass.denied_by(graph)) == []
    assert set(asked) == {("pad" if make is padded else "add", "conv")}
    assert graph.copy().may_join is graph.may_join
    graph.may_join = lambda *_: True
    graph_pass.run(graph)
    assert [node.op for node in graph.nodes] == ["Conv"]


@pytest.mark.parametrize(
    ("shape", "columns", "joins"),
    [((4,), 4, True), ((1, 4), 4, True), ((4, 1), 4, False), ((1, 1, 4), 4, False), ((), 4, False), ((), 1, True)],
)
def test_a_gemm_takes_one_value_per_column(shape, columns, joins):
    """A square result has as many rows as columns."""
    make = onnx.helper.make_node
    constants = {"w": np.eye(4, columns, dtype=np.float32), "c": np.zeros(shape, np.float32)}
    graph = onnx.helper.make_graph(
        [make("MatMul", ["x", "w"], ["p"], "product"), make("Add", ["p", "c"], ["y"], "add")],
        "square",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (4, 4))],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opened = Graph(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]))
    PASSES["restore_gemm"].run(opened)
    assert [node.op for node in opened.sorted_nodes()] == (["Gemm"] if joins else ["MatMul", "Add"])


def nothing(_):
    """A pass that does nothing."""


def one_more(graph):
    """A pass that finds something to do each time."""
    graph.set_output(graph.producer("y"), graph.fresh("inner"))
    graph.add("Relu", ["inner"], "more", output="y")


def behind_the_index(graph):
    """A pass that changes a node without telling the graph."""
    graph.producer("y").inputs[0] = "nowhere"


@pytest.mark.parametrize(
    ("run", "breach"),
    [
        (nothing, "fold: nothing: Pad pad denies"),
        (one_more, r"fold: one_more: a second run changes \+1 Relu"),
        (one_more, "fold: one_more: inner has no shape"),
        (behind_the_index, "conv reads nowhere, which nothing writes"),
    ],
)
def test_a_broken_contract_is_noticed(run, breach):
    stage = order.Stage("fold", "padded", (dataclasses.replace(fold_pads.PASS, run=run),))
    with pytest.raises(AssertionError, match=breach), contracts_watched():
        order.run_stage(padded(), stage)


def between(axis, *, channels_last):
    """A graph with a convolution of one pixel, of which an axis is inserted in front and removed behind."""
    make, inside, turned = onnx.helper.make_node, "u", "c"
    nodes = [make("Unsqueeze", ["x", "axes"], ["u"], "unsqueeze")]
    if channels_last:
        nodes.append(make("Transpose", ["u"], ["t"], "first", perm=[0, 3, 1, 2]))
        inside, turned = "t", "l"
    nodes.append(make("Conv", [inside, "w"], ["c"], "conv", kernel_shape=[1, 1]))
    if channels_last:
        nodes.append(make("Transpose", ["c"], ["l"], "last", perm=[0, 2, 3, 1]))
    nodes.append(make("Squeeze", [turned, "axes"], ["y"], "squeeze"))
    constants = {"axes": np.array([axis]), "w": np.zeros((1, 1, 1, 1), np.float32)}
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, 1, 1)) for name in "xy"]
    weights = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = onnx.helper.make_graph(nodes, "between", ends[:1], ends[1:], weights)
    return Graph(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]))


@pytest.mark.parametrize(("channels_last", "spatial"), [(False, {2, 3}), (True, {1, 2})])
def test_only_an_inserted_spatial_axis_makes_a_convolution_one_dimensional(channels_last, spatial):
    found = {
        axis
        for axis in range(4)
        if [*PASSES["restore_one_dimensional"].denied_by(between(axis, channels_last=channels_last))]
    }
    assert found == spatial


def test_images_that_get_their_channel_in_front_of_a_float_convolution_verify(tmp_path):
    image = keras.Input((8, 8), name="image")
    x = layers.Conv2D(4, 3, name="conv")(ops.expand_dims(image, -1))
    model = keras.Model(image, layers.Dense(3, name="head")(layers.Flatten()(x)))
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_input=False, quantize_weight=False)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    report = qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, q_model)
    assert report.passed, report.summary()


def test_a_tensor_that_is_returned_twice_leaves_nothing_to_rewrite(tmp_path):
    x = keras.Input((8, 8, 3), name="x")
    y = layers.Conv1DTranspose(6, 3, activation="gelu", name="y")(layers.Reshape((-1, 1))(x))
    model = keras.Model(x, {"one": y, "two": y, "relu": layers.ReLU()(x)})
    q_model = qdq.quantize_model(model, target="tensorrt")
    qdq.calibrate(q_model, samples(model), verbose=False)
    report = qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, q_model)
    assert report.passed, report.summary()


def test_the_tool_lists_contracts_and_says_what_changed(tmp_path, capsys):
    assert show_passes.main([]) == 0
    told = capsys.readouterr().out
    assert all(f"\n  {name}\n" in told for name in PASSES)
    assert all(f"\n    refuses  {graph_pass.refuses}\n" in told for graph_pass in PASSES.values())
    keras.utils.set_random_seed(0)
    images().save(tmp_path / "model.keras")
    assert show_passes.main([str(tmp_path / "model.keras"), "--target", "tensorrt"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "joined: fold_pads: -1 Pad; changed " in "\n".join(lines)
    assert "float: restore_batched_matmul: nothing" in lines
    assert not any(line.startswith("int32 biases") for line in lines)  # TensorRT wants float biases
    rows = keras.Input((4,), name="rows")
    keras.Model(rows, layers.Dense(2, name="dense")(rows)).save(tmp_path / "dense.keras")
    assert show_passes.main([str(tmp_path / "dense.keras")]) == 0
    assert "\nint32 biases" in capsys.readouterr().out, "the default is ONNX Runtime"
