"""The report: ranking in both modes, the spec that follows, JSON, text, and the figure."""

import dataclasses
import json
import math

import keras
import numpy as np
import pytest

import qdq_workbench as qdq
from qdq_workbench.errors import DataError

VALUES = {"a": 30.0, "b": 9.0, "c": math.inf, "d": 30.0}


def make(mode="one_on", higher=True, sites=("input", "weight", "output"), values=VALUES, **fields):
    entries = tuple(
        qdq.SensitivityEntry(name, value, "dB", math.inf, 8.0, input_indices=(1,), quantize_weight=True)
        for name, value in values.items()
    )
    return qdq.SensitivityReport("net", mode, "sqnr", "dB", higher, sites, entries, math.inf, 8.0, 16, **fields)


@pytest.mark.parametrize(
    ("mode", "higher", "order"),
    [
        ("one_on", True, ["b", "a", "d", "c"]),
        ("one_on", False, ["c", "a", "d", "b"]),
        ("one_off", True, ["c", "a", "d", "b"]),
        ("one_off", False, ["b", "a", "d", "c"]),
    ],
)
def test_the_most_sensitive_layer_comes_first_and_ties_keep_the_models_order(mode, higher, order):
    assert [entry.layer for entry in make(mode, higher).ranked()] == order


def test_nan_is_the_worst():
    assert make(values={"a": 3.0, "b": math.nan}).ranked()[0].layer == "b"


def test_apply_keeps_the_most_sensitive_in_float():
    wished = qdq.QuantizationSpec()
    wished.add("z", quantize_weight=False)

    spec = make().apply(top_k=2, spec=wished)

    assert [entry.name for entry in spec.layers] == ["z", "b", "a"]
    assert not any(entry.quantize_input or entry.quantize_weight for entry in spec.layers[1:])
    assert len(wished.layers) == 1
    assert len(make().apply(top_k=0)) == 0


@pytest.mark.parametrize(
    ("mode", "threshold", "kept"),
    [("one_on", 30.0, ["b"]), ("one_on", 31.0, ["b", "a", "d"]), ("one_off", 9.5, ["c", "a", "d"])],
)
def test_apply_by_threshold(mode, threshold, kept):
    assert [entry.name for entry in make(mode).apply(threshold=threshold).layers] == kept


def test_apply_leaves_alone_what_was_not_swept():
    (entry,) = make(sites=("weight",)).apply(top_k=1).layers
    assert (entry.quantize_input, entry.quantization_index, entry.quantize_weight) == (True, [1], False)

    (entry,) = make(sites=("input",)).apply(top_k=1).layers
    assert (entry.quantize_input, entry.quantization_index, entry.quantize_weight) == (False, None, True)


@pytest.mark.parametrize("arguments", [{}, {"top_k": 1, "threshold": 2.0}, {"top_k": 5}, {"top_k": -1}, {"top_k": 1.5}])
def test_apply_refuses_what_makes_no_sense(arguments):
    with pytest.raises(qdq.SpecError, match=r"top_k"):
        make().apply(**arguments)


@pytest.mark.parametrize("threshold", [math.nan, "20", True])
def test_a_threshold_is_a_number(threshold):
    with pytest.raises(qdq.SpecError, match="threshold must be a number"):
        make().apply(threshold=threshold)


def test_json_round_trip_is_strict_json(tmp_path):
    report = make(values={"a": math.inf, "b": -math.inf, "c": 0.1}, complete=False, fingerprint="f")
    report.save(tmp_path / "report.json")

    assert qdq.SensitivityReport.load(tmp_path / "report.json") == report
    json.loads(json.dumps(report.to_dict()), parse_constant=pytest.fail)


@pytest.mark.parametrize("broken", [None, [], {}, {"format": "qdq-workbench/sensitivity-report", "version": 1}])
def test_a_dictionary_that_is_no_report_is_refused(broken):
    with pytest.raises(DataError, match="sensitivity report"):
        qdq.SensitivityReport.from_dict(broken)


def test_a_file_that_is_no_json_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("{")

    with pytest.raises(DataError, match="not valid JSON"):
        qdq.SensitivityReport.load(tmp_path / "x.json")


