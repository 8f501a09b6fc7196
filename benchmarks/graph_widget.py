"""The graph pane: what is sent, time to the first paint, time from a click to the redrawn badge, time to pan.

    python benchmarks/graph_widget.py [--rounds 20] [--chromium /usr/bin/chromium] [--json results.json]

Medians of interleaved rounds in headless Chromium (software rendering), the front end alone: Python's answer to a click
is measured apart and printed beside it, the kernel's message queue is not in it. To reach, kernel round trip included:
EfficientNetB7 first paint <= 200 ms, click to redrawn badge <= 80 ms. Needs `pip install playwright` and a Chromium.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import statistics
import sys
import time
from typing import Any

import keras
from rounds import record

import qdq_workbench as qdq
from qdq_widgets.graph_view import GraphView
from qdq_workbench.graph.model_graph import ModelGraph, Node, Tensor, Weight

BUNDLE = pathlib.Path(__file__).parents[1] / "widgets" / "qdq_widgets" / "static" / "graph_view.js"
PAGE = """<!doctype html><meta charset="utf-8"><body style="margin:0"><script type="module">
import widget from "./bundle.js";
const painted = () => new Promise((done) => requestAnimationFrame(() => {
  const channel = new MessageChannel();
  channel.port1.onmessage = () => done(performance.now());
  channel.port2.postMessage(0);
}));
// The median: the frames right after the first paint are slower, and a user's hand makes a hundred of them.
const frames = async (count, work) => {
  const times = [];
  for (let k = 0; k < count; k++) {
    const start = performance.now();
    work();
    times.push(await painted() - start);
  }
  return times.sort((a, b) => a - b)[count >> 1];
};
window.measure = async (text) => {
  document.body.replaceChildren();
  const host = document.body.appendChild(document.createElement("div"));
  const start = performance.now();
  const values = JSON.parse(text);
  const listeners = {};
  const model = {
    get: (name) => values[name], set: (name, value) => { values[name] = value; }, save_changes() {}, send() {},
    on: (event, callback) => (listeners[event] ??= new Set()).add(callback),
    off: (event, callback) => listeners[event]?.delete(callback),
  };
  const { initialize, render } = widget();
  initialize({ model });
  const end = render({ model, el: host });
  const paint = (await painted()) - start;
  const units = host.querySelectorAll(".qdqw-unit").length;
  const clickBadge = async () => {
    const badge = host.querySelector(".qdqw-badge.weight:not(.impossible)");
    const clicked = performance.now();
    for (const type of ["pointerdown", "pointerup"]) badge.dispatchEvent(new PointerEvent(type, { bubbles: true }));
    return (await painted()) - clicked;
  };
  const click = await clickBadge();
  const changed = performance.now();
  const plan = values.plan_state;
  const node = plan.states.findIndex((state) => /^1:1/.test(state));
  const message = { type: "plan", revision: plan.revision + 1, target: plan.target, mode: plan.mode,
    states: { [node]: "0:0:0" }, why: {}, pairs: {} };
  for (const callback of listeners["msg:custom"]) { callback(message); callback({ type: "done", id: 1 }); }
  const answer = (await painted()) - changed;
  const picture = host.querySelector("svg[role=tree]");
  picture.focus();
  const wheel = () => picture.dispatchEvent(new WheelEvent("wheel", { deltaY: 97, bubbles: true, cancelable: true }));
  const pan = await frames(200, wheel);
  const opening = performance.now();
  host.querySelector("[aria-label='Open all blocks']").click();
  const open = (await painted()) - opening;
  const clickOpen = await clickBadge();
  const panOpen = await frames(200, wheel);
  end();
  return { paint, click, answer, pan, open, clickOpen, panOpen, units };
};
window.isReady = true;
</script>"""


def application(name: str) -> qdq.PlacementPlan:
    """Return the plan of a `keras.applications` model without weights."""
    return qdq.plan_placement(getattr(keras.applications, name)(weights=None))


def deep(blocks: int) -> qdq.PlacementPlan:
    """Return the plan of a residual network of `blocks` blocks with four layers each."""
    shape = (None, 56, 56, 64)
    nodes = [Node("image", "image", "InputLayer", outputs=("image",))]
    kernel = (Weight("kernel", (3, 3, 64, 64)),)
    for k in range(blocks):
        last = nodes[-1].name
        for part, kind in (("conv", "Conv2D"), ("bn", "BatchNormalization"), ("relu", "Activation"), ("add", "Add")):
            name = f"stage{k // 30}_block{k}_{part}"
            inputs = (nodes[-1].name, last) if kind == "Add" else (nodes[-1].name,)
            weights = kernel if kind == "Conv2D" else ()
            nodes.append(Node(name, name, kind, inputs=inputs, outputs=(name,), weights=weights))
    tensors = {node.name: Tensor(node.name, shape, "float32", node.name) for node in nodes}
    return qdq.plan_placement(ModelGraph("deep", tuple(nodes), tensors, ("image",), (nodes[-1].name,)))


def python_side(plan: qdq.PlacementPlan, rounds: int) -> tuple[dict[str, Any], dict[str, float]]:
    """Return what the page is given, and Python's times: making the view, and answering a click."""
    start = time.perf_counter()
    view = GraphView(plan, height=700)
    made = time.perf_counter() - start
    view.send = lambda *_, **__: None
    layer = next(p.layer for p in plan.placements if p.site == "weight")
    spec = qdq.QuantizationSpec()
    spec.add(layer, quantize_weight=False)
    answers = []
    for turn in range(rounds):
        start = time.perf_counter()
        view.set_plan(qdq.plan_placement(plan.graph, quantization_spec=None if turn % 2 else spec))
        answers.append(time.perf_counter() - start)
    names = ("graph", "plan_state", "colors", "selection", "height", "editable", "can_undo", "can_redo", "svg_text")
    values = {name: getattr(view, name) for name in names}
    return values, {"view made": made * 1e3, "re-plan and diff": statistics.median(answers) * 1e3}


