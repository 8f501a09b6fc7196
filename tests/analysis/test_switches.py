"""Switches in front of the readers of quantized tensors: which tensor passes, and what a copy of a model has."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.analysis.switches import ReadSwitch, SwitchedCopy
from qdq_workbench.conversion.engine.deep_models import functional_model
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
FLOAT, QUANTIZED = np.float32([[1.0]]), np.float32([[2.0]])


def variables(*values):
    return [keras.Variable(value, dtype="bool", trainable=False) for value in values]


@pytest.mark.parametrize(
    ("states", "passes"),
    [
        ([False], FLOAT),
        ([True], QUANTIZED),
        ([False, True], QUANTIZED),
        ([True, True], QUANTIZED),
        ([False] * 3, FLOAT),
    ],
)
def test_the_quantized_tensor_passes_while_any_switch_is_on(states, passes):
    np.testing.assert_array_equal(ReadSwitch(variables(*states))([FLOAT, QUANTIZED]), passes)


def test_a_switch_can_be_turned():
    (variable,) = variables(False)
    switch = ReadSwitch([variable])
    before = switch([FLOAT, QUANTIZED])
    variable.assign(True)

    np.testing.assert_array_equal([before, switch([FLOAT, QUANTIZED])], [FLOAT, QUANTIZED])


def test_a_switch_keeps_type_shape_and_mask_of_its_tensor():
    switch = ReadSwitch(variables(True), dtype="mixed_float16")
    found = switch([keras.KerasTensor((None, 3)), keras.KerasTensor((None, 3))])

    assert (found.shape, found.dtype) == ((None, 3), "float32")
    assert switch.supports_masking
    assert switch.compute_mask(None, ["first", "second"]) == "first"
    assert switch.compute_mask(None, "only") == "only"
    assert switch.compute_mask(None) is None


@pytest.fixture(scope="module")
def q_model():
    """Two readers of one tensor, one of them in float, and a pair behind the last layer."""
    keras.utils.set_random_seed(0)
    image = keras.Input((4,), name="image")
    left, right = layers.Dense(4, name="left")(image), layers.Dense(4, name="right")(image)
    model = keras.Model(image, layers.Add(name="add")([left, right]))
    spec = qdq.QuantizationSpec()
    spec.add("left")
    spec.add("add", quantize_input=False, quantize_output=True)
    made = qdq.quantize_model(model, "partial", spec, target="onnxruntime")
    qdq.calibrate(made, X, verbose=False)
    return made


@pytest.fixture
def copied(q_model):
    copy = SwitchedCopy(q_model)
    run = functional_model([copy.values[name] for name in copy.bound.input_tensors], copy.copied_outputs, name="copy")
    return copy, lambda: np.asarray(run([X]))


def test_every_site_of_the_plan_has_a_switch(q_model, copied):
    copy, _ = copied

    assert copy.switches == [("left", "input"), ("left", "weight"), ("add", "output")]
    assert copy.positions[("left", "input")] <= copy.positions[("left", "weight")] < copy.positions[("add", "output")]


def test_all_switches_are_off_at_first_and_all_on_is_the_quantized_model(q_model, copied):
    copy, run = copied

    np.testing.assert_allclose(run(), qdq.strip(q_model)(X), atol=1e-6)
    copy.set(copy.switches)
    np.testing.assert_allclose(run(), q_model(X), atol=1e-6)
    copy.set(())
    np.testing.assert_allclose(run(), qdq.strip(q_model)(X), atol=1e-6)


def test_every_switch_has_an_effect_of_its_own(copied):
    copy, run = copied
    found = []
    for on in [(), *((switch,) for switch in copy.switches), copy.switches]:
        copy.set(on)
        found.append(run())

    assert all(not np.array_equal(a, b) for place, a in enumerate(found) for b in found[:place])


def test_the_model_is_only_read(q_model):
    before = [np.array(variable) for variable in q_model.variables]
    q_model.quantization_enabled = False
    try:
        copy = SwitchedCopy(q_model)
        copy.set(copy.switches, {"left": {"kernel": QuantizerSpec(2)}})
        enabled = [bool(layer.enabled.numpy()) for layer in q_model.quantizing_layers]
    finally:
        q_model.quantization_enabled = True

    assert not any(enabled)
    for variable, value in zip(q_model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_grids_replace_those_of_a_layer_until_the_next_setting(copied):
    copy, run = copied
    on = [("left", "input"), ("left", "weight")]
    copy.set(on)
    usual = run()
    found = {}
    for bits in (3, 2):
        grid = QuantizerSpec(bits, signed=True, symmetric=True)
        copy.set(on, {"left": {"kernel": grid}})
        found[bits] = run()
        copy.set(on[:1], {"left": {"kernel": grid}})
        np.testing.assert_array_equal(run(), found[bits])  # the switch of weights on another grid does not count

    copy.set(on, {"left": {"kernel": QuantizerSpec(3, signed=True, symmetric=True)}})
    np.testing.assert_array_equal(run(), found[3])  # made of the float values, not of those on the grid before
    copy.set(on)
    np.testing.assert_array_equal(run(), usual)
    assert not np.array_equal(found[2], found[3])
