"""Corrections from the bench: what applies, one undoable step each, scores, code, saving, stopping and going on."""

import itertools

import keras
import numpy as np
import pytest
from keras import layers
from small_benches import tiny_data, tiny_model

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.corrections import BY_NAME, Applied, why_not
from qdq_widgets.errors import BenchError, BenchStoppedError
from qdq_widgets.panes.corrections import CorrectionsPane
from qdq_widgets.state import plan_key

BITS = 3


def few_bits(model):
    """Make a calibrated bench whose weights have few bits."""
    bench = Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    for layer in ("stem", "conv", "head"):
        bench.configure(layer, "weight", num_bits=BITS)
    bench.calibrate(batch_size=20)  # the last batch is shorter
    return bench


def weights(bench_or_model):
    q_model = bench_or_model.q_model if isinstance(bench_or_model, Workbench) else bench_or_model
    return [np.asarray(value) for value in q_model.get_weights()]


def same(first, second):
    return len(first) == len(second) and all(map(np.array_equal, first, second))


def reasons(bench):
    return {offer.name: offer.why_not for offer in bench.corrections.offers}


def rebuilt(bench):
    """Run the bench's code as a fresh kernel would, and return the quantized model."""
    names = {"model": bench.model, "calibration_data": tiny_data()[0]}
    exec(bench.to_code(), names)
    return names["q_model"]


@pytest.fixture(scope="module")
def corrected():
    """A bench behind clipping, learned rounding and new statistics, with the weights at each step."""
    bench = few_bits(tiny_model())
    stages = [weights(bench)]
    for name, settings in (("clip_weights", {}), ("learn_rounding", {"steps": 20}), ("estimate_statistics", {})):
        bench.correct(name, **settings)
        stages.append(weights(bench))
    return bench, stages


def test_every_correction_says_what_it_needs_before_it_can_start(model):
    bench = Workbench(model, target="onnxruntime")
    assert all("needs data" in why for name, why in reasons(bench).items() if name in BY_NAME)
    bench = Workbench(model, train_data=tiny_data(), target="onnxruntime")
    assert all("Calibrate first" in why for name, why in reasons(bench).items() if name in BY_NAME)
    with pytest.raises(BenchError, match="Calibrate first"):
        bench.correct("learn_rounding")
    bench.calibrate()
    found = reasons(bench)
    assert found["learn_rounding"] == found["clip_weights"] == found["gptq_weights"] == ""
    assert "folds batch normalizations" in found["equalize_scales"]
    assert "new_bench('fold_batch_norm')" in found["fold_batch_norm"]
    with pytest.raises(BenchError, match="no such correction"):
        bench.correct("nothing")
    with pytest.raises(BenchError, match="has the settings granularity, steps"):
        bench.correct("learn_rounding", epochs=3)
    with pytest.raises(BenchError, match="samples must be a whole number"):
        bench.correct("learn_rounding", samples=0)


def test_each_correction_is_one_step_of_the_same_plan_and_undo_brings_the_former_weights_back(corrected):
    bench, stages = corrected
    assert bench.stage == "corrected"
    assert all(not same(before, after) for before, after in itertools.pairwise(stages))
    position = bench.history.position
    for back, wanted in enumerate(reversed(stages[:-1]), start=1):
        bench.undo()
        assert bench.history.position == position - back
        assert same(weights(bench), wanted)
    assert (bench.stage, bench.corrections.applied) == ("calibrated", ())
    bench.go_to(position)
    assert same(weights(bench), stages[-1])
    assert [applied.name for applied in bench.corrections.applied] == list(BY_NAME)[2:3] + list(BY_NAME)[5:]


def test_every_correction_is_scored_before_and_behind_it(corrected):
    bench, _ = corrected
    clipped, learned, _ = bench.corrections.applied
    assert clipped.before == bench.snapshot.scores["calibrated"]
    assert learned.before == clipped.after
    assert bench.snapshot.scores["corrected"] == bench.corrections.applied[-1].after
    assert learned.gain == pytest.approx(learned.after.metrics["accuracy"] - learned.before.metrics["accuracy"])
    assert bench.effects.present is None or bench.effects.present.score.measured
    assert any("corrected" in text for text in bench_texts(bench))


def bench_texts(bench):
    from qdq_widgets.header import summary_texts

    return summary_texts(bench)


def test_the_bar_tells_the_change_of_the_score_until_the_step_is_left():
    bench = few_bits(tiny_model())
    bench.correct("clip_weights")
    told = bench.effects.present
    assert told.score.change == pytest.approx(100 * bench.corrections.applied[-1].gain)
    bench.undo()
    assert bench.effects.present is None


