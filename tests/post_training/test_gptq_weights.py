"""GPTQ: smaller errors of products on the same scales, the chosen integers in the file, whole or not at all."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.correction import gptq_weights, weights_alone
from qdq_workbench.errors import DataError, NotQuantizedError, UncalibratedError
from qdq_workbench.results import RoundingReport

MIXED = np.random.default_rng(0).normal(size=(160, 3, 6)) @ np.random.default_rng(1).normal(size=(6, 40))
X = MIXED.astype("float32")


def net(attention=False):
    """Dense on sequences, einsums in front of and behind heads, a layer called twice."""
    keras.utils.set_random_seed(0)
    rows = keras.Input((3, 40), name="rows")
    x = layers.Dense(32, activation="gelu", name="first")(rows)
    x = layers.EinsumDense("abc,cde->abde", output_shape=(3, 2, 16), bias_axes="de", name="heads")(x)
    x = layers.EinsumDense("abde,dec->abc", output_shape=(3, 32), name="joined")(x)
    twice = layers.TimeDistributed(layers.Dense(32, activation="relu"), name="twice")
    x = twice(twice(x))
    if attention:
        x = layers.MultiHeadAttention(2, 16, name="attention")(x, x)
    return keras.Model(rows, layers.Dense(5, name="head")(layers.Flatten()(x)))


def quantized(model, *, symmetric=True, block_size=16, bits=3):
    spec = weights_alone(model, bits, block_size, symmetric=symmetric)
    return qdq.quantize_model(model, "partial", spec, target="onnxruntime")


def integers_of(q_model):
    return {name: found for name, found in qdq.integer_weights(q_model).items() if hasattr(found, "codes")}


@pytest.fixture(
    scope="module", params=[(True, 16), (False, 16), (True, None)], ids=["blocks", "zero points", "channels"]
)
def rounded(request):
    """The float model, the model before, the model after, and the report."""
    model = net(attention=request.param == (True, 16))
    symmetric, block_size = request.param
    before, q_model = (quantized(model, symmetric=symmetric, block_size=block_size) for _ in range(2))
    return model, before, q_model, gptq_weights(q_model, X, verbose=False)


def test_the_error_of_every_product_falls_and_so_does_that_of_the_model(rounded):
    model, before, q_model, report = rounded
    assert [unit.layers for unit in report.units] == [("first",), ("heads",), ("joined",), ("twice",), ("head",)]
    assert all(unit.kept and unit.learned_error < unit.nearest_error for unit in report.units)
    assert report.complete
    wanted = np.asarray(model(X))
    errors = [float(np.mean((np.asarray(each(X)) - wanted) ** 2)) for each in (q_model, before)]
    assert errors[0] < 0.5 * errors[1]


def test_scales_stay_bit_for_bit_and_integers_are_those_of_the_file(rounded, tmp_path):
    _, before, q_model, report = rounded
    theirs, ours = integers_of(before), integers_of(q_model)
    for name, old in theirs.items():
        np.testing.assert_array_equal(ours[name].scale, old.scale)
        np.testing.assert_array_equal(ours[name].zero_point, old.zero_point)
    changed = {unit.layers[0]: unit.changed for unit in report.units}
    for layer, count in changed.items():
        name = f"{layer}/layer/kernel" if layer == "twice" else f"{layer}/kernel"
        assert int((ours[name].codes != theirs[name].codes).sum()) == count > 0
    exported = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    qdq.verify_onnx(exported.path, q_model, X[:8]).raise_if_failed()


def test_what_is_left_out_has_a_reason(rounded):
    *_, report = rounded
    for name, reason in report.left_out.items():
        assert name.startswith("attention/")
        assert "split_attention" in reason
    assert RoundingReport.from_dict(report.to_dict()) == report
    assert report.summary().startswith("GPTQ's rounding of")


@pytest.mark.parametrize(
    "attention",
    [lambda: layers.MultiHeadAttention(2, 8, name="it"), lambda: layers.GroupQueryAttention(8, 4, 2, name="it")],
    ids=["heads", "grouped heads"],
)
def test_projections_of_every_attention_are_left_out_for_the_same_reason(attention):
    """Keras exports `GroupedQueryAttention` under another name, by which no layer of it is found."""
    keras.utils.set_random_seed(0)
    rows = keras.Input((3, 40), name="rows")
    x = layers.Dense(8, name="head")(layers.Flatten()(attention()(rows, rows)))
    report = gptq_weights(quantized(keras.Model(rows, x)), X[:32], verbose=False)
    assert [unit.layers for unit in report.units] == [("head",)]
    assert {name.partition("/")[0] for name in report.left_out} == {"it"}
    assert all("split_attention" in reason for reason in report.left_out.values())


def test_a_stop_keeps_what_is_done_and_an_error_puts_all_back():
    q_model = quantized(net())
    seen = []
    report = gptq_weights(
        q_model, X, stop=lambda: len(seen) > 1, progress=lambda *told: seen.append(told), verbose=False
    )
    assert not report.complete
    assert [unit.layers[0] for unit in report.units] == ["first"]
    before = [np.array(variable) for variable in q_model.variables]

    def fail(done, *_):
        if done == 2:
            raise RuntimeError("full")

    with pytest.raises(RuntimeError, match="full"):
        gptq_weights(q_model, X, progress=fail)
    for old, variable in zip(before, q_model.variables, strict=True):
        np.testing.assert_array_equal(np.array(variable), old)


def test_a_layer_that_reads_inputs_of_several_ranks_is_rounded_for_all_of_them():
    keras.utils.set_random_seed(0)
    rows, series = keras.Input((40,), name="rows"), keras.Input((3, 40), name="series")
    shared = layers.Dense(8, name="shared")
    q_model = quantized(keras.Model([rows, series], [shared(rows), shared(series)]))
    x = [X[:, 0], X]
    (unit,) = gptq_weights(q_model, x, verbose=False).units
    assert unit.learned_error < unit.nearest_error / 2


class Shifting(layers.Layer):
    """A layer whose default is to compute as in training."""

    def call(self, inputs, training=True):
        return inputs + 100.0 if training else inputs


def test_the_inputs_of_layers_are_those_of_inference():
    rows = keras.Input((40,), name="rows")
    hidden = Shifting(name="shifting")(layers.Dense(32, name="first")(rows))
    q_model = quantized(keras.Model(rows, layers.Dense(4, name="head")(hidden)))
    units = gptq_weights(q_model, X[:, 0], verbose=False).units
    assert units[1].layers == ("head",)
    assert units[1].nearest_error < 10 * units[0].nearest_error


def test_a_hessian_without_an_inverse_is_told_and_everything_put_back():
    image = keras.Input((64,), name="image")
    q_model = quantized(keras.Model(image, layers.Dense(4, name="head")(image)))
    before = [np.array(v) for v in q_model.variables]
    x = np.random.default_rng(0).normal(size=(4, 64)).astype("float32")
    with pytest.raises(DataError, match=r"larger damping, such as 0.01, or more samples.*damping=1e-15, layer 'head'"):
        gptq_weights(q_model, x, damping=1e-15, verbose=False)
    assert all(np.array_equal(now, then) for now, then in zip(q_model.variables, before, strict=True))


def test_samples_of_several_sizes_are_refused():
    series = keras.Input((None, 4), name="series")
    q_model = quantized(keras.Model(series, layers.Dense(2, name="head")(series)))
    x = [np.zeros((4, length, 4), "float32") for length in (3, 5)]
    with pytest.raises(
        DataError, match=r"of one size.*input 'series' with batches of shapes \[\(4, 3, 4\), \(4, 5, 4\)\]"
    ):
        gptq_weights(q_model, x, verbose=False)
    table, rows = keras.Input(batch_shape=(1, 4), name="table"), keras.Input((4,), name="rows")
    q_model = quantized(keras.Model([rows, table], layers.Dense(2, name="head")(rows + table)))
    with pytest.raises(DataError, match=r"a row of each input.*'rows': \(8, 4\), 'table': \(1, 4\)"):
        gptq_weights(q_model, [[np.zeros((8, 4), "float32"), np.zeros((1, 4), "float32")]], verbose=False)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"damping": 0.0}, "damping must be a number above 0"),
        ({"activation_order": 1}, "activation_order must be True or False"),
        ({"seed": -1}, "seed must be an integer from 0 on"),
        ({"batch_size": 0}, "batch_size must be an integer from 1 on"),
    ],
)
def test_settings_out_of_range_are_refused(settings, words):
    with pytest.raises(DataError, match=words):
        gptq_weights(quantized(net()), X, **settings)


def test_models_and_data_that_do_not_fit_are_refused():
    model = net()
    with pytest.raises(NotQuantizedError):
        gptq_weights(model, X)
    with pytest.raises(UncalibratedError, match="no range"):
        gptq_weights(qdq.quantize_model(model), X)
    with pytest.raises(DataError, match="NaN or infinity"):
        gptq_weights(quantized(model), np.full((20, 3, 40), np.nan, "float32"), verbose=False)
