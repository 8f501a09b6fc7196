"""The whole job by mouse alone, from the float model to a verified file, and on in another kernel."""

import ast
import re

import pytest
from browser.bench_page import FILLS, BenchPage, PageWatch
from browser.conftest import SCREENSHOTS
from browser.jupyter import answer_of

pytestmark = pytest.mark.slow

DATA = """
import hashlib, json, keras, numpy as np
from qdq_widgets import Workbench
from qdq_widgets.figures.sensitivity import drawn_layers
from qdq_widgets.metrics import SENSITIVITY
labels = np.arange(192) % 3
noise = np.random.default_rng(0).normal(size=(192, 8, 8, 3))
images = (noise + 0.6 * np.eye(3)[labels][:, None, None]).astype('float32')
"""
MODEL = """
keras.utils.set_random_seed(0)
image = keras.Input((8, 8, 3), name='image')
stem = keras.layers.ReLU(name='stem_relu')(keras.layers.Conv2D(4, 3, padding='same', name='stem_conv')(image))
x = keras.layers.Conv2D(4, 3, padding='same', name='block_conv')(stem)
x = keras.layers.ReLU(name='block_relu')(keras.layers.Add(name='block_add')([x, stem]))
x = keras.layers.Dense(3, activation='softmax', name='head')(keras.layers.GlobalAveragePooling2D(name='pool')(x))
net = keras.Model(image, x, name='job')
net.compile(keras.optimizers.Adam(0.01), 'sparse_categorical_crossentropy', metrics=['accuracy'])
net.fit(images, labels, epochs=3, verbose=0)  # not done: fine-tuning then has something to gain
net.save('job.keras')
"""
BENCH = """
wb = Workbench(net, train_data=(images, labels), validation_data=(images, labels), target='onnxruntime')
wb.effects.measuring = False
wb
"""
SCORES = "{v.name: (v.stage, v.accuracy) for v in wb.variants}"
VARIANTS = ("PTQ", "searched", "trained")
PLAN = "hashlib.sha256(json.dumps({}.to_dict()['placements'], sort_keys=True, default=str).encode()).hexdigest()"


def choose(bench, option):
    """Choose an option of the first visible picker that has it."""
    picker = bench.root.locator("select:visible", has=bench.page.locator("option", has_text=option)).first
    picker.select_option(label=picker.locator("option", has_text=option).first.inner_text())


def finished(bench, expression):
    bench.wait_until(f"wb.jobs.current is None and ({expression})")


def decide(bench):
    """Toggle and undo, preview and apply a case, give one layer 4 bits."""
    bench.badge("stem_conv", "weight").click()
    bench.wait_until("not wb.plan.for_layer('stem_conv').quantize_weight")
    bench.root.locator("button[title^=Undo]:visible").first.click()
    bench.wait_until("wb.plan.for_layer('stem_conv').quantize_weight")
    bench.open("Cases")
    choose(bench, "ResNetV1QDQCase")
    bench.root.get_by_text("Against the present plan: 1 input changed").wait_for()
    bench.click("Show in the graph")
    bench.root.get_by_text("Preview: 1 input changed").wait_for()
    bench.screenshot("job_preview")
    bench.click("Apply")
    bench.wait_until("[case.name for case in wb.state.cases] == ['ResNetV1QDQCase']")
    bench.open("Inspector")
    bench.layer("block_conv").locator("text.title").click()
    bench.root.locator(".qdq-title", has_text="block_conv").wait_for()
    picker = bench.root.locator("select:visible", has=bench.page.locator("option", has_text="8 bits (default)")).first
    picker.select_option("4 bits")
    bench.wait_until("[e.quantize_config and e.quantize_config.weight for e in wb.spec.layers] == [{'num_bits': 4}]")
    bench.badge("block_conv", "weight").locator("text", has_text="W4").wait_for()


