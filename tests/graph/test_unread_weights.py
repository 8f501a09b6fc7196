"""Weights that serve only results which nobody reads."""

import keras
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.graph.unread_weights import unread_weights


def unread(layer, taken, *, arguments=(), **keywords):
    """The unread weights of a layer of which only the results at these positions leave the model."""
    x = keras.Input((5, 4), name="x")
    results = keras.tree.flatten(layer(x, *(x for _ in arguments), **keywords))
    model = keras.Model(x, [results[index] for index in taken])
    return {name.rpartition("/")[0] for name in unread_weights(qdq.build_graph(model), layer.name)}


def both(inner, **options):
    return layers.Bidirectional(inner, name="both", **options)


FORWARD, BACKWARD = {"forward_layer/cell"}, {"backward_layer/cell"}


@pytest.mark.parametrize(
    ("taken", "expected"),
    [((0,), set()), ((1,), BACKWARD), ((2,), BACKWARD), ((3,), FORWARD), ((4,), FORWARD), ((2, 3), set())],
)
def test_the_states_of_a_merged_lstm(taken, expected):
    assert unread(both(layers.LSTM(3, return_state=True)), taken) == expected


@pytest.mark.parametrize(
    ("taken", "expected"), [((0,), BACKWARD), ((1,), FORWARD), ((2,), BACKWARD), ((3,), FORWARD), ((0, 3), set())]
)
def test_the_states_of_a_gru_in_parts(taken, expected):
    layer = both(layers.GRU(3, return_sequences=True, return_state=True), merge_mode=None)
    assert unread(layer, taken) == expected


def test_one_of_two_sequences():
    assert unread(both(layers.SimpleRNN(3, return_sequences=True), merge_mode=None), (1,)) == FORWARD


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.MultiHeadAttention(2, 3, use_gate=True, name="attention"),
        lambda: layers.GroupQueryAttention(3, 4, 2, use_gate=True, name="attention"),
    ],
)
def test_the_scores_of_an_attention(make):
    both_results = {"arguments": ("value",), "return_attention_scores": True}
    assert unread(make(), (1,), **both_results) == {"value", "gate", "attention_output"}
    assert unread(make(), (0,), **both_results) == set()


def test_another_call_of_the_layer_may_read_the_rest():
    x, y = keras.Input((5, 4), name="x"), keras.Input((5, 4), name="y")
    layer = both(layers.GRU(3, return_state=True))
    model = keras.Model([x, y], [layer(x)[1], layer(y)[2]])
    assert unread_weights(qdq.build_graph(model), "both") == frozenset()


def test_a_subclass_may_compute_anything():
    class Mine(layers.Bidirectional):
        """Bidirectional by name."""

    assert unread(Mine(layers.GRU(3, return_state=True), name="mine"), (1,)) == set()


def test_the_plan_says_why_such_a_weight_stays_in_float():
    x = keras.Input((5, 4), name="x")
    model = keras.Model(x, both(layers.GRU(3, return_state=True))(x)[1])
    plan = qdq.plan_placement(model)
    assert [tensor.name for tensor in plan.tensors] == [
        "x",
        "both/forward_layer/cell/kernel",
        "both/forward_layer/cell/recurrent_kernel",
    ]
    reasons = {item.what: item.reason for item in plan.unquantized}
    assert reasons["backward_layer/cell/kernel"].startswith("no output of the model depends on it")


def test_a_result_that_nobody_reads_has_no_pair():
    x = keras.Input((5, 4), name="x")
    model = keras.Model(x, layers.SimpleRNN(3, return_state=True, name="rnn")(x)[1])
    spec = qdq.QuantizationSpec()
    spec.add("rnn", quantize_output=True)
    plan = qdq.plan_placement(model, quantization_spec=spec)
    assert [p.tensor for p in plan.placements if p.site == "output"] == ["rnn:1"]
