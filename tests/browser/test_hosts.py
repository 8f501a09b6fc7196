"""The bench outside of JupyterLab: the whole of it in Voila and in marimo."""

import contextlib
import os
import socket
import subprocess
import sys
import textwrap
import time

import pytest
from browser.bench_page import BenchPage
from browser.conftest import SCREENSHOTS, VIEWPORT
from browser.jupyter import PATIENCE, free_port, patient_page

pytestmark = pytest.mark.slow

BENCH = """
import keras
import numpy as np
from qdq_widgets import Workbench

keras.utils.set_random_seed(0)
x = image = keras.Input((8, 8, 3), name='image')
x = keras.layers.Conv2D(2, 3, name='stem_conv')(x)
x = keras.layers.ReLU(name='stem_relu')(x)
x = keras.layers.Dense(3, activation='softmax', name='head')(keras.layers.Flatten(name='flat')(x))
net = keras.Model(image, x, name='hosted')
net.compile('adam', 'sparse_categorical_crossentropy', metrics=['accuracy'])
samples = np.random.default_rng(0).normal(size=(64, 8, 8, 3)).astype('float32'), np.arange(64) % 3
wb = Workbench(net, train_data=samples, validation_data=samples, target='onnxruntime')
"""
# A cell that names the graph as marimo's element runs again with every selection.
MARIMO = f"""
import marimo

app = marimo.App()


@app.cell
def _():
{textwrap.indent(BENCH, "    ")}
    wb
    return (wb,)


@app.cell
def _(wb):
    import marimo as mo

    graph = mo.ui.anywidget(wb.view.graph)
    graph
    return graph, mo


@app.cell
def _(graph, mo, wb):
    mo.md(f"Selected: {{', '.join(graph.value['selection'])}}. Pairs: {{len(wb.plan.tensors)}}.")


@app.cell
def _(mo, wb):
    def work(_):
        wb.calibrate()
        wb.fine_tune(1)
        wb.sensitivity()
        wb.color_by("sensitivity")
        return wb.export("hosted.onnx").passed

    job = mo.ui.button(label="Do the job", on_click=work)
    job
    return (job,)


@app.cell
def _(job, mo, wb):
    mo.md(f"Verified: {{job.value}}, {{wb.stage}}.")
"""


class Shown:
    """A page that shows a bench and no notebook; see `BenchPage`."""

    def __init__(self, page):
        self.page = page

    def scroll_to(self, index):
        pass


@pytest.fixture
def open_page(browser, tmp_path):
    """Return a function that starts a server on a file, and opens its page."""
    with contextlib.ExitStack() as ends:

        def opened(file, text, *command):
            path, port = tmp_path / file, free_port()
            path.write_text(text, encoding="utf-8")
            log = ends.enter_context((tmp_path / "log").open("wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", *(part.format(path=path, port=port) for part in command)],
                env={**os.environ, "HOME": str(tmp_path), "TF_CPP_MIN_LOG_LEVEL": "2"},
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=tmp_path,
            )
            ends.callback(process.wait)
            ends.callback(process.terminate)
            wait_for_answer(process, port)
            page = patient_page(browser, viewport=VIEWPORT)
            said = []  # pytest shows what is printed only where a test fails
            page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error: said.append(f"error: {error}"))
            ends.callback(page.close)
            ends.callback(lambda: print(*said, (tmp_path / "log").read_text(encoding="utf-8"), sep="\n"))
            page.goto(f"http://127.0.0.1:{port}/")
            return page

        yield opened


