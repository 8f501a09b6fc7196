"""Second part of `make load`: the bench in a real JupyterLab, used for long with mouse, keys and Python.

    python tests/load/browser_run.py [--actions 200] [--layers 3000] [--seed 0] [--only session benches kernels reloads]

session: random actions; what the page holds is read after the first quarter and at the end, and the graph that is drawn
is the kernel's plan all along. benches: two benches of one kernel in two cells. kernels: two notebooks on one kernel.
reloads: the page is loaded again in the middle of every long work.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import sys
import tempfile
import time
import xml.etree.ElementTree as ET

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from browser.bench_page import SIDE_PANES, WORK_PANES
from browser.jupyter import answer_of, text_of
from load import reloads
from load.lab import DRAWN, differing, lab, page_memory, prepare, shown_bench, wait_until_answered

GROWTH = 1.10
SETTLING = 60  # seconds; what is wrong stays wrong
BENCH = "wb = Workbench(chain({layers}), target='onnxruntime')\nuser = User(wb, None, {seed})\nwb"
LONG_SPEC = """
import qdq_workbench as qdq
spec = qdq.QuantizationSpec()
spec.add([node.name for node in wb.graph.nodes if node.weights][:100], quantize_input=False, quantize_weight=False)
_ = wb.set_spec(spec)
"""
ACT = """
for _ in range({count}):
    _ = user.act()
"""
# A variant compared with itself: a table of differences has sixty rows or none, by what was kept under its name.
COMPARE = """
pane = next(pane for pane in wb.view.side.panes if pane.title == 'Variants')
if pane.first.value is not None:
    pane.second.value = {second}
"""
PICTURE = """
from qdq_widgets import displayed
_ = wb.toggle('b{number}_conv2', 'weight')
_ = wb.view.picture.update(displayed._picture(wb), raw=True)
"""
IMAGES = 6
BADGES = "g.qdqw-unit .qdqw-badge:not(.impossible)"
WEIGHT = ".qdqw-badge.weight:not(.impossible)"
TABS = ("Inspector", "Spec", "Cases", "Target", "History", "Variants", "Sensitivity", "Code & files", "Calibration")
KEYS = ("i", "w", "o", "ArrowDown", "ArrowUp", "Control+z", "Shift+Control+Z", "Home", "PageDown", "Enter", "+", "-")


# All at once: the picture may move between a count and a click, and have fewer badges then.
PRESS_ONE = """
(badges, share) => {
  const badge = badges[Math.floor(share * badges.length)];
  for (const kind of badge ? ["pointerdown", "pointerup"] : []) {
    badge.dispatchEvent(new PointerEvent(kind, { bubbles: true, cancelable: true, composed: true, button: 0 }));
  }
}
"""


def press(badge):
    """Click a badge where it stands, also while the picture moves."""
    badge.dispatch_event("pointerdown", {"button": 0})
    badge.dispatch_event("pointerup", {"button": 0})


class Clicker:
    """Acts in the page by seed.

    Args:
        bench: The `BenchPage`.
        seed: Another one gives other actions.
    """

    def __init__(self, bench, seed):
        self.bench, self.page = bench, bench.page
        self._random = random.Random(seed)  # noqa: S311 - which action comes next

    def act(self):
        """Take one action; most are the page's own."""
        kinds = [self.badge] * 6 + [self.key] * 6 + [self.python] * 3 + [self.tab] * 2 + [self.search, self.undo]
        self._random.choice(kinds)()

    def badge(self):
        self.bench.root.locator(BADGES).evaluate_all(PRESS_ONE, self._random.random())

    def key(self):
        picture = self.bench.root.locator("svg[role=tree]").first
        picture.focus()
        self.page.keyboard.press(self._random.choice(KEYS))

    def python(self):
        self.bench.notebook.ask(ACT.format(count=1))

    def tab(self):
        self.bench.open(self._random.choice(TABS))

    def search(self):
        field = self.bench.root.locator("input[placeholder^=Find]").first
        field.fill(self._random.choice(("conv2 not int8", "w=4", "b1*_add", "relu", "")))
        field.press("Enter")

    def undo(self):
        button = self.bench.root.locator("button[title^='Undo']:enabled").first
        if button.count():
            button.click()


def codes_of(bench):
    """Return what `shown_codes` prints in the kernel."""
    return json.loads(text_of(bench.notebook.ask("shown_codes(wb)")))


