"""Data of another scale than the calibration's are warned of, wherever a model or its file meets data."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.calibration.data_scale import input_ranges
from qdq_workbench.errors import DataScaleWarning

pytestmark = pytest.mark.filterwarnings("error::qdq_workbench.errors.DataScaleWarning")


@pytest.fixture(scope="module")
def unit():
    """Images from 0 to 1, with the largest and the smallest value."""
    images = np.random.default_rng(0).uniform(size=(16, 6, 6, 2)).astype(np.float32)
    images[0, 0, 0] = (0.0, 1.0)
    return images


@pytest.fixture(scope="module")
def q_model(unit):
    image = keras.Input((6, 6, 2), name="image")
    x = layers.GlobalAveragePooling2D(name="pool")(layers.Conv2D(3, 3, name="conv")(image))
    found = qdq.quantize_model(keras.Model(image, layers.Dense(2, name="head")(x), name="net"), target="onnxruntime")
    qdq.calibrate(found, unit, verbose=False)
    return found


CHECKS = {
    "sensitivity": lambda model, data: qdq.sensitivity(model, data, sites=("weight",), verbose=False),
    "diagnose": qdq.diagnose,
    "gptq_weights": lambda model, data: qdq.correction.gptq_weights(model, data, verbose=False),
}


def files_of(caught):
    return {warning.filename for warning in caught if warning.category is DataScaleWarning}


@pytest.mark.parametrize("name", CHECKS)
def test_functions_that_read_data_warn_of_bytes_at_the_callers_line(q_model, unit, name):
    with pytest.warns(
        DataScaleWarning, match=r"go from 0 to 255 \(float32\).*calibrated on 0 to 1.*saturate"
    ) as caught:
        CHECKS[name](q_model, unit * np.float32(255))
    assert files_of(caught) == {__file__}
    CHECKS[name](q_model, unit)  # a warning would be an error


def test_a_file_is_checked_with_its_model_and_without(q_model, unit, tmp_path):
    path = qdq.export_onnx(q_model, tmp_path / "net.onnx").path
    with pytest.warns(DataScaleWarning, match=r"calibrated on 0 to 1, so nearly all of them saturate") as caught:
        qdq.verify_onnx(path, q_model, data=unit * 255)
    assert files_of(caught) == {__file__}
    with pytest.warns(
        DataScaleWarning, match=r"integers of it in the file stand for 0 to 1, so nearly all of them fall"
    ):
        qdq.verify_onnx(path, data=unit / 255)
    assert qdq.verify_onnx(path, q_model, data=unit).passed
    assert qdq.verify_onnx(path, data=unit).passed
    assert qdq.verify_onnx(path, q_model).passed  # random samples are of the model's own range


def test_another_calibration_says_that_it_gives_other_ranges(unit):
    image = keras.Input((6, 6, 2), name="image")
    model = qdq.quantize_model(keras.Model(image, layers.Conv2D(3, 3, name="conv")(image)))
    qdq.calibrate(model, unit * 255, verbose=False)  # nothing is known yet
    with pytest.warns(DataScaleWarning, match=r"calibrated on 0 to 255 before. These data give it new ranges"):
        qdq.calibrate(model, unit, verbose=False)
    assert model.recorded_ranges["image"] == (0.0, 1.0)


def test_an_outlier_is_no_other_scale(q_model, unit):
    spoiled = unit.copy()
    spoiled[0, 0, 0] = 1000.0
    assert qdq.sensitivity(q_model, spoiled, sites=("weight",), verbose=False).ranked()
    bright = np.where(unit > 0.6, unit * 255, 0)  # mostly black, and all that is not is beyond
    with pytest.warns(DataScaleWarning, match="saturate"):
        qdq.sensitivity(q_model, bright, sites=("weight",), verbose=False)


def test_the_remark_tells_the_ends_of_the_data(q_model, unit):
    with pytest.warns(DataScaleWarning, match=r"go from 100 to 355 \("):
        qdq.sensitivity(q_model, unit * 255 + 100, sites=("weight",), verbose=False)


def test_classes_have_no_scale():
    words = keras.Input((4,), dtype="int32", name="words")
    x = layers.Dense(2, name="head")(layers.Flatten()(layers.Embedding(500, 3, name="table")(words)))
    model = qdq.quantize_model(keras.Model(words, x))
    qdq.calibrate(model, np.full((8, 4), 2), verbose=False)
    assert set(input_ranges(model).values()) == {(0.0, 0.0)}
    qdq.calibrate(model, np.full((8, 4), 499), verbose=False)
    assert input_ranges(qdq.strip(model)) == {}
