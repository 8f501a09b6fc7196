"""anywidget gives up a widget whose script is late; the bench goes on hearing from the kernel all the same."""

import json

import pytest
from browser.bench_page import BenchPage
from browser.conftest import SCREENSHOTS
from browser.jupyter import text_of

pytestmark = pytest.mark.slow

CODE = """
import json
from qdq_widgets.curves import Curves, Scores, TrainingRun
from qdq_widgets.panes.training import TrainingPane
x = image = keras.Input((8, 8, 3), name='image')
for name in ('first', 'second'):
    x = keras.layers.Conv2D(2, 3, padding='same', name=name)(x)
wb = Workbench(keras.Model(image, x, name='chain'), target='onnxruntime')
def train(runs):
    scores = [Scores(1 - value, {'accuracy': value}) for value in (0.9, 0.8)]
    done = [TrainingRun(f'QAT {k}', 'onnxruntime', 9, ((1.0, 0.2),), (1.0,), (scores[1],), 'done') for k in range(runs)]
    wb._training.curves = Curves(scores[0], scores[1], tuple(done))
    wb._events.tell('curves')
wb
"""
# Every script is late: a limit is over before anything can have been loaded.
EXPIRED = """
window.expired = 0;
AbortSignal.timeout = () => {
  const limit = new AbortController();
  queueMicrotask(() => limit.abort());
  window.expired += 1;
  return limit.signal;
};
"""
# What Python said while nobody listened: the figure has it, no message tells of it.
MISSED = """
from qdq_widgets.late import tell_again
figure = wb.view.pane(TrainingPane).figure
names = ['_send_restyle_msg', '_send_addTraces_msg', '_send_update_msg', '_send_relayout_msg']
figure.__dict__.update(dict.fromkeys(names, lambda *args, **kwargs: None))
train(4)
for name in names: del figure.__dict__[name]
"""
ASKED = "tell_again({'model': f'IPY_MODEL_{figure.model_id}'})"
LINES = """() => [...document.querySelectorAll('.js-plotly-plot')].filter((plot) => plot.data?.length)
  .map((plot) => plot.data.map((line) => line.name))"""


def drawn_lines(bench):
    """The names of the lines in every figure of the page."""
    return bench.page.evaluate(LINES)


def own_lines(bench):
    """The names of the lines in Python's figure."""
    return json.loads(bench.value("json.dumps([line.name for line in wb.view.pane(TrainingPane).figure.data])"))


def hears_from_python(bench):
    """Look at the graph, a figure and the whole page while Python changes them."""
    badge = bench.badge("second", "weight")
    was_on = "all" in badge.get_attribute("class").split()
    for _ in range(2):
        bench.notebook.ask("wb.toggle('second', 'weight')")
        was_on = not was_on
        bench.wait_for(lambda on=was_on: ("all" in badge.get_attribute("class").split()) is on, "the badge follows")
    bench.open("Training")
    for runs in (2, 3):
        bench.notebook.ask(f"train({runs})")
        bench.root.locator(".legendtext", has_text=f"QAT {runs - 1}").first.wait_for()
    bench.wait_for(lambda: drawn_lines(bench) == [own_lines(bench)], "each line is there once")
    bench.notebook.ask(MISSED)
    assert drawn_lines(bench) != [own_lines(bench)]
    bench.notebook.ask(ASKED)
    bench.wait_for(lambda: drawn_lines(bench) == [own_lines(bench)], "the figure is drawn anew")
    bench.notebook.ask("train(5)")
    bench.wait_for(lambda: drawn_lines(bench) == [own_lines(bench)], "and hears each message once")
    bench.notebook.ask("wb.view.room.full_page = True")
    bench.page.locator(".qdq-bench.qdq-full").wait_for()
    bench.notebook.ask("wb.view.room.full_page = False")
    bench.page.locator(".qdq-bench:not(.qdq-full)").wait_for()


def test_widgets_whose_scripts_are_late_hear_from_python(open_notebook, tmp_path):
    notebook = open_notebook("01_quickstart.ipynb")
    index = notebook.index_of("import keras")
    notebook.run(index)
    notebook.replace_and_run(index, CODE)
    notebook.ask("train(1); wb.view.work.open(TrainingPane)")
    notebook.page.add_init_script(EXPIRED)
    notebook.save_and_reload()
    bench = BenchPage(notebook, index, SCREENSHOTS)
    assert notebook.page.evaluate("window.expired") > 5
    hears_from_python(bench)

    notebook.replace_and_run(index, CODE)
    bench = BenchPage(notebook, index, SCREENSHOTS)
    hears_from_python(bench)
    badge = bench.badge("first", "weight")
    before = badge.get_attribute("class")
    badge.click()
    bench.wait_for(lambda: badge.get_attribute("class") != before, "a click is answered")
    folder = text_of(notebook.ask(f"wb.save({str(tmp_path / 'kept')!r}); print(repr(str(wb.saved_to)))")).strip()
    bench.screenshot("late_scripts")
    notebook.kill_kernel()
    notebook.close_dialog()
    bench.root.get_by_role("alert").filter(has_text=f"Workbench.load({folder}").wait_for()
