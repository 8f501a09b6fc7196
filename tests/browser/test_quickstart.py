"""The quickstart notebook in a real JupyterLab, with a mouse and a keyboard."""

import itertools
import re

import pytest
from browser.bench_page import SIDE_PANES, WORK_PANES, BenchPage, PageWatch
from browser.conftest import SCREENSHOTS
from browser.jupyter import text_of

pytestmark = pytest.mark.slow

# On all images, `make notebooks` runs the notebook.
FEWER = "x_train, y_train, x_test, y_test = x_train[:256], y_train[:256], x_test[:128], y_test[:128]"


def run_all(notebook):
    data = notebook.index_of("digits = load_digits()")
    for index, kind in enumerate(notebook.kinds):
        if kind == "code":
            output = text_of(notebook.run(index))
            assert "NOT verified" not in output
        if index == data:
            notebook.ask(FEWER)


def click_a_layer_and_a_badge(bench):
    """The inspector tells about the layer; the plan changes on the page and in the kernel; Ctrl-Z takes it back."""
    bench.layer("stem_conv").locator("text.title").click()
    bench.root.locator(".qdq-title", has_text="stem_conv").wait_for()
    bench.screenshot("inspector")
    assert bench.value("wb.plan.for_layer('stem_conv').quantize_input") == "True"
    bench.badge("stem_conv", "input").click()
    bench.wait_until("not wb.plan.for_layer('stem_conv').quantize_input")
    bench.root.locator(".qdq-verdict.qdq-float, .qdq-verdict.qdq-partial").first.wait_for()
    bench.root.locator(".qdqw-diffline button", has_text="now in float").click()
    bench.root.locator(".qdqw-diff li button", has_text="stem_conv in float, was in INT8").click()
    bench.root.locator(".qdq-title", has_text="stem_conv").wait_for()
    bench.root.locator(".qdqw-pill.ghost").first.wait_for()
    bench.screenshot("toggled")
    bench.root.locator(".qdqw-diffline button", has_text="now in float").click()
    bench.page.keyboard.press("Control+z")
    bench.wait_until("wb.plan.for_layer('stem_conv').quantize_input")
    bench.root.locator(".qdq-verdict.qdq-int8").first.wait_for()


def add_an_entry_and_undo_it(bench):
    bench.open("Spec")
    bench.root.locator("input[placeholder^=conv1]").fill("block2_add")
    bench.root.locator("input[placeholder^='inputs:']").fill("0")
    bench.click("Add")
    bench.wait_until("[e.name for e in wb.spec.layers] == ['block2_add']")
    bench.screenshot("spec")
    bench.open("History")
    bench.screenshot("history")
    bench.root.locator("button[title^=Undo]:visible").first.click()
    bench.wait_until("len(wb.spec) == 0")


def apply_a_case_after_its_preview(bench):
    bench.open("Cases")
    bench.click("ResNetV1QDQCase")  # its chip: takes it away
    bench.wait_until("not wb.state.cases")
    option = bench.page.locator("option", has_text="BNQDQCase")
    bench.root.locator("select:visible", has=option).first.select_option("MobileNetQDQCase")
    bench.root.locator("p:visible", has_text="MobileNet").first.wait_for()  # other cases would add as many
    bench.root.get_by_text(re.compile(r"Against the present plan: .*(pairs? more|inputs? changed)")).first.wait_for()
    bench.screenshot("cases")
    bench.click("Apply")
    bench.wait_until("[c.name for c in wb.state.cases] == ['MobileNetQDQCase']")
    for title in ("Target", "Variants"):
        bench.open(title)
        bench.screenshot(title.lower())
    bench.open("Inspector")


def look_at_values(bench):
    bench.open("Values")
    bench.layer("stem_conv").locator("text.title").click()
    bench.click("Of the selected layer")
    bench.root.locator(".qdq-figure:visible .annotation-text", has_text="stem_conv/kernel").first.wait_for()
    bench.screenshot("values")


def stop_a_long_run(bench):
    """A run of a thousand epochs ends after the batch in which it is stopped; what it learned is kept."""
    bench.open("Training")
    bench.root.locator("input[placeholder='name of the run']").fill("stopped early")
    epochs = bench.field("Epochs")
    epochs.fill("1000")
    epochs.press("Tab")
    bench.click("Fine-tune")
    bench.wait_until("wb.curves.runs[-1].name == 'stopped early' and wb.curves.runs[-1].loss_trace")
    bench.click("Stop")
    bench.wait_until("wb.jobs.current is None")
    assert bench.value("wb.curves.runs[-1].state") == "stopped"
    bench.root.locator(".qdq-figure:visible .legendtext", has_text="stopped early").wait_for()


