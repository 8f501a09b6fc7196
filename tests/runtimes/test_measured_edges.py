"""Layers at the edges of islands are judged alone, by measured kernels and an estimate of the conversion that moves."""

import json
import types

import keras
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.profiling import Gain


def network():
    """One integer island: "stem" with what is folded into it, "middle", a sum of two branches, "head"."""
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(4, 3, padding="same", name="stem")(image)
    x = layers.ReLU(name="stem_relu")(layers.BatchNormalization(name="stem_norm")(x))
    y = layers.ReLU(name="middle_relu")(layers.Conv2D(4, 3, padding="same", name="middle")(x))
    x = layers.GlobalAveragePooling2D(name="pool")(layers.Add(name="sum")([x, y]))
    return keras.Model(image, layers.Dense(2, name="head")(x), name="network")


STEM = ("stem", "stem_norm", "stem_relu")
REST = {("middle", "middle_relu"): (1.0, 3.0), ("sum",): (0.2, 0.1), ("pool",): (0.1, 0.1), ("head",): (0.1, 0.2)}


@pytest.fixture(scope="module")
def plan():
    return qdq.plan_placement(network(), custom_qdq_cases=[qdq.AutoQDQCase()], target="onnxruntime")


def explained(plan, stem, *, head=None, conversions=None, noise=0.0, total=10.0):
    times = {("stem", "stem_relu"): stem, **REST, **({} if head is None else {("head",): head})}
    found = {"image/QuantizeLinear": 0.3} if conversions is None else conversions
    report = types.SimpleNamespace(
        gains=tuple(Gain(names, *ms) for names, ms in times.items()),
        others=tuple(types.SimpleNamespace(what="pair", name=name, ms=ms) for name, ms in found.items()),
        noise=noise,
        total_ms=total,
        baseline=object(),
        engine="ONNX Runtime",
        target="onnxruntime",
    )
    return qdq.explain(plan, latency=report)


def test_a_first_layer_that_is_slower_in_int8_is_named_with_what_was_measured_and_what_is_estimated(plan):
    explanation = explained(plan, (2.0, 0.5))
    assert explanation.losses == ()  # the island as a whole gains
    (edge,) = explanation.edge_losses
    assert (edge.layers, edge.side) == (STEM, "first")
    assert (edge.ms, edge.baseline_ms, edge.conversions_ms) == (2.0, 0.5, 0.3)
    # 8x8x3 values take 0.3 ms at the input; behind the stem there are 8x8x4, read by two layers through one pair.
    assert edge.moved_ms == pytest.approx(0.3 * 4 / 3)
    assert edge.gain_ms == pytest.approx(0.5 - 2.0 - 0.3 + 0.4)
    text = explanation.summary()
    assert "island by island (layers between which integers flow): none costs more than it saves" in text
    assert "nothing that is quantized costs more" not in text
    flat = " ".join(text.split())
    assert f" {edge}" in flat
    assert "changes of layout are not counted" in flat
    assert "search" in text
    assert json.loads(json.dumps(explanation.to_dict()))["edges"][0]["gain_ms"] == pytest.approx(-1.4)


def test_only_layers_at_an_edge_are_judged(plan):
    edges = explained(plan, (0.5, 0.5)).edges
    assert [(edge.layers, edge.side) for edge in edges] == [(STEM, "first"), (("head",), "last")]  # the worst first
    assert not any(edge.is_loss for edge in edges)


def test_layers_inside_are_ranked_by_the_conversions_that_they_would_need_and_are_no_losses(plan):
    explanation = explained(plan, (0.5, 0.5))

    found = {edge.layers: edge for edge in explanation.alone}
    assert {edge.side for edge in explanation.alone if edge.layers not in (STEM, ("head",))} == {"inside"}
    middle = found["middle", "middle_relu"]
    # Between the stem and the sum: 8x8x4 values in, as many out; 8x8x3 values take 0.3 ms.
    assert middle.moved_ms == pytest.approx(2 * 0.3 * 4 / 3)
    assert middle.gain_ms == pytest.approx(3.0 - 1.0 + 0.8)
    assert found[("sum",)].moved_ms == pytest.approx(3 * 0.3 * 4 / 3)
    gains = [edge.gain_ms for edge in explanation.alone]
    assert gains == sorted(gains)
    assert not explanation.edge_losses
    assert len(explanation.to_dict()["alone"]) == len(gains) > len(explanation.edges)