def test_summary_says_unit_direction_and_ends():
    text = make().summary()

    assert "sqnr, dB (higher is better): float inf, all quantized 8" in text
    assert text.splitlines()[2].split() == ["1", "b", "9"]


def test_names_are_untrusted_text():
    report = make(values={"<script>alert(1)</script>": 1.0})

    assert "<script>" not in report._repr_html_()
    assert "<script>" not in report.plot().to_json()


def test_the_figure_shows_the_ranking():
    figure = make().plot()

    (bars,) = figure.data
    assert list(bars.y) == ["b", "a", "d", "c"]
    assert list(bars.x) == [9.0, 30.0, 30.0, None]
    assert bars.text[3] == "inf"
    assert "dB" in figure.layout.xaxis.title.text
    assert "higher is better" in figure.layout.xaxis.title.text


def test_the_figure_of_many_layers_shows_the_first():
    report = make(values={f"layer{i}": float(i) for i in range(100)})

    assert len(qdq.sensitivity_figure(report, top=5).data[0].y) == 5


def test_reports_are_values():
    assert make() == make()
    assert dataclasses.replace(make(), mode="one_off") != make()


@pytest.mark.parametrize(
    "wish",
    [
        {"name": "head"},
        {"name": "he*", "match": "glob"},
        {"name": "h.+d", "match": "regex"},
        {"name": "Dense", "is_keras_class": True},
    ],
)
def test_apply_keeps_the_settings_of_sites_that_were_not_swept(wish):
    image = keras.Input((4,), name="image")
    model = keras.Model(image, keras.layers.Dense(2, name="head")(image))
    spec = qdq.QuantizationSpec()
    spec.add(**wish, quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 4}))
    plan = qdq.plan_placement(model, quantization_spec=spec, target="onnxruntime")
    x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    report = qdq.sensitivity(model, x, plan=plan, sites="input", verbose=False)
    report = qdq.SensitivityReport.from_dict(json.loads(json.dumps(report.to_dict())))

    chosen = qdq.plan_placement(model, quantization_spec=report.apply(top_k=1, spec=spec), target="onnxruntime")

    (weight,) = (each for each in chosen.placements if each.layer == "head" and each.site == "weight")
    assert weight.quantizer.num_bits == 4
    assert not [each for each in chosen.placements if each.layer == "head" and each.site == "input"]


