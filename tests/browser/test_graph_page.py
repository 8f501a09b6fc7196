"""The page that `write_graph_page` writes, opened from the disk in a real browser."""

import pytest
from browser.conftest import SCREENSHOTS
from small_benches import tiny_model

import qdq_workbench as qdq
from qdq_widgets import write_graph_page

pytestmark = pytest.mark.slow


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
