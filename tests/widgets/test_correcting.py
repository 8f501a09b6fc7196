"""Which corrections apply to a plan and what they say where not, without running any; names, labels and new benches."""

import contextlib
import itertools
from types import SimpleNamespace

import pytest
from mock_graphs import GraphMaker, Weight, chain

import qdq_workbench as qdq
from qdq_widgets.correcting import Correcting, _is_smoothable, _label
from qdq_widgets.corrections import BY_NAME, CORRECTIONS, Applied
from qdq_widgets.curves import Curves, Scores
from qdq_widgets.data import BenchData
from qdq_widgets.errors import BenchError
from qdq_widgets.snapshots import CALIBRATED, CORRECTED, FINE_TUNED

CONVS = chain(("Conv2D", "conv"), ("ReLU", "relu"), ("Conv2D", "last"))
DENSE = chain(("Conv2D", "conv"), ("Flatten", "flat"), ("Dense", "head"))


def normalized():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("BatchNormalization", "norm", "conv", weights=(Weight("gamma", (4,)), Weight("beta", (4,))))
    return maker.graph("norm")


def correcting(graph, stage=CALIBRATED, *, applied=(), data=None, spec=None, make=None, float_model="float model"):
    plan = qdq.plan_placement(graph, quantization_spec=spec)
    models = SimpleNamespace(stage=lambda _: stage, corrections=lambda _: applied, float_model=float_model)
    work = SimpleNamespace(models=models, data=data or BenchData(calibration="data"))
    plans = SimpleNamespace(plan=plan, state="state", lock=contextlib.nullcontext())
    return Correcting(make, plans, work, SimpleNamespace(curves=Curves()), None, None)


def reasons(*arguments, **named):
    return {offer.name: offer.why_not for offer in correcting(*arguments, **named).offers}


# ---------------------------------------------------------------------- what applies


def test_each_need_is_named_before_the_next_one():
    without = reasons(CONVS, data=BenchData(validation="data"))
    assert set(without.values()) == {
        "It needs data: Workbench(model, calibration_data=images), or train_data=(images, labels)."
    }
    assert not [why for why in reasons(CONVS, data=BenchData(train=("x", "y"))).values() if "needs data" in why]
    planned = reasons(CONVS, "planned")
    assert set(planned.values()) == {"Calibrate first: corrections go on from the calibrated model."}


def test_a_network_of_convolutions_has_these_corrections():
    found = reasons(CONVS)
    assert [name for name, why in found.items() if not why] == [
        *("equalize_scales", "clip_weights", "correct_biases", "learn_rounding"),
    ]
    assert "no normalization and no Dense layer" in found["smooth_scales"]
    assert "learned rounding has convolutions too" in found["gptq_weights"]
    assert found["estimate_statistics"] == "The model has no batch normalization."


def test_a_dense_layer_can_be_smoothed_and_its_quantized_kernel_rounded_row_by_row():
    found = reasons(DENSE)
    assert found["smooth_scales"] == found["gptq_weights"] == ""
    spec = qdq.QuantizationSpec()
    spec.add("head", quantize_weight=False)
    found = reasons(DENSE, spec=spec)
    assert found["smooth_scales"] == ""
    assert "quantizes the kernel of no Dense" in found["gptq_weights"]
    maker = GraphMaker()
    maker.add("EinsumDense", "product", "image", weights=(Weight("kernel", (4, 4)),))
    assert reasons(maker.graph("product"))["gptq_weights"] == ""


def test_a_normalization_is_smoothed_gets_new_statistics_and_is_folded_first():
    found = reasons(normalized())
    assert found["smooth_scales"] == found["estimate_statistics"] == ""
    assert found["equalize_scales"].startswith("It folds batch normalizations first. It changes the layers, so go on")
    assert "wb.corrections.new_bench('fold_batch_norm')" in found["fold_batch_norm"]


def test_trained_weights_get_new_statistics_alone():
    found = reasons(normalized(), FINE_TUNED)
    assert found["estimate_statistics"] == ""
    others = {why for name, why in found.items() if name in BY_NAME and name != "estimate_statistics"}
    assert others == {"The weights of this plan are trained already, and know their rounding; correct before training."}
    assert reasons(normalized(), CORRECTED)["clip_weights"] == ""


def test_weights_in_float_have_nothing_to_correct_but_statistics():
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_weight=False)
    found = reasons(normalized(), spec=spec)
    assert found["clip_weights"] == found["smooth_scales"] == "The plan quantizes no weights."
    assert found["estimate_statistics"] == ""