@keras.saving.register_keras_serializable("test_sensitivity_report")
class Block(keras.layers.Layer):
    """A composite layer."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = keras.layers.Dense(2, name="inner")

    def build(self, shape):
        self.inner.build(shape)

    def call(self, inputs):
        return self.inner(inputs)


def test_apply_keeps_the_settings_of_a_class_of_composite_layers():
    image = keras.Input((4,), name="image")
    model = keras.Model(image, Block(name="block")(image))
    spec = qdq.QuantizationSpec()
    spec.add("Block", is_keras_class=True, quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 4}))
    plan = qdq.plan_placement(model, quantization_spec=spec, target="onnxruntime")
    x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    report = qdq.sensitivity(model, x, plan=plan, sites="input", verbose=False)
    chosen = qdq.plan_placement(model, quantization_spec=report.apply(top_k=1, spec=spec), target="onnxruntime")
    assert [each.quantizer.num_bits for each in chosen.placements if each.site == "weight"] == [4]


FOUR_BITS = qdq.LayerQuantizeConfig(weight={"num_bits": 4})


def swept_inputs(model, **how):
    """Return a report of a sweep of the inputs, after a round trip through JSON, and the plan."""
    plan = qdq.plan_placement(model, **how, target="onnxruntime")
    samples = [np.random.default_rng(0).normal(size=(8, *x.shape[1:])).astype("float32") for x in model.inputs]
    report = qdq.sensitivity(
        model, samples if len(samples) > 1 else samples[0], plan=plan, sites="input", verbose=False
    )
    return qdq.SensitivityReport.from_dict(json.loads(json.dumps(report.to_dict()))), plan


def grids(plan, site):
    return {(p.node, p.weight or p.input_index): p.quantizer.label for p in plan.placements if p.site == site}


@pytest.mark.parametrize("name", ["twice#*", "twice#1"])
def test_apply_keeps_the_settings_of_calls(name):
    image, layer = keras.Input((4,), name="image"), keras.layers.Dense(4, name="twice")
    model = keras.Model(image, layer(layer(image)))
    spec = qdq.QuantizationSpec()
    spec.add(name, match="glob", quantize_config=FOUR_BITS)
    report, plan = swept_inputs(model, quantization_spec=spec)

    chosen = qdq.plan_placement(model, quantization_spec=report.apply(top_k=1, spec=spec), target="onnxruntime")

    assert grids(chosen, "weight") == grids(plan, "weight")
    assert "int4" in grids(plan, "weight")["twice", "kernel"]
    assert not grids(chosen, "input")


def test_apply_keeps_the_settings_of_a_case():
    class FourBits(qdq.CustomQDQInsertionCase):
        def case(self, model, quantization_spec):
            found = qdq.QuantizationSpec()
            found.add("Dense", is_keras_class=True, quantize_config=FOUR_BITS)
            return found

    image = keras.Input((4,), name="image")
    model = keras.Model(image, keras.layers.Dense(2, name="head")(keras.layers.Dense(4, name="first")(image)))
    report, plan = swept_inputs(model, custom_qdq_cases=[FourBits()])

    chosen = qdq.plan_placement(
        model, quantization_spec=report.apply(top_k=2), custom_qdq_cases=[FourBits()], target="onnxruntime"
    )

    assert grids(chosen, "weight") == grids(plan, "weight")


def test_apply_gives_a_layer_without_weights_no_settings_for_them():
    image = keras.Input((4,), name="image")
    joined = keras.layers.Add(name="sum")(
        [keras.layers.Dense(4, name="a")(image), keras.layers.Dense(4, name="b")(image)]
    )
    spec = qdq.QuantizationSpec()
    spec.add("*", match="glob", quantize_config=qdq.LayerQuantizeConfig(weight={"kernel": {"num_bits": 4}}))
    model = keras.Model(image, joined)
    report, plan = swept_inputs(model, quantization_spec=spec)

    chosen = qdq.plan_placement(model, quantization_spec=report.apply(top_k=3, spec=spec), target="onnxruntime")

    assert grids(chosen, "weight") == grids(plan, "weight")


def test_a_report_of_an_earlier_version_is_read():
    data = make().to_dict()
    for entry in data["entries"]:
        del entry["settings"]
        entry["classes"] = ["Dense"]
    assert qdq.SensitivityReport.from_dict(data) == make()


def test_a_report_of_an_earlier_version_does_not_lose_settings_silently():
    spec = qdq.QuantizationSpec()
    spec.add("a*", match="glob", quantize_config=FOUR_BITS)
    assert len(make().apply(top_k=1, spec=spec)) == 2  # the layer is wholly in float, whatever its settings
    with pytest.raises(qdq.SpecError, match="does not hold the quantizer settings"):
        make(sites=("input",)).apply(top_k=1, spec=spec)


@pytest.mark.parametrize("settings", [[], {"a": 3}, {"a": {"weight": {"bits": 4}}}])
def test_settings_that_are_none_are_refused(settings):
    data = make().to_dict()
    data["entries"][0]["settings"] = settings
    with pytest.raises((DataError, qdq.SpecError)):
        qdq.SensitivityReport.from_dict(data)


def test_layers_may_be_an_iterator():
    image = keras.Input((4,), name="image")
    model = keras.Model(image, keras.layers.Dense(2, name="head")(keras.layers.Dense(2, name="first")(image)))
    x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    report = qdq.sensitivity(model, x, layers=iter(["head"]), verbose=False)
    assert [entry.layer for entry in report.entries] == ["head"]


@pytest.mark.parametrize("complete", [True, False])
def test_every_form_of_the_report_says_whether_layers_are_missing(complete):
    report = make(complete=complete)
    assert [("some layers are missing" in text) for text in (report.summary(), report._repr_html_())] == [
        not complete
    ] * 2