def test_learned_rounding_behind_clipping_is_learned_from_the_model_before_it(corrected):
    bench, stages = corrected
    assert same(stages[2], weights(_learned(bench.model, bench.spec, reference=bench.model)))
    assert not same(stages[2], weights(_learned(bench.model, bench.spec, reference=None)))


def _learned(model, spec, reference):
    data = tiny_data()[0]
    plan = qdq.plan_placement(model, quantization_spec=spec, target="onnxruntime")
    q_model = qdq.quantize_model(qdq.correction.clip_weights(model, plan=plan), plan=plan)
    qdq.calibrate(q_model, data, steps=16, batch_size=20, verbose=False)
    qdq.learn_rounding(q_model, data, steps=20, reference=reference, verbose=False)
    return q_model


def test_the_code_gives_a_fresh_kernel_the_same_weights(corrected):
    bench, stages = corrected
    assert "reference=reference" in bench.to_code()
    assert same(weights(rebuilt(bench)), stages[-1])


def test_a_saved_bench_has_the_corrected_weights_and_the_way_back(corrected, tmp_path):
    bench, stages = corrected
    bench.keep_variant("rounded")
    bench.save(tmp_path)
    other = Workbench.load(tmp_path, train_data=tiny_data(), validation_data=tiny_data(32))
    assert (other.stage, other.to_code()) == ("corrected", bench.to_code())
    assert other.corrections.applied == bench.corrections.applied
    assert same(weights(other), stages[-1])
    other.undo()
    assert same(weights(other), stages[-2])
    other.go_to(3)
    assert (other.stage, same(weights(other), stages[0])) == ("calibrated", True)
    other.show_variant("rounded")
    assert same(weights(other), stages[-1])


