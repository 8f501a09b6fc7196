"""Numbers of NumPy where numbers are taken: accepted, and numbers of Python in what is saved."""

import fractions
import json

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench import mct
from qdq_workbench._numbers import real, whole
from qdq_workbench.analysis.search import _checked_bits
from qdq_workbench.analysis.search_goal import Goal
from qdq_workbench.analysis.workers import check_workers
from qdq_workbench.errors import QuantizerError, SpecError
from qdq_workbench.export.build_onnx import choose_opset
from qdq_workbench.spec import QuantizerSpec
from qdq_workbench.tfmot.quantization.keras.experimental.default_n_bit import DefaultNBitQuantizeScheme

FOUR, HALF = np.int64(4), np.float32(0.5)
QUANTIZERS = [
    lambda: qdq.LastValueQuantizer(FOUR, per_axis=True, axis=np.int8(0), block_size=np.uint16(32)),
    lambda: qdq.LSQQuantizer(np.uint8(4)),
    lambda: qdq.MovingAverageQuantizer(FOUR, momentum=HALF),
    lambda: qdq.FixedQuantizer(-HALF, HALF, FOUR),
]


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    image = keras.Input((8,), name="image")
    hidden = layers.Dense(8, activation="swish", name="hidden")(image)
    return keras.Model(image, layers.Dense(3, name="head")(hidden))


def test_other_values_stay():
    for value in (True, np.True_, "4", None, np.array([1, 2]), 2.5):
        assert whole(value) is value
    for value in (True, np.True_, "0.5", None, 1j):
        assert real(value) is value
    assert [type(whole(value)) for value in (np.int8(3), np.array(3), 3)] == [int] * 3
    assert [type(real(value)) for value in (np.float16(0.5), np.float64(0.5), fractions.Fraction(1, 2))] == [float] * 3
    assert type(real(np.uint8(1))) is int


@pytest.mark.parametrize("make", QUANTIZERS)
def test_quantizers_take_them_and_their_configurations_are_json(make):
    quantizer = make()
    config = json.loads(json.dumps(quantizer.get_config()))
    assert type(quantizer).from_config(config) == quantizer
    json.dumps(quantizer.spec.to_dict())


def test_truth_values_are_no_numbers_of_bits():
    for given in (True, np.True_, 4.0, np.float32(4)):
        with pytest.raises(QuantizerError, match="num_bits must be an integer"):
            QuantizerSpec(given)
    for setting in ({"axis": np.True_}, {"block_size": np.float32(32)}, {"momentum": np.True_}):
        with pytest.raises(SpecError, match="must be a"):
            qdq.LayerQuantizeConfig(weight={"quantizer": "moving_average", **setting})


def test_a_specification_is_saved_and_planned_with(model, tmp_path):
    weight = {"num_bits": FOUR, "axis": np.int32(1)}
    fixed = {"quantizer": "fixed", "init_min": -HALF, "init_max": HALF}
    moving = {"quantizer": "moving_average", "momentum": HALF}
    config = qdq.LayerQuantizeConfig(weight=weight, activation=fixed, output=moving)
    spec = qdq.correction.weights_alone(model, num_bits=FOUR, block_size=np.int64(32))
    spec.add("head", quantization_index=[np.int64(0)], quantize_output=True, quantize_config=config)
    spec.save(tmp_path / "spec.yaml")
    assert qdq.QuantizationSpec.load(tmp_path / "spec.yaml") == spec
    plan = qdq.plan_placement(model, quantization_spec=spec)
    assert type(plan).from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


def test_variables_of_the_package_and_ranges_of_classes(model, monkeypatch):
    monkeypatch.setattr(qdq, "G_NUM_BITS", FOUR)
    plan = qdq.plan_placement(model)
    assert {tensor.quantizer.num_bits for tensor in plan.tensors} == {4}
    json.dumps(plan.to_dict())
    axes = mct.DefaultDict({layers.Dense: (np.int64(1), None)}, lambda: (None, None))
    info = mct.FrameworkInfo([layers.Dense], [], ["InputLayer"], axes, {"relu": (np.float32(0), None)}, {})
    assert (info.kernel_axis(layers.Dense), info.activation_range("relu")) == (1, (0.0, None))


def test_the_faces_take_them(model):
    scheme = DefaultNBitQuantizeScheme(num_bits_weight=FOUR, num_bits_activation=np.int64(8))
    json.dumps([scheme.num_bits_weight, scheme.num_bits_activation])
    config = mct.QuantizationConfig(weights_n_bits=FOUR, shift_negative_ratio=HALF, min_threshold=np.float32(1e-3))
    json.dumps([config.weights_n_bits, config.shift_negative_ratio, config.min_threshold])
    assert mct.GradientPTQConfig(FOUR).n_iter == 4
    with pytest.raises(SpecError, match="n_iter must be an integer"):
        mct.GradientPTQConfig(np.True_)
    data = np.ones((2, 8), np.float32)
    q_model, _ = mct.keras_post_training_quantization(model, lambda: [data], n_iter=np.int64(1), quant_config=config)
    json.dumps(q_model.plan.to_dict())


def test_corrections_take_them(model):
    # 2 ** 7 exceeds what an int8 holds.
    few, same = (qdq.correction.codebook_weights(model, bits) for bits in (np.int8(7), 7))
    np.testing.assert_array_equal(few.get_weights()[0], same.get_weights()[0])
    qdq.correction.shift_negative(model, ratio=HALF)
    qdq.correction.clip_weights(model, method="lp", p=HALF, candidates=np.int8(5))


def test_searches_exports_and_workers_take_them():
    goal = Goal("bytes", HALF, np.int64(100), np.float32(1.5), HALF)
    json.dumps([goal.floor, goal.max_bytes, goal.max_ms, goal.max_loss, goal.is_accurate(1.0, 1.0)])
    json.dumps(_checked_bits([FOUR, 8]))
    check_workers(np.int64(-1))
    assert type(choose_opset(np.int64(21), [])) is int
