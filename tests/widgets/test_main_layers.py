"""The layers that a report names first."""

import dataclasses
import types

import pytest
from small_benches import tiny_data, tiny_model

import qdq_workbench as qdq
from qdq_widgets import Workbench, main_layers
from qdq_widgets.main_layers import main_layers_html


@pytest.fixture
def bench(model):
    return Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")


def times(**milliseconds):
    """A profile in which only the times of layers are read."""
    total = sum(milliseconds.values())
    layers = [qdq.profiling.LayerLatency(name, ms, ms / total, ()) for name, ms in milliseconds.items()]
    return types.SimpleNamespace(ranked=lambda: sorted(layers, key=lambda entry: -entry.ms), engine="ONNX Runtime")


def measured(bench, monkeypatch, **milliseconds):
    monkeypatch.setattr(type(bench), "latency", times(**milliseconds))


def test_layers_outside_int8_come_first_by_what_they_compute_in_float(bench):
    bench.leave_in_float(["stem", "conv", "head"])
    floats, named = main_layers.main_layers(bench)
    macs = {entry.layer: entry.macs for entry in bench.explanation.layers}
    assert list(named)[:3] == sorted(["conv", "stem", "head"], key=lambda name: -macs[name])
    assert floats.keys() == {entry.layer for entry in bench.explanation.layers if entry.status != "int8"}
    assert named["conv"][0].startswith("in float: ")
    assert main_layers.reason_text(bench.explanation.for_layer("conv")) in named["conv"][0]
    share = macs["conv"] / sum(macs.values())
    assert f"{100 * share:.1f} %" in main_layers_html(bench)


def test_then_the_most_sensitive_then_the_slowest_each_layer_once(bench, monkeypatch):
    bench.leave_in_float(["head"])
    bench.calibrate()
    bench.sensitivity()
    measured(bench, monkeypatch, stem=3.0, conv=2.0, head=1.0, pool=0.5)
    _, named = main_layers.main_layers(bench)
    ranked = [entry.layer for entry in bench.sensitivity_report.ranked()[:3]]
    outside = [entry.layer for entry in bench.explanation.layers if entry.status != "int8"]
    assert list(named) == list(dict.fromkeys(["head", *outside, *ranked, "stem", "conv"]))
    assert any("only this layer quantized" in reason for reason in named[ranked[0]])
    assert "takes time: 3 ms, 46.2 % of a run in ONNX Runtime" in named["stem"][-1]
    assert [reason.split(":")[0] for reason in named["head"]] == ["in float", "takes time"]
    measured(bench, monkeypatch, stem=100.0, conv=0.5)
    assert not any("takes time" in reason for reason in main_layers.main_layers(bench)[1].get("conv", []))
    bench.toggle("stem", "weight")
    assert "of an earlier plan" in main_layers_html(bench)


def test_ten_rows_of_which_measured_layers_keep_theirs(monkeypatch):
    entries = [f"l{number:02}" for number in range(30)]
    one = qdq.explain(tiny_model(), target="onnxruntime").layers[0]
    layers = tuple(dataclasses.replace(one, layer=name, status="float", macs=40 - k) for k, name in enumerate(entries))
    explanation = qdq.Explanation("onnxruntime", layers)
    fake = types.SimpleNamespace(
        explanation=explanation, plan=types.SimpleNamespace(target="onnxruntime"), sensitivity_report=None, latency=None
    )
    assert list(main_layers.main_layers(fake)[1]) == entries[:10]
    fake.latency = times(a=3.0, b=2.0, l29=1.0, c=0.1)
    assert list(main_layers.main_layers(fake)[1]) == [*entries[:8], "a", "b", "l29"]
    assert "21 more outside INT8" in main_layers_html(fake)


def test_nothing_to_name(bench, monkeypatch):
    monkeypatch.setattr(main_layers, "verdicts", lambda _: (qdq.Explanation("onnxruntime", ()), ""))
    assert "Every layer runs in INT8, and no sensitivity" in main_layers_html(bench)
    monkeypatch.setattr(main_layers, "verdicts", lambda _: (qdq.Explanation("own", ()), "no rules"))
    assert "This target has no rules" in main_layers_html(bench)
