"""The page that `write_graph_page` writes, opened from the disk in a real browser."""

import re

import keras
from browser.conftest import SCREENSHOTS
from small_benches import tiny_model

import qdq_workbench as qdq
from qdq_widgets import write_graph_page


def test_the_graph_is_drawn_without_python_and_explains_what_is_clicked(browser, tmp_path):
    plan = qdq.plan_placement(tiny_model(), target="onnxruntime")
    page = browser.new_page(viewport={"width": 1300, "height": 800})
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: errors.append(request.url) if request.url.startswith("http") else None)
    page.goto(write_graph_page(plan, tmp_path / "graph.html").as_uri())

    first = next(placement for placement in plan.placements if placement.site == "weight")
    page.locator(f'.qdqw-unit[aria-label*="{first.layer}"]').first.locator("text.title").click()

    notes = page.locator(".qdq-graph-notes")
    notes.get_by_role("heading", name=first.layer).wait_for()
    assert first.reason in notes.inner_text()
    assert page.get_by_role("button", name="Undo").is_disabled()
    before = page.locator(".qdqw-badge.all").count()
    page.locator(".qdqw-badge.all").first.click()
    assert page.locator(".qdqw-badge.all").count() == before > 0
    page.screenshot(path=SCREENSHOTS / "graph_page.png")
    assert errors == []
    page.close()


def test_two_graphs_are_looked_at_together(browser, tmp_path):
    model = tiny_model()
    plan = qdq.plan_placement(model, target="onnxruntime")
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_weight=False)
    other = qdq.plan_placement(model, quantization_spec=spec, target="onnxruntime")
    page = browser.new_page(viewport={"width": 1300, "height": 700}, color_scheme="dark")
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(write_graph_page(plan, tmp_path / "both.html", beside=other).as_uri())
    left, right = (page.locator(".qdqw-picture").nth(k) for k in (0, 1))

    page.get_by_role("button", name="Next difference").click()
    for side in (left, right):
        side.locator(".qdqw-unit.selected.differs").first.wait_for()
    right.locator("svg[role=tree]").hover()
    page.mouse.wheel(0, 150)
    moved = "(side) => side.querySelector('.qdqw-svg > g').getAttribute('transform')"
    page.wait_for_timeout(200)
    assert left.evaluate(moved) == right.evaluate(moved)
    boxes = [side.bounding_box() for side in (left, right)]
    assert boxes[0]["y"] == boxes[1]["y"]
    page.screenshot(path=SCREENSHOTS / "graph_page_pair.png")

    page.set_viewport_size({"width": 540, "height": 900})
    page.wait_for_timeout(200)
    boxes = [side.bounding_box() for side in (left, right)]
    assert boxes[0]["x"] == boxes[1]["x"]
    assert boxes[0]["width"] > 300
    assert errors == []
    page.close()


def test_fit_shows_every_block_of_a_long_network(browser, tmp_path):
    model = keras.applications.EfficientNetB7(weights=None, input_shape=(64, 64, 3), classes=2)
    page = browser.new_page(viewport={"width": 1300, "height": 800})
    plan = qdq.plan_placement(model)
    page.goto(write_graph_page(plan, tmp_path / "b7.html").as_uri())
    page.get_by_role("button", name="Close all blocks").click()
    cards = page.locator(".qdqw-card")
    before = cards.count()
    page.get_by_role("button", name="All in view").click()
    page.locator(".qdqw-svg.qdqw-small").wait_for()
    box = page.locator("svg[role=tree]").bounding_box()
    places = cards.evaluate_all("(all) => all.map((one) => one.getBoundingClientRect().toJSON())")
    assert len(places) > before
    assert min(place["top"] for place in places) >= box["y"]
    assert max(place["bottom"] for place in places) <= box["y"] + box["height"]
    said = page.locator(".qdqw-unit text.name").all_text_contents()
    counts = [re.match(r"(\d+) layers", text) for text in said]
    assert sum(int(count[1]) if count else 1 for count in counts) == len(plan.graph.nodes)
    page.screenshot(path=SCREENSHOTS / "graph_page_b7.png")
    page.close()
