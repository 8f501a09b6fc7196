"""The panes without a browser: set what a user would set, click, and look at the bench."""

import html

import keras
import pytest
from small_benches import tiny_data

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.errors import BenchError
from qdq_widgets.panes.calibration import CalibrationPane
from qdq_widgets.panes.cases import CasesPane
from qdq_widgets.panes.export import ExportPane
from qdq_widgets.panes.files import FilesPane
from qdq_widgets.panes.histograms import HistogramsPane
from qdq_widgets.panes.history import HistoryPane
from qdq_widgets.panes.inspector import InspectorPane
from qdq_widgets.panes.netron import NetronPane
from qdq_widgets.panes.runtime import RuntimePane
from qdq_widgets.panes.spec import SpecPane, parse_indices
from qdq_widgets.panes.training import TrainingPane
from qdq_widgets.panes.variants import VariantsPane


def opened(bench, kind):
    """Return a pane of the bench's view, its tab in front."""
    view = bench.view
    tabs = view.side if any(isinstance(pane, kind) for pane in view.side.panes) else view.work
    tabs.open(kind)
    return view.pane(kind)


def finish(bench):
    assert bench.jobs.wait(120)


def switches(pane):
    return {row.children[0].description + str(i): row.children[0] for i, row in enumerate(pane.switches.children)}


def test_every_pane_draws_the_fresh_bench_without_an_error(bench):
    for tabs in (bench.view.side, bench.view.work):
        for index, pane in enumerate(tabs.panes):
            tabs.widget.selected_index = index
            assert pane.errors.message == "", pane.title


def test_the_bar_says_why_it_counts_more_pairs_than_the_graph_draws(bench):
    kinds = [tensor.kind for tensor in bench.plan.tensors]
    activations, weights = kinds.count("activation"), kinds.count("weight")

    assert f"{activations + weights} Q/DQ pairs" in bench.view.summary.value
    assert f"{activations} on activations, which the graph draws and counts, and {weights} on weights" in (
        bench.view.summary.value
    )


def test_a_pane_is_built_when_its_tab_is_first_opened(bench):
    view = bench.view
    built = [pane.title for tabs in (view.side, view.work) for pane in tabs.panes if pane.widget.children]
    assert built == ["Inspector", "Calibration", "Code & files"]  # the code must be there without a kernel, too

    pane = opened(bench, HistoryPane)
    children = pane.widget.children
    assert children
    opened(bench, InspectorPane)
    assert opened(bench, HistoryPane).widget.children == children


def test_an_error_while_a_pane_is_built_is_shown_in_it(bench, monkeypatch):
    def build(self):
        raise RuntimeError("no widgets")

    monkeypatch.setattr(HistoryPane, "build", build)
    pane = opened(bench, HistoryPane)

    assert pane.errors.message == "no widgets"
    assert pane.widget.children == (pane.errors.widget,)
    bench.toggle("conv", "weight")
    assert pane.errors.message == "no widgets"


def test_values_know_what_was_selected_before_they_were_opened(bench):
    bench.view.graph.select("add")
    pane = opened(bench, HistogramsPane)

    assert not pane.layer.disabled
    assert pane.tensors.value
    bench.view.graph.select([])
    assert pane.layer.disabled


def test_the_inspector_follows_the_selection_and_switches(bench):
    pane = opened(bench, InspectorPane)
    bench.view.graph.select("add")
    toggles = switches(pane)
    assert list(toggles) == ["I0", "I1", "W2", "O3"]
    assert toggles["W2"].disabled
    assert "has no weights" in toggles["W2"].tooltip
    toggles["I1"].value = True
    assert bench.plan.for_layer("add").input_indices == (1,)
    assert switches(pane)["I1"].value is True
    assert "spec[0]" in pane._details.value