def test_a_new_bench_goes_on_with_corrections_and_their_undo(corrected):
    bench, stages = corrected
    other = Workbench(bench.model, train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    other.continue_from(bench)
    other.undo()
    assert same(weights(other), stages[-2])
    assert same(weights(bench), stages[-1])


def test_biases_are_corrected_also_where_layers_have_none_and_rounding_is_then_refused(tmp_path):
    keras.utils.set_random_seed(0)  # nearest rounding stays in one of ten networks
    image = keras.Input((6, 6, 2), name="image")
    hidden = layers.ReLU(name="relu")(layers.Conv2D(3, 3, use_bias=False, name="stem")(image))
    hidden = layers.Conv2D(3, 3, use_bias=False, name="conv")(hidden)
    outputs = layers.Dense(3, name="head")(layers.Flatten(name="flat")(hidden))
    bench = few_bits(keras.Model(image, outputs, name="unbiased"))
    key = plan_key(bench.plan)
    applied = bench.correct("correct_biases")
    assert applied.after is None  # the model is not compiled
    assert "2 biases were added" in applied.report
    assert plan_key(bench.plan) == key
    assert same(weights(rebuilt(bench)), weights(bench))
    assert "no reference" in reasons(bench)["learn_rounding"]
    with pytest.raises(BenchError, match="no reference"):
        bench.correct("learn_rounding")
    bench.export(tmp_path / "corrected.onnx")
    assert bench.exports[-1].verification.passed
    kept = weights(bench)
    bench.undo()
    bench.correct("equalize_scales")
    bench.correct("gptq_weights")
    assert not same(weights(bench), kept)
    assert same(weights(rebuilt(bench)), weights(bench))


def test_training_goes_on_from_corrected_weights_and_only_statistics_come_behind_it(corrected):
    bench, _ = corrected
    other = Workbench(bench.model, train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    other.continue_from(bench)
    run = other.fine_tune(1, learning_rate=1e-6, batch_size=24)
    assert other.stage == "fine-tuned"
    assert run.scores[0] == bench.corrections.applied[-1].after
    assert "trained already" in reasons(other)["learn_rounding"]
    trained = weights(other)
    applied = other.correct("estimate_statistics")
    assert (applied.trained, other.stage) == (True, "fine-tuned")
    code = other.to_code().splitlines()
    (trained_at,) = (place for place, line in enumerate(code) if line.startswith("q_model.fit("))
    assert code[trained_at + 1].startswith("qdq.correction.estimate_statistics(q_model, ")
    other.undo()
    assert same(weights(other), trained)


def test_calibrating_anew_starts_from_the_float_model_and_is_undone(corrected):
    bench, stages = corrected
    other = Workbench(bench.model, train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    other.continue_from(bench)
    other.calibrate("mse", batch_size=20)
    assert (other.stage, other.corrections.applied) == ("calibrated", ())
    assert "corrected" not in other.snapshot.scores
    other.undo()
    assert (other.stage, same(weights(other), stages[-1])) == ("corrected", True)


def stop_when(bench, wanted):
    def listen(event):
        job = bench.jobs.current
        if event == "job" and job is not None and wanted(job):
            job.stop()

    bench.subscribe(listen)
    return lambda: bench._events.listeners.remove(listen)


def test_learned_rounding_that_was_stopped_leaves_the_weights_and_goes_on(corrected):
    bench = Workbench(corrected[0].model, train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    bench.continue_from(corrected[0])
    bench.go_to(3)
    before, position = weights(bench), bench.history.position
    no_more = stop_when(bench, lambda job: job.text.startswith("1 of 3"))
    with pytest.raises(BenchStoppedError, match="The weights are as before"):
        bench.correct("learn_rounding", steps=5)
    no_more()
    assert same(weights(bench), before)
    assert bench.history.position == position
    assert "1 units are learned" in bench.corrections.unfinished
    seen = []
    bench.subscribe(lambda event: seen.append(bench.jobs.current.text) if bench.jobs.current is not None else None)
    bench.correct("learn_rounding", steps=5)
    assert bench.corrections.unfinished == ""
    resumed = weights(bench)
    bench.undo()
    bench.correct("learn_rounding", steps=5)
    assert same(weights(bench), resumed)


def test_what_changes_nothing_or_the_layers_is_refused_by_name(model):
    with pytest.raises(BenchError, match="has a checkpoint"):
        few_bits(model).correct("clip_weights", checkpoint="x.npz")
    even = keras.Input((4,), name="image")
    flat = keras.Model(even, layers.Dense(2, kernel_initializer="ones", name="head")(even), name="even")
    bench = Workbench(flat, calibration_data=np.ones((8, 4), "float32"), target="onnxruntime")
    bench.calibrate()
    with pytest.raises(BenchError, match="changed nothing"):
        bench.correct("clip_weights")
    assert (bench.stage, len(bench.history)) == ("calibrated", 1)


def test_corrections_that_change_layers_open_a_new_bench_with_the_same_data(model):
    bench = few_bits(model)
    folded = bench.corrections.new_bench("fold_batch_norm")
    assert "norm" not in folded.graph.layers
    assert plan_bits(folded) == {BITS}
    folded.calibrate()
    assert folded.curves.ptq is not None  # the loss and the validation data came along
    assert reasons(folded)["equalize_scales"] == ""
    with pytest.raises(BenchError, match="no such correction of the float model"):
        bench.corrections.new_bench("learn_rounding")


def plan_bits(bench):
    return {placement.quantizer.num_bits for placement in bench.plan.placements if placement.site == "weight"}


def test_weights_alone_are_one_undoable_change_of_the_plan(model):
    bench = Workbench(model, target="onnxruntime")
    before = bench.plan
    bench.weights_alone(4, None)
    assert {(placement.layer, placement.site) for placement in bench.plan.placements} == {("head", "weight")}
    bench.undo()
    assert plan_key(bench.plan) == plan_key(before)


def test_the_order_and_what_does_not_go_together():
    applied = [Applied("learn_rounding", {}, {})]
    assert "not to be combined" in why_not(BY_NAME["correct_biases"], applied)
    assert "comes before" in why_not(BY_NAME["smooth_scales"], applied)
    assert "already" in why_not(BY_NAME["learn_rounding"], applied)
    assert why_not(BY_NAME["estimate_statistics"], [*applied, Applied("estimate_statistics", {}, {})]) == ""
    with pytest.raises(BenchError, match="does not know"):
        Applied.from_dict({**applied[0].to_dict(), "name": "unknown"})
    with pytest.raises(BenchError, match="no settings of a calibration"):
        Applied.from_dict({**applied[0].to_dict(), "calibration": {"x); evil(": 1}})


def test_the_pane_says_what_applies_runs_it_and_shows_the_gain(corrected):
    bench = Workbench(corrected[0].model, train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    pane = bench.view.pane(CorrectionsPane)
    pane.refresh()
    assert pane.run.disabled
    assert "Calibrate first" in pane._about.value
    bench.continue_from(corrected[0])
    bench.go_to(3)
    pane.refresh()
    assert not pane.run.disabled
    pane.fields["learn_rounding"]["steps"].value = 5
    pane.fields["learn_rounding"]["drop"].value = "much"
    pane.run.click()
    assert "drop is a number" in pane.errors.message
    pane.fields["learn_rounding"]["drop"].value = "0,5"
    pane.run.click()
    assert bench.jobs.wait(120)
    assert pane.errors.message == ""
    pane.refresh()
    assert bench.corrections.applied[-1].settings["drop"] == 0.5
    assert "applied already" in pane._about.value
    assert f"{bench.corrections.applied[-1].gain:+.4f}" in pane._done.value
    pane.picker.value = "clip_weights"
    assert "comes before" in pane._about.value
    pane.block.value = None
    pane.alone.click()
    assert bench.history.present.label == "weights alone: 4 bits"