def quantize(bench):
    """Calibrate, find what is sensitive, let the search raise layers, fine-tune; keep a variant before and after."""
    bench.open("Calibration")
    bench.click("Calibrate")
    finished(bench, "wb.stage == 'calibrated'")
    bench.root.locator(".qdq-figure:visible .bars .point").first.wait_for()
    bench.open("Variants")
    bench.click("Keep")
    bench.wait_until("[variant.name for variant in wb.variants] == ['PTQ']")
    bench.open("Sensitivity")
    bench.click("Find sensitive layers")
    finished(bench, "wb.sensitivity_report is not None")
    select_by_a_bar(bench)
    choose(bench, "2 bits")
    bench.click("Search a placement")
    finished(bench, "wb.search_result is not None")
    bench.root.get_by_text(re.compile(r"floor is met with (1 layer|\d layers) raised")).wait_for()
    bench.click("Use this placement")
    bench.wait_until("wb.history.present.label.startswith('searched placement')")
    raised = bench.value("next(iter(wb.search_result.best.levels))")
    bench.badge(raised, "weight").locator("text", has_text=re.compile("^W$")).wait_for()
    bench.open("Training")
    bench.click("Score only")
    finished(bench, "wb.snapshot.score is not None")
    keep(bench, "searched")
    bench.click("Fine-tune")
    finished(bench, "wb.stage == 'fine-tuned'")
    bench.root.locator(".qdq-figure:visible .legendtext", has_text="QAT 1").wait_for()
    bench.root.locator(".qdq-scores", has_text="QAT").wait_for()
    keep(bench, "trained")
    bench.screenshot("job_trained")


def select_by_a_bar(bench):
    """A click on a bar of the sensitivity selects its layer; plotly listens on a layer above its bars."""
    bench.page.keyboard.press("Escape")
    bar = bench.root.locator(".qdq-figure:visible .bars .point").last
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    bench.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=3)
    bench.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    bench.wait_until("wb.selection == (drawn_layers(wb.metrics[SENSITIVITY])[-1][0],)")


def keep(bench, name):
    bench.root.locator("input[placeholder^='name of the present state']").fill(name)
    bench.click("Keep")
    bench.wait_until(f"wb.variants[-1].name == {name!r}")


def compare(bench):
    """Measure both variants, whose table is not cut off, and look at their graphs side by side."""
    kept = ast.literal_eval(bench.value(SCORES))
    assert list(kept) == list(VARIANTS)
    bench.click("Measure all")
    finished(bench, "all(v.size and v.accuracy for v in wb.variants)")
    measured = ast.literal_eval(bench.value(SCORES))
    assert measured == kept  # not those of the present state, which is trained
    assert [stage for stage, _ in kept.values()] == ["calibrated", "calibrated", "fine-tuned"]
    assert kept["searched"][1] != kept["trained"][1]  # of one plan
    assert kept["PTQ"][1] != kept["trained"][1]
    bench.root.locator("td", has_text="float model").first.wait_for()
    table = bench.root.locator(".qdq-scroll:visible", has_text="float model")
    assert table.evaluate("(el) => el.scrollWidth - el.clientWidth") <= 1
    bench.click("Side by side")
    bench.root.locator(".qdqw-picture:visible").nth(1).wait_for()
    assert table.evaluate("(el) => el.scrollWidth - el.clientWidth") <= 1  # the panes are narrow now
    bench.screenshot("job_compared")
    bench.root.locator("[aria-label^='Back to one graph']").click()
    bench.root.locator(".qdqw-picture:visible").nth(1).wait_for(state="detached")


def go_to_variants(bench):
    """Every variant comes back with its own stage and score, and the last one is the present state again."""
    for name, (stage, accuracy) in ast.literal_eval(bench.value(SCORES)).items():
        choose(bench, name)
        bench.click("Go there")
        bench.wait_until(f"wb.history.present.label == 'variant {name}'")
        metric = "wb.snapshot.score.metrics[wb.curves.metric]"
        assert ast.literal_eval(bench.value(f"(wb.stage, {metric})")) == (stage, accuracy)
        shown = f"{'QAT' if stage == 'fine-tuned' else 'PTQ'} {100 * accuracy:.1f}"
        scores = bench.root.locator(".qdq-scores", has_text=shown)
        scores.wait_for()
        assert scores.get_by_text("QAT").count() == (stage == "fine-tuned")
        bench.root.locator(".qdq-bar .qdq-chip", has_text=stage).wait_for()