def check_drawn(bench):
    """Raise unless the drawn badges become those of the kernel's plan: clicks are painted ahead of its answer."""
    wait_until_answered(bench)  # badges of blocks, and those out of sight, do not tell whether they are
    root, end = bench.root.locator(".qdqw-root").first, time.monotonic() + SETTLING
    while True:
        codes = codes_of(bench)
        wrong = differing(root.evaluate(DRAWN), codes)
        if not wrong and int(root.get_attribute("data-revision") or 0) == codes[-1]:
            return
        assert time.monotonic() < end, f"drawn otherwise than planned: {wrong[:3]}, revision {codes[-1]}"
        bench.page.wait_for_timeout(300)


def check_all(bench):
    """Raise unless every layer of the picture with all blocks open has the badges of the kernel's plan."""
    bench.root.get_by_role("button", name="Open all blocks").first.click()
    bench.page.wait_for_timeout(1500)
    bench.notebook.ask("wb.view.graph.svg_text = ''; wb.view.graph.request_svg()")
    bench.wait_until("len(wb.view.graph.svg_text) > 1000")
    # A file: what is printed passes a limit of the server.
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "graph.svg"
        bench.notebook.ask(f"_ = open({str(path)!r}, 'w', encoding='utf-8').write(wb.view.graph.svg_text)")
        root = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 - our own picture
    units = [unit for unit in root.iter() if "qdqw-unit" in unit.get("class", "").split()]
    badges = [[b.get("class") for b in unit.iter() if "qdqw-badge" in b.get("class", "").split()] for unit in units]
    labels = [unit.get("aria-label") for unit in units]
    wrong = differing(zip(labels, badges, strict=True), codes_of(bench))
    assert not wrong, f"drawn otherwise than planned: {wrong[:3]}"
    return len(units)


def fill_lists(bench):
    """Open every pane, with as many rows as the lists ever have: they stay in the page, hidden where not needed."""
    bench.notebook.ask(LONG_SPEC)
    for title in (*SIDE_PANES, *WORK_PANES):
        bench.open(title)
    bench.notebook.ask("_ = wb.go_to(0)")
    fill_images(bench)


def fill_images(bench):
    """Draw the picture of the saved notebook until Chromium's images do not grow: it keeps the last five that it had.

    Each is a document of its own, of two nodes per shown layer, and no script of the page holds it.
    """
    for number in range(IMAGES):
        bench.notebook.ask(PICTURE.format(number=number))
        bench.page.wait_for_timeout(500)
    bench.notebook.ask("_ = wb.go_to(0)")


def memory_at_the_start(bench):
    """Return what the page holds with the bench's first plan in every pane: what grew is not what is shown."""
    bench.page.wait_for_timeout(1000)
    check_drawn(bench)
    place = bench.value("wb.history.position")
    bench.notebook.ask("_ = wb.select([]), wb.go_to(0)")
    for title in TABS:
        bench.open(title)
    bench.notebook.ask(COMPARE.format(second="pane.first.value"))
    bench.root.get_by_role("button", name="Close all blocks").first.click()
    bench.root.locator("svg[role=tree]").first.focus()
    for key in ("+", "f"):  # the whole picture: how many of its layers are drawn follows from the zoom
        bench.page.keyboard.press(key)
    bench.page.wait_for_timeout(1000)
    memory = page_memory(bench.page)
    bench.notebook.ask(COMPARE.format(second="''"))
    bench.notebook.ask(f"_ = wb.go_to({place})")
    return memory


