"""The bench on a laptop's screen: the whole page, the split, a rectangle, and what axe finds, in both themes."""

import itertools

import pytest
from browser.bench_page import SIDE_PANES, WORK_PANES, BenchPage
from browser.conftest import SCREENSHOTS, VIEWPORT
from browser.filled_bench import PANES, filled_bench
from browser.golden_pictures import GoldenPictures
from browser.jupyter import answer_of
from project import ROOT

pytestmark = pytest.mark.slow

AXE = ROOT / "widgets" / "node_modules" / "axe-core" / "axe.min.js"
LAPTOP = {"width": 960, "height": 600}  # 1440 x 900 at 150 %
WIDER_LAPTOP = {"width": 1280, "height": 720}  # 1920 x 1080 at 150 %
CODE = """
import numpy as np
x = image = keras.Input((8, 8, 3), name='image')
for name in 'abcdefghijklmnopqrst':
    x = keras.layers.ReLU(name=f'{name}_out')(keras.layers.Conv2D(2, 3, padding='same', name=name)(x))
wb = Workbench(keras.Model(image, x, name='chain'), target='onnxruntime',
               calibration_data=np.zeros((4, 8, 8, 3), 'float32'))
wb
"""
SCORED = """
keras.utils.set_random_seed(0)
image = keras.Input((4, 4, 2), name='image')
flat = keras.layers.Flatten(name='flat')(keras.layers.Conv2D(3, 3, name='conv')(image))
net = keras.Model(image, keras.layers.Dense(3, activation='softmax', name='head')(flat), name='scored')
net.compile('adam', 'sparse_categorical_crossentropy', metrics=['accuracy'])
samples = np.random.default_rng(0).normal(size=(64, 4, 4, 2)).astype('float32'), np.arange(64) % 3
wb = Workbench(net, train_data=samples, validation_data=samples, target='onnxruntime')
wb.effects.measuring = False
_ = wb.calibrate(), wb.keep_variant('PTQ'), wb.fine_tune(1), wb.measure_speed(), wb.diagnose()
_ = wb.toggle('conv', 'weight', on=False), wb.keep_variant('conv in float'), wb.measure_variants(), wb.sensitivity()
_ = wb.toggle('head', 'weight', on=False)
wb.select('conv')
wb
"""
ROWS_IN_VIEW = """() => {
  const box = document.querySelector('svg[role=tree]').getBoundingClientRect();
  const cards = [...document.querySelectorAll('.qdqw-card')].map((card) => card.getBoundingClientRect());
  return cards.filter((card) => card.top >= box.top && card.bottom <= box.bottom).length;
}"""
SERIOUS = """async (rules) => (await axe.run('.qdq-bench', {resultTypes: ['violations'], ...rules})).violations
  .filter((found) => ['serious', 'critical'].includes(found.impact))
  .map((found) => `${found.id}: ${found.nodes.map((node) => node.html.slice(0, 160)).join(' | ')}`)"""
# What a user cannot click: it is not where it seems to be after scrolling what scrolls, or its text is cut off.
OUT_OF_REACH = """(bench) => [...bench.querySelectorAll('button, input, select, textarea')]
  .filter((el) => el.checkVisibility({visibilityProperty: true}) && el.getBoundingClientRect().width > 0)
  .filter((el) => {
    el.scrollIntoView({block: 'nearest', inline: 'nearest'});
    const box = el.getBoundingClientRect();
    const hit = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
    const isThere = (el.closest('label') ?? el).contains(hit);
    return !isThere || (el.tagName === 'BUTTON' && el.scrollWidth > el.clientWidth + 1);
  }).map((el) => el.title || el.textContent || el.placeholder || el.outerHTML)"""
TOO_WIDE = "(bench) => bench.scrollWidth - bench.clientWidth"
MOVING = """() => [...document.querySelectorAll('.qdqw-root, .qdqw-root *')].map((el) => getComputedStyle(el))
  .filter((style) => parseFloat(style.transitionDuration) > 0 || style.animationName !== 'none').length"""


def bench_of(notebook, code):
    """Run the imports of the quickstart and then, in the same cell, code that displays a bench; return that."""
    index = notebook.index_of("import keras")
    notebook.run(index)
    notebook.replace_and_run(index, code)
    return BenchPage(notebook, index, SCREENSHOTS)


@pytest.fixture(scope="module")
def bench(open_notebook):
    return bench_of(open_notebook("01_quickstart.ipynb"), CODE)


