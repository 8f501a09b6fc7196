"""The comparison itself, on pictures that no browser draws: what it finds, and what another browser leaves of it."""

import io
import json
import types

import pytest
from browser import golden_pictures
from browser.golden_pictures import FOLDER, MADE_WITH, SMALLER, GoldenPictures, OtherPicturesWarning
from PIL import Image, ImageDraw

NAME = "light_training_inspector"
KNOWN = json.loads(MADE_WITH.read_text(encoding="utf-8"))


def compared(tmp_path, *, chromium=KNOWN["chromium"], change=lambda picture: picture, computed=False):
    """Compare a stored picture, changed, as if a Chromium had drawn it."""
    with Image.open(FOLDER / f"{NAME}.png") as golden:
        drawn = change(golden.convert("RGB").resize([SMALLER * side for side in golden.size], Image.Resampling.NEAREST))
    written = io.BytesIO()
    drawn.save(written, "PNG")
    page = types.SimpleNamespace(
        context=types.SimpleNamespace(browser=types.SimpleNamespace(version=f"{chromium}.0.1")),
        evaluate=lambda _: KNOWN["fonts"],
        wait_for_timeout=lambda _: None,
    )
    locator = types.SimpleNamespace(page=page, screenshot=lambda **_: written.getvalue())
    request = types.SimpleNamespace(config=types.SimpleNamespace(getoption=lambda _: False))
    pictures = GoldenPictures(page, request, tmp_path, computed=computed)
    pictures.look(NAME, locator)
    return pictures.unequal


def with_a_box(picture):
    ImageDraw.Draw(picture).rectangle((300, 300, 360, 330), fill="red")
    return picture


def blank(picture):
    return Image.new("RGB", picture.size, "white")


def test_the_browser_of_the_pictures_has_to_draw_the_same(tmp_path):
    assert compared(tmp_path) == []
    (found,) = compared(tmp_path, change=with_a_box)
    assert "between [300, 300]" in found


def test_another_browser_has_to_draw_something_and_the_summary_says_so(tmp_path):
    with pytest.warns(OtherPicturesWarning, match=r"'999'.*NOT compared.*--regen-golden"):
        assert compared(tmp_path, chromium="999") == []
    with pytest.warns(OtherPicturesWarning):
        assert compared(tmp_path, chromium="999", change=with_a_box) == []
    with pytest.warns(OtherPicturesWarning):
        (found,) = compared(tmp_path, chromium="999", change=blank)
    assert "1 colours" in found


def test_numbers_that_another_processor_computed_are_not_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(golden_pictures, "vectors", lambda: ["another"])
    (found,) = compared(tmp_path, change=with_a_box)
    assert "points differ" in found
    with pytest.warns(OtherPicturesWarning, match="another"):
        assert compared(tmp_path, change=with_a_box, computed=True) == []
