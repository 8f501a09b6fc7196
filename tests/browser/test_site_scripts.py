"""The scripts of the site: the figure of "Scale and zero point", and the search in a page opened from the disk."""

import re

import numpy as np
import pytest
from project import ROOT

import qdq_workbench as qdq

ASSETS = ROOT / "docs" / "assets"
GRIDS = {
    "uint, any zero point": (False, False),
    "int, zero point 0": (True, True),
    "int, any zero point": (True, False),
}
CASES = [(-1, 3, 4, 1.23), (-1, 3, 8, -2.5), (-4, 0, 3, -0.37), (0, 4, 8, 0.05), (-0.55, 2.35, 2, 4), (-2, 2, 5, 0)]
SET = """([title, value]) => {
  const input = [...document.querySelectorAll('label')].find((label) => label.innerText.startsWith(title)).children[1];
  input.value = value;
  input.dispatchEvent(new Event('input'));
}"""
ASK = """() => new Promise((resolve) => {
  const worker = new Worker('worker.js');
  const answers = [];
  worker.addEventListener('message', (event) => {
    answers.push(event.data);
    if (answers.length === 2) resolve(answers);
  });
  worker.postMessage('early');
  setTimeout(() => worker.postMessage('late'), 200);
})"""


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """Open a page that holds nothing but the figure."""
    path = tmp_path_factory.mktemp("site") / "page.html"
    style, script = (ASSETS / name for name in ("site.css", "scale_figure.js"))
    path.write_text(
        f'<link rel="stylesheet" href="{style.as_uri()}"><div class="scale-figure"></div>'
        f'<script src="{script.as_uri()}"></script>',
        encoding="utf-8",
    )
    opened = browser.new_page()
    opened.goto(path.as_uri())
    yield opened
    opened.close()


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(("low", "high", "bits", "x"), CASES)
def test_the_figure_computes_what_the_library_computes(page, grid, low, high, bits, x):
    page.get_by_label("Grid").select_option(grid)
    for title, value in (("Lowest", low), ("Highest", high), ("Bits", bits), ("A value", x)):
        page.evaluate(SET, [title, str(value)])

    signed, symmetric = GRIDS[grid]
    params = qdq.numerics.qparams_from_range(low, high, num_bits=bits, signed=signed, symmetric=symmetric)
    text = page.locator("output").inner_text()
    scale, zero_point = re.search(r"scale (\S+), zero point (-?\d+)", text).groups()
    q, y = re.search(r"becomes q = (-?\d+), which is y = (-?[\d.]+)", text).groups()
    assert np.isclose(float(scale), params.scale, rtol=1e-3)
    assert int(zero_point) == params.zero_point
    assert int(q) == qdq.numerics.quantize(x, params)
    assert np.isclose(float(y), qdq.numerics.fake_quantize(x, params), atol=6e-4)
    assert page.locator("svg").get_attribute("aria-label") == text


def test_the_keyboard_moves_a_value(page):
    page.get_by_label("Bits").focus()
    before = page.locator("output").inner_text()
    page.keyboard.press("ArrowRight")

    assert page.locator("output").inner_text() != before


def test_a_worker_answers_in_a_page_opened_as_a_file(browser, tmp_path):
    """The search runs in a worker, which browsers refuse to a file; a frame stands in."""
    shim = ASSETS / "iframe-worker.js"
    (tmp_path / "part.js").write_text("self.suffix = '!'")
    (tmp_path / "worker.js").write_text(
        "const ready = importScripts('part.js');"
        "addEventListener('message', async (event) => { await ready; postMessage(event.data + self.suffix); });"
    )
    (tmp_path / "page.html").write_text(f'<body><script src="{shim.as_uri()}"></script></body>')
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())

    assert page.evaluate(ASK) == ["early!", "late!"]
    page.close()