def test_the_inspector_says_what_the_file_holds():
    image = keras.Input((8, 8, 3), name="image")
    x = keras.layers.Conv2D(4, 3, activation="relu", name="conv")(keras.layers.ZeroPadding2D(1, name="pad")(image))
    bench = Workbench(keras.Model(image, keras.layers.Dense(2, activation="gelu", name="head")(x)))
    pane = opened(bench, InspectorPane)
    found = {}
    for name in ("image", "pad", "conv", "head"):
        bench.view.graph.select(name)
        cell = pane._details.value.partition("in the file</td>")[2].partition("</td>")[0]
        found[name] = html.unescape(cell.partition(">")[2])
    assert found == {
        "image": "one of its inputs",
        "pad": "nothing: 'conv' pads instead",
        "conv": "Conv, Relu",
        "head": "what the converter makes of it",
    }
    bench.view.graph.select("pad")
    assert "has nothing of it to run" in pane._verdict.value


def test_a_refused_switch_goes_back_and_says_why(bench):
    bench.set_target("onnxruntime")
    pane = opened(bench, InspectorPane)
    bench.view.graph.select("conv")
    switches(pane)["I0"].value = False
    assert "Conv2D 'stem' on integers only" in pane.errors.message
    assert switches(pane)["I0"].value is True
    switches(pane)["W1"].value = False
    assert pane.errors.message == ""


def test_the_inspector_switches_all_selected_layers_in_one_step(bench):
    pane = opened(bench, InspectorPane)
    bench.view.graph.select(["stem", "conv"])
    switches(pane)["W1"].value = False
    assert not bench.plan.for_layer("stem").quantize_weight
    assert not bench.plan.for_layer("conv").quantize_weight
    assert len(bench.history) == 2


def test_the_one_click_fix(bench):
    bench.set_target("onnxruntime")
    bench.toggle("stem", "input")
    pane = opened(bench, InspectorPane)
    bench.view.graph.select("stem")
    assert pane._fix.layout.display != "none"
    pane._fix.click()
    assert bench.explanation.for_layer("stem").status == "int8"
    assert pane._fix.layout.display == "none"


def test_the_spec_pane_adds_filters_and_removes(bench):
    pane = opened(bench, SpecPane)
    pane.name.value, pane.kind.value, pane.indices.value = "Add", "class", "1"
    pane.add.click()
    pane.name.value, pane.kind.value, pane.indices.value = "st*", "glob", ""
    pane.weight.value = False
    pane.add.click()
    assert [(e.name, e.is_keras_class, e.match) for e in bench.spec.layers] == [
        ("Add", True, "exact"),
        ("st*", False, "glob"),
    ]
    assert bench.plan.for_layer("add").input_indices == (1,)
    assert len(pane.rows.shown) == 2
    assert "replaced default" in pane.rows.shown[1].children[1].value
    pane.filter.value = "st"
    assert len(pane.rows.shown) == 1
    pane.rows.shown[0].children[0].click()
    assert [entry.name for entry in bench.spec.layers] == ["Add"]


def test_a_wrong_entry_is_refused_in_the_pane(bench):
    pane = opened(bench, SpecPane)
    pane.name.value = "convv"
    pane.add.click()
    assert "Did you mean &#x27;conv&#x27;" in pane.errors._text.value
    assert len(bench.spec) == 0
    pane.name.value, pane.indices.value = "conv", "first"
    pane.add.click()
    assert "separated by commas" in pane.errors.message
    pane.indices.value = ""
    pane.add.click()
    assert pane.errors.message == ""


def test_the_spec_goes_to_a_file_and_back(bench, tmp_path):
    pane = opened(bench, SpecPane)
    bench.toggle("conv", "input")
    pane.path.value = str(tmp_path / "spec.yaml")
    pane.save.click()
    bench.undo()
    pane.load.click()
    assert [entry.name for entry in bench.spec.layers] == ["conv"]
    pane.path.value = str(tmp_path / "missing.yaml")
    pane.load.click()
    assert "Cannot read the file" in pane.errors.message


@pytest.mark.parametrize(("text", "indices"), [("", None), (" all ", None), ("0", [0]), ("0; 2", [0, 2])])
def test_input_numbers_as_people_write_them(text, indices):
    assert parse_indices(text) == indices


