"""Costs: operations and bytes worked out by hand, layer class by layer class."""

import keras
import pytest
from keras import layers, ops

import qdq_workbench as qdq

IMAGE, SEQUENCE = (8, 8, 4), (5, 6)
MACS = {
    "convolution": (lambda: layers.Conv2D(3, 3, padding="same"), IMAGE, 64 * 9 * 4 * 3),
    "strides": (lambda: layers.Conv2D(3, 3, strides=2, padding="same"), IMAGE, 16 * 9 * 4 * 3),
    "groups": (lambda: layers.Conv2D(4, 3, padding="same", groups=2), IMAGE, 64 * 9 * 2 * 4),
    "depthwise": (lambda: layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2), IMAGE, 64 * 9 * 4 * 2),
    "separable": (lambda: layers.SeparableConv2D(3, 3, padding="same"), IMAGE, 64 * (9 * 4 + 4 * 3)),
    "transposed": (lambda: layers.Conv2DTranspose(3, 3, strides=2, padding="same"), IMAGE, 64 * 9 * 3 * 4),
    "one dimension": (lambda: layers.Conv1D(2, 3, padding="same"), SEQUENCE, 5 * 3 * 6 * 2),
    "dense": (lambda: layers.Dense(7), (6,), 6 * 7),
    "dense on a sequence": (lambda: layers.Dense(7), SEQUENCE, 5 * 6 * 7),
    "einsum": (lambda: layers.EinsumDense("abc,cde->abde", (5, 2, 3)), SEQUENCE, 5 * 6 * 2 * 3),
    "lstm": (lambda: layers.LSTM(3), SEQUENCE, 5 * (6 * 12 + 3 * 12)),
    "bidirectional": (lambda: layers.Bidirectional(layers.GRU(3)), SEQUENCE, 5 * 2 * (6 * 9 + 3 * 9)),
    "embedding": (lambda: layers.Embedding(9, 3), (5,), 0),
    "pooling": (lambda: layers.AveragePooling2D(2), IMAGE, 0),
    "batch normalization": (layers.BatchNormalization, IMAGE, 0),
}


@pytest.mark.parametrize("case", MACS)
def test_operations_of_a_layer(case):
    make, shape, expected = MACS[case]
    source = keras.Input(shape, name="source")
    layer = make()
    model = keras.Model(source, layer(source))

    cost = qdq.layer_costs(qdq.build_graph(model))[layer.name]

    assert cost.macs == cost.float_macs == expected
    assert cost.parameters == layer.count_params()
    assert cost.weight_bytes == 4 * layer.count_params()


def test_attention_counts_projections_scores_and_sums():
    source = keras.Input(SEQUENCE)
    layer = layers.MultiHeadAttention(2, 3, name="attention")
    model = keras.Model(source, layer(source, source))

    cost = qdq.layer_costs(qdq.build_graph(model))["attention"]

    assert cost.macs == 4 * 5 * 6 * 6 + 2 * 5 * 5 * 6


def test_matrix_products_and_shared_layers_count_per_call():
    source = keras.Input(SEQUENCE)
    shared = layers.Dense(6, name="shared")
    hidden = shared(shared(source))
    model = keras.Model(source, ops.matmul(hidden, ops.transpose(source, (0, 2, 1))))

    costs = qdq.layer_costs(qdq.build_graph(model))

    assert costs["shared"].macs == 2 * 5 * 6 * 6
    assert costs["shared"].parameters == 42
    assert next(cost.macs for name, cost in costs.items() if "matmul" in name) == 5 * 5 * 6


def test_unknown_sizes_count_as_one():
    source = keras.Input((None, None, 4))
    model = keras.Model(source, layers.Conv2D(3, 3, name="conv")(source))

    assert qdq.layer_costs(qdq.build_graph(model))["conv"].macs == 9 * 4 * 3


def test_a_plan_makes_weights_and_tensors_smaller():
    source = keras.Input((6,), name="source")
    hidden = layers.Dense(5, name="a")(source)
    model = keras.Model(source, layers.Dense(3, name="b")(hidden))
    spec = qdq.QuantizationSpec()
    spec.add("b", quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 4}))

    floats = qdq.layer_costs(qdq.build_graph(model))
    plan = qdq.plan_placement(model, quantization_spec=spec)
    costs = qdq.layer_costs(plan)

    assert (costs["a"].weight_bytes, floats["a"].weight_bytes) == (30 + 5 * 4, 4 * 35)
    assert costs["b"].weight_bytes == 8 + 3 * 4  # 15 weights of 4 bits: 7.5 bytes
    assert (costs["a"].activation_bytes, floats["a"].activation_bytes) == (5, 20)
    assert costs["b"].activation_bytes == 12
    assert [cost.float_macs for cost in costs.values()] == [0, 0, 0]


def test_float_operations_are_those_without_quantized_inputs_and_kernel():
    source = keras.Input((6,), name="source")
    model = keras.Model(source, layers.Dense(3, name="head")(source))
    for off in ({"quantize_input": False}, {"quantize_weight": False}):
        spec = qdq.QuantizationSpec()
        spec.add("head", **off)
        assert qdq.layer_costs(qdq.plan_placement(model, quantization_spec=spec))["head"].float_macs == 18
