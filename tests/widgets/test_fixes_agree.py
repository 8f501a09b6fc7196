"""A bench applies the fixes that `Explanation.apply_fixes` decides, to a state that keeps its cases and patterns."""

import dataclasses

import keras
import pytest
from keras import layers
from own_configs import FourBits
from small_benches import tiny_model

import qdq_workbench as qdq
from qdq_widgets.events import Events
from qdq_widgets.plans import Plans

FOUR_BITS = qdq.LayerQuantizeConfig(weight={"num_bits": 4})
FIXED = qdq.LayerQuantizeConfig(activation={"quantizer": "fixed", "init_min": -1.0, "init_max": 2.0})
OFF = {"quantize_input": False, "quantize_weight": False}


def joined():
    """Two readers of a concatenation."""
    x = keras.Input((4,), name="x")
    both = layers.Concatenate(name="joined")([x, x])
    return keras.Model(x, [layers.Dense(3, name=name)(both) for name in ("own", "off")])


def shared():
    """A layer that is called twice, with a result of the first call that has a second reader."""
    image, conv = keras.Input((6, 6, 2), name="image"), layers.Conv2D(2, 3, padding="same", name="conv")
    first = conv(image)
    summed = layers.Add(name="add")([conv(layers.ReLU(name="relu")(first)), first])
    return keras.Model(image, layers.Dense(3, name="head")(layers.GlobalAveragePooling2D(name="pool")(summed)))


def sequences():
    """A recurrent layer with an initial state, behind an embedding with a mask."""
    words, state = keras.Input((6,), dtype="int32", name="words"), keras.Input((4,), name="state")
    x = layers.Dense(5, name="dense")(layers.Embedding(20, 4, mask_zero=True, name="embedded")(words))
    x = layers.GRU(4, return_sequences=True, name="gru")(x, initial_state=state)
    return keras.Model([words, state], layers.Dense(3, name="last")(layers.GlobalAveragePooling1D(name="mean")(x)))


def masked():
    """Layers that read a mask of real numbers."""
    x, mask = keras.Input((6, 4), name="x"), keras.Input((6,), name="mask")
    pooled = layers.GlobalAveragePooling1D(name="mean")(layers.Dense(5, name="dense")(x), mask=mask)
    scores = layers.Softmax(name="scores")(layers.Dense(6, name="last")(pooled), mask=mask)
    return keras.Model([x, mask], scores)


def by_steps():
    """A layer for every step, with a mask of booleans."""
    x, mask = keras.Input((6, 4), name="x"), keras.Input((6,), dtype="bool", name="mask")
    return keras.Model([x, mask], layers.TimeDistributed(layers.Dense(3), name="steps")(x, mask=mask))


def gated():
    """A product with a gate, a sum with a constant, and a layer inside another."""
    image = keras.Input((6, 6, 3), name="image")
    x = layers.Conv2D(4, 3, name="conv")(image)
    inner = keras.Sequential([layers.Conv2D(4, 1, name="deep"), layers.ReLU(name="relu")], name="inner")
    x = layers.Multiply(name="gate")([inner(x), layers.Activation("sigmoid", name="sigmoid")(x)]) + 1.0
    return keras.Model(image, layers.Conv2D(2, 1, name="last")(layers.MaxPooling2D(name="pool")(x)))


#: A model, the entries of the specification in order, and the cases of the state.
STATES = {
    "switched off": (tiny_model, [("stem", OFF), ("conv", {"quantize_weight": False}), ("head", OFF)], ()),
    "nothing": (gated, [], ()),
    "beside a range of its own": (
        joined,
        [("own", {"quantize_config": FIXED}), ("joined", {}), ("off", OFF)],
        (),
    ),
    "beside a range of its own, with settings": (
        joined,
        [
            ("own", {"quantize_config": FIXED}),
            ("joined", {}),
            ("off", {"quantize_input": False, "quantize_config": FOUR_BITS}),
        ],
        (),
    ),
    "a class with settings": (
        gated,
        [("Conv2D", {"is_keras_class": True, "quantize_input": False, "quantize_config": FOUR_BITS})],
        (),
    ),
    "a pattern with settings": (gated, [("*", {"match": "glob", **OFF, "quantize_config": FOUR_BITS})], ()),
    "an entry beside a pattern with settings": (
        gated,
        [("*", {"match": "glob", "quantize_config": FOUR_BITS}), ("last", {"quantize_weight": False})],
        (),
    ),
    "a configuration of the user's own": (
        gated,
        [("conv", {"quantize_input": False, "quantize_config": FourBits()}), ("last", OFF)],
        (),
    ),
    "one call with an output": (
        shared,
        [("conv", OFF), ("conv#1", {"quantize_output": True, "quantize_weight": False}), ("add", OFF)],
        (),
    ),
    "one call that lacks nothing": (shared, [("conv", OFF), ("conv#1", {"quantize_output": True}), ("head", OFF)], ()),
    "calls that differ": (shared, [("conv#1", {"quantize_input": False}), ("head", OFF)], ()),
    "masks and initial states": (sequences, [("gru", OFF), ("dense", OFF), ("mean", {"quantize_input": False})], ()),
    "masks of real numbers": (masked, [("*", {"match": "glob", **OFF})], ()),
    "a mask of booleans": (by_steps, [("steps", OFF)], ()),
    "a pattern over masks": (sequences, [("*", {"match": "glob", "quantize_output": True}), ("dense", OFF)], ()),
    "a pattern with settings of one weight": (
        sequences,
        [("*", {"match": "glob", "quantize_config": qdq.LayerQuantizeConfig(weight={"embeddings": {"num_bits": 4}})})],
        (),
    ),
    "cases": (tiny_model, [("conv", OFF), ("add", OFF)], (qdq.AutoQDQCase(), qdq.ResNetV1QDQCase())),
}


