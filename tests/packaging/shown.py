"""The installed bench in JupyterLab and a browser, run by the interpreter of the environment that it is installed in.

    python tests/packaging/shown.py screenshot.png

Of the checkout it takes how the other tests drive a notebook; the kernel sees nothing of it.
"""

import io
import json
import pathlib
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

from browser.bench_page import BenchPage, PageWatch
from browser.jupyter import Notebook, chromium, patient_page, running_lab
from PIL import Image
from playwright.sync_api import sync_playwright

BENCH = """
import pathlib, sys
import keras, qdq_widgets, qdq_workbench
from qdq_widgets import Workbench
x = image = keras.Input((8, 8, 3), name='image')
for name in ('first', 'second'):
    x = keras.layers.Conv2D(4, 3, activation='relu', name=name)(x)
wb = Workbench(keras.Model(image, x, name='installed'), target='onnxruntime')
wb
"""
CELL = {"cell_type": "code", "id": "bench", "metadata": {}, "source": "", "outputs": [], "execution_count": None}
NOTEBOOK = {
    "cells": [CELL],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}
PLACES = "[str(pathlib.Path(each.__file__).resolve()) for each in (qdq_widgets, qdq_workbench)]"


def main():
    """Show it; exit status 1 where nothing is painted, clicks do nothing, or other packages are imported."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        place = pathlib.Path(folder) / "notebooks"
        place.mkdir()
        (place / "bench.ipynb").write_text(json.dumps(NOTEBOOK))
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        with running_lab(place) as (address, token):
            page = patient_page(browser, viewport={"width": 1500, "height": 1100})
            watch = PageWatch(page)
            notebook = Notebook(page, address, token, "bench.ipynb")
            notebook.replace_and_run(0, BENCH)
            bench = BenchPage(notebook, 0, pathlib.Path(folder))
            installed = pathlib.Path(sys.prefix).resolve()
            for path in eval(bench.value(PLACES)):  # noqa: S307 - a list of strings that our own kernel printed
                assert installed in pathlib.Path(path).parents, path
            print(_painted(bench, pathlib.Path(sys.argv[1])))
            watch.assert_nothing_was_wrong()
        browser.close()


def _painted(bench, screenshot):
    """Return what is painted, in words; a click takes a pair away in the kernel and in the page."""
    graph = bench.root.locator("svg[role=tree]")
    boxes = [unit.bounding_box() for unit in graph.locator("g.qdqw-unit").all()]
    assert len(boxes) >= 3, boxes
    assert all(box["width"] > 20 and box["height"] > 10 for box in boxes), boxes
    picture = Image.open(io.BytesIO(graph.screenshot(path=screenshot))).convert("RGB")
    colors = len(picture.getcolors(picture.width * picture.height))
    assert colors > 20, f"{colors} colours: nothing is painted"
    badge = bench.badge("second", "weight")
    assert "all" in badge.get_attribute("class").split()
    badge.click()
    bench.wait_until(
        "not any(tensor.name.startswith('second/') for tensor in wb.plan.tensors if tensor.kind == 'weight')"
    )
    bench.wait_for(lambda: "all" not in badge.get_attribute("class").split(), "the badge is off")
    return f"{len(boxes)} layers in {colors} colours, and a click that the kernel followed"


if __name__ == "__main__":
    main()