def wait_for_answer(process, port):
    """A server that imports for a while does not listen yet."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.2)


def test_the_whole_bench_in_voila(open_page):
    pytest.importorskip("voila", reason="needs Voila: pip install voila")
    import nbformat  # takes seconds

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(BENCH + "wb")])
    text = nbformat.writes(notebook)
    # Voila drops what a cell displays if its messages take more than four seconds, as a bench may on a busy machine.
    options = ("--no-browser", "--port={port}", "--Voila.ip=127.0.0.1", f"--VoilaExecutor.iopub_timeout={PATIENCE}")
    page = open_page("bench.ipynb", text, "voila", "{path}", *options)
    bench = BenchPage(Shown(page), 0, SCREENSHOTS)
    bench.click("Calibrate")
    bench.root.locator(".qdq-chip", has_text="PTQ").wait_for()
    bench.badge("stem_conv", "weight").click()
    bench.layer("stem_conv").locator(".qdqw-badge.weight.none").wait_for()
    bench.root.locator(".qdq-verdict", has_text="its weight 'kernel' stays in float").wait_for()
    bench.open("Sensitivity")
    bench.click("Find sensitive layers")
    bench.root.locator(".main-svg:visible").first.wait_for()
    bench.open("Export")
    bench.click("Export")
    bench.root.locator(".qdq-pane:visible", has_text="Verified").wait_for()
    bench.screenshot("voila")


def panes_in_marimo(page):
    """Calibrate, train and export by the bench's own panes, which marimo shows as plain HTML."""
    panes = page.locator(".qdq-mirror")

    def click(text):
        panes.get_by_role("button", name=text, exact=True).locator("visible=true").first.click()

    def open_pane(title):
        panes.get_by_role("tab", name=title, exact=True).click()

    panes.locator(".qdq-title", has_text="head").wait_for()
    click("Calibrate")
    panes.locator(".qdq-chip", has_text="PTQ").wait_for()
    panes.get_by_text("The figure is drawn in JupyterLab").wait_for()
    open_pane("Training")
    panes.get_by_label("Epochs").fill("1")
    click("Fine-tune")
    panes.locator("td", has_text="done").wait_for()
    open_pane("Export")
    click("Export")
    panes.locator(".qdq-pane:visible", has_text="Verified").wait_for()
    open_pane("Variants")
    click("Keep")
    panes.locator("td", has_text="QAT").first.wait_for()
    assert panes.locator(".qdq-error:visible").count() == 0


def test_the_whole_bench_in_marimo(open_page):
    pytest.importorskip("marimo", reason="needs marimo: pip install marimo")
    command = ("marimo", "-q", "run", "{path}", "--headless", "--no-token", "--host=127.0.0.1", "--port={port}")
    page = open_page("bench.py", MARIMO, *command)
    graphs = page.locator(".qdqw-root")
    for graph in (graphs.nth(0), graphs.nth(1)):  # of the bench itself, and as an element of marimo's
        graph.locator("g.qdqw-unit", has_text="stem_conv").locator(".qdqw-badge.weight").wait_for()
    page.get_by_text("Pairs: 5.").wait_for()
    graphs.nth(0).locator("g.qdqw-unit", has_text="stem_conv").locator(".qdqw-badge.weight").click()
    for graph in (graphs.nth(0), graphs.nth(1)):
        graph.locator("g.qdqw-unit", has_text="stem_conv").locator(".qdqw-badge.weight.none").wait_for()
    graphs.nth(1).get_by_text("-2 pairs, 2 layers now in float", exact=True).wait_for()
    graphs.nth(1).locator("g.qdqw-unit", has_text="head").locator("text.title").click()
    page.get_by_text("Selected: head. Pairs: 3.").wait_for()
    panes_in_marimo(page)
    graphs.nth(0).get_by_role("button", name="Undo").first.click()
    graphs.nth(1).locator("g.qdqw-unit", has_text="stem_conv").locator(".qdqw-badge.weight.all").wait_for()
    page.get_by_text("Verified: None, planned.").wait_for()
    page.get_by_role("button", name="Do the job").click()  # a button of marimo's calls methods of the bench
    page.get_by_text("Verified: True, fine-tuned.").wait_for()
    for graph in (graphs.nth(0), graphs.nth(1)):
        graph.locator(".qdqw-legend", has_text="sensitivity").wait_for()
    page.screenshot(path=SCREENSHOTS / "marimo.png")
