"""The graph pane in a real JupyterLab, kernel round trip included, next to the same graph in Netron.

    python benchmarks/graph_widget_lab.py [--rounds 20] [--model EfficientNetB7]

First paint: from the kernel's message that opens the widget to the painted graph. Click: from the click on a badge to
the badge redrawn from Python's answer (message to the kernel, new plan, difference back, paint); the badge painted
ahead of that answer is listed apart. Netron draws a file of the same nodes and edges without weights, served on the
loopback address. To reach: first paint <= 200 ms, click <= 80 ms. Needs JupyterLab, Playwright and a Chromium.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time
from typing import Any

import keras
import onnx

import qdq_workbench as qdq
from qdq_widgets.netron_server import NetronServer

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from browser.jupyter import Notebook, answer_of, chromium, running_lab  # noqa: E402 - the tests' own way to a JupyterLab

CELLS = [
    """import sys
sys.path[:0] = [{root!r}, {widgets!r}]
import keras
from qdq_widgets import Workbench
bench = Workbench(keras.applications.{model}(weights=None))
view = bench.view.graph""",
    "view",
]
WATCH = """() => {
  const kernel = window.testNotebook.sessionContext.session.kernel;
  window.opened = 0;
  kernel.iopubMessage.connect((_, message) => {
    if (message.header.msg_type === 'execute_result') window.opened = performance.now();
  });
  window.painted = () => new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done(performance.now());
    channel.port2.postMessage(0);
  }));
  window.drawn = new Promise((done) => new MutationObserver(async (_, observer) => {
    if (document.querySelector('.qdqw-unit') === null) return;
    observer.disconnect();
    done(await window.painted() - window.opened);
  }).observe(document.body, {childList: true, subtree: true}));
}"""
CLICK = """async () => {
  const root = document.querySelector('.qdqw-root');
  const badge = root.querySelector('.qdqw-unit:not(.block) .qdqw-badge.weight:not(.impossible)')
    ?? root.querySelector('.qdqw-badge.weight:not(.impossible)');
  const revision = () => Number(root.dataset.revision ?? 0);
  const before = revision();
  const start = performance.now();
  for (const type of ['pointerdown', 'pointerup']) badge.dispatchEvent(new PointerEvent(type, {bubbles: true}));
  const ahead = await window.painted() - start;
  while (revision() === before) await window.painted();
  return [ahead, await window.painted() - start];
}"""


def notebook(folder: pathlib.Path, model: str) -> None:
    """Write the notebook that is measured."""
    sources = [cell.format(root=str(ROOT), widgets=str(ROOT / "widgets"), model=model) for cell in CELLS]
    cells = [
        {"cell_type": "code", "id": f"c{k}", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
        for k, source in enumerate(sources)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    content = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (folder / "measured.ipynb").write_text(json.dumps(content))


def graph_file(path: pathlib.Path, model: str) -> None:
    """Write the model's nodes and edges as ONNX, without weights."""
    graph = qdq.build_graph(getattr(keras.applications, model)(weights=None))
    values = {
        name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, tensor.shape)
        for name, tensor in graph.tensors.items()
    }
    nodes = [
        onnx.helper.make_node(node.class_name, list(node.inputs), list(node.outputs), name=node.name, domain="keras")
        for node in graph.nodes
        if node.inputs
    ]
    inputs, outputs = [values[name] for name in graph.inputs], [values[name] for name in graph.outputs]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, graph.name, inputs, outputs)), path)


def lab_rounds(browser: Any, rounds: int, model: str) -> dict[str, float]:
    """Return the figures in JupyterLab: medians, and the one first paint."""
    with tempfile.TemporaryDirectory() as folder:
        notebooks = pathlib.Path(folder) / "notebooks"
        notebooks.mkdir()
        notebook(notebooks, model)
        with running_lab(notebooks) as (address, token):
            page = browser.new_page(viewport={"width": 1300, "height": 900})
            opened = Notebook(page, address, token, "measured.ipynb")
            opened.run(0)
            page.evaluate(WATCH)
            opened.run(1)
            paint = page.evaluate("() => window.drawn")
            page.wait_for_timeout(1500)
            turns = []
            for _ in range(rounds + 1):
                turns.append(answer_of(page, CLICK))
                page.wait_for_timeout(200)
            page.close()
    ahead, click = (statistics.median(turn[k] for turn in turns[1:]) for k in (0, 1))
    return {"first paint": paint, "badge painted ahead": ahead, "click to badge from Python": click}


def netron_rounds(browser: Any, rounds: int, model: str) -> float:
    """Return the median time from opening Netron's page to its painted graph."""
    times = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "graph.onnx"
        graph_file(path, model)
        server = NetronServer()
        address = server.url(server.publish(path))
        for _ in range(rounds):
            page = browser.new_page(viewport={"width": 1300, "height": 900})
            # Netron's dialog about cookies would wait for a click.
            page.context.add_cookies([{"name": "consent", "value": str(int(time.time() * 1e3)), "url": address}])
            start = time.perf_counter()
            page.goto(address)
            page.locator("#target .node").first.wait_for(state="visible", timeout=60_000)
            times.append((time.perf_counter() - start) * 1e3)
            page.close()
        server.close()
    return statistics.median(times)


def main() -> None:
    """Measure and print."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--model", default="EfficientNetB7", help="a name of keras.applications")
    options = parser.parse_args()
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=chromium(), args=flags)
        figures = lab_rounds(browser, options.rounds, options.model)
        few = max(3, options.rounds // 4)
        figures["Netron, the same graph: first paint"] = netron_rounds(browser, few, options.model)
        browser.close()
    print(f"{options.model} in JupyterLab, medians of {options.rounds} rounds (first paint: one)")
    for name, value in figures.items():
        print(f"  {name:40}{value:8.0f} ms")
    paint, click = figures["first paint"], figures["click to badge from Python"]
    print(f"first paint {paint / 200:.2f} of 200 ms, click {click / 80:.2f} of 80 ms")
    sys.exit(0 if paint <= 200 and click <= 80 else 1)


if __name__ == "__main__":
    main()
