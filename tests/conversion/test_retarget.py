"""Which range a pair of another plan starts from, by plans alone; the models have tests in their own rooms."""

import types

import keras
import numpy as np
import pytest
from keras import layers
from mock_graphs import GraphMaker

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.retarget import in_float32, ranges_under, replan
from qdq_workbench.errors import NotQuantizedError, TargetError, UncalibratedError
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.spec import QuantizationSpec

FOUR, FIVE, LSQ = (
    {"quantize_config": qdq.LayerQuantizeConfig(activation=a)}
    for a in ({"num_bits": 4}, {"num_bits": 5}, {"quantizer": "lsq"})
)
FIXED = {"quantize_config": qdq.LayerQuantizeConfig(activation={"quantizer": "fixed", "init_min": -3, "init_max": 3})}


def planned(target="tensorrt", graph=None, **entries):
    spec = QuantizationSpec()
    for name, settings in entries.items():
        spec.add(name, **settings)
    graph = graph or two_readers()
    return make_plan(graph, decide(graph, "full", spec, []), "full", target)


def two_readers():
    maker = GraphMaker()
    maker.add("Conv2D", "one", "image")
    maker.add("Conv2D", "other", "image")
    return maker.graph("one", "other")


def calibrated(plan, present, recorded=()):
    """Return a stand-in for a model: its plan, the ranges of its pairs, and what `calibrate` recorded."""
    return types.SimpleNamespace(plan=plan, activation_ranges=lambda: present, recorded_ranges=dict(recorded))


class TestRanges:
    def test_the_same_settings_keep_their_range_under_another_grid(self):
        model = calibrated(planned(), {"image": (0.0, 1.0)}, {"image": (-9.0, 9.0), "one": (0.0, 5.0)})
        found = ranges_under(model, planned("onnxruntime", one={"quantize_output": True}))
        assert found == {"image": (0.0, 1.0), "one": (0.0, 5.0)}

    def test_other_settings_take_what_was_recorded(self):
        model = calibrated(planned(), {"image": (0.0, 1.0)}, {"image": (-9.0, 9.0)})
        for settings in (FOUR, LSQ):
            assert ranges_under(model, planned(one=settings, other=settings)) == {"image": (-9.0, 9.0)}

    def test_without_a_record_any_pair_on_the_tensor_serves(self):
        model = calibrated(planned(), {"image": (0.0, 1.0)})
        assert ranges_under(model, planned(one=FOUR, other=FOUR)) == {"image": (0.0, 1.0)}

    def test_a_reader_with_a_pair_of_its_own_keeps_it(self):
        model = calibrated(planned(one=FOUR, other=FIVE), {"image": (0.0, 4.0), "image@2": (0.0, 5.0)})
        assert ranges_under(model, planned(one=FIVE, other=FOUR)) == {"image": (0.0, 5.0), "image@2": (0.0, 4.0)}
        assert ranges_under(model, planned(one=FOUR, other=FIVE)) == model.activation_ranges()

    def test_of_two_pairs_with_the_same_settings_the_readers_own_comes_first(self):
        signed, unsigned = (
            {"quantize_config": qdq.LayerQuantizeConfig(activation={"signed": s})} for s in (True, False)
        )
        model = calibrated(planned(one=signed, other=unsigned), {"image": (0.0, 1.0), "image@2": (0.0, 2.0)})
        assert ranges_under(model, planned(one=signed, other=unsigned)) == model.activation_ranges()

    def test_a_fixed_range_is_that_of_its_method(self):
        model = calibrated(planned(), {"image": (0.0, 1.0)}, {"image": (-9.0, 9.0)})
        assert ranges_under(model, planned(one=FIXED, other=FIXED)) == {"image": (-3.0, 3.0)}

    def test_a_trained_range_with_the_same_settings_comes_before_the_fixed_one(self):
        off = {"quantize_input": False}
        model = calibrated(planned(one=FIXED, other=off), {"image": (0.0, 1.0)})
        assert ranges_under(model, planned(one=off, other=FIXED)) == {"image": (0.0, 1.0)}

    def test_pairs_without_a_range_are_left_out(self):
        model = calibrated(planned(), {})
        assert ranges_under(model, planned()) == {}
        assert ranges_under(calibrated(planned(), {}, {"image": (0.0, 2.0)}), planned()) == {"image": (0.0, 2.0)}


def dense(count=8, **settings):
    image = keras.Input((2,), name="image")
    x = image
    for number in range(count):
        x = layers.Dense(2, name=f"d{number}", **settings)(x)
    return keras.Model(image, x, name="net")


@pytest.fixture(scope="module")
def q_model():
    found = qdq.quantize_model(dense())
    qdq.calibrate(found, np.ones((2, 2), np.float32), verbose=False)
    return found


class TestModels:
    def test_tensors_without_a_range_are_listed_up_to_five(self):
        with pytest.raises(
            UncalibratedError, match=r"'onnxruntime' quantizes .* unknown: image, d0, d1, d2, d3, \.\.\.\..*8 of 8"
        ):
            qdq.retarget(qdq.quantize_model(dense()), "onnxruntime")
        with pytest.raises(UncalibratedError, match=r"unknown: image, d0, d1, d2, d3\. Run calibrate.*5 of 5 tensors"):
            qdq.retarget(qdq.quantize_model(dense(5)), "onnxruntime")

    def test_arguments_are_checked(self, q_model):
        with pytest.raises(TargetError, match="onnxruntime"):
            qdq.retarget(q_model, "onnx")
        for function in (
            in_float32,
            lambda model: qdq.retarget(model, "onnxruntime"),
            lambda model: replan(model, None),
        ):
            with pytest.raises(NotQuantizedError):
                function(dense())

    def test_another_plan_may_leave_pairs_uncalibrated(self, q_model):
        spec = QuantizationSpec()
        spec.add("d7", quantize_output=True)
        plan = qdq.plan_placement(dense(), quantization_spec=spec)
        bare = qdq.quantize_model(dense())
        assert replan(bare, plan).uncalibrated_tensors() == ["image", *(f"d{number}" for number in range(8))]
        assert replan(q_model, plan).uncalibrated_tensors() == []  # recorded, though not quantized before

    def test_frozen_pairs_stay_and_new_ones_are_frozen(self, q_model):
        first = q_model.activation_quantizers[0]
        before = bool(first.frozen.numpy())
        spec = QuantizationSpec()
        spec.add("d7", quantize_output=True)
        first.frozen.assign(not before)
        copied = replan(q_model, qdq.plan_placement(dense(), quantization_spec=spec))
        first.frozen.assign(before)
        frozen = {layer.tensor: bool(layer.frozen.numpy()) for layer in copied.activation_quantizers}
        assert frozen[first.tensor] is not before
        assert frozen["d7"] is True
        assert copied.calibration == q_model.calibration
        assert copied.recorded_ranges == q_model.recorded_ranges

    def test_a_model_in_float32_is_taken_as_it_is(self, q_model):
        assert in_float32(q_model) is q_model
        half = qdq.quantize_model(dense(dtype="mixed_float16"))
        copied = in_float32(half)
        assert copied is not half
        assert {layer.compute_dtype for layer in copied.layers} == {"float32"}
