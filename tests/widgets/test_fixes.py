"""Fixes of the explanation: they add what is missing, keep what was chosen, and leave no entries behind."""

import keras
import pytest

from qdq_widgets import Workbench
from qdq_widgets.errors import BenchError
from qdq_widgets.panes.runtime import RuntimePane


@pytest.fixture
def on_ort(model):
    return Workbench(model, target="onnxruntime")


def test_a_fix_takes_back_what_was_switched_off_and_leaves_no_entry(on_ort):
    on_ort.toggle("conv", "weight")
    on_ort.apply_fix("conv")
    assert on_ort.explanation.for_layer("conv").status == "int8"
    assert on_ort.spec.layers == []


def test_a_fix_keeps_the_settings_that_were_chosen_for_the_layer(on_ort):
    on_ort.configure("stem", "weight", quantizer="lsq")
    on_ort.toggle("stem", "input")
    on_ort.apply_fix("stem")
    [weight] = [p for p in on_ort.plan.placements if p.site == "weight" and p.layer == "stem"]
    assert weight.method.label == "lsq"
    assert on_ort.explanation.for_layer("stem").status == "int8"


def test_all_fixes_are_one_step_and_leave_nothing_to_fix(on_ort):
    for layer, site in (("stem", "input"), ("conv", "weight"), ("head", "weight")):
        on_ort.toggle(layer, site, on=False)
    broken = on_ort.explanation.counts["int8"]
    position = on_ort.history.position
    step = on_ort.apply_fixes()
    assert step.label.startswith("fix ")
    assert on_ort.history.position == position + 1
    assert not [entry.layer for entry in on_ort.explanation.layers if entry.fix]
    assert on_ort.explanation.counts["int8"] > broken
    on_ort.undo()
    assert on_ort.explanation.counts["int8"] == broken


def test_without_a_fix_the_bench_says_so(on_ort):
    if any(entry.fix for entry in on_ort.explanation.layers):
        on_ort.apply_fixes()
    with pytest.raises(BenchError, match="No layer has a fix"):
        on_ort.apply_fixes()


def test_the_pane_offers_all_fixes_and_shares_of_the_work(on_ort):
    for layer in ("stem", "conv"):
        on_ort.toggle(layer, "weight")
    pane = on_ort.view.pane(RuntimePane)
    pane.refresh()
    assert "of the multiplications" in pane._counts.value
    assert pane.fix_all.description.startswith("Fix all ")
    pane.fix_all.click()
    assert pane.errors.message == ""
    assert not [entry.layer for entry in on_ort.explanation.layers if entry.fix]
    pane.refresh()
    assert pane.fix_all.layout.display == "none"
    assert "qdq-rows" in pane._list._dom_classes


def test_what_helps_but_is_no_fix_is_shown_beside_the_reason():
    image = keras.Input((8, 8, 3), name="image")
    model = keras.Model(image, keras.layers.Conv2D(4, 3, activation="gelu", name="conv")(image))
    bench = Workbench(model, target="onnxruntime")
    pane = bench.view.pane(RuntimePane)
    pane.refresh()
    text = pane.rows.shown[0].children[1].value
    assert "quantize split_activations(model) to make that tensor visible" in text
    assert "No placement" not in text
    with pytest.raises(BenchError, match=r"There is no fix for this: .*split_activations"):
        bench.apply_fix("conv")
