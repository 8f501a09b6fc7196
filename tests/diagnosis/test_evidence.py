"""The evidence of a diagnosis, on arrays and graphs made by hand: statistics, pairs, shares of the noise, channels."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from mock_graphs import GraphMaker

from qdq_workbench.diagnosis.evidence import Evidence, Noise, Pair, TensorStatistics, channel_axis, noise_of
from qdq_workbench.placement.plan import Placement
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

VALUES = np.array([[1.0, -4.0], [3.0, 2.0], [2.0, 8.0]], np.float32)
SWITCHES = [("a", "input"), ("a", "weight"), ("b", "input")]


def test_statistics_are_per_channel():
    found = TensorStatistics.of(VALUES, 1)

    assert (found.low, found.high, found.span) == (-4.0, 8.0, 12.0)
    np.testing.assert_array_equal(found.peaks, [3, 8])
    np.testing.assert_array_equal(found.count, [3, 3])
    np.testing.assert_allclose(found.means, VALUES.mean(axis=0))
    np.testing.assert_allclose(found.variances, VALUES.var(axis=0), rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_axis_of_channels_is_the_one_asked_for(axis):
    found = TensorStatistics.of(VALUES, axis)

    others = tuple({0, 1} - {axis % 2})
    np.testing.assert_array_equal(found.peaks, np.abs(VALUES).max(axis=others))
    np.testing.assert_array_equal(found.sums, VALUES.sum(axis=others))


def test_padding_counts_for_the_range_but_not_for_the_mean():
    found = TensorStatistics.of(VALUES, 1, np.array([False, True, False]))

    assert (found.low, found.high) == (-4.0, 8.0)
    np.testing.assert_array_equal(found.peaks, [3, 8])
    np.testing.assert_array_equal(found.means, [3, 2])
    np.testing.assert_array_equal(found.count, [1, 1])
    nothing = TensorStatistics.of(VALUES, 1, np.zeros(3, bool))
    np.testing.assert_array_equal([nothing.means, nothing.variances], np.zeros((2, 2)))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_batches_add_up_to_all_values(order):
    whole = TensorStatistics.of(VALUES, 1)
    parts, *others = (TensorStatistics.of(VALUES[row : row + 1], 1) for row in order)
    for other in others:
        parts.add(other)

    for name in ("low", "high", "peaks", "sums", "squares", "count", "means", "variances", "span"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))


def test_the_variance_of_equal_values_is_not_negative():
    found = TensorStatistics.of(np.full((49, 3), np.float32([0.1, 1e4 / 3, -0.7])), 1)

    assert (found.squares / found.count - np.square(found.means)).min() < 0, "which is what this is about"
    assert found.variances.min() == 0


@pytest.mark.parametrize(
    ("low", "high", "span"), [(1.0, 3.0, 3.0), (-3.0, -1.0, 3.0), (-1.0, 3.0, 4.0), (0.0, 0.0, 0.0)]
)
def test_a_span_holds_zero(low, high, span):
    assert TensorStatistics.of(np.array([[low], [high]]), 1).span == span
    assert Pair("t", "t", QuantizerSpec(), low, high, (), 0.0).span == span


@pytest.mark.parametrize(("symmetric", "step"), [(False, 2.0 / 255), (True, 2.0 / 127)])
def test_the_rounding_error_of_a_pair_is_that_of_its_step(symmetric, step):
    pair = Pair("t", "t", QuantizerSpec(8, signed=True, symmetric=symmetric, narrow_range=symmetric), 0.0, 2.0, (), 0.0)

    assert pair.step == pytest.approx(step, rel=1e-6)
    assert pair.rounding == pytest.approx(step**2 / 12, rel=1e-6)


def test_a_pair_serves_the_sites_of_its_placements():
    calls = (("output", "a", "a"), ("input", "b", "b"), ("input", "b", "b_2"))
    placed = [Placement(site, layer, node, "t", QuantizerSpec(), "", "default") for site, layer, node in calls]

    assert Pair("t", "t", QuantizerSpec(), 0.0, 1.0, tuple(placed), 0.0).switches == {("a", "output"), ("b", "input")}


def test_noise_is_a_share_of_the_power_of_the_float_outputs():
    reference = [np.float32([[3.0, 4.0]]), np.float32([[1.0]])]

    assert noise_of(reference, reference) == 0.0
    assert noise_of(reference, [reference[0] + [[0.0, 0.5]], reference[1]]) == pytest.approx(0.01)
    assert noise_of(reference, [np.zeros_like(part) for part in reference]) == pytest.approx(1.0)
    assert noise_of(reference, [reference[0] * 1.1, reference[1] * 1.2]) == pytest.approx(0.04), "the worst output"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_noise_of_outputs_that_are_not_finite_is_infinite(bad):
    assert noise_of([np.ones(2), np.ones(2)], [np.ones(2), np.array([1.0, bad])]) == math.inf


class Sweep:
    """Outputs by the switches that are on: every one of them adds its own error."""

    switches = SWITCHES

    def keep(self, on):
        return self.outputs(on)

    def outputs(self, on):
        errors = dict(zip(SWITCHES, (0.1, 0.2, 0.0), strict=True))
        return [np.array([[10.0 + sum(errors[switch] for switch in on)]])]


@pytest.fixture
def noise(monkeypatch):
    monkeypatch.setattr("qdq_workbench.diagnosis.evidence.Sweep", lambda *_: Sweep())
    return Noise(None, SimpleNamespace(labels=["labels"]))


def test_every_site_is_measured_alone(noise):
    shown = []

    assert noise.measure_each(lambda *told: shown.append(told), lambda: False)
    assert noise.total == pytest.approx(0.03**2)
    assert [noise.of[switch] for switch in SWITCHES] == pytest.approx([0.01**2, 0.02**2, 0.0])
    assert shown == [(1, 3, "a"), (2, 3, "a"), (3, 3, "b")]


def test_measuring_sites_can_be_stopped_between_two_of_them(noise):
    assert not noise.measure_each(lambda *_: None, lambda: len(noise.of) == 2)
    assert list(noise.of) == SWITCHES[:2]


def test_a_metric_is_measured_with_labels_and_without_sites_on_the_float_outputs(noise):
    metric = SimpleNamespace(measure=lambda reference, outputs, labels: (outputs[0] - reference[0], labels))

    assert noise.value(metric, []) == (np.array([[0.0]]), ["labels"])
    assert noise.value(metric, SWITCHES[:1])[0] == pytest.approx(0.1)


def test_shares_of_the_noise(noise):
    assert noise.share(SWITCHES) == 0.0, "nothing is measured yet"
    noise.of = dict(zip(SWITCHES, (1.0, 3.0, 0.0), strict=True))

    assert noise.share(SWITCHES[1:]) == 0.75
    assert noise.share([SWITCHES[0]] * 2) == 0.25, "a site counts once"
    assert noise.share([("unknown", "input")]) == 0.0
    noise.of = dict.fromkeys(SWITCHES, 0.0)
    assert noise.share(SWITCHES) == 0.0


def test_infinite_noise_outweighs_all_other(noise):
    noise.of = dict(zip(SWITCHES, (1e9, math.inf, math.inf), strict=True))

    assert noise.share(SWITCHES[:1]) == 0.0
    assert noise.share(SWITCHES[:2]) == 0.5
    assert noise.share(SWITCHES) == 1.0


FIRST = {"data_format": "channels_first"}


@pytest.mark.parametrize(
    ("producer", "reader", "rank", "axis"),
    [
        ({}, {}, 4, 3),
        (FIRST, {}, 4, 1),
        ({}, FIRST, 4, 1),
        (FIRST, FIRST, 3, 1),
        (FIRST, {}, 2, 1),
        (FIRST, {}, 1, 0),
        ({}, {}, 1, 0),
    ],
)
def test_the_channel_axis_is_that_of_a_layer_beside_the_tensor(producer, reader, rank, axis):
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image", settings=producer)
    maker.add("ReLU", "plain", "conv")
    maker.add("MaxPooling2D", "pool", "conv", settings=reader)
    maker.add("Conv2D", "far", "pool", settings=FIRST)

    assert channel_axis(maker.graph("far"), "conv", rank) == axis


def test_placements_of_weights_are_those_of_the_plan():
    placed = [SimpleNamespace(site=site) for site in ("input", "weight", "output", "weight")]
    plan = SimpleNamespace(placements=placed, graph="graph")
    evidence = Evidence(SimpleNamespace(plan=plan), {}, (), None, {})

    assert evidence.weight_placements() == [placed[1], placed[3]]
    assert (evidence.plan, evidence.graph) == (plan, "graph")
