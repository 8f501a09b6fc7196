"""What is only seen in a real page: hostile names, the focus after a click, widths, another load, a dying kernel."""

import types

import pytest
from browser.bench_page import FILLS, SIDE_PANES, WORK_PANES, BenchPage
from browser.conftest import SCREENSHOTS
from browser.jupyter import answer_of

from qdq_widgets.curves import Curves, Scores
from qdq_widgets.panes.variants import variants_table
from qdq_widgets.state import BenchState
from qdq_widgets.style import style_sheet
from qdq_widgets.variants import Variant

pytestmark = pytest.mark.slow

CODE = """
from qdq_widgets.curves import Curves, Scores, TrainingRun
x = image = keras.Input((8, 8, 3), name='image')
for block in range(1, 41):
    x = keras.layers.Conv2D(2, 3, padding='same', name=f'block{block}_conv')(x)
    x = keras.layers.ReLU(name=f'block{block}_relu')(x)
wb = Workbench(keras.Model(image, x, name='chain'), target='onnxruntime')
wb
"""
# What a training would have left; the width of its figure does not depend on it.
CURVES = """
scores = [Scores(1 - value, {'accuracy': value}) for value in (0.9, 0.8, 0.85)]
run = TrainingRun('QAT 1', 'onnxruntime', 9, ((0.5, 0.3), (1.0, 0.2)), (0.0, 1.0), tuple(scores[1:]), 'done')
wb._training.curves = Curves(scores[0], scores[1], (run,))
wb._events.tell('curves')
for name in ('all', 'a variant with a longer name', 'third'): _ = wb.keep_variant(name)
"""
STOPPABLE_WORK = """
import time
def count():
    with wb.jobs.run('calibration') as job:
        for batch in range(10_000):
            job.report(batch / 10_000, f'batch {batch} of 10000')
            job.raise_if_stopped()
            time.sleep(0.05)
stopped = []
_ = wb.jobs.start(count, stopped.append)
"""
OPEN_IN_PAGE = """async () => {
  const drawn = window.testNotebook.content.rendermime.createRenderer('application/vnd.jupyter.widget-view+json');
  return Object.keys((await drawn._manager.promise)._models).length;
}"""
PICTURE = """(index) =>
  window.testNotebook.content.widgets[index].node.querySelector('.jp-RenderedSVG')?.checkVisibility()"""
ICONS = """(root) => [root, ...root.querySelectorAll('*')].filter((el) =>
  getComputedStyle(el, '::before').content.includes('\\uf127')).length"""
IN_VIEW = """() => {
  const box = document.querySelector('svg[role=tree]').getBoundingClientRect();
  const units = [...document.querySelectorAll('.qdqw-unit')].map((unit) => unit.getBoundingClientRect());
  return units.filter((unit) => unit.top >= box.top && unit.bottom <= box.bottom).length;
}"""


def apply_and_undo(bench):
    """A badge selects its layer; Ctrl+Z works after the button that goes away with its own click."""
    bench.badge("block1_conv", "weight").click()
    bench.root.locator(".qdq-title", has_text="block1_conv").wait_for()
    bench.root.locator(".qdq-verdict").first.wait_for()
    bench.click("Show in the graph")  # what the fix would change
    bench.root.locator(".qdqw-diffline", has_text="Preview: ").wait_for(timeout=30_000)
    assert bench.value("wb.history.position") == "1"
    bench.root.get_by_role("button", name="Quantize every layer of this class as this one is").click()
    bench.wait_until("wb.history.position == 2")
    bench.page.keyboard.press("Control+z")
    bench.wait_until("wb.history.position == 1")
    bench.page.keyboard.press("Escape")
    bench.root.locator(".qdq-title", has_text="chain").wait_for()
    bench.layer("block1_conv").locator("text.title").click()
    bench.root.locator(".qdq-switch-label", has_text="weights").wait_for()
    change_what_was_selected_again(bench, "block1_conv")
    for again in range(2):  # a group: selected, cleared, and selected again
        bench.layer("block1_conv").locator("text.title").click()
        bench.layer("block2_conv").locator("text.title").click(modifiers=["Control"])
        bench.wait_until("wb.selection == ('block1_conv', 'block2_conv')")
        if not again:
            bench.page.keyboard.press("Escape")
            bench.wait_until("wb.selection == ()")
    change_what_was_selected_again(bench, "block2_conv")