def session(options):
    """Act in one bench; return what grew."""
    with lab() as opened:
        notebook = opened("one.ipynb")
        problems = []
        notebook.page.on("pageerror", lambda error: problems.append(str(error)))
        prepare(notebook)
        started = time.monotonic()
        bench = shown_bench(notebook, 1, BENCH.format(layers=options.layers, seed=options.seed))
        bench.root.locator("g.qdqw-unit").first.wait_for()
        print(
            f"{bench.value('len(wb.graph.nodes)')} nodes, on the page in {time.monotonic() - started:.0f} s", flush=True
        )
        fill_lists(bench)
        clicker, started, warm = Clicker(bench, options.seed), time.monotonic(), None
        for number in range(1, options.actions + 1):
            clicker.act()
            if number % 10 == 0:
                check_drawn(bench)
            late = warm and options.minutes and time.monotonic() - started > 60 * options.minutes
            if late or number % max(1, options.actions // 4) == 0:
                memory = memory_at_the_start(bench)
                warm = warm or memory
                steps = bench.value("len(wb.history)")
                print(f"{number} actions, {steps} steps, {time.monotonic() - started:.0f} s: {memory}", flush=True)
            if late:
                break
        print(f"{check_all(bench)} layers drawn as planned; errors in the page: {problems or 'none'}")
        growth = {name: memory[name] / warm[name] for name in warm}
        print("grown by " + ", ".join(f"{name} x{value:.3f}" for name, value in growth.items()))
        return problems + [f"{name} x{value:.2f}" for name, value in growth.items() if value > GROWTH]


def benches(_options):
    """Use two benches of one kernel, and one bench shown in two cells."""
    with lab() as opened:
        notebook = opened("one.ipynb")
        prepare(notebook)
        first = shown_bench(notebook, 1, "wb = first = Workbench(chain(40), target='onnxruntime')\nfirst")
        notebook.replace_and_run(2, "second = Workbench(chain(60), target='tensorrt')\nsecond")
        roots = notebook.page.locator(".qdq-bench")
        roots.nth(1).wait_for()
        for name, place in (("first", 0), ("second", 1)):
            press(roots.nth(place).locator(WEIGHT).first)
            first.wait_until(f"len({name}.history) == 2")
        wrong = []
        for number in range(20):
            name = ("first", "second")[number % 2]
            notebook.ask(f"_ = {name}.toggle('b{number % 5}_conv2', 'weight')")
        for name, place in (("first", 0), ("second", 1)):
            codes = json.loads(text_of(notebook.ask(f"shown_codes({name})")))
            root = roots.nth(place).locator(".qdqw-root").first
            first.wait_for(lambda r=root, c=codes: int(r.get_attribute("data-revision") or 0) == c[-1], name)
            wrong += differing(root.evaluate(DRAWN), codes)
        return [f"{one[0]} is drawn otherwise than planned" for one in wrong]


def kernels(_options):
    """Use one bench from two notebooks on one kernel."""
    with lab() as opened:
        notebook = opened("one.ipynb")
        prepare(notebook)
        first = shown_bench(notebook, 1, "wb = Workbench(chain(40), target='onnxruntime')\nwb")
        kernel = notebook.page.evaluate("() => window.testNotebook.sessionContext.session.kernel.id")
        # In one window JupyterLab gives the widgets of a kernel to the first notebook alone.
        other = opened("two.ipynb", "second")
        answer_of(other.page, "(id) => window.testNotebook.sessionContext.changeKernel({id})", kernel)
        other.page.wait_for_timeout(2000)
        second = shown_bench(other, 0, "wb")
        wrong = []
        for bench in (first, second, first, second):
            before = int(bench.value("len(wb.history)"))
            press(bench.root.locator(WEIGHT).first)
            bench.wait_until(f"len(wb.history) == {before + 1}")
            for shown, name in ((first, "the first"), (second, "the second")):
                codes = codes_of(shown)
                root = shown.root.locator(".qdqw-root").first
                try:
                    shown.page.wait_for_function(
                        "([n]) => Number(document.querySelector('.qdqw-root').dataset.revision) === n",
                        arg=[codes[-1]], timeout=15_000,
                    )  # fmt: skip
                except Exception:  # noqa: BLE001 - playwright's own
                    wrong.append(f"{name} notebook stands at another revision than {codes[-1]}")
                    continue
                wrong += [f"{name} notebook: {one}" for one in differing(root.evaluate(DRAWN), codes)[:2]]
        return wrong


def main() -> None:
    """Run the parts; exit status 1 where something was wrong."""
    parts = {"session": session, "benches": benches, "kernels": kernels, "reloads": lambda _: reloads.run()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, default=200, help="how many actions (default: 200)")
    parser.add_argument("--layers", type=int, default=3000, help="how many layers (default: 3000)")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other actions (default: 0)")
    parser.add_argument("--minutes", type=float, help="end the session then, with the last checks")
    parser.add_argument("--only", nargs="*", choices=list(parts), default=list(parts), help="which parts")
    options = parser.parse_args()
    wrong = {}
    for name in options.only:
        print(f"== {name}", flush=True)
        found = parts[name](options)
        print(f"{name}: {found or 'good'}", flush=True)
        wrong |= {name: found} if found else {}
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
