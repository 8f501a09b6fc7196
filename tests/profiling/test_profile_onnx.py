"""`profile_onnx` on small files: what it tells adds up, fits the plan and goes through JSON; no time is judged."""

import dataclasses
import json

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from onnx import TensorProto, helper

import qdq_workbench as qdq
from qdq_workbench.errors import DataError, FileAccessError, QDQError
from qdq_workbench.onnx_graph.processor import kernels_saturate
from qdq_workbench.profiling.latency import LatencyReport


@pytest.fixture(scope="module")
def report(folder):
    return qdq.profile_onnx(folder / "int8.onnx", threads=1, rounds=2, baseline=folder / "float.onnx")


def test_layers_are_those_of_the_plan_with_what_is_fused_into_them(report):
    assert [(entry.layer, entry.kernels, entry.fused) for entry in report.layers] == [
        ("stem", ("QLinearConv",), ("stem_relu",)),
        ("conv", ("QLinearConv",), ()),
        ("add", ("QLinearAdd",), ("relu",)),
        ("pool", ("QLinearGlobalAveragePool", "Squeeze"), ()),
        ("head", ("MatMulIntegerToFloat",), ()),
    ]
    assert report.for_layer("relu").layer == "add"
    assert {entry.layer: entry.fused for entry in report.baseline.layers}["conv"] == ("add", "relu")
    with pytest.raises(QDQError, match="stem"):
        report.for_layer("sten")


def test_everything_adds_up_to_the_run(report):
    for one in (report, report.baseline):
        entries = (*one.layers, *one.others)
        assert sum(entry.ms for entry in entries) == pytest.approx(one.total_ms)
        assert sum(entry.share for entry in entries) == pytest.approx(1.0)
        assert one.others[-1].what == "runtime"
        assert one.percentiles[50] == one.total_ms <= one.percentiles[90] <= one.percentiles[99]
    assert [entry.what for entry in report.others] == ["pair", "layout", "runtime"]
    assert [entry.what for entry in report.baseline.others] == ["layout", "layout", "layout", "runtime"]


def test_gains_compare_layers_that_share_a_kernel_together(report):
    gains = {frozenset(gain.layers): gain for gain in report.gains}
    assert set(gains) == {
        frozenset({"stem", "stem_relu"}),
        frozenset({"conv", "add", "relu"}),
        frozenset({"pool"}),
        frozenset({"head"}),
    }
    joined = gains[frozenset({"conv", "add", "relu"})]
    assert joined.ms == pytest.approx(report.for_layer("conv").ms + report.for_layer("add").ms)
    assert joined.baseline_ms == report.baseline.for_layer("conv").ms
    saved = [gain.gain_ms for gain in report.gains]
    assert saved == sorted(saved, reverse=True)


def test_a_report_goes_through_json_and_a_file(report, tmp_path):
    assert LatencyReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    report.save(tmp_path / "latency.json")
    assert LatencyReport.load(tmp_path / "latency.json") == report


def test_summary_and_figure_name_every_layer(report):
    text = report.summary()
    for name in ("stem_relu", "Q/DQ that stays", "outside the kernels", "conv + add + relu", "times as fast as"):
        assert name in text
    assert [len(trace.y) for trace in report.plot().data] == [4, 4]
    alone = dataclasses.replace(report, baseline=None, speedup=None, speedup_interval=None)
    layers_drawn, others_drawn = alone.plot().data
    assert set(layers_drawn.y) == {entry.layer for entry in report.layers}
    assert others_drawn.y[-1] == "outside the kernels"
    assert "measured twice" in alone.summary()


def test_a_report_tells_what_its_file_was_exported_for(report, folder, tmp_path):
    assert (report.target, report.baseline.target, report.target_remark) == ("onnxruntime", None, "")
    data = report.to_dict()
    del data["target"], data["baseline"]["target"]  # as reports of before
    assert LatencyReport.from_dict(data).target is None
    other = tmp_path / "trt.onnx"
    qdq.export_onnx(qdq.load_model(folder / "q.keras"), other, target="tensorrt")
    found = qdq.profile_onnx(other, threads=1, rounds=1)
    assert found.target == found.to_dict()["target"] == "tensorrt"
    assert found.to_dict()["target_remark"] == found.target_remark != ""


