"""The store of a bench's models: what a calibration, a restored snapshot and too many models leave of the others."""

import pathlib
from types import SimpleNamespace

import numpy as np
import pytest

from qdq_widgets.curves import Scores
from qdq_widgets.errors import BenchError
from qdq_widgets.models import KEPT_MODELS, ModelStore
from qdq_widgets.snapshots import CALIBRATED, CORRECTED, FINE_TUNED, Snapshot

GOOD, BETTER = Scores(0.5, {"accuracy": 0.75}), Scores(0.25, {"accuracy": 0.875})
FILE = pathlib.Path("plan.onnx")


class NamedModels(ModelStore):
    """A store whose models are texts, which are built in no time."""

    def __init__(self):
        super().__init__(SimpleNamespace(weights=[np.zeros(3, "float32")]))
        self.built = []

    def build(self, plan, calibration=None):
        self.built.append(f"{plan.name} with {calibration or self.calibration}")
        return self.built[-1]


def plan_of(name):
    return SimpleNamespace(name=name, _bench_key=name)


ONE, TWO = plan_of("one"), plan_of("two")


@pytest.fixture
def store():
    """A store after the calibration of `ONE`."""
    store = NamedModels()
    store.calibrated(ONE, "model of one", "ranges", (None, 32))
    return store


def trained(store, plan, stage=FINE_TUNED):
    store.put(plan, f"{stage} {plan.name}", stage, ("correction",), ("fit",))
    store.remember_scores(plan, stage, BETTER)
    store.remember_scores(plan, CALIBRATED, GOOD)
    store.remember_file(plan, 1000, FILE)


def test_a_new_store_has_nothing_and_asks_for_a_calibration():
    store = NamedModels()
    assert store.snapshot(ONE) == Snapshot()
    assert (store.stage(ONE), store.calibrated_how(), store.last_latency) == ("planned", {}, None)
    assert store.present(ONE) == "one with None"  # without ranges, and not kept
    with pytest.raises(BenchError, match=r"Calibrate first: wb.calibrate\(\)"):
        store.get(ONE)


def test_a_model_is_built_once_for_every_plan_with_the_recorded_ranges(store):
    assert store.get(ONE) == "model of one"
    assert store.stage(TWO) == CALIBRATED
    assert store.snapshot(TWO).model is None
    assert store.get(TWO) is store.get(TWO) is store.present(TWO)
    assert store.built == ["two with ranges"]


@pytest.mark.parametrize("stage", [CORRECTED, FINE_TUNED])
def test_another_calibration_leaves_weights_of_their_own_with_their_scores_and_files(store, stage):
    store.remember_scores(ONE, CALIBRATED, GOOD)
    store.remember_file(ONE, 500, FILE)
    store.remember_latency(ONE, "times")
    trained(store, TWO, stage)
    store.use_calibration("other ranges")
    one, two = store.snapshot(ONE), store.snapshot(TWO)
    assert (one.stage, one.model, one.calibration, one.scores, one.file) == (CALIBRATED, None, "other ranges", {}, None)
    assert (one.size, one.latency) == (500, "times")  # they depend on no ranges
    assert (two.stage, two.model, two.scores, two.file) == (stage, f"{stage} two", {stage: BETTER}, FILE)
    assert store.read is None


def test_a_snapshot_is_of_one_plan_and_its_present_stage(store):
    trained(store, TWO)
    assert store.snapshot(ONE).scores == {}
    two = store.snapshot(TWO)
    assert two.scores == {CALIBRATED: GOOD, FINE_TUNED: BETTER}
    assert (two.corrections, two.fits, two.size, two.score) == (("correction",), ("fit",), 1000, BETTER)
    assert (store.scores(TWO), store.scores(TWO, CALIBRATED), store.scores(ONE)) == (BETTER, GOOD, None)
    store.remember_scores(TWO, FINE_TUNED, None)
    store.remember_scores(TWO, FINE_TUNED, None)
    assert store.scores(TWO) is None
    assert store.file(TWO) == FILE


def test_a_snapshot_brings_back_what_it_held(store):
    trained(store, ONE)
    store.remember_latency(ONE, "times")
    held = store.snapshot(ONE)
    store.calibrated(ONE, "calibrated anew", "other ranges", (4, 8))
    store.restore(ONE, held)
    assert store.snapshot(ONE) == held
    assert store.get(ONE) == "fine-tuned one"


def test_a_planned_snapshot_takes_trained_weights_away_and_leaves_calibrated_ones(store):
    trained(store, TWO)
    for plan in (ONE, TWO):
        store.restore(plan, Snapshot())
    assert store.get(ONE) == "model of one"
    two = store.snapshot(TWO)
    assert (two.stage, two.model, two.scores, two.file) == (CALIBRATED, None, {CALIBRATED: GOOD}, None)
    assert store.calibration == "ranges"


def test_a_snapshot_with_the_present_ranges_leaves_the_models_of_other_plans(store):
    store.remember_scores(ONE, CALIBRATED, GOOD)
    store.restore(TWO, Snapshot(CALIBRATED, "given", "ranges"))
    assert (store.get(ONE), store.get(TWO)) == ("model of one", "given")
    store.restore(TWO, Snapshot(CALIBRATED, None, "other ranges"))
    assert store.scores(ONE) is None
    assert store.get(ONE) == "one with other ranges"