@pytest.fixture(scope="module")
def models():
    """The models, each made once."""
    return {make: make() for make in {made: None for made, _, _ in STATES.values()}}


def bench_of(models, name, target):
    make, entries, cases = STATES[name]
    spec = qdq.QuantizationSpec()
    for layer, wishes in entries:
        spec.add(layer, **wishes)
    return Plans(models[make], spec, cases, target, Events())


def pairs(plan):
    """Return how every value of a plan is quantized, by its place."""
    return {item.key: (item.quantizer, item.method, item.scale_group) for item in plan.placements}


def values(plan):
    """Return the quantized values with their grids: one pair for all readers may replace that of one."""
    return {(item.tensor, item.quantizer, item.method) for item in plan.placements}


def decided(plans, explanation, mode="full"):
    """Return the plan that the library makes of an explanation's fixes."""
    spec = explanation.apply_fixes()
    return qdq.plan_placement(plans.planner.graph, mode, spec, target=plans.plan.target)


def assert_only_added(plans, state, plan):
    """Pairs, cases and the entries for several layers are still there, and one step back is the state before."""
    assert values(plans.plan) >= values(plan)
    assert plans.state.cases == state.cases
    several = [entry for entry in state.spec.layers if entry.is_keras_class or entry.match != "exact"]
    assert [entry for entry in plans.state.spec.layers if entry in several] == several
    assert len(plans.history) == 2
    plans.history.undo()
    assert plans.state == state


@pytest.mark.parametrize("target", qdq.target_names())
@pytest.mark.parametrize("name", STATES)
def test_all_fixes_are_those_of_the_library(models, name, target):
    plans = bench_of(models, name, target)
    state, plan = plans.state, plans.plan
    expected = decided(plans, plans.explanation)
    if not any(entry.fix for entry in plans.explanation.layers):
        assert pairs(expected) == pairs(plan)
        return
    plans.apply_fixes()
    assert pairs(plans.plan) == pairs(expected)
    assert not [entry.layer for entry in plans.explanation.layers if entry.fix]
    assert_only_added(plans, state, plan)


@pytest.mark.parametrize("target", qdq.target_names())
@pytest.mark.parametrize("name", STATES)
def test_the_fixes_of_some_layers_are_those_of_the_library(models, name, target):
    """Each layer alone, then all together, which are the fixes of `apply_fixes`."""
    plans = bench_of(models, name, target)
    state, plan, explanation = plans.state, plans.plan, plans.explanation
    fixable = [entry for entry in explanation.layers if entry.fix]
    for entry in fixable:
        expected = decided(plans, dataclasses.replace(explanation, layers=(entry,)))
        assert pairs(plans.planner.plan(plans.state_with_fix(entry.layer))) == pairs(expected)
    if fixable:
        plans.apply_fix(*(entry.layer for entry in fixable))
        assert_only_added(plans, state, plan)


@pytest.mark.parametrize("target", qdq.target_names())
def test_partial_mode_stays_partial(models, target):
    plans = bench_of(models, "an entry beside a pattern with settings", target)
    plans.remove_entry(0)
    plans.set_mode("partial")
    expected = decided(plans, plans.explanation, "partial")
    plans.apply_fixes()
    assert (plans.state.mode, plans.plan.mode) == ("partial", "partial")
    assert pairs(plans.plan) == pairs(expected)


def test_a_configuration_of_the_users_own_stays_the_object_that_it_is(models):
    plans = bench_of(models, "a configuration of the user's own", "onnxruntime")
    (own,) = {entry.quantize_config for entry in plans.state.spec.layers} - {None}
    plans.apply_fix("conv")
    assert [entry.quantize_config for entry in plans.state.spec.layers if entry.name == "conv"] == [own]


def test_a_mask_of_booleans_is_no_input_of_a_fix(models):
    plans = bench_of(models, "a mask of booleans", "onnxruntime")
    plans.apply_fixes()
    assert [entry.quantization_index for entry in plans.state.spec.layers] == [None]


def test_a_layer_that_no_fix_changes_gets_no_entry(models):
    plans = bench_of(models, "an entry beside a pattern with settings", "onnxruntime")
    plans.apply_fix("last")
    names = [entry.name for entry in plans.state.spec.layers]
    assert names == ["*", "last"]