def test_data_decide_open_sizes_and_the_batch(tmp_path):
    image = keras.Input((None, None, 2), name="image")
    model = keras.Model(image, layers.Conv2D(2, 3, name="conv")(image))
    qdq.export_float_onnx(model, tmp_path / "open.onnx")
    with pytest.raises(DataError, match="pass data"):
        qdq.profile_onnx(tmp_path / "open.onnx", rounds=1)
    data = np.zeros((5, 6, 7, 2), np.float32)
    assert qdq.profile_onnx(tmp_path / "open.onnx", data, rounds=1, batch=3).batch == 3
    assert qdq.profile_onnx(tmp_path / "open.onnx", data, rounds=1).batch == 1
    assert qdq.profile_onnx(tmp_path / "open.onnx", data, rounds=1, batch=9).batch == 5


def test_a_fixed_batch_is_filled(folder, tmp_path):
    file = onnx.load(folder / "int8.onnx")
    file.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    onnx.save(file, tmp_path / "fixed.onnx")
    assert qdq.profile_onnx(tmp_path / "fixed.onnx", np.zeros((3, 8, 8, 2)), rounds=1, threads=1).batch == 4


def test_a_file_without_a_plan_is_told_by_node(tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Transpose", ["a"], ["b"], name="turn", perm=[1, 0]),
        helper.make_node("Sigmoid", ["b"], ["y"], name="last"),
    ]
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])]
    graph = helper.make_graph(nodes, "g", ends, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 2])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "f.onnx")
    found = qdq.profile_onnx(tmp_path / "f.onnx", rounds=1, threads=1)
    assert {entry.layer for entry in found.layers} == {"first", "turn", "last"}
    assert found.threads == 1


def test_nodes_without_names_are_told_by_operator_and_place(tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Sigmoid", ["a"], ["b"], name="twice"),
        helper.make_node("Tanh", ["b"], ["y"], name="twice"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "f.onnx")
    found = qdq.profile_onnx(tmp_path / "f.onnx", rounds=1, threads=1)
    assert [entry.layer for entry in found.layers] == ["Relu_0", "twice", "twice_2"]


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"rounds": 0}, {"batch": 0}, {"rounds": 1.5}, {"threads": True}])
def test_numbers_that_are_none_are_refused(folder, wrong):
    with pytest.raises(QDQError, match=next(iter(wrong))):
        qdq.profile_onnx(folder / "int8.onnx", **wrong)


def test_files_that_are_none_are_refused(folder, tmp_path):
    (tmp_path / "text.onnx").write_text("no model")
    for path in (tmp_path / "none.onnx", tmp_path / "text.onnx"):
        with pytest.raises(FileAccessError, match=path.name):
            qdq.profile_onnx(path)
    other = keras.Input((3,), name="other")
    path = qdq.export_float_onnx(keras.Model(other, layers.Dense(1)(other)), tmp_path / "other.onnx")
    with pytest.raises(QDQError, match="same model"):
        qdq.profile_onnx(folder / "int8.onnx", rounds=1, baseline=path)


def test_a_processor_that_saturates_is_named(report):
    assert report.saturates == kernels_saturate()
    assert bool(report.processor_remark) == report.saturates
    told = dataclasses.replace(report, saturates=True)
    assert "no VNNI" in told.processor_remark
    assert told.processor_remark in told.summary()
    assert LatencyReport.from_dict(told.to_dict()) == told


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"path": None}, FileAccessError, "path=None"),
        ({"baseline": 3}, FileAccessError, "path=3"),
        ({"progress": 3}, DataError, "progress must be a function"),
        ({"stop": True}, DataError, "stop must be a function"),
    ],
    ids=str,
)
def test_what_is_no_path_and_no_function_is_named(folder, arguments, error, says):
    with pytest.raises(error, match=says):
        qdq.profile_onnx(**{"path": folder / "int8.onnx", **arguments})
