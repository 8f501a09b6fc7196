"""Takes docs/images/workbench.png, the trained bench of the quickstart: `python docs/site/bench_picture.py`.

It takes some minutes, and what the browser tests need: a Chromium, playwright and JupyterLab.
"""

from __future__ import annotations

import io
import pathlib
import sys

from PIL import Image

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from browser.bench_page import FILLS, BenchPage  # noqa: E402 - found through the line above
from browser.jupyter import notebook_alone  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "workbench.png"
NOTEBOOK = ROOT / "notebooks" / "01_quickstart.ipynb"
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
    with notebook_alone(NOTEBOOK, VIEWPORT) as (notebook, folder):
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


if __name__ == "__main__":
    main()
