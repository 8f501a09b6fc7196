"""Variants: what the target makes of them, and how two of them differ."""

import dataclasses

import keras
import numpy as np
import pytest
from small_benches import tiny_data, tiny_model

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.errors import BenchError
from qdq_widgets.panes.variants import VariantsPane
from qdq_widgets.variants import coverage


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


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_shared_layer_is_quantized_where_all_of_its_calls_are(order):
    rows = [keras.Input((4,), name=name) for name in ("one", "other")]
    read = [rows[0], keras.layers.ReLU(name="relu")(rows[1])]
    dense = keras.layers.Dense(2, name="dense")
    spec = qdq.QuantizationSpec()
    spec.add("dense", quantize_input=False, quantize_weight=True)
    spec.add("relu", quantize_input=True, quantize_output=True)
    model = keras.Model(rows, [dense(read[place]) for place in order])
    plan = qdq.plan_placement(model, "partial", spec, target="tensorrt")
    calls = [plan.input_placement(call.name, 0) is not None for call in plan.graph.calls("dense")]

    assert calls == [place == 1 for place in order]
    assert coverage(plan) == (0, 1)


def test_variants_of_a_folder_that_kept_no_weights_are_not_measured(two):
    kept = two._variants.by_name
    kept.update({name: dataclasses.replace(variant, stage="trained") for name, variant in kept.items()})
    before = two.variants

    assert two.measure_variants() == before
    assert [variant.size for variant in before] == [None, None]


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
    assert "in INT8" in pane._table.value


def predicted(bench):
    return bench.q_model.predict(tiny_data()[0], verbose=0)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Two calibrations and a fine-tuned model of one and the same plan, each kept; and what each predicted."""
    bench = Workbench(tiny_model(), train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    bench.keep_variant("plan")
    bench.calibrate("percentile", percentile=70.0)
    bench.keep_variant("narrow")
    outputs = {"narrow": predicted(bench)}
    bench.calibrate()
    bench.export(tmp_path_factory.mktemp("kept") / "ptq.onnx", verify=False)
    bench.keep_variant("PTQ")
    outputs["PTQ"] = predicted(bench)
    bench.fine_tune(1, learning_rate=0.03)
    bench.keep_variant("QAT")
    outputs["QAT"] = predicted(bench)
    assert not np.allclose(outputs["narrow"], outputs["PTQ"])
    assert not np.allclose(outputs["QAT"], outputs["PTQ"])
    return bench, outputs


def is_back(bench, outputs, name):
    np.testing.assert_array_equal(predicted(bench), outputs[name])
    return bench.stage == ("fine-tuned" if name == "QAT" else "calibrated")


def test_measuring_leaves_every_variant_what_it_was(kept):
    bench, outputs = kept
    bench.show_variant("QAT")
    before = {variant.name: (variant.stage, variant.accuracy) for variant in bench.variants}
    after = {variant.name: (variant.stage, variant.accuracy) for variant in bench.measure_variants()}
    assert {name: after[name] for name in outputs} == {name: before[name] for name in outputs}
    assert after["plan"] == after["PTQ"] != after["QAT"]  # a bare plan takes the ranges that there are
    assert all(variant.size > 1000 for variant in bench.variants)
    assert is_back(bench, outputs, "QAT")


def test_going_to_a_variant_brings_back_ranges_weights_scores_stage_and_file(kept):
    bench, outputs = kept
    ranges = {variant.name: variant.work.calibration for variant in bench.variants}
    for name in ("PTQ", "narrow", "QAT", "PTQ"):
        bench.show_variant(name)
        assert is_back(bench, outputs, name)
        assert bench.calibration is ranges[name]
        assert bench.keep_variant(name).accuracy == bench.snapshot.score.metrics["accuracy"]
        assert not bench.ptq_is_stale
        assert (bench.snapshot.file is not None) == (name == "PTQ")
    assert bench.snapshot.file.name == "ptq.onnx"


def test_undo_and_redo_bring_back_the_work_on_both_sides(kept):
    bench, outputs = kept
    bench.show_variant("QAT")
    start = bench.history.position
    for name in ("PTQ", "narrow"):
        bench.show_variant(name)
    bench.toggle("head", "weight")
    bench.undo()
    assert is_back(bench, outputs, "narrow")
    bench.undo()
    assert is_back(bench, outputs, "PTQ")
    bench.undo()
    assert is_back(bench, outputs, "QAT")
    bench.go_to(start + 2)
    assert is_back(bench, outputs, "narrow")
    bench.go_to(start)
    assert is_back(bench, outputs, "QAT")
    with bench.jobs.run("something long"), pytest.raises(BenchError, match="busy"):
        bench.redo()
    assert bench.history.position == start
    assert is_back(bench, outputs, "QAT")


def test_training_on_from_a_variant_leaves_the_variant(kept):
    bench, outputs = kept
    bench.show_variant("QAT")
    score = bench.snapshot.score
    run = bench.fine_tune(1, learning_rate=0.03, resume=True)
    assert run.scores[0] == score
    assert not np.allclose(predicted(bench), outputs["QAT"])
    bench.show_variant("QAT")
    assert is_back(bench, outputs, "QAT")


def test_variants_come_back_from_a_folder(kept, tmp_path):
    bench, outputs = kept
    bench.show_variant("QAT")
    bench.fine_tune(1, learning_rate=0.03, resume=True)
    bench.show_variant("PTQ")
    bench.save(tmp_path)
    files = {path.name for path in tmp_path.iterdir()}
    assert files > {"bench.json", "model.keras"}
    assert len([name for name in files if name.startswith("variant-")]) >= 2  # and the weights that undo leads to
    bench.save(tmp_path)  # leaves no second copy
    assert len(list(tmp_path.iterdir())) == len(files)
    other = Workbench.load(tmp_path, validation_data=tiny_data(32), loss="sparse_categorical_crossentropy")
    assert not other.ptq_is_stale
    assert [(v.name, v.stage, v.accuracy, v.size) for v in other.variants] == [
        (v.name, v.stage, v.accuracy, v.size) for v in bench.variants
    ]
    assert is_back(other, outputs, "PTQ")
    assert other.snapshot.file == bench.snapshot.file
    for name in ("QAT", "narrow"):
        other.show_variant(name)
        assert is_back(other, outputs, name)