def test_the_case_picker_shows_what_would_change_before_it_does(bench):
    class MyOwnCase(qdq.CustomQDQInsertionCase):
        """Mine."""

        def case(self, keras_model, qspec):
            spec = qdq.QuantizationSpec()
            spec.add("pool", quantize_input=False, quantize_weight=False)
            return spec

    pane = opened(bench, CasesPane)
    pane.refresh()
    assert {"ResNetV1QDQCase", "BNQDQCase", "MyOwnCase"} <= set(pane.picker.options)
    assert "CustomQDQInsertionCase" not in pane.picker.options
    pane.picker.value = "ResNetV1QDQCase"
    assert "except one that comes out of a convolution" in pane._info.value
    assert "add" in pane.changes.value
    assert "1 input changed" in pane.changes.value  # as in the graph: the tensor has its pair already
    assert len(bench.history) == 1
    offered = pane.picker.options
    pane.apply.click()
    # The page sends the position of what is chosen, perhaps before it has the next list.
    assert pane.picker.options == offered
    assert bench.plan.for_layer("add").author == "ResNetV1QDQCase"
    assert "no difference" in pane.changes.value
    pane.picker.value = "MyOwnCase"
    pane.apply.click()
    assert bench.plan.for_layer("pool").author == "MyOwnCase"
    [chip, _] = pane.chips.shown
    assert chip.description == "ResNetV1QDQCase"
    chip.click()
    assert [case.name for case in bench.state.cases] == ["MyOwnCase"]


def test_a_case_that_does_not_fit_beside_another_is_no_error_before_it_is_applied(bench):
    class OtherCase(qdq.CustomQDQInsertionCase):
        def case(self, keras_model, qspec):
            spec = qdq.QuantizationSpec()
            spec.add("add", quantize_input=False, quantize_weight=False)
            return spec

    bench.apply_case(qdq.ResNetV1QDQCase())
    pane = opened(bench, CasesPane)
    pane.refresh()
    pane.picker.value = "OtherCase"
    assert pane.errors.message == ""
    assert "OtherCase does not fit beside what is applied" in pane.changes.value
    assert (pane.apply.disabled, pane.show.disabled) == (True, True)
    pane.picker.value = "ResNetV1QDQCase"
    assert (pane.apply.disabled, pane.show.disabled) == (False, False)


def test_a_case_that_fails_shows_its_error_and_the_picker_lives_on(bench):
    class BrokenCase(qdq.CustomQDQInsertionCase):
        def case(self, keras_model, qspec):
            raise RuntimeError("<b>boom</b>")

    pane = opened(bench, CasesPane)
    pane.refresh()
    pane.picker.value = "BrokenCase"
    assert "boom" in pane.errors.message
    assert "<b>boom" not in pane.errors._text.value
    pane.picker.value = "BNQDQCase"
    assert pane.errors.message == ""
    del BrokenCase


def test_the_target_picker_plans_anew_and_shows_the_reasons(bench):
    pane = opened(bench, RuntimePane)
    pane.target.value = "onnxruntime"
    assert bench.plan.target == "onnxruntime"
    assert bench.view.target.value == "onnxruntime"
    bench.toggle("stem", "input")
    fixes = [row.children[0] for row in pane.rows.shown if row.children[0].layout.display != "none"]
    fixes[0].click()
    assert bench.history.present.label == "fix stem"
    bench.view.target.value = "tensorrt"
    assert pane.target.value == "tensorrt"


def test_an_impossible_mode_is_refused_and_the_picker_goes_back(bench):
    pane = opened(bench, RuntimePane)
    pane.mode.value = "partial"
    assert "Nothing is left to quantize" in pane.errors.message
    assert pane.mode.value == bench.state.mode == "full"


def test_the_history_list_goes_where_it_is_clicked(bench):
    pane = opened(bench, HistoryPane)
    bench.toggle("conv", "input")
    bench.toggle("stem", "weight")
    assert len(pane.steps.options) == 3
    assert "stem" in pane._diff.value
    pane.steps.value = 1
    assert bench.history.position == 1
    bench.view.undo.click()
    assert pane.steps.value == 0
    bench.view.redo.click()
    assert bench.history.position == 1


