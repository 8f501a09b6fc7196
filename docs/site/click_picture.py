"""Records docs/images/clicking.gif, an animation of clicks in the workbench: `python docs/site/click_picture.py`.

It takes a minute, and what the browser tests need: a Chromium, playwright and JupyterLab.
"""

from __future__ import annotations

import io
import pathlib
import sys
from typing import Any

from PIL import Image

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from browser.bench_page import BenchPage  # noqa: E402 - found through the line above
from browser.jupyter import notebook_alone  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "clicking.gif"
NOTEBOOK = ROOT / "notebooks" / "01_quickstart.ipynb"
VIEWPORT = {"width": 1180, "height": 1500}
HEIGHT, SHOWN, COLORS = 600, 820, 128
CODE = """
x = image = keras.Input((32, 32, 3), name='image')
x = keras.layers.ReLU(name='stem_relu')(keras.layers.Conv2D(8, 3, padding='same', name='stem')(x))
y = keras.layers.ReLU(name='relu')(keras.layers.Conv2D(8, 3, padding='same', name='conv')(x))
x = keras.layers.GlobalAveragePooling2D(name='pool')(keras.layers.Add(name='add')([x, y]))
wb = Workbench(keras.Model(image, keras.layers.Dense(10, name='head')(x), name='net'), target='onnxruntime')
wb
"""
POINTER = """([x, y, pressed]) => {
  let dot = document.getElementById('pointer');
  if (!dot) {
    dot = document.createElement('div');
    dot.id = 'pointer';
    document.body.append(dot);
  }
  const size = pressed ? 34 : 22;
  dot.style.cssText = `position: fixed; z-index: 9999; pointer-events: none; border-radius: 50%;
    left: ${x - size / 2}px; top: ${y - size / 2}px; width: ${size}px; height: ${size}px;
    background: rgba(213, 94, 0, ${pressed ? 0 : 0.35}); border: 3px solid #d55e00;`;
}"""


class Recorder:
    """Keeps pictures of the top of the bench, each with how long it is shown.

    Args:
        bench: The bench in its page.
    """

    def __init__(self, bench: BenchPage) -> None:
        self.bench = bench
        self.frames: list[tuple[Image.Image, int]] = []

    def keep(self, milliseconds: int) -> None:
        """Keep what the bench shows now."""
        self.bench.page.wait_for_timeout(400)  # transitions
        box = self.bench.root.bounding_box()
        picture = self.bench.page.screenshot(clip={**box, "height": HEIGHT})
        image = Image.open(io.BytesIO(picture)).convert("RGB")
        self.frames.append(
            (image.resize((SHOWN, HEIGHT * SHOWN // image.width), Image.Resampling.LANCZOS), milliseconds)
        )

    def click(self, target: Any) -> None:
        """Move the pointer to an element, click it, and keep both pictures."""
        box = target.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self.bench.page.evaluate(POINTER, [x, y, False])
        self.keep(700)
        target.click()
        self.bench.page.evaluate(POINTER, [x, y, True])
        self.bench.page.wait_for_timeout(600)
        self.keep(1600)

    def save(self, path: pathlib.Path) -> None:
        """Write the animation, which repeats."""
        first, *others = [image.quantize(COLORS, dither=Image.Dither.NONE) for image, _ in self.frames]
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=[shown for _, shown in self.frames],
            loop=0,
            optimize=True,
        )


def main() -> None:
    """Record the clicks."""
    with notebook_alone(NOTEBOOK, VIEWPORT) as (notebook, folder):
        index = notebook.index_of("import keras")
        notebook.run(index)
        notebook.replace_and_run(index, CODE)
        bench = BenchPage(notebook, index, folder)
        recorder = Recorder(bench)
        recorder.keep(1200)
        recorder.click(bench.layer("conv").locator("text.title"))
        recorder.click(bench.badge("conv", "weight"))
        recorder.click(bench.root.get_by_role("button", name="Make it INT8"))
        recorder.save(PICTURE)


if __name__ == "__main__":
    main()
