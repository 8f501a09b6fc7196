"""The bench in Notebook 7, by keyboard alone, and what a screen reader is told."""

import pytest
from browser.bench_page import BenchPage
from browser.conftest import SCREENSHOTS

pytestmark = pytest.mark.slow

CODE = """
import numpy as np
x = image = keras.Input((8, 8, 3), name='image')
for name in ('first', 'second', 'third'):
    x = keras.layers.ReLU(name=name + '_relu')(keras.layers.Conv2D(2, 3, padding='same', name=name)(x))
net = keras.Model(image, keras.layers.Add(name='sum')([x, x]), name='chain')
net.compile('adam', 'mse')
samples = tuple(np.random.default_rng(0).normal(size=(8, 8, 8, width)).astype('float32') for width in (3, 2))
wb = Workbench(net, train_data=samples, validation_data=samples, target='onnxruntime')
wb.effects.measuring = False
wb
"""
FOCUSED = """() => {
  const at = document.activeElement;
  return at.closest('.qdq-bench') ? at.ariaLabel || at.title || at.textContent.trim() : at.localName;
}"""
# What a keyboard reaches and presses in the panes: the tab, the button, and what is then so.
JOB = (
    ("Calibration", "Calibrate", "wb.calibration is not None"),
    ("Sensitivity", "Find sensitive layers", "wb.sensitivity_report is not None"),
    ("Training", "Fine-tune", "wb.stage == 'fine-tuned'"),
    ("Export", "Export", "len(wb.exports) == 1"),
)
UNNAMED = """(root) => [...root.querySelectorAll('button, select, input, textarea, [role=button], [tabindex="0"]')]
  .filter((el) => el.checkVisibility() && !['presentation', 'none'].includes(el.getAttribute('role')))
  .filter((el) => !(el.getAttribute('aria-label') || el.title || el.textContent.trim() || el.placeholder
    || el.labels?.length || el.closest('[title]') || el.getAttribute('aria-labelledby')))
  .map((el) => el.outerHTML.slice(0, 160))"""


def focused_label(bench):
    """Return what a screen reader says of the place of the focus."""
    return bench.page.evaluate(
        "() => document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))"
        "?.getAttribute('aria-label') ?? ''"
    )


def reach_the_graph(bench):
    """From the tool bar's first field, Tab leads to the picture, and a ring shows that it has the focus."""
    bench.root.locator("input[placeholder^=Find]").focus()
    for _ in range(20):
        bench.page.keyboard.press("Tab")
        if bench.page.evaluate("() => document.activeElement.getAttribute('role')") == "tree":
            break
    picture = bench.root.locator("svg[role=tree]")
    assert picture.evaluate("(el) => el === document.activeElement")
    assert picture.get_attribute("aria-label").startswith("Graph of the model chain")
    assert picture.evaluate("(el) => getComputedStyle(el.parentElement, '::after').borderTopStyle") == "solid"


def switch_and_undo(bench):
    press = bench.page.keyboard.press
    press("Home")
    press("ArrowDown")
    assert focused_label(bench).startswith("Conv2D first, output 8")
    assert focused_label(bench).endswith(", input quantized, weights quantized")
    stroke = bench.root.locator("g.qdqw-unit.focus .qdqw-ring").evaluate("(el) => getComputedStyle(el).stroke")
    assert stroke.startswith("rgb")
    press("w")
    bench.wait_until("not wb.plan.for_layer('first').quantize_weight")
    press("i")
    bench.wait_until("not wb.plan.for_layer('first').quantize_input")
    press("o")
    bench.wait_until("wb.plan.for_layer('first').quantize_output")
    bench.wait_for(
        lambda: "input float, weights float, output quantized" in focused_label(bench),
        "the label says what was pressed",
    )
    for done in range(3):
        press("Control+z")
        bench.wait_until(f"wb.history.position == {2 - done}")
    press("Control+Shift+z")
    bench.wait_until("wb.history.position == 1")


def search_and_ask_for_help(bench):
    press = bench.page.keyboard.press
    press("/")
    bench.page.keyboard.type("third")  # every letter goes to the first match, Enter to the next
    press("Enter")
    press("Escape")
    assert focused_label(bench).startswith("ReLU third_relu")
    press("?")
    bench.root.get_by_role("dialog", name="Keys and colours").wait_for()
    press("Escape")


def tab_until(bench, wanted, key="Tab"):
    """Press Tab until something that says just this has the focus."""
    passed = []
    for _ in range(60):
        bench.page.keyboard.press(key)
        passed.append(bench.page.evaluate(FOCUSED))
        if passed[-1] == wanted:
            return
    raise AssertionError(f"Tab does not reach {wanted!r}: {passed}")


def do_the_job(bench):
    """Calibrate, sweep, train and export; a button that was disabled meanwhile has the focus again."""
    tab_until(bench, "Inspector")
    shown = "Calibration"
    for title, button, condition in JOB:
        tab_until(bench, shown, "Shift+Tab" if title != shown else "Tab")
        for _ in range(9):
            if bench.page.evaluate(FOCUSED) == title:
                break
            bench.page.keyboard.press("ArrowRight")
        bench.page.keyboard.press("Enter")
        bench.root.locator("button:visible").filter(has_text=button).first.wait_for()
        tab_until(bench, button)
        bench.page.keyboard.press("Enter")
        bench.wait_until(f"{condition} and wb.jobs.current is None")
        bench.wait_for(lambda said=button: bench.page.evaluate(FOCUSED) == said, f"the focus is on {button} again")
        shown = title


def press_the_notebooks_letters(bench):
    """In command mode "x" cuts a cell and "dd" deletes one: not while the bench has the focus."""
    for key in ("x", "d", "d", "a", "m"):
        bench.page.keyboard.press(key)


def test_notebook_7_by_keyboard_alone(open_notebook):
    pytest.importorskip("notebook", reason="needs Notebook 7: pip install notebook")
    notebook = open_notebook("01_quickstart.ipynb", "notebook")
    index = notebook.index_of("import keras")
    notebook.run(index)
    notebook.replace_and_run(index, CODE)
    bench = BenchPage(notebook, index, SCREENSHOTS)
    reach_the_graph(bench)
    switch_and_undo(bench)
    do_the_job(bench)
    reach_the_graph(bench)
    search_and_ask_for_help(bench)
    press_the_notebooks_letters(bench)
    bench.root.locator(".lm-TabBar-tab.lm-mod-current").first.focus()
    bench.page.keyboard.press("ArrowRight")
    bench.page.keyboard.press("Enter")
    bench.wait_until("wb.view.side.widget.selected_index == 1")
    bench.root.get_by_role("button", name="Add").focus()
    press_the_notebooks_letters(bench)
    assert bench.page.evaluate("() => window.testNotebook.content.widgets.length") == len(notebook.kinds)

    bench.screenshot("notebook7")
    assert bench.root.evaluate(UNNAMED) == []
    items = bench.root.locator("[role=treeitem]")
    assert items.count() >= 7
    assert all(items.nth(k).get_attribute("aria-label") for k in range(items.count()))