def test_variants_are_kept_and_shown(bench):
    pane = opened(bench, VariantsPane)
    assert "(plan)" in pane.name.placeholder
    pane.keep.click()
    pane.keep.click()
    assert [variant.name for variant in bench.variants] == ["plan", "plan 2"]
    assert "(plan 3)" in pane.name.placeholder
    pane.name.value = "first"
    pane.keep.click()
    bench.toggle("conv", "input")
    pane.picker.value = "first"
    pane.show.click()
    assert bench.history.present.label == "variant first"
    assert "first" in pane._table.value


def test_the_code_and_the_files(bench, tmp_path):
    pane = opened(bench, FilesPane)
    bench.toggle("conv", "input")
    assert pane.code.value == bench.to_code()
    pane.folder.value, pane.page.value = str(tmp_path / "bench"), str(tmp_path / "report.html")
    pane.save.click()
    pane.report.click()
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
    bench.undo()
    pane.load.click()  # asks first
    pane.load.click()
    assert bench.history.present.label == "toggle conv: input"
    pane.page.value = str(tmp_path)  # a folder
    pane.report.click()
    assert "the path is a folder" in pane.errors.message


def test_calibration_training_and_their_curves_from_the_panes(model):
    from qdq_widgets import Workbench

    bench = Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32))
    calibration = opened(bench, CalibrationPane)
    calibration.method.value = "percentile"
    assert calibration.percentile.layout.display != "none"
    calibration.percentile.value, calibration.batch.value = 99.0, 16
    calibration.run.click()
    finish(bench)
    assert calibration.errors.message == ""
    assert (bench.calibration.method, bench.calibration.settings["percentile"]) == ("percentile", 99.0)
    assert bench.calibration.batches == 3
    values = opened(bench, HistogramsPane)
    values.draw.click()
    assert "Choose one or more tensors" in values.errors.message
    values.filter.value = "weight"
    assert all("weight" in text for text, _ in values.tensors.options)
    bench.view.graph.select("conv")
    assert set(values.tensors.value) == {"relu", "conv/kernel", "conv/bias", "conv"}
    values.layer.click()
    finish(bench)
    assert values.errors.message == ""
    assert calibration.errors.message == ""
    assert values.figure_box.children

    training = opened(bench, TrainingPane)
    training.epochs.value, training.name.value = 2, "<b>mine</b>"
    training.run.click()
    training.run.click()  # a second click while it runs, or just after: refused or queued behind nothing
    finish(bench)
    run = bench.curves.runs[0]
    assert (run.name, run.state, len(run.epochs)) == ("<b>mine</b>", "done", 3)
    training.refresh()
    names = [line.name for line in training.figure.data]
    assert names[:2] == ["FP32", "PTQ"]
    assert "&lt;b&gt;mine&lt;/b&gt;" in names
    line = next(line for line in training.figure.data if line.name == "&lt;b&gt;mine&lt;/b&gt;")
    assert list(line.x) == [0.0, 1.0, 2.0]
    assert "<b>mine" not in training._table.value


def test_long_work_shows_its_errors_in_its_pane(model):
    from qdq_widgets import Workbench

    bench = Workbench(model)
    pane = opened(bench, CalibrationPane)
    pane.run.click()
    finish(bench)
    assert "calibration_data=" in pane.errors.message
    assert bench.jobs.current is None
    export = opened(bench, ExportPane)
    export.run.click()
    finish(bench)
    assert "Calibrate first" in export.errors.message


def test_the_netron_pane_tells_about_privacy_and_needs_a_file(bench, tmp_path):
    pane = opened(bench, NetronPane)
    assert pane.show.disabled
    assert "analytics" in pane._note.value
    file = tmp_path / "a&b.onnx"
    file.write_bytes(b"x")
    page = bench.show_netron(file)
    assert page.url in pane.frame.value
    assert "a&b.onnx" not in pane._links.value
    assert "a&amp;b.onnx" in pane._links.value
    assert pane.file.value == str(file)