def browser_side(pages: dict[str, str], rounds: int, chromium: str) -> dict[str, list[dict[str, float]]]:
    """Return the times of every round by graph; graphs take turns, so that a busy moment hits them alike."""
    from playwright.sync_api import sync_playwright

    results: dict[str, list[dict[str, float]]] = {name: [] for name in pages}
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        context = browser.new_context(viewport={"width": 1100, "height": 800})
        context.route("**/*", lambda route: route.fulfill(body=PAGE, content_type="text/html"))
        script = BUNDLE.read_text(encoding="utf-8")
        context.route("**/bundle.js", lambda route: route.fulfill(body=script, content_type="text/javascript"))
        for _ in range(rounds):
            for name, text in pages.items():
                page = context.new_page()  # a fresh one each time: nothing is compiled yet, as in a notebook
                page.goto("http://graph.invalid/")
                page.wait_for_function("window.isReady")
                results[name].append(page.evaluate("(text) => window.measure(text)", text))
                page.close()
        browser.close()
    return results


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--chromium", default=shutil.which("chromium") or "chromium")
    parser.add_argument("--json", type=pathlib.Path, help="also write the figures here")
    options = parser.parse_args()
    plans = {
        "ResNet50": application("ResNet50"),
        "EfficientNetB7": application("EfficientNetB7"),
        "3,001 nodes": deep(750),
    }
    pages, figures = {}, {}
    for name, plan in plans.items():
        values, times = python_side(plan, options.rounds)
        pages[name] = json.dumps(values)
        figures[name] = {"nodes": len(plan.graph.nodes), "payload KB": len(pages[name]) / 1024, **times}
    for name, rounds in browser_side(pages, options.rounds, options.chromium).items():
        figures[name] |= {f"{key} (page)": statistics.median(turn[key] for turn in rounds) for key in rounds[0]}
    print(f"bundle {BUNDLE.stat().st_size / 1024:.1f} KB; medians of {options.rounds} rounds, ms where not said")
    rows = list(next(iter(figures.values())))
    print(f"{'':24}" + "".join(f"{name:>16}" for name in figures))
    for row in rows:
        print(f"{row:24}" + "".join(f"{figures[name][row]:16.1f}" for name in figures))
    b7 = figures["EfficientNetB7"]
    paint, click = b7["paint (page)"], b7["click (page)"] + b7["re-plan and diff"] + b7["answer (page)"]
    print(
        f"EfficientNetB7: first paint {paint:.0f} ms of 200 = {paint / 200:.2f}; click, plan, diff and redraw, "
        f"without the message queue: {click:.0f} ms of 80 = {click / 80:.2f}"
    )
    small = figures["ResNet50"]
    for name in ("EfficientNetB7", "3,001 nodes"):
        keys = ("payload KB", "paint (page)", "click (page)", "answer (page)")
        record({f"graph widget, {key}: {name} / ResNet50": figures[name][key] / small[key] for key in keys})
    record({"graph widget: KB of payload / node of EfficientNetB7": b7["payload KB"] / b7["nodes"]})
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    sys.exit(0 if paint <= 200 and click <= 80 else 1)


if __name__ == "__main__":
    main()
