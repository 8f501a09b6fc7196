"""What holds for every layer family: off is exact, gradients, saving, integers (test_golden.py has their files)."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from families.zoo import FAMILIES
from small_models import flat

import qdq_workbench as qdq
from qdq_workbench.graph_builder import layer_weights
from qdq_workbench.numerics import fake_quantize, qparams_from_range

GROUP_SIZE = 7
GROUPS = [FAMILIES[start : start + GROUP_SIZE] for start in range(0, len(FAMILIES), GROUP_SIZE)]


def float_model(families):
    """A model with one part per family; all its variables hold something."""
    inputs = [family.tensors() for family in families]
    outputs = [family.make(family.name, *tensors) for family, tensors in zip(families, inputs, strict=True)]
    model = keras.Model(keras.tree.flatten(inputs), keras.tree.flatten(outputs))
    generator = np.random.default_rng(0)
    for variable in model.weights:
        if "float" in variable.dtype:
            low = 0.5 if "variance" in variable.path else -1.0
            variable.assign(generator.uniform(low, 1.0, variable.shape))
    return model


def quantized(families, target="tensorrt"):
    """The float model, the quantized one calibrated on the samples, and the samples."""
    model = float_model(families)
    spec = qdq.QuantizationSpec()
    for family in families:
        if family.named:
            spec.add(family.name)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    samples = [array for family in families for array in family.samples()]
    qdq.calibrate(q_model, samples, verbose=False)
    return model, q_model, samples


@pytest.fixture(scope="module", params=FAMILIES, ids=str)
def case(request):
    """One family with its models."""
    return request.param, *quantized([request.param])


def test_what_is_planned(case):
    family, _, q_model, _ = case
    weights = {p.weight: p.quantizer.axis for p in q_model.plan.placements if p.site == "weight"}
    assert weights == family.weights
    assert len({p.tensor for p in q_model.plan.placements if p.site == "input"}) == family.inputs


def test_off_is_bit_exact(case):
    _, model, q_model, samples = case
    q_model.quantization_enabled = False
    try:
        off = flat(q_model(samples))
    finally:
        q_model.quantization_enabled = True
    for ours, theirs in zip(off, flat(model(samples)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert any(not np.array_equal(a, b) for a, b in zip(flat(q_model(samples)), off, strict=True))


def by_hand(q_model, samples):
    """The quantized model written by hand: weights on their grid, inputs rounded before a float model sees them."""
    ranges = q_model.activation_ranges()
    grids = {tensor.name: tensor.quantizer for tensor in q_model.plan.tensors if tensor.kind == "activation"}
    rounded = [
        fake_quantize(array, qparams_from_range(*ranges[name], grids[name])) if name in ranges else array
        for name, array in zip(q_model.plan.graph.inputs, samples, strict=True)
    ]
    return qdq.strip(q_model, bake_weights=True), rounded


def gradients(model, samples):
    """The gradients of a weighted sum of the outputs, by input and by variable."""
    tensors = [tf.constant(array) for array in samples]
    floats = [tensor for tensor in tensors if tensor.dtype.is_floating]
    variables = [variable.value for variable in model.trainable_variables]
    with tf.GradientTape() as tape:
        for tensor in floats:
            tape.watch(tensor)
        outputs = [output for output in keras.tree.flatten(model(tensors)) if output.dtype.is_floating]
        loss = tf.add_n([tf.reduce_sum(tf.sin(output)) for output in outputs])
    found = tape.gradient(loss, [*floats, *variables])
    return [None if g is None else tf.convert_to_tensor(g).numpy() for g in found]


def test_outputs_and_gradients_equal_the_hand_written_ones(case):
    _, _, q_model, samples = case
    model, rounded = by_hand(q_model, samples)
    for ours, theirs in zip(flat(q_model(samples)), flat(model(rounded)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(gradients(q_model, samples), gradients(model, rounded), strict=True):
        np.testing.assert_array_equal(ours, theirs)  # all values lie in their ranges: straight through everywhere


def test_saved_and_loaded_is_identical(case, tmp_path):
    _, _, q_model, samples = case
    q_model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for ours, theirs in zip(flat(loaded(samples)), flat(q_model(samples)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded.plan == q_model.plan


def test_integer_weights_round_trip(case):
    family, _, q_model, _ = case
    integers = qdq.integer_weights(q_model)
    baked = dict(layer_weights(qdq.strip(q_model, bake_weights=True).get_layer(family.name)))
    found = {name for name in family.weights if hasattr(integers[f"{family.name}/{name}"], "codes")}
    assert found == set(family.weights)
    for name in found:
        np.testing.assert_array_equal(integers[f"{family.name}/{name}"].dequantize(), np.asarray(baked[name]))