def set_theme(bench, theme):
    answer_of(bench.page, "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
    bench.page.wait_for_function(
        "(isLight) => document.body.dataset.jpThemeLight === isLight", arg=str(theme.endswith("Light")).lower()
    )
    bench.page.wait_for_timeout(800)  # the minimap is painted again when the colours are there


@pytest.mark.filterwarnings("always::browser.golden_pictures.OtherPicturesWarning")
@pytest.mark.parametrize("theme", ["JupyterLab Dark", "JupyterLab Light"])
def test_every_pane_looks_as_it_did(bench, request, theme):
    pictures = GoldenPictures(bench.page, request, SCREENSHOTS)
    bench.notebook.ask("wb.select('b')")
    bench.root.locator(".qdq-title", has_text="b").first.wait_for()
    set_theme(bench, theme)
    for side, work in itertools.zip_longest(SIDE_PANES[:-1], WORK_PANES, fillvalue=SIDE_PANES[0]):
        bench.open(side)
        bench.open(work)
        assert bench.root.evaluate(TOO_WIDE) <= 1, (side, work)
        pictures.look(f"{theme.split()[-1]}_{work}_{side}".lower().replace(" & ", "_and_"), bench.root)
    bench.notebook.ask("wb.select([])")
    assert pictures.unequal == []


def test_fourteen_layers_stand_in_the_graph_as_it_is_at_first(bench):
    assert bench.root.locator(".qdqw-root").first.bounding_box()["height"] == 560
    bench.root.get_by_role("button", name="Open all blocks").click()
    assert bench.page.evaluate(ROWS_IN_VIEW) >= 14


def test_a_rectangle_selects_and_one_click_switches_all(bench):
    first, last = (bench.root.locator(".qdqw-card").nth(k).bounding_box() for k in (1, 4))
    mouse, keyboard = bench.page.mouse, bench.page.keyboard
    keyboard.down("Shift")
    mouse.move(first["x"] - 8, first["y"] + 4)
    mouse.down()
    mouse.move(last["x"] + 40, last["y"] + 8, steps=4)
    bench.screenshot("rectangle")
    mouse.up()
    keyboard.up("Shift")
    bench.wait_until("wb.selection == ('a', 'a_out', 'b', 'b_out')")
    keyboard.press("w")
    bench.wait_until("wb.find('w=float class:conv2d') == ('a', 'b')")
    keyboard.press("Control+z")
    bench.wait_until("not wb.find('w=float class:conv2d')")


def test_the_tip_of_a_pair_tells_its_scale_in_words_that_are_whole(bench):
    bench.notebook.ask("wb.calibrate()")
    pill = bench.root.locator(".qdqw-pill").first
    pill.hover()
    terms = bench.root.locator(".qdqw-tip dt")
    bench.root.locator(".qdqw-tip dd", has_text="zero point").wait_for()
    assert max(box["height"] for box in (terms.nth(k).bounding_box() for k in range(terms.count()))) < 60
    bench.screenshot("pair")


def axe_rules(theme):
    """Return the options of axe: a theme changes colours alone."""
    return {"runOnly": ["color-contrast"]} if theme.endswith("Light") else {}


def test_axe_finds_nothing_serious(bench):
    if not AXE.exists():
        pytest.skip("needs `npm ci` in widgets/")
    bench.notebook.ask("wb.select('b')")
    bench.page.evaluate(AXE.read_text())
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        set_theme(bench, theme)
        rules = axe_rules(theme)
        for title in SIDE_PANES[1:] + WORK_PANES:
            bench.open(title)
            assert answer_of(bench.page, SERIOUS, rules) == [], (theme, title)


def test_the_whole_page_and_the_split(bench):
    page = bench.page
    page.set_viewport_size(LAPTOP)
    graph, side = bench.root.locator(".qdq-graph"), bench.root.locator(".qdq-side")
    picture = bench.root.locator("svg[role=tree]").first
    bench.notebook.ask("wb.select([])")
    # A row takes 28.4 pixels, and what is above the first one 18.
    bench.wait_for(lambda: picture.bounding_box()["height"] >= 416, "14 rows beside the inspector, in 560 pixels")
    bench.root.locator(".qdq-whole").click()
    bench.wait_until("wb.view.room.full_page")
    box = bench.root.bounding_box()
    assert (box["x"], box["y"], box["width"], box["height"]) == (0, 0, 960, 600)
    assert abs(graph.bounding_box()["y"] - side.bounding_box()["y"]) < 8  # beside each other on a laptop
    bench.screenshot("whole_page")
    for side_pane, work_pane in itertools.zip_longest(SIDE_PANES[:-1], WORK_PANES, fillvalue=SIDE_PANES[0]):
        bench.open(side_pane)
        bench.open(work_pane)
        assert bench.root.evaluate(OUT_OF_REACH) == [], (side_pane, work_pane)
        assert bench.root.evaluate(TOO_WIDE) <= 1, (side_pane, work_pane)
    for size, upper, lower, rows in ((LAPTOP, 300, 180, 7), (WIDER_LAPTOP, 360, 220, 9)):
        page.set_viewport_size(size)
        bench.wait_for(lambda room=size: bench.root.bounding_box()["height"] == room["height"], "the page has the size")
        assert graph.bounding_box()["height"] >= upper
        assert bench.root.locator(".qdq-work").bounding_box()["height"] >= lower
        assert picture.bounding_box()["height"] >= 18 + 28.4 * rows
    page.set_viewport_size(LAPTOP)
    bench.open(WORK_PANES[0])
    across = bench.root.get_by_role("separator", name="Width of the graph")
    place = across.bounding_box()
    page.mouse.move(place["x"] + 3, place["y"] + 50)
    page.mouse.down()
    page.mouse.move(640, place["y"] + 50, steps=3)
    page.mouse.up()
    bench.wait_until("abs(wb.view.room.split - 2 / 3) < 0.01")
    assert graph.bounding_box()["width"] == pytest.approx(637, abs=3)
    across.focus()
    page.keyboard.press("ArrowLeft")
    bench.wait_until("abs(wb.view.room.split - 2 / 3 + 0.02) < 0.01")
    down = bench.root.get_by_role("separator", name="Height of the graph on the whole page").bounding_box()
    page.mouse.move(300, down["y"] + 3)
    page.mouse.down()
    page.mouse.move(300, 420, steps=3)
    page.mouse.up()
    bench.wait_for(lambda: abs(bench.root.locator(".qdq-down").bounding_box()["y"] - 420) < 8, "the handle is there")
    bench.root.get_by_role("separator", name="Height of the graph on the whole page").focus()
    for _ in range(20):
        page.keyboard.press("ArrowDown")
    bench.wait_until("wb.view.room.upper == 1")  # the tabs of the panes are left, and lead back to them
    assert picture.bounding_box()["height"] >= 375
    assert bench.root.locator(".qdq-work .lm-TabBar-tab").last.is_visible()
    bench.notebook.ask("wb.view.room.full_page = False; wb.view.room.split = 0.5; wb.view.room.upper = 0.62")
    bench.wait_for(lambda: bench.root.bounding_box()["width"] < 960, "the bench is in its cell again")


def test_nothing_moves_where_the_reader_wants_no_motion(bench):
    moving = {}
    for wish in ("reduce", "no-preference"):
        bench.page.emulate_media(reduced_motion=wish)
        moving[wish] = bench.page.evaluate(MOVING)
    assert moving["reduce"] == 0
    assert moving["no-preference"] > 0


def test_axe_finds_nothing_serious_in_a_scored_bench(bench):
    """With plotly's figures in the panes, two graphs, the help open, and on the whole page."""
    if not AXE.exists():
        pytest.skip("needs `npm ci` in widgets/")
    index = bench.notebook.index_of("name='chain'")
    bench.notebook.replace_and_run(index, SCORED)
    scored = BenchPage(bench.notebook, index, SCREENSHOTS)
    page = scored.page
    page.evaluate(AXE.read_text())
    found = []
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        set_theme(scored, theme)

        def look(what, theme=theme):
            page.wait_for_timeout(300)
            problems = answer_of(page, SERIOUS, axe_rules(theme))
            found.extend((theme, what, problem) for problem in problems)

        for side, work in itertools.zip_longest(SIDE_PANES[1:], WORK_PANES, fillvalue="Variants"):
            scored.open(side)
            scored.open(work)
            look((side, work))
        scored.root.get_by_role("button", name="Keys and colours (?)").click()
        scored.root.get_by_role("dialog", name="Keys and colours").wait_for()
        look("help")
        page.keyboard.press("Escape")
        scored.open("Variants")
        scored.click("Side by side")
        scored.root.locator(".qdqw-picture:visible").nth(1).wait_for()
        look("two graphs")
        scored.root.get_by_role("button", name="Whole page").click()
        scored.wait_until("wb.view.room.full_page")
        look("the whole page with two graphs")
        scored.root.locator("[aria-label^='Back to one graph']").click()
        look("the whole page")
        scored.root.get_by_role("button", name="Back to the notebook").click()
        scored.wait_until("not wb.view.room.full_page")
    assert found == []


@pytest.mark.filterwarnings("always::browser.golden_pictures.OtherPicturesWarning")
def test_the_panes_of_a_bench_with_results_look_as_they_did(bench, request):
    """In the notebook of the tests before: to open one and to start a kernel takes longer than to look."""
    bench.page.set_viewport_size(VIEWPORT)
    bench.page.emulate_media(reduced_motion="no-preference")
    filled = filled_bench(bench.notebook, bench.index)
    pictures = GoldenPictures(bench.page, request, SCREENSHOTS, computed=True)
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        set_theme(filled, theme)
        for side, work in PANES:
            filled.open(side)
            filled.open(work)
            pictures.look(f"{theme.split()[-1]}_filled_{work}_{side}".lower(), filled.root)
    assert pictures.unequal == []