def test_a_last_layer_moves_the_conversion_to_its_input(plan):
    slow = explained(plan, (0.5, 0.5), head=(2.0, 0.5), conversions={"image/QuantizeLinear": 0.3, "x/Other": 9.0})
    (edge,) = slow.edge_losses
    assert (edge.layers, edge.side, edge.conversions_ms) == (("head",), "last", 0.0)
    assert edge.moved_ms == pytest.approx(0.3 * 4 / (8 * 8 * 3))  # four averages


def test_where_no_layer_loses_it_is_said_what_was_judged_and_what_was_not(plan):
    text = " ".join(explained(plan, (0.5, 0.5)).summary().split())
    judged = "Judged alone at the edges: stem, head; none would gain 2 % in float by more than the noise"
    assert f"{judged} of the measurement. Others were not; search" in text
    blind = explained(plan, (2.0, 0.5), conversions={})  # nothing to estimate the moved conversion by
    assert (blind.edges, blind.edge_losses) == ((), ())
    assert "No layer was judged alone; search" in blind.summary()


@pytest.mark.parametrize(
    ("stem", "noise", "is_loss"),
    [((0.95, 0.5), 0.0, True), ((0.75, 0.5), 0.0, False), ((0.95, 0.5), 0.5, False), ((2.0, 0.5), 0.3, True)],
)
def test_a_loss_is_more_than_the_noise_and_two_percent_of_a_run(plan, stem, noise, is_loss):
    # The moved conversion takes 0.1 ms more than the one that is there; 2 % of a run are 0.2 ms.
    edge = next(edge for edge in explained(plan, stem, noise=noise).edges if edge.side == "first")
    assert edge.is_loss is is_loss


def test_a_whole_island_is_judged_as_such_and_its_edges_are_not_losses_again(plan):
    lost = explained(plan, (9.0, 0.5))
    assert len(lost.losses) == 1
    assert lost.edge_losses == ()
    image = keras.Input((4,), name="image")
    alone = qdq.plan_placement(keras.Model(image, layers.Dense(2, name="head")(image)), target="onnxruntime")
    report = types.SimpleNamespace(
        gains=(Gain(("head",), 2.0, 1.0),),
        others=(types.SimpleNamespace(what="pair", name="image/QuantizeLinear", ms=0.1),),
        noise=0.0,
        total_ms=3.0,
        baseline=object(),
        engine="ONNX Runtime",
        target=None,
    )
    assert qdq.explain(alone, latency=report).edges == ()


def test_open_sizes_are_not_judged():
    image = keras.Input((None, None, 3), name="image")
    x = layers.Conv2D(4, 3, name="second")(layers.Conv2D(4, 3, name="stem")(image))
    plan = qdq.plan_placement(keras.Model(image, x), target="onnxruntime")
    report = types.SimpleNamespace(
        gains=(Gain(("stem",), 2.0, 1.0), Gain(("second",), 2.0, 4.0)),
        others=(types.SimpleNamespace(what="pair", name="image/QuantizeLinear", ms=0.1),),
        noise=0.0,
        total_ms=6.0,
        baseline=object(),
        engine="ONNX Runtime",
        target=None,
    )
    assert qdq.explain(plan, latency=report).edges == ()


def test_edges_are_left_in_float_when_asked_for(plan):
    explanation = explained(plan, (2.0, 0.5))
    kept = qdq.plan_placement(network(), quantization_spec=explanation.without_losses(), target="onnxruntime")
    assert {p.layer for p in kept.placements} >= {"stem"}
    spec = explanation.without_losses(edges=True)
    after = qdq.plan_placement(network(), quantization_spec=spec, target="onnxruntime")
    assert not {p.layer for p in after.placements} & set(STEM)
    assert "stem_relu" in {p.tensor for p in after.placements}  # what the next layer reads is converted there
    assert {entry.layer: entry.status for entry in qdq.explain(after).layers}["middle"] == "int8"
