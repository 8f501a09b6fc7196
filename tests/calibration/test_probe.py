"""The pieces of a calibration's pass: ranges known beforehand, batches that a source may reuse, further pairs."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.calibration.probe import Probe, _further_pairs, _owned, known_ranges
from qdq_workbench.quantizers.fixed import FixedQuantizer
from qdq_workbench.spec.quantizer_spec import QuantizerSpec


def model_of(*pairs):
    """A model with these pairs: the tensors, whether the range moves, and the range."""
    layers = [
        SimpleNamespace(quantizer=SimpleNamespace(updates_range=moves), range=ends, tensors=tensors)
        for tensors, moves, ends in pairs
    ]
    return SimpleNamespace(activation_quantizers=layers, tensors_of=lambda layer: layer.tensors)


@pytest.mark.parametrize(
    ("pairs", "known"),
    [
        ([], {}),
        ([(["x"], False, (0.0, 1.0))], {"x": (0.0, 1.0)}),
        ([(["x"], True, (0.0, 1.0))], {}),
        ([(["x"], False, None)], {}),
        ([(["x", "y"], False, (0.0, 1.0))], {"x": (0.0, 1.0), "y": (0.0, 1.0)}),
        ([(["x"], False, (0.0, 1.0)), (["x"], False, (-2.0, 0.5))], {"x": (-2.0, 1.0)}),
        ([(["x"], False, (-2.0, 0.5)), (["x"], False, (0.0, 1.0))], {"x": (-2.0, 1.0)}),
        ([(["x", "y"], False, (0.0, 1.0)), (["x"], True, (0.0, 9.0))], {"y": (0.0, 1.0)}),
        ([(["x"], True, (0.0, 9.0)), (["x", "y"], False, (0.0, 1.0))], {"y": (0.0, 1.0)}),
    ],
)
def test_a_range_is_known_if_all_quantizers_of_its_tensor_have_a_fixed_one(pairs, known):
    assert known_ranges(model_of(*pairs)) == known


def test_arrays_that_a_source_may_fill_again_are_copied():
    array, tensor = np.zeros(3), tf.zeros(3)
    owned = _owned([array, tensor, [1.0, 2.0]])
    array[:] = 1.0

    np.testing.assert_array_equal(owned[0], np.zeros(3))
    assert owned[1] is tensor
    np.testing.assert_array_equal(owned[2], [1.0, 2.0])


GRID, OTHER = QuantizerSpec(8), QuantizerSpec(4)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, True),
        ({"quantizer": GRID}, False),
        ({"name": "x"}, False),
        ({"kind": "weight"}, False),
        ({"tensor": "unknown"}, False),
        ({"method": SimpleNamespace(name=FixedQuantizer.method_name)}, False),
        ({"method": SimpleNamespace(name="lsq")}, True),
    ],
)
def test_a_further_pair_is_observed_by_itself_only_on_another_grid(fields, found):
    pair = SimpleNamespace(
        **{"name": "x@2", "tensor": "x", "kind": "activation", "quantizer": OTHER, "method": None, **fields}
    )
    q_model = SimpleNamespace(plan=SimpleNamespace(tensors=[pair]))

    assert _further_pairs(q_model, {"x": GRID}) == ([pair] if found else [])


@pytest.fixture(scope="module")
def q_model():
    """Tokens, whose integers have no range, a float input, and an output that nothing reads."""
    tokens, image = keras.Input((2,), dtype="int32", name="tokens"), keras.Input((2,), name="image")
    table = layers.Embedding(3, 2, embeddings_initializer=keras.initializers.Constant(0.5), name="table")(tokens)
    both = layers.Add(name="both")(
        [layers.Flatten(name="flat")(table), layers.Concatenate(name="twice")([image, image])]
    )
    return qdq.quantize_model(keras.Model([tokens, image], both), target="onnxruntime")


BATCHES = [[np.array([[0, 1]]), np.float32([[low, high]])] for low, high in ((-1.0, 3.0), (0.0, 5.0), (-2.0, 0.0))]


def probed(q_model, method="minmax", known=(), histograms=False):
    return Probe(q_model, method, {}, known=dict.fromkeys(known), histograms=histograms, batches=100)


@pytest.mark.parametrize("ahead", [True, False])
def test_a_batch_is_handed_on_when_all_observers_have_read_it(q_model, ahead):
    probe = probed(q_model)
    found = [(inputs, probe.batches) for inputs in probe.read_all(iter(BATCHES), ahead=ahead)]

    assert [count for _, count in found] == [1, 2, 3]
    for (inputs, _), given in zip(found, BATCHES, strict=True):
        np.testing.assert_array_equal(inputs[1], given[1])
    assert probe.ranges(None) == {
        "image": (-2.0, 5.0), "table": (0.5, 0.5), "flat": (0.5, 0.5), "twice": (-2.0, 5.0), "both": (-1.5, 5.5),
    }  # fmt: skip
    assert probe.ranges("threshold")["both"] == (-8.0, 8.0)


def test_without_batches_nothing_is_handed_on(q_model):
    for ahead in (True, False):
        assert list(probed(q_model).read_all(iter(()), ahead=ahead)) == []


def test_tensors_of_a_known_range_are_not_observed(q_model):
    probe = probed(q_model, known=["image", "both"])
    list(probe.read_all(iter(BATCHES), ahead=False))

    assert probe.ranges(None).keys() == probe.states().keys() == {"table", "flat", "twice"}


@pytest.mark.parametrize("histograms", [True, False])
def test_states_hold_the_grid_and_histograms_only_if_asked_for(q_model, histograms):
    probe = probed(q_model, histograms=histograms)
    list(probe.read_all(iter(BATCHES), ahead=False))
    state = probe.states()["twice"]

    assert (state["low"], state["high"], state["batches"]) == (-2.0, 5.0, 3)
    assert QuantizerSpec.from_dict(state["spec"]).num_bits == 8
    assert ("histogram" in state) == histograms


@pytest.mark.parametrize("method", ["mse", "percentile"])
def test_methods_that_count_have_their_histogram_anyway(q_model, method):
    probe = probed(q_model, method)
    list(probe.read_all(iter(BATCHES), ahead=True))

    assert "histogram" in probe.states()["twice"]
    low, high = probe.ranges(None)["twice"]
    assert -2.1 < low <= -1.0
    assert 3.0 < high < 5.1
