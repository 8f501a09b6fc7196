"""A ReLU behind a matrix product in float: with one reader it keeps the product in float, with two it does not."""

import keras
import numpy as np
import onnx
import pytest
from agreement.statuses import compare
from keras import layers, ops

import qdq_workbench as qdq

READ_ONCE = {
    **{name: layers.Activation(name) for name in ("sigmoid", "tanh", "softmax", "elu", "selu", "softplus", "softsign")},
    **{name: layers.Activation(name) for name in ("exponential", "hard_sigmoid", "log_softmax", "log_sigmoid", "glu")},
    "batch_normalization": layers.BatchNormalization(),
    "layer_normalization": layers.LayerNormalization(),
    "group_normalization": layers.GroupNormalization(groups=2),
    "normalization": layers.Normalization(mean=1.0, variance=2.0),
    "leaky_relu": layers.LeakyReLU(),
    "sum": lambda x: ops.sum(x, axis=1),
    "stacked": lambda x: ops.stack([x, x]),
    "rescaled": layers.Rescaling(0.5),
}
READ_SEVERAL_TIMES = {
    **{
        name: layers.Activation(name)
        for name in ("gelu", "silu", "hard_silu", "mish", "celu", "squareplus", "tanh_shrink")
    },
    **{name: layers.Activation(name) for name in ("sparsemax", "soft_shrink", "hard_shrink", "sparse_plus")},
    "sparse_sigmoid": layers.Activation("sparse_sigmoid"),
    "rms_normalization": layers.RMSNormalization(),
    "unit_normalization": layers.UnitNormalization(),
    "prelu": layers.PReLU(),
    "square": ops.square,
    "std": lambda x: ops.std(x, axis=1),
    "var": lambda x: ops.var(x, axis=1),
    "logsumexp": lambda x: ops.logsumexp(x, axis=1),
    "added": lambda x: x + x,
    "joined": lambda x: layers.Concatenate()([x, x]),
}


@pytest.mark.parametrize(
    ("readers", "status"), [(READ_ONCE, "float"), (READ_SEVERAL_TIMES, "int8")], ids=["once", "several"]
)
def test_a_product_with_a_relu_in_front_of_floats(readers, status, tmp_path):
    x = keras.Input((6, 4))
    products = {name: layers.Dense(4, use_bias=False, activation="relu", name=f"{name}_product") for name in readers}
    model = keras.Model(x, [readers[name](product(x)) for name, product in products.items()])
    generator = np.random.default_rng(0)
    for variable in model.variables:
        values = generator.normal(size=variable.shape).astype(variable.dtype)
        variable.assign(np.abs(values) + 0.1 if "variance" in variable.path else values)
    spec = qdq.QuantizationSpec()
    for product in products.values():
        spec.add(product.name)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, generator.normal(size=(8, 6, 4)).astype("float32"), verbose=False, freeze=True)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    explanation = qdq.explain(q_model)
    statuses = {name: explanation.for_layer(product.name).status for name, product in products.items()}
    assert statuses == dict.fromkeys(readers, status)
    compared, differing = compare(explanation, onnx.load(tmp_path / "model.onnx"), tmp_path)
    assert compared >= len(readers)
    assert not [entry for entry in differing if entry[0].endswith("_product")]