def export(bench):
    """Write a verified file, and look at it in Netron."""
    bench.open("Export")
    path = bench.field("File")
    path.fill("from_the_pane.onnx")
    path.press("Tab")
    bench.click("Export")
    bench.root.locator(".qdq-verdict.qdq-int8:visible", has_text="Verified: from_the_pane.onnx").wait_for()
    assert bench.value("wb.exports[-1].passed") == "True"
    bench.open("Netron")
    shown = bench.field("File")
    bench.wait_for(lambda: shown.input_value().endswith("from_the_pane.onnx"), "the file stands in Netron's pane")
    bench.click("Show")
    frame = bench.root.frame_locator("iframe.qdq-netron:visible")
    # The dialog about cookies comes up once per browser.
    frame.locator("body.notification").wait_for()
    frame.locator("#message-button").click()
    frame.locator("text=QuantizeLinear").first.wait_for()
    assert frame.locator(".node").count() > 20
    bench.screenshot("job_netron")
    assert bench.root.evaluate("(el) => el.scrollWidth - el.clientWidth") <= 1


def write_code_and_save(bench):
    """Return the code that the pane shows; the bench is in a folder."""
    bench.open("Code & files")
    code = bench.root.locator(".qdq-code textarea:visible").input_value()
    bench.click("Save the bench")
    bench.root.locator(".qdq-pane:visible", has_text="Saved to").wait_for()
    return code


def go_on(bench, planned):
    """Load the folder, look whether everything is there, and train on."""
    bench.open("Code & files")
    bench.click("Load")
    bench.wait_until("wb.stage == 'fine-tuned' and tuple(v.name for v in wb.variants) == " + str(VARIANTS))
    assert bench.value(PLAN.format("wb.plan")) == planned
    bench.open("Training")
    bench.root.locator(".qdq-pane:visible", has_text="PTQ (calibrated)").wait_for()
    assert bench.root.get_by_text("another plan").count() == 0
    bench.page.wait_for_function(FILLS)
    bench.root.locator("input[placeholder='name of the run']").fill("went on")
    epochs = bench.field("Epochs")
    epochs.fill("1")
    epochs.press("Tab")
    bench.root.locator("label:visible", has_text="go on from the last run").click()
    bench.click("Fine-tune")
    finished(bench, "len(wb.curves.runs) == 2")
    bench.root.locator(".qdq-figure:visible .legendtext", has_text="went on").wait_for()
    run = bench.value("wb.curves.runs[-1].name, wb.curves.runs[-1].state, wb.curves.runs[-1].epochs")
    assert run == "went on done (0.0, 1.0)"
    bench.screenshot("job_gone_on")


def test_the_whole_job_by_mouse(open_notebook):
    notebook = open_notebook("01_quickstart.ipynb")
    watch = PageWatch(notebook.page)
    index = notebook.index_of("import keras")
    notebook.ask(DATA + MODEL)
    notebook.replace_and_run(index, BENCH)
    bench = BenchPage(notebook, index, SCREENSHOTS)
    decide(bench)
    quantize(bench)
    compare(bench)
    go_to_variants(bench)
    export(bench)
    code = write_code_and_save(bench)
    planned = bench.value(PLAN.format("wb.plan"))

    answer_of(notebook.page, "async () => window.testNotebook.sessionContext.session.kernel.restart()")
    notebook.ask(f"{DATA}model = net = keras.models.load_model('job.keras')")
    notebook.ask(f"train_data = validation_data = (images, labels)\ncalibration_data = images\nexec({code!r})")
    assert bench.value(PLAN.format("plan")) == planned
    notebook.replace_and_run(index, BENCH)
    go_on(BenchPage(notebook, index, SCREENSHOTS), planned)
    watch.assert_nothing_was_wrong()