def change_what_was_selected_again(bench, layer):
    """The error of a selection that was cleared came with the next change."""
    position = int(bench.value("wb.history.position"))
    bench.badge(layer, "weight").click()
    bench.wait_until(f"wb.history.position == {position + 1}")
    bench.root.locator(".qdqw-diffline").wait_for()
    bench.page.keyboard.press("Control+z")
    bench.wait_until(f"wb.history.position == {position}")
    assert bench.root.locator(".qdq-error:visible").count() == 0
    bench.root.locator(".qdq-switch-label:visible", has_text="weights").wait_for()


def help_and_fit(bench):
    bench.root.get_by_role("button", name="Keys and colours (?)").click()
    panel = bench.root.get_by_role("dialog", name="Keys and colours")
    panel.wait_for()
    bench.page.keyboard.press("?")
    panel.wait_for(state="detached")
    bench.root.get_by_role("button", name="Close all blocks").click()
    assert bench.page.evaluate(IN_VIEW) < 20
    bench.root.get_by_role("button", name="All in view").click()
    bench.page.wait_for_function(f"() => ({IN_VIEW})() === 81")
    bench.screenshot("fit")
    bench.page.keyboard.press("Escape")
    bench.root.get_by_role("button", name="All in view").click()
    bench.page.wait_for_function(f"() => ({IN_VIEW})() < 20")


def stop_the_work_that_went_on(bench):
    """The page that was loaded again shows how far the work is, and its Stop ends it."""
    foot = bench.root.locator(".qdq-foot")
    shown = foot.inner_text()
    assert "calibration batch" in shown
    bench.wait_for(lambda: foot.inner_text() != shown, "the progress goes on")
    foot.locator("button", has_text="Stop").click()
    bench.wait_until("wb.jobs.current is None and [type(e).__name__ for e in stopped] == ['BenchStoppedError']")
    foot.get_by_text("Stopped: calibration").wait_for()


def leave_the_whole_page(bench):
    """Without a kernel too, or nothing but another load of the page would bring JupyterLab back."""
    bench.screenshot("kernel_gone_whole_page")
    assert bench.root.bounding_box()["x"] == 0
    bench.root.get_by_role("button", name="Back to the notebook").click()
    bench.wait_for(lambda: bench.root.bounding_box()["x"] > 0, "the bench is in its cell again")


def copy_the_code(bench):
    """The code by which the banner sends its reader on is in the clipboard after a click."""
    bench.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    bench.root.get_by_role("button", name="Copy").click()
    bench.root.get_by_role("button", name="Copied").wait_for()
    copied = answer_of(bench.page, "() => navigator.clipboard.readText()")
    assert copied == bench.root.locator("textarea:visible").first.input_value()


@pytest.fixture(scope="module")
def notebook(open_notebook):
    """A notebook whose kernel has imported Keras and the bench; the last test ends that kernel."""
    opened = open_notebook("01_quickstart.ipynb")
    opened.run(opened.index_of("import keras"))
    return opened


@pytest.fixture(scope="module")
def index(notebook):
    """The cell that the tests write their benches into."""
    return notebook.index_of("import keras")


def test_hostile_layer_names_are_shown_and_never_run(notebook, index):
    page = notebook.page
    dialogs = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    names = ["<img src=x onerror=alert(1)>", "x" * 300, "a\\b 'c' \"d\" 🦊"]
    code = (
        f"names = {names!r}\n"
        "x = image = keras.Input((8, 8, 3), name='image')\n"
        "for name in names:\n"
        "    x = keras.layers.Conv2D(2, 3, padding='same', name=name)(x)\n"
        "wb = Workbench(keras.Model(image, x, name='<svg onload=alert(2)>'))\n"
        "[wb.toggle(name, 'weight') for name in names]\n"
        "wb"
    )
    notebook.replace_and_run(index, code)
    bench = BenchPage(notebook, index, SCREENSHOTS)
    bench.page.wait_for_timeout(1000)
    bench.root.locator("g.qdqw-unit").nth(1).locator("text.title").click()
    bench.root.locator(".qdq-title", has_text="<img src=x onerror=alert(1)>").wait_for()
    for title in SIDE_PANES + WORK_PANES:
        bench.open(title)
    bench.open("Spec")
    bench.screenshot("hostile_names")
    assert dialogs == []
    assert page.locator("img[src='x']").count() == 0
    assert page.locator("[onerror], [onload]").count() == 0


ROUNDING = """
import numpy as np
keras.utils.set_random_seed(0)
image = keras.Input((4, 4, 2), name='image')
flat = keras.layers.Flatten(name='flat')(keras.layers.Conv2D(3, 3, name='conv')(image))
net = keras.Model(image, keras.layers.Dense(3, activation='softmax', name='head')(flat), name='rounded')
net.compile('adam', 'sparse_categorical_crossentropy', metrics=['accuracy'])
samples = np.random.default_rng(0).normal(size=(64, 4, 4, 2)).astype('float32'), np.arange(64) % 3
wb = Workbench(net, train_data=samples, validation_data=samples, target='onnxruntime')
_ = wb.configure('conv', 'weight', num_bits=3)
_ = wb.calibrate()
wb
"""


