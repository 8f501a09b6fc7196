"""Running a quantized model with some of its switches on, and any model on several sets of samples: traced once."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.analysis import sweep
from qdq_workbench.analysis.samples import Samples, read_samples
from qdq_workbench.analysis.sweep import Sweep, Traces, model_outputs
from qdq_workbench.analysis.switches import SITES
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

X = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)


def test_the_first_model_and_the_last_one_are_traced_once(monkeypatch):
    image = keras.Input((2,), name="image")
    models = {
        factor: keras.Model(image, keras.layers.Dense(1, kernel_initializer=keras.initializers.Constant(factor))(image))
        for factor in (1.0, 2.0, 3.0)
    }
    traced, trace, traces = [], sweep.concrete, sweep.Traces()
    monkeypatch.setattr(sweep, "concrete", lambda model: traced.append(model) or trace(model))

    for count, factor in enumerate((1.0, 2.0, 1.0, 2.0, 3.0, 1.0, 3.0, 2.0), start=1):
        x = np.full((count, 2), count, np.float32)
        (found,) = sweep.model_outputs(models[factor], read_samples(models[factor], x), traces)
        np.testing.assert_array_equal(found, np.full((count, 1), 2 * count * factor))

    assert len(traced) == 4  # the second one again at the end


@pytest.fixture(scope="module")
def q_model():
    keras.utils.set_random_seed(0)
    image = keras.Input((4,), name="image")
    hidden = layers.Dense(6, activation="relu", name="first")(image)
    hidden = layers.Dense(6, activation="relu", name="second")(hidden)
    model = keras.Model(image, [layers.Dense(2, name="left")(hidden), layers.Dense(3, name="right")(hidden)])
    made = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(made, X, verbose=False)
    return made


@pytest.fixture(scope="module")
def swept(q_model):
    return Sweep(q_model, read_samples(q_model, X, batch_size=4))


def test_switches_are_in_the_order_of_layers_and_sites(q_model, swept):
    order = [layer for layer in q_model.plan.graph.layers if layer != "image"]
    places = [(order.index(layer), SITES.index(site)) for layer, site in swept.switches]

    assert places == sorted(set(places))
    assert {layer for layer, site in swept.switches if site == "weight"} == set(order)


def test_outputs_are_those_of_the_float_and_of_the_quantized_model(q_model, swept):
    for on, model in (((), qdq.strip(q_model)), (swept.switches, q_model)):
        found = swept.outputs(on)
        assert [len(output) for output in found] == [10, 10]
        for output, expected in zip(found, model(X), strict=True):
            np.testing.assert_allclose(output, expected, atol=1e-6)


def test_outputs_do_not_depend_on_the_base_that_is_kept(swept):
    sets = [[], [swept.switches[0]], swept.switches[2:5], swept.switches]
    sweep_alone = [swept.outputs(on) for on in sets]

    for base in sets:
        for kept, alone in zip(swept.keep(base), sweep_alone[sets.index(base)], strict=True):
            np.testing.assert_array_equal(kept, alone)
        for on, expected in zip(sets, sweep_alone, strict=True):
            for output, alone in zip(swept.outputs(on), expected, strict=True):
                np.testing.assert_array_equal(output, alone)


@pytest.mark.parametrize("kept", [True, False])
def test_other_grids_hold_for_one_run(q_model, kept):
    one = Sweep(q_model, read_samples(q_model, X))
    on = [("first", "weight"), ("right", "weight")]
    base = one.keep(on) if kept else one.outputs(on)
    coarse = {"first": {"kernel": QuantizerSpec(2, signed=True, symmetric=True)}}

    changed = one.outputs(on, coarse)
    without = one.outputs([], coarse)

    assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(changed, base, strict=True))
    assert np.abs(changed[1] - without[1]).max() > 0, "the other switch still counts"
    np.testing.assert_array_equal(changed[0], without[0])
    for now, before in zip(one.outputs(on), base, strict=True):
        np.testing.assert_array_equal(now, before)


def test_without_memory_for_it_nothing_is_kept_between_segments(q_model):
    assert Sweep(q_model, read_samples(q_model, X), cache_bytes=0).cuts == []


def test_a_layer_that_is_called_twice_leaves_the_model_in_one_piece():
    shared = layers.Dense(4, name="shared")
    image = keras.Input((4,), name="image")
    q_model = qdq.quantize_model(keras.Model(image, shared(shared(image))), target="onnxruntime")
    qdq.calibrate(q_model, X, verbose=False)

    assert Sweep(q_model, read_samples(q_model, X)).cuts == []


def test_outputs_of_half_precision_come_in_single_precision():
    for dtype in ("float16", "bfloat16"):
        image = keras.Input((2,), name="image")
        model = keras.Model(image, layers.Rescaling(0.5, dtype=dtype, name="half")(image))
        (found,) = model_outputs(model, Samples([[np.ones((3, 2))], [np.zeros((1, 2))]], None))
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, [[0.5, 0.5]] * 3 + [[0, 0]])


def test_integers_stay_what_they_are_and_inputs_get_the_types_of_the_model():
    tokens = keras.Input((2,), dtype="int32", name="tokens")
    model = keras.Model(tokens, [layers.Identity(name="same")(tokens), layers.Embedding(3, 1, name="table")(tokens)])
    same, table = model_outputs(model, Samples([[np.array([[0.0, 2.0]])]], None), Traces())

    assert (same.dtype, table.shape) == (np.int32, (1, 2, 1))
    np.testing.assert_array_equal(same, [[0, 2]])
