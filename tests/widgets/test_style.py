"""The style sheet of the bench: heights that are accepted, and a sheet that a browser reads to its end."""

import re

import numpy as np
import pytest

from qdq_widgets.errors import BenchError
from qdq_widgets.style import GRAPH_HEIGHT, LEAST_HEIGHT, checked_height, style_sheet


@pytest.mark.parametrize("height", [LEAST_HEIGHT, GRAPH_HEIGHT, np.int64(700)])
def test_whole_numbers_of_pixels_are_heights(height):
    found = checked_height(height)
    assert found == height
    assert type(found) is int


@pytest.mark.parametrize("height", [LEAST_HEIGHT - 1, 0, True, 560.0, "560", None])
def test_other_heights_are_refused(height):
    with pytest.raises(BenchError, match=rf"pixels, 160 or more. Received: {height!r}"):
        checked_height(height)


def test_graph_and_panes_end_together():
    sheet = style_sheet(500)
    assert "max-height: 476px" in sheet  # less the tabs
    assert "SIDE_HEIGHT" not in sheet
    assert style_sheet(500).replace("476px", "1px") == style_sheet(25)


def test_every_rule_ends_and_every_color_of_the_bench_is_set():
    sheet = style_sheet(GRAPH_HEIGHT)
    assert sheet.strip().startswith("<style>")
    assert sheet.strip().endswith("</style>")
    depth = 0
    for character in sheet:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert 0 <= depth <= 2
    assert depth == 0
    assert set(re.findall(r"var\((--qdq-[a-z0-9-]+)\)", sheet)) <= set(re.findall(r"(--qdq-[a-z0-9-]+):", sheet))