def test_of_too_many_models_the_rebuildable_ones_go_first_and_then_the_oldest(store):
    plans = [plan_of(str(number)) for number in range(KEPT_MODELS)]
    for plan in plans[:-1]:
        trained(store, plan)
    assert store.snapshot(ONE).model == "model of one"
    trained(store, plans[-1])  # one too many
    assert store.snapshot(ONE).model is None
    assert (store.dropped, store.stage_dropped(ONE)) == (0, "")

    store.get(plans[0])  # used last
    trained(store, TWO, CORRECTED)
    assert store.snapshot(plans[0]).model == "fine-tuned 0"
    lost = store.snapshot(plans[1])
    assert (lost.stage, lost.model, lost.scores, lost.file) == (CALIBRATED, None, {CALIBRATED: GOOD}, None)
    assert (store.dropped, store.stage_dropped(plans[1])) == (1, FINE_TUNED)


def test_a_calibrated_model_costs_no_trained_one(store):
    plans = [plan_of(str(number)) for number in range(KEPT_MODELS)]
    for plan in plans:
        trained(store, plan)
    assert store.get(TWO) == "two with ranges"
    assert [store.snapshot(plan).stage for plan in plans] == [FINE_TUNED] * KEPT_MODELS
    assert store.dropped == 0


@pytest.mark.parametrize(
    "again",
    [
        lambda store, plan: trained(store, plan, CORRECTED),
        lambda store, plan: store.calibrated(plan, "anew", "ranges", (None, 32)),
        lambda store, plan: store.restore(plan, Snapshot()),
    ],
    ids=["trained", "calibrated", "restored"],
)
def test_what_was_dropped_is_forgotten_with_new_work_on_its_plan(store, again):
    plans = [plan_of(str(number)) for number in range(KEPT_MODELS + 1)]
    for plan in plans:
        trained(store, plan)
    assert store.stage_dropped(plans[0]) == FINE_TUNED
    again(store, plans[0])
    assert store.stage_dropped(plans[0]) == ""


def test_new_weights_have_no_file_yet(store):
    trained(store, ONE)
    store.put(ONE, "trained on", FINE_TUNED)
    assert store.file(ONE) is None
    store.remember_file(ONE, 2000)  # a temporary one
    assert (store.file(ONE), store.snapshot(ONE).size) == (None, 2000)
    assert (store.corrections(ONE), store.fits(ONE)) == ((), ())


def test_weights_elsewhere_are_named_for_plans_without_any(store):
    assert store.stage_elsewhere(ONE) == ""
    trained(store, TWO, CORRECTED)
    assert (store.stage_elsewhere(ONE), store.stage_elsewhere(TWO)) == (CORRECTED, "")
    trained(store, plan_of("three"))
    assert (store.stage_elsewhere(ONE), store.stage_elsewhere(TWO)) == (FINE_TUNED, "")


@pytest.mark.parametrize(
    ("samples", "batches", "size"), [(48, 2, 32), (64, 2, 32), (65, 2, 33), (48, 3, 16), (50, 3, 17), (0, 0, 32)]
)
def test_the_batch_size_of_a_loaded_calibration_explains_its_counts(samples, batches, size):
    store = NamedModels()
    result = SimpleNamespace(method="mse", samples=samples, batches=batches, settings={"bins": 64})
    store.use_calibration(result)
    assert store.calibrated_how() == {"method": "mse", "steps": batches, "batch_size": size, "bins": 64}
    store.calibrated(ONE, "model", result, (None, 7))
    assert store.calibrated_how() == {"method": "mse", "steps": None, "batch_size": 7, "bins": 64}


def test_the_last_latency_is_the_one_measured_last(store):
    for plan, report in ((ONE, "first"), (TWO, "second"), (ONE, "third")):
        store.remember_latency(plan, report)
        assert store.last_latency == report
    assert (store.latency(ONE), store.latency(TWO)) == ("third", "second")


def test_contents_that_were_taken_out_follow_no_later_work(store):
    before = store.copy_contents()
    trained(store, ONE)
    after = store.swap(before)
    assert (store.stage(ONE), store.get(ONE)) == (CALIBRATED, "model of one")
    store.swap(after)
    assert store.get(ONE) == "fine-tuned one"


@pytest.mark.parametrize("with_scores", [True, False])
def test_a_store_takes_over_another_ones_work_and_leaves_it_alone(store, with_scores):
    trained(store, TWO)
    other = NamedModels()
    other.adopt(store, with_scores=with_scores)
    assert (other.get(TWO), other.read) == ("fine-tuned two", (None, 32))
    assert other.scores(TWO) == (BETTER if with_scores else None)
    other.put(TWO, "its own", FINE_TUNED)
    assert store.get(TWO) == "fine-tuned two"
    assert store.scores(TWO) == BETTER


def test_weights_of_the_float_model_are_compared_with_those_of_every_recorded_use():
    store = NamedModels()
    (weight,) = store.float_model.weights
    assert not store.weights_changed
    store.note_weights()
    weight[0] = 1.0
    assert store.weights_changed
    weight[0] = 0.0
    assert not store.weights_changed
    weight[0] = 2.0
    store.note_weights()
    assert store.weights_changed  # models with the first weights are there still


def test_work_that_is_restored_remembers_the_weights_it_was_done_with():
    model = SimpleNamespace(weights=[np.zeros(3, "float32")])
    planned = ModelStore.restored(model, ONE, Snapshot())
    done = ModelStore.restored(model, ONE, Snapshot(FINE_TUNED, "model", "ranges"))
    model.weights[0][0] = 1.0
    assert (planned.weights_changed, done.weights_changed) == (False, True)
    assert (done.stage(ONE), done.get(ONE)) == (FINE_TUNED, "model")