def test_a_file_is_drawn_without_netron_when_its_release_has_expired(model, tmp_path, monkeypatch):
    import datetime as dt

    from qdq_widgets import Workbench
    from qdq_widgets.netron_server import NetronRelease
    from qdq_widgets.panes import netron

    bench = Workbench(model, calibration_data=tiny_data()[0])
    bench.calibrate()
    exported = bench.export(tmp_path / "tiny.onnx", target="onnxruntime")
    assert exported.passed
    assert exported.plan.target == "onnxruntime"
    pane = opened(bench, NetronPane)
    pane.draw.click()
    assert pane._drawing.children[0].plan is exported.plan
    pane.show.click()
    assert pane._drawing.children == ()
    assert "<iframe" in pane.frame.value
    expired = NetronRelease("1.0", dt.date(2020, 1, 1), -5)
    monkeypatch.setattr(netron, "netron_release", lambda: expired)
    assert "stopped working" in netron.netron_note()
    pane.show.click()
    assert pane._drawing.children[0].plan is exported.plan
    view = pane._drawing.children[0]
    view._on_message(view, {"type": "action", "action": "undo"}, [])
    assert bench.history.position == 0


def test_a_pane_out_of_sight_is_drawn_when_its_tab_is_opened(bench):
    pane = bench.view.pane(SpecPane)
    bench.view.side.open(InspectorPane)
    bench.toggle("conv", "input")
    assert pane.rows.shown == ()
    bench.view.side.open(SpecPane)
    assert len(pane.rows.shown) == 1


def test_clicks_in_the_graph_are_method_calls(bench):
    view = bench.view
    view._on_action({"action": "toggle", "layers": ["conv"], "site": "input", "index": None, "on": False})
    assert not bench.plan.for_layer("conv").quantize_input
    assert view.graph.plan is bench.plan
    view._on_action({"action": "undo"})
    assert bench.plan.for_layer("conv").quantize_input
    view._on_action({"action": "redo"})
    view._on_action({"action": "apply_like", "source": "conv", "layers": ["stem"]})
    assert not bench.plan.for_layer("stem").quantize_input
    view.colors.value = "precision"
    assert view.graph.colors["mode"] == "precision"
    view.colors.value = "parameters"
    assert view.graph.colors["mode"] == "parameters"


def test_small_learning_rates_are_shown_and_used_as_written(model):
    from qdq_widgets import Workbench
    from qdq_widgets.panes.training import parse_rate

    pane = opened(Workbench(model, train_data=tiny_data()), TrainingPane)
    assert pane.rate.placeholder == "0.0001"
    asked = []
    pane.bench.fine_tune = lambda epochs, *, learning_rate, **_: asked.append(learning_rate)
    pane.rate.value = "1e-5"
    pane.run.click()
    finish(pane.bench)
    pane.rate.value = "fast"
    pane.run.click()
    assert "greater than 0" in pane.errors.message
    assert asked == [1e-5]
    assert parse_rate("0,001") == 0.001
    with pytest.raises(BenchError, match="greater than 0"):
        parse_rate("-1")


def test_the_usual_rate_is_the_optimizers(model):
    import keras

    from qdq_widgets import Workbench

    assert Workbench(model, optimizer=keras.optimizers.SGD(0.25)).usual_rate == 0.25
    assert Workbench(model, optimizer="sgd").usual_rate is None
    assert opened(Workbench(model, optimizer="sgd"), TrainingPane).rate.placeholder == "optimizer's own"


def test_variants_are_measured_beside_the_float_model(model):
    from qdq_widgets import Workbench

    bench = Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32))
    bench.calibrate()
    pane = opened(bench, VariantsPane)
    assert pane.measure.disabled
    bench.keep_variant("all")
    bench.toggle("conv", "weight")
    bench.keep_variant("without conv")
    bench.undo()
    pane.measure.click()
    finish(bench)
    assert pane.errors.message == ""
    whole, part = bench.variants
    assert None not in (whole.accuracy, part.accuracy)
    assert min(whole.size, part.size) > 1000
    assert whole.size != part.size
    assert "float model" in pane._table.value
    assert f"{100 * part.int8:.1f} %" in pane._table.value
    assert part.int8 < whole.int8


