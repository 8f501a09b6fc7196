"""Pictures of the bench beside those in tests/golden/pictures: what no assertion names, a shift or a colour, is seen.

Pictures are a sixth as wide and as high, so that the edges of letters matter little; 8 of the 45,000 points of a bench
may differ by more than 48 of 255. A badge that is lost makes 9 points, a line of text some hundred. `--regen-golden`
takes the pictures anew. Another browser or other fonts draw another picture of the same thing: such
pictures must be of about the size and show something, and a warning in the summary of the tests says that they were not
compared.
"""

import io
import json
import pathlib
import warnings

import numpy as np
from PIL import Image
from project import ROOT

FOLDER = ROOT / "tests" / "golden" / "pictures"
MADE_WITH = FOLDER / "made_with.json"
SMALLER, FAR, MOST_POINTS = 6, 48, 8
PATIENCE_MS = 20_000
FONTS = """() => ['sans-serif', 'monospace', 'system-ui'].map((family) => {
  const context = document.createElement('canvas').getContext('2d');
  context.font = `100px ${family}`;
  return Math.round(context.measureText('Quantize 0123456789 → ½').width);
})"""


class OtherPicturesWarning(UserWarning):
    """The pictures were taken with another browser, other fonts or on another processor: they could not be compared."""


def vectors():
    """Return the vector instructions of the processor, for which TensorFlow has kernels that round differently."""
    told = pathlib.Path("/proc/cpuinfo")
    flags = set(told.read_text(encoding="utf-8").split()) if told.exists() else set()
    return sorted(flags & {"avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8", "asimd"})


class GoldenPictures:
    """Compares pictures, or takes them anew.

    Args:
        page: The page that draws them.
        request: Of the test; it may ask for new ones.
        differences: Folder for the pictures that differ.
        computed: Whether the pictures show numbers that TensorFlow computed.
    """

    def __init__(self, page, request, differences, *, computed=False):
        self._again, self._differences = request.config.getoption("--regen-golden"), differences
        self.unequal = []
        browser = {"chromium": page.context.browser.version.split(".")[0], "fonts": page.evaluate(FONTS)}
        made_with = {**browser, "vectors": vectors()}
        if self._again:
            FOLDER.mkdir(parents=True, exist_ok=True)
            MADE_WITH.write_text(json.dumps(made_with) + "\n", encoding="utf-8")
        self._wrong = wrong_with
        known = json.loads(MADE_WITH.read_text(encoding="utf-8"))
        if not computed:
            known, made_with = ({key: made[key] for key in browser} for made in (known, made_with))
        if known != made_with:
            self._wrong = wrong_at_a_glance
            warnings.warn(
                f"The golden pictures were taken with {known}, and this is {made_with}: they were NOT compared. Take "
                "them anew, look at each, and commit them: pytest tests/browser --regen-golden",
                OtherPicturesWarning,
                stacklevel=2,
            )

    def look(self, name, locator, mask=()):
        """Compare pictures of an element with the one of this name, until one is equal or patience ends.

        `mask` are locators of what differs each time, such as durations.
        """
        path = FOLDER / f"{name}.png"
        if self._again:
            locator.page.wait_for_timeout(PATIENCE_MS // 10)
            taken(locator, mask).save(path, optimize=True)
            return
        with Image.open(path) as golden:
            # What a pane shows is drawn bit by bit, more slowly on a machine with other work.
            waited, pause = 0.0, 100.0
            while True:
                small = taken(locator, mask)
                found = self._wrong(small, golden)
                if found is None:
                    return
                if waited > PATIENCE_MS:
                    break
                locator.page.wait_for_timeout(pause)
                waited, pause = waited + pause, min(1.5 * pause, PATIENCE_MS / 10)
        small.save(self._differences / f"differs_{name}.png")
        self.unequal.append(f"{name}: {found}")


def taken(locator, mask=()):
    """Return a small picture of an element."""
    shot = locator.screenshot(animations="disabled", caret="hide", mask=list(mask), mask_color="#888888")
    return smaller(Image.open(io.BytesIO(shot)))


def smaller(picture):
    """Return a picture of a sixth of the size."""
    width, height = picture.size
    return picture.convert("RGB").resize((width // SMALLER, height // SMALLER), Image.Resampling.BOX)


def wrong_at_a_glance(one, other):
    """Return what is wrong with a picture that another browser drew; None where it may show the same."""
    if any(abs(ours - theirs) > theirs / 5 for ours, theirs in zip(one.size, other.size, strict=True)):
        return f"{one.size} points, was {other.size}"
    colors, wanted = (len(picture.convert("RGB").getcolors(1 << 24)) for picture in (one, other))
    return None if colors > wanted / 4 else f"{colors} colours, were {wanted}"


def wrong_with(one, other):
    """Return how two pictures differ, in words; None where they do not."""
    if one.size != other.size:
        return f"{one.size} points, was {other.size}"
    far = np.abs(np.asarray(one, int) - np.asarray(other, int)).max(axis=-1) > FAR
    if far.sum() <= MOST_POINTS:
        return None
    rows, columns = np.nonzero(far)
    box = [int(SMALLER * edge) for edge in (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)]
    return f"{far.sum()} points differ, between {box[:2]} and {box[2:]}"
