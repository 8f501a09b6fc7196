"""Variants: what the target makes of them, and how two of them differ."""

import pytest

from qdq_widgets import Workbench
from qdq_widgets.errors import BenchError
from qdq_widgets.panes.variants import VariantsPane


@pytest.fixture
def two(model):
    bench = Workbench(model, target="onnxruntime")
    bench.keep_variant("all")
    bench.toggle("conv", "weight")
    bench.keep_variant("float conv")
    return bench


def test_a_variant_says_how_much_of_the_work_its_target_does_in_int8(two):
    whole, less = two.variants
    assert less.int8 == two.explanation.coverage["macs"]
    assert 0 <= less.int8 < whole.int8 <= 1


def test_two_variants_are_compared_pair_by_pair(two):
    diff = two.compare("all", "float conv")
    assert "conv" in {placement.layer for placement in diff.removed}
    back = two.compare("float conv", "all")
    assert [p.key for p in back.added] == [p.key for p in diff.removed]
    assert not two.compare("float conv")  # the present state
    with pytest.raises(BenchError, match="no such variant"):
        two.compare("all", "nothing")


def test_the_pane_shows_the_differences_and_selects_the_layers(two):
    pane = two.view.pane(VariantsPane)
    pane.refresh()
    assert pane.first.value == "all"
    assert "conv" in pane.differences.value
    pane.select.click()
    assert "conv" in two.view.graph.selection
    pane.first.value = "float conv"
    assert "The plans are the same" in pane.differences.value
    assert pane.select.disabled
    two.undo()
    pane.refresh()
    assert "The plans are the same" not in pane.differences.value
    assert "work in INT8" in pane._table.value