def test_a_litert_file_and_a_file_that_cannot_be_verified_are_shown_as_such(model, tmp_path, monkeypatch):
    from qdq_widgets import Workbench

    bench = Workbench(model, calibration_data=tiny_data()[0])
    bench.calibrate()
    pane = opened(bench, ExportPane)
    pane.path.value = str(tmp_path / "tiny.tflite")
    pane.run.click()
    finish(bench)
    assert pane.errors.message == ""
    assert (bench.exports[-1].target, bench.exports[-1].format) == ("litert", "LiteRT")
    assert "TensorFlow&#x27;s interpreter" in pane._verdict.value
    with pytest.raises(BenchError, match="for LiteRT"):
        bench.export(tmp_path / "tiny.tflite", "tensorrt")
    with pytest.raises(BenchError, match="floats in float32"):
        bench.export(tmp_path / "tiny.tflite", float_type="float16")

    def refuse(*_, **__):
        raise qdq.errors.VerificationError("This runtime does not know the grid.")

    monkeypatch.setattr(qdq, "verify_onnx", refuse)
    pane.path.value = str(tmp_path / "tiny.onnx")
    pane.run.click()
    finish(bench)
    assert bench.exports[-1].passed is None
    assert "does not know the grid" in pane._verdict.value
    assert opened(bench, NetronPane).file.options == (str(tmp_path / "tiny.onnx"),)


def test_pickers_offer_every_target_and_a_target_without_rules_says_so(bench, monkeypatch):
    pane = opened(bench, RuntimePane)
    assert {name for _, name in pane.target.options} == set(qdq.target_names())

    def refuse(*_, **__):
        raise qdq.errors.TargetError("No rules are known for this target.")

    monkeypatch.setattr(qdq, "explain", refuse)
    bench.toggle("conv", "input")
    assert "No rules are known" in pane.rest.value
    bench.view.graph.select("conv")
    inspector = opened(bench, InspectorPane)
    assert inspector.errors.message == ""
    assert inspector._verdict.layout.display == "none"
    bench.color_by("precision")
    assert bench.view.errors.message == ""


def test_a_certificate_lies_beside_the_file(model, tmp_path):
    from qdq_widgets import Workbench

    bench = Workbench(model, calibration_data=tiny_data()[0])
    bench.calibrate()
    pane = opened(bench, ExportPane)
    pane.path.value, pane.certificate.value = str(tmp_path / "tiny.onnx"), True
    pane.run.click()
    finish(bench)
    assert pane.errors.message == ""
    assert "tiny.certificate.html" in pane._verdict.value
    assert bench.exports[-1].certificate.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")
    assert qdq.Certificate.load(tmp_path / "tiny.certificate.json").passed
    pane.path.value = str(tmp_path / "tiny.tflite")
    pane.run.click()
    finish(bench)
    assert "A certificate is that of an ONNX file" in pane.errors.message
    assert not (tmp_path / "tiny.tflite").exists()


@pytest.mark.parametrize("kind", [CalibrationPane, ExportPane, HistogramsPane, NetronPane, TrainingPane])
def test_errors_stand_above_figures_and_tables(bench, kind):
    pane = opened(bench, kind)
    children = list(pane.widget.children)
    assert children.count(pane.errors.widget) == 1
    assert children.index(pane.errors.widget) < len(children) - 1


def test_training_without_anything_to_draw_says_what_it_does(model):
    from qdq_widgets import Workbench

    bench = Workbench(model)
    pane = opened(bench, TrainingPane)
    assert pane.figure is None
    assert "Fine-tuning starts from the calibrated ranges, or from those of its first batches" in pane._table.value
    pane.run.click()
    finish(bench)
    assert pane.errors.message
    assert pane.figure is None


def test_the_first_step_of_the_history_has_no_change(bench):
    pane = opened(bench, HistoryPane)
    assert [text for text, _ in pane.steps.options] == ["0  start"]
    bench.toggle("conv", "weight")
    assert "(" in opened(bench, HistoryPane).steps.options[1][0]


def test_the_history_shows_the_steps_around_the_present_one(bench, monkeypatch):
    monkeypatch.setattr("qdq_widgets.panes.history.SHOWN_STEPS", 4)
    for site in ("input", "weight") * 5:
        bench.toggle("conv", site)
    pane = opened(bench, HistoryPane)
    assert [place for _, place in pane.steps.options] == [7, 8, 9, 10]
    bench.go_to(1)
    assert [place for _, place in pane.steps.options] == [0, 1, 2, 3]
    assert pane.steps.value == 1