def test_learned_rounding_by_clicks_is_scored_and_undone(notebook, index):
    notebook.replace_and_run(index, ROUNDING)
    bench = BenchPage(notebook, index, SCREENSHOTS)
    bench.open("Corrections")
    bench.field("Steps").fill("20")
    bench.page.keyboard.press("Tab")
    bench.click("Correct")
    bench.root.locator(".qdq-scroll:visible", has_text="accuracy before").wait_for()
    bench.root.locator(".qdq-chip", has_text="this change").wait_for()
    assert bench.value("(wb.stage, wb.corrections.applied[0].settings['steps'])") == "('corrected', 20)"
    bench.screenshot("corrections")
    bench.root.locator("button[title^='Undo']").first.click()
    bench.wait_until("wb.stage == 'calibrated' and not wb.corrections.applied")
    bench.root.locator(".qdq-scroll:visible", has_text="accuracy before").wait_for(state="detached")


def test_an_export_into_a_missing_folder_and_one_that_fails(notebook, index):
    notebook.replace_and_run(index, ROUNDING)
    bench = BenchPage(notebook, index, SCREENSHOTS)
    bench.open("Export")
    verified = bench.root.locator(".qdq-verdict.qdq-int8:visible", has_text="Verified")
    write_to(bench, "new/inner/net.onnx")
    bench.click("Make the folder and go on")
    verified.filter(has_text="new/inner/net.onnx").wait_for()
    assert bench.value("(wb.exports[-1].passed, wb.exports[-1].path.exists())") == "(True, True)"
    notebook.ask("import pathlib; pathlib.Path('taken.tflite').mkdir()")
    write_to(bench, "taken.tflite")
    bench.root.locator(".qdq-verdict.qdq-failed:visible", has_text="Not exported: taken.tflite").wait_for()
    bench.root.locator(".qdq-error:visible", has_text="taken.tflite").wait_for()
    bench.screenshot("export_failed")
    assert verified.count() == 0
    assert bench.value("len(wb.exports)") == "1"


def write_to(bench, name):
    path = bench.field("File")
    path.fill(name)
    path.press("Tab")
    bench.click("Export")


def test_a_score_that_is_stopped_is_no_error(notebook, index):
    many = "validation_data=tuple(np.repeat(value, 400, axis=0) for value in samples)"
    notebook.replace_and_run(index, ROUNDING.replace("validation_data=samples", many))
    bench = BenchPage(notebook, index, SCREENSHOTS)
    notebook.ask("wb.effects.measuring = False; wb.configure('conv', 'weight', num_bits=4)")  # not scored yet
    bench.open("Training")
    size = bench.field("Batch size")
    size.fill("1")  # 25,600 steps
    size.press("Tab")
    bench.click("Score only")
    bench.wait_until("wb.jobs.current is not None and wb.jobs.current.label == 'evaluation'")
    bench.click("Stop")
    bench.wait_until("wb.jobs.current is None")
    bench.root.locator(".qdq-foot").get_by_text("Stopped: evaluation").wait_for()
    bench.screenshot("score_stopped")
    assert bench.root.locator(".qdq-error:visible").count() == 0
    assert bench.value("wb.stage") == "calibrated"


def test_data_of_another_shape_are_named_in_the_pane(notebook, index):
    cropped = "train_data=(samples[0][:, :3, :3], samples[1]), "
    notebook.replace_and_run(index, ROUNDING.replace("train_data=samples, ", f"{cropped}calibration_data=samples[0], "))
    bench = BenchPage(notebook, index, SCREENSHOTS)
    bench.open("Training")
    bench.click("Fine-tune")
    said = bench.root.locator(".qdq-error:visible", has_text="train_data and the model do not fit")
    said.wait_for()
    assert "please report" not in said.inner_text()


def test_a_cell_that_runs_again_closes_the_bench_of_before(notebook, index):
    notebook.ask("from ipywidgets.widgets.widget import _instances; benches = []")
    counts = []
    for _ in range(3):
        notebook.replace_and_run(index, f"{CODE}\nbenches.append(wb)\nwb")
        bench = BenchPage(notebook, index, SCREENSHOTS)
        counts.append(int(bench.value("len(_instances)")))
        bench.page.wait_for_function(f"async () => await ({OPEN_IN_PAGE})() === {counts[-1]}")
    assert len(set(counts)) == 1
    assert bench.value("[bench._view is None for bench in benches]") == "[True, True, False]"
    bench.badge("block1_conv", "weight").click()
    bench.wait_until("wb.history.position == 1")