def test_what_was_applied_decides_what_can_follow():
    found = reasons(DENSE, CORRECTED, applied=(Applied("gptq_weights", {}, {}),))
    assert found["learn_rounding"] == "The weights are rounded already."
    assert found["gptq_weights"].startswith("It was applied already")
    assert correcting(DENSE, applied=("an applied one",)).applied == ("an applied one",)


@pytest.mark.parametrize(
    ("class_name", "settings", "offered"),
    [
        ("Activation", {"activation": "gelu"}, True),
        ("Dense", {"activation": "silu"}, True),
        ("Swish", {}, True),
        ("Activation", {"activation": "relu"}, False),
        ("ReLU", {}, False),
    ],
)
def test_a_shift_is_offered_for_activations_with_a_small_negative_side(class_name, settings, offered):
    graph = chain(("Conv2D", "conv"), (class_name, "act", settings))
    found = reasons(graph)
    assert ("shift_negative" in found) is offered
    assert "fold_batch_norm" not in found
    assert list(found)[: len(CORRECTIONS)] == list(BY_NAME)


@pytest.mark.parametrize(
    ("class_name", "weight", "smoothable"),
    [
        ("LayerNormalization", "gamma", True),
        ("RMSNormalization", "scale", True),
        ("Block", "inner/gamma", True),
        ("LayerNormalization", "beta", False),
        ("Conv2D", "scale_factor", False),
        ("Dense", "kernel", True),
    ],
)
def test_channels_are_scaled_by_normalizations_and_dense_layers(class_name, weight, smoothable):
    maker = GraphMaker()
    maker.add(class_name, "node", "image", weights=(Weight(weight, (4,)),))
    assert _is_smoothable(maker.nodes[-1]) is smoothable


# ---------------------------------------------------------------------- names and labels


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("fold_batch_norm", {}, r"changes the layers.*new_bench\('fold_batch_norm'\) Received: 'fold_batch_norm'"),
        ("rounding", {}, "Known: equalize_scales, .* Received: 'rounding'"),
        ("gptq_weights", {"checkpoint": "a.npz"}, "Received: 'gptq_weights', checkpoint='a.npz'"),
        ("gptq_weights", {"steps": 3}, "gptq_weights has the settings damping"),
        ("gptq_weights", {}, "GPTQ does not apply here. The plan quantizes .* Received: 'gptq_weights'"),
    ],
)
def test_what_cannot_be_done_is_named_before_anything_runs(name, settings, message):
    with pytest.raises(BenchError, match=message):
        correcting(CONVS).correct(name, **settings)


@pytest.mark.parametrize(
    ("name", "given", "label"),
    [
        ("learn_rounding", {}, "Learned rounding, steps=1000"),
        ("learn_rounding", {"steps": 5, "drop": 0.5}, "Learned rounding, steps=5, drop=0.5"),
        ("clip_weights", {}, "Weight clipping"),
        ("clip_weights", {"method": "mae"}, "Weight clipping, method=mae"),
        ("gptq_weights", {"activation_order": True, "samples": 1024}, "GPTQ, activation_order=True"),
    ],
)
def test_a_step_is_labelled_with_what_is_not_the_default(name, given, label):
    correction = BY_NAME[name]
    assert _label(correction, correction.checked(given)) == label


def test_a_new_bench_is_one_of_a_corrected_float_model():
    with pytest.raises(BenchError, match=r"\['fold_batch_norm', 'shift_negative', .*Received: 'gptq_weights'"):
        correcting(CONVS).new_bench("gptq_weights")


# ---------------------------------------------------------------------- the scores beside a correction


def test_without_labels_nothing_is_scored():
    part = correcting(CONVS)
    part._work.can_score = lambda: False
    assert part._score_before(part._plans.plan, None) is None
    assert part._scored("model", None) is None


@pytest.mark.parametrize(
    ("stage", "score"), [(CALIBRATED, "of the plan"), (CORRECTED, "of its weights"), (FINE_TUNED, "of its weights")]
)
def test_the_score_before_is_that_of_the_present_weights(stage, score):
    part = correcting(CONVS, stage)
    calls = itertools.count()
    part._work.can_score = lambda: True
    part._work.models.scores = lambda _: "of the plan"
    part._training.score_unless_stopped = lambda *_: next(calls)
    part._training.score_of_kept = lambda *_: "of its weights"
    assert part._score_before(part._plans.plan, None) == score
    assert next(calls) == 1  # the float model and the ranges are scored in each case


def test_the_gain_is_that_of_the_metric_where_both_were_scored():
    before, after = Scores(1.0, {"accuracy": 0.5}), Scores(0.5, {"accuracy": 0.75})
    applied = Applied("clip_weights", {}, {}, metric="accuracy", before=before, after=after)
    assert applied.gain == 0.25
    assert Applied("clip_weights", {}, {}, metric="accuracy", before=before).gain is None
