"""The graph pane in a real JupyterLab, kernel round trip included, next to the same graph in Netron and Model Explorer.

    python benchmarks/graph_widget_lab.py [--rounds 20] [--model EfficientNetB7] [--explorer /path/to/python]

First paint: from the kernel's message that opens the widget to the painted graph, of a fresh page each time. Click:
from the click on a badge to the painted frame that shows Python's answer (message to the kernel, new plan, difference
back, paint); the badge painted ahead of that answer is listed apart. Pan: one frame per turn of the wheel.

Netron draws a file of the same nodes and edges without weights, Model Explorer the same nodes and edges in blocks by
the first part of their names, both served on the loopback address; their first paint is from opening the page, which
loads the program too, to the drawn graph. `--explorer` is a Python with the package ai-edge-model-explorer. To reach:
first paint <= 200 ms, click <= 80 ms. Needs JupyterLab, Playwright and a Chromium.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
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
PAINTED = """() => {
  window.painted = () => new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done(performance.now());
    channel.port2.postMessage(0);
  }));
}"""
WATCH = """() => {
  const kernel = window.testNotebook.sessionContext.session.kernel;
  window.opened = 0;
  kernel.iopubMessage.connect((_, message) => {
    if (message.header.msg_type === 'execute_result') window.opened = performance.now();
  });
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
  // The revision is set in the same task as the badge.
  const answered = new Promise((done) => new MutationObserver((_, observer) => {
    observer.disconnect();
    done();
  }).observe(root, {attributeFilter: ['data-revision']}));
  const start = performance.now();
  for (const type of ['pointerdown', 'pointerup']) badge.dispatchEvent(new PointerEvent(type, {bubbles: true}));
  const ahead = await window.painted() - start;
  await answered;
  return [ahead, await window.painted() - start];
}"""
# The median frame of many: those of the start are slower, and a user's hand makes a hundred of them.
PAN = """async (selector) => {
  const picture = document.querySelector(selector);
  const {x, y, width, height} = picture.getBoundingClientRect();
  const settings = {deltaY: 7, clientX: x + width / 2, clientY: y + height / 2, bubbles: true, cancelable: true};
  const frames = [];
  for (let k = 0; k < 200; k++) {
    const start = performance.now();
    picture.dispatchEvent(new WheelEvent('wheel', settings));
    frames.push(await window.painted() - start);
  }
  return frames.sort((a, b) => a - b)[100];
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


def nodes_file(path: pathlib.Path, model: str) -> None:
    """Write the model's nodes and edges for `peers/explorer_server.py`."""
    graph = qdq.build_graph(getattr(keras.applications, model)(weights=None))
    made = {tensor: (node.name, k) for node in graph.nodes for k, tensor in enumerate(node.outputs)}
    nodes = [
        {
            "name": node.name,
            "class": node.class_name,
            "namespace": node.name.split("_")[0] if "block" in node.name else "",
            "edges": [[*made[tensor], k] for k, tensor in enumerate(node.inputs) if tensor in made],
        }
        for node in graph.nodes
    ]
    path.write_text(json.dumps(nodes), encoding="utf-8")


def lab_rounds(browser: Any, rounds: int, paints: int, model: str) -> dict[str, list[float]]:
    """Return the figures in JupyterLab."""
    found: dict[str, list[float]] = {name: [] for name in ("first paint", "ahead", "click", "pan")}
    with tempfile.TemporaryDirectory() as folder:
        notebooks = pathlib.Path(folder) / "notebooks"
        notebooks.mkdir()
        notebook(notebooks, model)
        with running_lab(notebooks) as (address, token):
            for number in range(paints):
                page = browser.new_page(viewport={"width": 1300, "height": 900})
                opened = Notebook(page, address, token, "measured.ipynb")
                opened.run(0)
                page.evaluate(PAINTED)
                page.evaluate(WATCH)
                opened.run(1)
                found["first paint"].append(page.evaluate("() => window.drawn"))
                page.wait_for_timeout(1500)
                for turn in range(rounds + 1 if number == 0 else 0):
                    ahead, click = answer_of(page, CLICK)
                    if turn:
                        found["ahead"].append(ahead)
                        found["click"].append(click)
                    page.wait_for_timeout(200)
                found["pan"].append(page.evaluate(PAN, ".qdqw-root svg[role=tree]"))
                page.close()
    return found


def peer_round(browser: Any, address: str, drawn: str, picture: str) -> tuple[float, float]:
    """Return the times from opening a page to its drawn graph, and of a frame while it is panned."""
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    session = page.context.new_cdp_session(page)  # Netron forbids `eval`, which `page.evaluate` needs

    def value(expression: str) -> Any:
        given = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        return session.send("Runtime.evaluate", given)["result"].get("value")

    # Netron's dialog about cookies would wait for a click.
    page.context.add_cookies([{"name": "consent", "value": str(int(time.time() * 1e3)), "url": address}])
    start = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.locator(drawn).first.wait_for(state="visible", timeout=60_000)
    value(f"({PAINTED})()")
    value("window.painted()")
    paint = (time.perf_counter() - start) * 1e3
    page.wait_for_timeout(1500)
    pan = value(f"({PAN})({json.dumps(picture)})")
    page.close()
    return paint, float(pan)


def netron_rounds(browser: Any, rounds: int, model: str) -> list[tuple[float, float]]:
    """Return first paints and frames of Netron."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "graph.onnx"
        graph_file(path, model)
        server = NetronServer()
        address = server.url(server.publish(path))
        found = [peer_round(browser, address, "#target .node", "#target") for _ in range(rounds)]
        server.close()
    return found


@contextlib.contextmanager
def explorer(python: pathlib.Path, model: str) -> Iterator[str]:
    """Serve the model in Model Explorer, and return the address of its page."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "nodes.json"
        nodes_file(path, model)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        script = ROOT / "benchmarks" / "peers" / "explorer_server.py"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen([python, script, path, str(port)], **quiet) as server:  # noqa: S603 - a file of this folder
            for _ in range(300):
                with contextlib.suppress(OSError), socket.create_connection(("localhost", port)):
                    break
                time.sleep(0.1)
            yield f'http://localhost:{port}/?data={{"models":[{{"url":"graphs://model/0"}}]}}'
            server.terminate()


def explorer_rounds(browser: Any, rounds: int, model: str, python: pathlib.Path) -> list[tuple[float, float]]:
    """Return first paints and frames of Model Explorer, drawn when it tells the number of its nodes."""
    with explorer(python, model) as address:
        return [peer_round(browser, address, "text=op node count", "canvas.main") for _ in range(rounds)]


def main() -> None:
    """Measure and print."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--paints", type=int, default=7, help="fresh pages")
    parser.add_argument("--model", default="EfficientNetB7", help="a name of keras.applications")
    parser.add_argument("--explorer", type=pathlib.Path, help="a Python with ai-edge-model-explorer")
    options = parser.parse_args()
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--enable-unsafe-swiftshader"]
        browser = playwright.chromium.launch(executable_path=chromium(), args=flags)
        found = lab_rounds(browser, options.rounds, options.paints, options.model)
        figures = {
            "first paint": found["first paint"],
            "badge painted ahead": found["ahead"],
            "click to badge from Python": found["click"],
            "frame while panning": found["pan"],
        }
        peers = {"Netron": netron_rounds(browser, options.paints, options.model)}
        if options.explorer is not None:
            peers["Model Explorer"] = explorer_rounds(browser, options.paints, options.model, options.explorer)
        for peer, turns in peers.items():
            paints, pans = zip(*turns, strict=True)
            figures |= {f"{peer}: page opened to first paint": paints, f"{peer}: frame while panning": pans}
        browser.close()
    print(f"{options.model} in JupyterLab: median (least to most), ms")
    for name, values in figures.items():
        print(f"  {name:44}{statistics.median(values):8.0f} ({min(values):.0f} to {max(values):.0f})")
    paint, click = (statistics.median(found[name]) for name in ("first paint", "click"))
    print(f"first paint {paint / 200:.2f} of 200 ms, click {click / 80:.2f} of 80 ms")
    sys.exit(0 if paint <= 200 and click <= 80 else 1)


if __name__ == "__main__":
    main()
