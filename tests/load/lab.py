"""A JupyterLab for long runs: notebooks of empty cells, what the page holds, and what the graph shows."""

import contextlib
import json
import pathlib
import re
import tempfile

from browser.bench_page import BenchPage
from browser.jupyter import Notebook, answer_of, chromium, running_lab
from project import ROOT

SETUP = """
import sys
sys.path[:0] = [{tests!r}]
import numpy as np
import keras
from load.networks import chain
from load.actions import User
from qdq_widgets import Workbench
"""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--js-flags=--expose-gc"]
LABEL = re.compile(r"^\S+ (\S+), output ")
DRAWN = """(root) => [...root.querySelectorAll('svg[role=tree] g.qdqw-unit:not(.block)')].map((unit) =>
  [unit.getAttribute('aria-label'), [...unit.querySelectorAll('.qdqw-badge')].map((b) => b.getAttribute('class'))])"""
# JupyterLab has the kernel answer widgets in a thread of their own (a subshell), beside the one that runs cells: that a
# cell has run says nothing about clicks before it.
LISTEN = """() => {
  const unanswered = new Set();
  window.testUnanswered = unanswered;
  window.testNotebook.sessionContext.session.kernel.anyMessage.connect((_, {msg, direction}) => {
    if (direction === 'send' && msg.header.msg_type === 'comm_msg') unanswered.add(msg.header.msg_id);
    else if (msg.content.execution_state === 'idle') unanswered.delete(msg.parent_header.msg_id);
  });
}"""
CODES = """
import json
def shown_codes(bench):
    view = bench.view.graph
    payload, state = view.get_state('graph')['graph'], view.get_state('plan_state')['plan_state']
    print(json.dumps([payload['names'], payload['refused'], payload['refusals'], payload['inputs'], state['states'],
                      state['revision']]))
"""


@contextlib.contextmanager
def lab(cells=3, notebooks=("one.ipynb", "two.ipynb")):
    """Run JupyterLab on notebooks of empty cells, and a browser; yields what opens a notebook in a new page."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        place = pathlib.Path(folder) / "notebooks"
        place.mkdir()
        for name in notebooks:
            (place / name).write_text(json.dumps(_empty(cells)))
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        with running_lab(place) as (address, token):

            def opened(name, workspace="default"):
                page = browser.new_page(viewport={"width": 1500, "height": 1100})
                page.set_default_timeout(120_000)
                return Notebook(page, address, token, name, workspace=workspace)

            try:
                yield opened
            finally:
                browser.close()


def prepare(notebook, index=0):
    """Import in a notebook's kernel what the runs need, and note in the page what the kernel has not answered."""
    answer_of(notebook.page, LISTEN)
    notebook.replace_and_run(index, SETUP.format(tests=str(ROOT / "tests")) + CODES)


def shown_bench(notebook, index, code):
    """Run a cell that shows a bench; returns it."""
    notebook.replace_and_run(index, code)
    return BenchPage(notebook, index, ROOT / "build" / "screenshots")


def wait_until_answered(bench):
    """Wait until the kernel has answered all that clicks and keys in the page have sent."""
    bench.page.wait_for_function("() => window.testUnanswered.size === 0")


# The nodes of the document, texts and comments included.
NODES_INSIDE = """
() => {
  const walk = (root) => {
    let count = 0;
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_ALL);
    do {
      count += 1;
      if (walker.currentNode.shadowRoot) count += walk(walker.currentNode.shadowRoot);
    } while (walker.nextNode());
    return count;
  };
  return walk(document);
}
"""


def page_memory(page):
    """Return what the page holds after its garbage was collected."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    found = {item["name"]: item["value"] for item in session.send("Performance.getMetrics")["metrics"]}
    document = session.send("DOM.getDocument", {"depth": -1, "pierce": True})["root"]
    session.detach()
    shown = page.evaluate("() => document.querySelectorAll('*').length")
    inside = page.evaluate(NODES_INSIDE) + _nodes_of_the_browser(document)
    return {
        "page MB": found["JSHeapUsedSize"] / 1e6,
        "nodes": found["Nodes"],
        "elements shown": shown,
        "nodes outside": found["Nodes"] - inside,
        "listeners": found["JSEventListeners"],
    }


def _nodes_of_the_browser(node, own=False):
    """Return how many nodes the browser itself has put into fields: four per option, which scripts do not see."""
    roots = [(root, own or root["shadowRootType"] == "user-agent") for root in node.get("shadowRoots", [])]
    parts = roots + [(child, own) for child in node.get("children", [])]
    return own + sum(_nodes_of_the_browser(part, its) for part, its in parts)


def expected_badges(codes):
    """Return the classes of the badges by layer, as the kernel's plan has them."""
    names, refused, refusals, inputs, states, _ = codes
    found = {}
    for number, (name, state) in enumerate(zip(names, states, strict=True)):
        ins, weights, output = state.split(":")[:3]
        on = {"input": [code != "0" for code in ins], "weight": [int(weights) > 0], "output": [output == "1"]}
        able = {site: refusals[refused[site][number]] == "" for site in on}
        several = 1 < len(inputs[number]) <= 4
        groups = [("input", [one]) for one in on["input"]] if several else [("input", on["input"])]
        groups += [("weight", on["weight"]), ("output", on["output"])]
        found[name] = [f"qdqw-badge {site} {_coverage(ons, able[site])}" for site, ons in groups]
    return found


def differing(drawn, codes):
    """Return the layers whose drawn badges are not those of the plan.

    Args:
        drawn: Labels and classes of badges, from `DRAWN`.
        codes: What `shown_codes` printed.
    """
    wanted = expected_badges(codes)
    pairs = [(LABEL.match(label)[1], badges) for label, badges in drawn if LABEL.match(label)]
    return [(name, badges, wanted[name]) for name, badges in pairs if badges != wanted[name]]


def _coverage(ons, able):
    if not able or not ons:
        return "impossible"
    return "all" if all(ons) else "some" if any(ons) else "none"


def _empty(cells):
    return {
        "cells": [
            {"cell_type": "code", "id": f"c{k}", "metadata": {}, "source": "", "outputs": [], "execution_count": None}
            for k in range(cells)
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
