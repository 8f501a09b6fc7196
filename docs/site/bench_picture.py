"""Takes docs/images/workbench.png, the trained bench of the quickstart: `python docs/site/bench_picture.py`.

It takes some minutes, and what the browser tests need: a Chromium, playwright and JupyterLab.
"""

from __future__ import annotations

import io
import pathlib
import shutil
import sys
import tempfile

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from browser.bench_page import FILLS, BenchPage  # noqa: E402 - found through the line above
from browser.jupyter import Notebook, chromium, patient_page, running_lab  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "workbench.png"
NOTEBOOK = "01_quickstart.ipynb"
VIEWPORT = {"width": 1560, "height": 1700}
COLORS = 128
CELLS = ("import keras", "EPOCHS = ", "load_digits()", "model.compile(", "wb = Workbench(")
WORK = """
wb.effects.measuring = False
_ = wb.apply_case(qdq.ResNetV1QDQCase())
_ = wb.configure("block3_b_conv", "weight", num_bits=4)
_ = wb.toggle("stem_conv", "input")  # so that not every card is green
_ = wb.calibrate(), wb.fine_tune(epochs=3), wb.sensitivity(samples=128)
wb.color_by("precision")
wb.select("stem_conv")
"""


def main() -> None:
    """Train as the quickstart does, and take the picture."""
    with tempfile.TemporaryDirectory() as private, sync_playwright() as playwright:
        folder = pathlib.Path(private) / "notebooks"
        folder.mkdir()
        shutil.copy(ROOT / "notebooks" / NOTEBOOK, folder)
        browser = playwright.chromium.launch(executable_path=chromium())
        with running_lab(folder) as (address, token):
            notebook = Notebook(patient_page(browser, viewport=VIEWPORT), address, token, NOTEBOOK)
            for text in CELLS:
                notebook.run(notebook.index_of(text))
            notebook.ask(WORK)
            bench = BenchPage(notebook, notebook.index_of("wb = Workbench("), folder)
            bench.open("Training")
            bench.page.wait_for_function(FILLS)
            bench.root.locator(".qdq-scores", has_text="QAT").wait_for()
            bench.page.wait_for_timeout(1000)  # transitions
            picture = Image.open(io.BytesIO(bench.root.screenshot())).convert("RGB")
            picture.quantize(COLORS, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
