"""Warnings name the line of the user, whatever is between."""

import dataclasses

import keras
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench import mct, tfmot
from qdq_workbench._warned_line import warn_caller


@pytest.fixture(scope="module")
def model():
    image = keras.Input((4,), name="image")
    doubled = layers.Lambda(lambda x: 2 * x, name="double", output_shape=(4,))(layers.Dense(4, name="hidden")(image))
    return keras.Model(image, layers.Dense(2, name="head")(doubled))


def test_the_line_that_warns_itself():
    with pytest.warns(UserWarning, match="here") as caught:
        warn_caller(UserWarning("here"))
    assert caught[0].filename == __file__


CALLS = {
    "tfmot": (tfmot.quantize_annotate_model, "Lambda layer 'double' is not annotated"),
    "framework information": (
        lambda model: qdq.quantize_model(model, framework_info=mct.FrameworkInfo([layers.Dense], [], ["InputLayer"])),
        "does not know all of the model",
    ),
    "mct": (lambda _: mct.QuantizationConfig(input_scaling=True), "without effect: input_scaling"),
    "mct, a copy": (
        lambda _: dataclasses.replace(mct.QuantizationConfig(), input_scaling=True),
        "without effect: input_scaling",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_is_that_of_the_user(name, model):
    call, match = CALLS[name]
    with pytest.warns(UserWarning, match=match) as caught:
        call(model)
    assert {warning.filename for warning in caught if match in str(warning.message)} == {__file__}
