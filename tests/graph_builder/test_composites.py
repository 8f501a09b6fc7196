"""Layers of others that call layers of Keras are entered like nested models, and compute the same."""

from __future__ import annotations

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from composite_layers import MODELS
from exact_runs import assert_same_sums
from qdq_files import integer_share
from small_models import flat

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.rebuild import Rebuilder
from qdq_workbench.graph_builder import bind_graph
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.verification.integer_kernels import count_integer_kernels

#: The products of each model: 8 of a block with attention, 9 of one with a gate, and those around.
PRODUCTS = {"bert": 2 * 8 + 1, "gpt": 8 + 1, "llama": 9 + 1, "vit": 8 + 2}


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    make, data = MODELS[request.param]
    return request.param, make(), data


@pytest.fixture(scope="module")
def quantized(case):
    _, model, data = case
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="onnxruntime")
    qdq.calibrate(q_model, data, verbose=False)
    return q_model


def same(name, found, expected):
    """Compare bit for bit, but for the model whose einsums become matrix products."""
    (assert_same_sums if name == "llama" else np.testing.assert_array_equal)(found, expected)


def test_nothing_is_left_whole_and_the_function_is_the_same_also_in_training(case):
    name, model, data = case
    graph = qdq.build_graph(model)
    assert graph.blocks
    assert not any(node.opaque and node.parts for node in graph.nodes)
    copy = Rebuilder(bind_graph(model)).rebuilt(model.name)
    for training in (False, True):
        same(name, flat(copy(data, training=training))[0], flat(model(data, training=training))[0])


def test_the_model_is_left_as_it_was(case):
    _, model, _ = case
    before = {layer: (len(layer._inbound_nodes), sorted(vars(layer))) for layer in model._flatten_layers()}
    graphs = [qdq.build_graph(model) for _ in range(2)]
    assert graphs[0] == graphs[1]
    assert before == {layer: (len(layer._inbound_nodes), sorted(vars(layer))) for layer in model._flatten_layers()}
    assert keras.ops.shape.__name__ == "shape"
    written = json.dumps(qdq.plan_placement(model).to_dict())
    assert PlacementPlan.from_dict(json.loads(written)).graph == graphs[0]


def test_every_product_is_computed_on_integers_and_explained_so(case, quantized, tmp_path):
    name, _, data = case
    report = qdq.export_onnx(quantized, tmp_path / "model.onnx")
    verification = qdq.verify_onnx(report.path, quantized, data)
    assert verification.passed, verification.summary()
    kernels = count_integer_kernels(report.path)
    counts = [kernels.counts[kind] for kind in ("MatMul", "Gemm", "Conv") if kind in kernels.counts]
    assert sum(all_of for _, all_of in counts) == PRODUCTS[name]
    assert integer_share(kernels, "MatMul", "Gemm", "Conv") == 1.0
    assert qdq.explain(quantized).coverage["macs"] == 1.0
    assert kernels.counts["Softmax"][0] == 0  # the target wants it in float


def test_no_bias_and_no_factor_of_a_normalization_is_quantized(quantized):
    weights = {placement.weight for placement in quantized.plan.placements if placement.weight}
    assert weights <= {"kernel", "embeddings"}


def test_it_is_saved_loaded_and_trained(case, quantized, tmp_path):
    name, model, data = case
    quantized.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.save(tmp_path / "again.keras")
    expected = flat(quantized(data))[0]
    np.testing.assert_array_equal(flat(loaded(data))[0], expected)
    same(name, flat(qdq.strip(loaded)(data))[0], flat(model(data))[0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(loaded(data, training=True)))
    variables = loaded.trainable_variables
    assert len(variables) == len(model.trainable_variables)
    gradients = tape.gradient(loss, [variable.value for variable in variables])
    without = [variable.path for variable, gradient in zip(variables, gradients, strict=True) if gradient is None]
    assert not without