def find_sensitive_layers_and_leave_one_in_float(bench):
    bench.open("Sensitivity")
    bench.click("Find sensitive layers")
    bench.wait_until("wb.sensitivity_report is not None and wb.jobs.current is None")
    bench.root.locator(".qdq-figure:visible .main-svg").first.wait_for()
    bench.click("Colour the graph")
    bench.root.locator(".qdqw-legend .qdqw-scale", has_text="dB").wait_for()
    assert bench.layer("stem_conv").locator(".qdqw-stripe.metric").get_attribute("fill").startswith("#")
    bench.screenshot("sensitivity")
    bench.click("Leave them in float")
    bench.wait_until("'most sensitive' in wb.history.present.label")
    worst = bench.value("wb.sensitivity_report.ranked()[0].layer")
    assert bench.value(f"wb.plan.for_layer({worst!r}).quantize_weight") == "False"
    bench.root.locator(".qdqw-legend .qdqw-scale", has_text="of an earlier plan").wait_for()
    bench.root.locator("button[title^=Undo]:visible").first.click()
    bench.wait_until("'most sensitive' not in wb.history.present.label")
    option = bench.page.locator("option", has_text="precision on the target")
    bench.root.locator("select:visible", has=option).first.select_option("what the plan quantizes")
    bench.wait_until("wb.coloring == 'plan'")


def measure_the_speed(bench):
    """The pane's tables, the bar, and the graph's colours tell one measurement."""
    bench.open("Speed")
    bench.click("Measure the speed")
    bench.wait_until("wb.latency is not None and wb.jobs.current is None")
    bench.root.locator(".qdq-figure:visible .main-svg").first.wait_for()
    shown = bench.value("f'x{wb.latency.speedup:.2f}, {wb.latency.total_ms:.3g} ms'")
    bench.root.locator(".qdq-bar .qdq-chip", has_text=shown).wait_for()
    bench.root.locator("button:visible", has_text="Colour the graph").click()
    bench.root.locator(".qdqw-legend .qdqw-scale", has_text="ms").wait_for()
    bench.screenshot("speed")


def find_the_causes(bench):
    """The pane's table says what the diagnosis found, and leads to the layer."""
    bench.open("Diagnosis")
    bench.click("Find the causes")
    bench.wait_until("wb.diagnosis is not None and wb.jobs.current is None")
    bench.root.locator("td:visible", has_text=bench.value("wb.diagnosis.causes[0].evidence")).first.wait_for()
    bench.click("Show the layer")
    bench.wait_until("list(wb.view.graph.selection) == [wb.diagnosis.causes[0].layer]")
    bench.screenshot("diagnosis")
    bench.layer("stem_conv").locator("text.title").click()  # what was selected before
    bench.wait_until("list(wb.view.graph.selection) == ['stem_conv']")


def nothing_is_too_wide_on_a_laptop(bench):
    """Open every pane with what was measured in it: test_room.py looks at an empty bench."""
    bench.page.set_viewport_size({"width": 1280, "height": 1900})
    bench.page.wait_for_timeout(400)
    for side, work in zip(itertools.cycle(SIDE_PANES), WORK_PANES, strict=False):
        bench.open(side)
        bench.open(work)
        assert bench.root.evaluate("(el) => el.scrollWidth - el.clientWidth") <= 1, (side, work)


def test_the_quickstart_runs_and_the_bench_does_what_is_clicked(open_notebook):
    notebook = open_notebook("01_quickstart.ipynb")
    watch = PageWatch(notebook.page)
    run_all(notebook)
    bench = BenchPage(notebook, notebook.index_of("wb = Workbench("), SCREENSHOTS)
    bench.screenshot("bench")
    click_a_layer_and_a_badge(bench)
    add_an_entry_and_undo_it(bench)
    apply_a_case_after_its_preview(bench)
    look_at_values(bench)
    stop_a_long_run(bench)
    measure_the_speed(bench)
    find_the_causes(bench)
    find_sensitive_layers_and_leave_one_in_float(bench)
    nothing_is_too_wide_on_a_laptop(bench)
    watch.assert_nothing_was_wrong()