def test_a_page_that_is_loaded_again_and_a_kernel_that_dies(notebook, index):
    notebook.replace_and_run(index, CODE)
    bench = BenchPage(notebook, index, SCREENSHOTS)
    assert bench.page.evaluate(PICTURE, index) is False  # there, and hidden
    apply_and_undo(bench)
    help_and_fit(bench)

    notebook.ask(CURVES)
    bench.open("Training")
    bench.page.wait_for_function(FILLS)
    bench.open("Variants")
    table = bench.root.locator(".qdq-scroll:visible", has_text="a variant with a longer name")
    room, box = bench.root.locator(".qdq-side").bounding_box(), table.bounding_box()
    assert box["x"] + box["width"] <= room["x"] + room["width"]
    assert table.evaluate("(el) => el.scrollWidth - el.clientWidth") <= 1
    bench.screenshot("variants_table")

    notebook.ask(STOPPABLE_WORK)
    notebook.save_and_reload()
    bench = BenchPage(notebook, index, SCREENSHOTS)
    bench.page.wait_for_function(FILLS)
    stop_the_work_that_went_on(bench)

    notebook.replace_and_run(index, ROUNDING)
    bench = BenchPage(notebook, index, SCREENSHOTS)
    notebook.ask("_ = wb.jobs.start(lambda: wb.fine_tune(epochs=100000), print)")
    bench.root.get_by_text("of 100000, batch").first.wait_for()
    bench.root.get_by_role("button", name="Whole page").click()
    bench.wait_until("wb.view.room.full_page")
    notebook.kill_kernel()
    banner = bench.root.get_by_role("alert").filter(has_text="The kernel is gone")
    banner.wait_for()
    banner.filter(has_text="ended with it: fine-tuning").wait_for()
    assert banner.count() == 1
    assert not bench.root.get_by_text("of 100000, batch").first.is_visible()
    leave_the_whole_page(bench)
    notebook.close_dialog()  # the whole page lay over it
    assert bench.root.evaluate(ICONS) == 0
    badge = bench.root.locator(".qdqw-badge.weight.all, .qdqw-badge.weight:not(.impossible)").first
    before = badge.get_attribute("class")
    badge.click()
    assert badge.get_attribute("class") == before
    assert bench.root.locator("button:enabled:visible").filter(has_text="Keep").count() == 0
    bench.open("Code & files")
    assert "spec.add('conv'" in bench.root.locator("textarea:visible").first.input_value()
    copy_the_code(bench)
    bench.screenshot("kernel_gone")
    reopen(bench, index)


def reopen(bench, index):
    """Without the widgets of the kernel that is gone, the saved notebook shows the picture."""
    notebook = bench.notebook
    notebook.save()
    notebook.load_again()
    notebook.scroll_to(index)
    notebook.page.wait_for_function(PICTURE, arg=index, timeout=60_000)
    notebook.page.screenshot(path=SCREENSHOTS / "reopened.png")
    assert bench.page.locator(".qdq-bench").count() == 0


@pytest.mark.parametrize("width", [750, 436])
@pytest.mark.parametrize("targets", [("tensorrt", "onnxruntime"), ("tensorrt", "tensorrt")])
def test_the_table_of_variants_is_not_cut_on_a_laptop(browser, width, targets):
    """In 960 pixels of a laptop, less what JupyterLab takes at both sides of a cell; and beside two graphs."""
    name = "sparse_categorical_accuracy"
    times = types.SimpleNamespace(total_ms=1.234, speedup=2.11, baseline=types.SimpleNamespace(total_ms=3.2))
    work = types.SimpleNamespace(latency=times)
    variants = [
        Variant(called, BenchState(None, (), "full", target), 12, 5, 6, name, 0.98, 123456, "fine-tuned", 0.873, work)
        for called, target in zip(("all int8, percentile 99.9", "head in float"), targets, strict=True)
    ]
    table = variants_table(variants, Curves(Scores(0.1, {name: 0.99})))
    page = browser.new_page(viewport={"width": width, "height": 400})
    pane = f'<div class="qdq-side"><div class="qdq-pane">{table}</div></div>'
    page.set_content(f'{style_sheet(400)}<div class="qdq-bench">{pane}</div>')
    drawn = page.locator(".qdq-scroll")
    page.screenshot(path=SCREENSHOTS / f"variants_{width}_{len(set(targets))}.png")
    assert drawn.evaluate("it => it.scrollWidth - it.clientWidth") == 0
    assert page.locator("td", has_text="fine-tuned").first.is_visible()
    page.close()
