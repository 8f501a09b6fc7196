"""What a `FrameworkInfo` makes of a model."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.errors import SpecError
from qdq_workbench.quantizers import FixedQuantizer
from qdq_workbench.spec import DefaultDict, FrameworkInfo


def network(activation="relu"):
    keras.utils.set_random_seed(0)
    image = keras.Input((10, 10, 3), name="image")
    hidden = layers.Conv2D(4, 3, use_bias=False, name="conv")(image)
    hidden = layers.BatchNormalization(name="norm")(hidden)
    hidden = layers.Activation(activation, name="act")(hidden)
    hidden = layers.MaxPooling2D(name="pool")(hidden)
    hidden = layers.Conv2D(4, 3, name="conv2")(hidden)
    hidden = layers.BatchNormalization(name="norm2")(hidden)
    hidden = layers.Flatten(name="flat")(hidden)
    return keras.Model(image, layers.Dense(5, activation="softmax", name="head")(hidden), name="network")


def info(**changes):
    """Return an information that knows all of the network."""
    fields = {
        "kernel_ops": [layers.Conv2D, layers.Dense],
        "activation_ops": [layers.Activation, layers.InputLayer],
        "no_quantization_ops": [layers.MaxPooling2D, layers.Flatten],
        "kernel_channels_mapping": DefaultDict({layers.Conv2D: (3, 2)}, lambda: (None, None)),
        "activation_min_max_mapping": {"softmax": (0, 1), "relu": (0, None), "linear": (None, None)},
        "layer_min_max_mapping": {},
    }
    return FrameworkInfo(**{**fields, **changes})


def planned(plan):
    return {(p.layer, p.site, p.weight or p.input_index) for p in plan.placements}


def test_kernels_outputs_and_what_lies_between():
    plan = qdq.plan_placement(network(), framework_info=info())
    assert planned(plan) == {
        ("image", "output", None),
        ("conv", "weight", "kernel"),
        ("act", "output", None),  # behind the folded batch normalization: neither conv nor norm
        ("conv2", "input", 0),  # reads the quantized tensor through a pooling
        ("conv2", "weight", "kernel"),
        ("norm2", "output", None),  # the output of conv2 with its batch normalization folded in
        ("head", "input", 0),
        ("head", "weight", "kernel"),
        ("head", "output", None),
    }
    assert {p.author for p in plan.placements} == {"framework_info"}
    axes = {p.layer: p.quantizer.axis for p in plan.placements if p.site == "weight"}
    assert axes == {"conv": 3, "conv2": 3, "head": None}
    assert qdq.PlacementPlan.from_dict(plan.to_dict()) == plan


def test_without_axes_the_librarys_own_are_used():
    plan = qdq.plan_placement(network(), framework_info=info(kernel_channels_mapping=None))
    assert {p.quantizer.axis for p in plan.placements if p.site == "weight"} == {3, 1}


def test_known_ranges_need_no_calibration():
    q_model = qdq.quantize_model(network(), framework_info=info(layer_min_max_mapping={layers.InputLayer: (-4, 4)}))
    fixed = {layer.tensor: layer.range for layer in q_model.activation_quantizers if layer.range is not None}
    assert fixed == {"head": (0.0, 1.0), "image": (-4.0, 4.0)}
    assert all(isinstance(q_model.get_layer(f"qdq_{name}").quantizer, FixedQuantizer) for name in fixed)
    result = qdq.calibrate(q_model, np.random.default_rng(0).normal(size=(8, 10, 10, 3)), "mse", verbose=False)
    assert result.ranges["image"] == (-4.0, 4.0)
    assert result.ranges["head"] == (0.0, 1.0)
    assert q_model.activation_ranges()["head"] == (0.0, 1.0)
    assert q_model.uncalibrated_tensors() == []
    assert result.ranges["act"][0] == 0.0


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
def test_the_whole_way(target, tmp_path):
    x = np.random.default_rng(0).normal(size=(8, 10, 10, 3)).astype("float32")
    q_model = qdq.quantize_model(network(), framework_info=info(), target=target)
    qdq.calibrate(q_model, x, verbose=False)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    qdq.verify_onnx(tmp_path / "model.onnx", q_model, x).raise_if_failed()


def test_an_unknown_activation_stays_in_float_with_a_warning():
    with pytest.warns(UserWarning, match="activation 'gelu' \\('act'\\) has no entry"):
        plan = qdq.plan_placement(network("gelu"), framework_info=info())
    assert not plan.for_layer("act").quantize_output
    assert "does not know the activation 'gelu'" in plan.for_layer("act").reason
    assert plan.for_layer("conv").quantize_weight


def test_an_unknown_layer_stays_in_float_with_a_warning():
    with pytest.warns(UserWarning, match="no list names Flatten \\('flat'\\)"):
        plan = qdq.plan_placement(network(), framework_info=info(no_quantization_ops=[layers.MaxPooling2D]))
    assert not plan.for_layer("flat").quantize_output


def test_nothing_is_warned_of_where_all_is_known():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        qdq.plan_placement(network(), framework_info=info())


def test_spec_and_cases_are_stronger_and_keep_the_axes():
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_input=False)
    spec.add("conv2", quantize_input=False, quantize_weight=False)
    plan = qdq.plan_placement(
        network(), quantization_spec=spec, framework_info=info(kernel_channels_mapping={layers.Dense: (1, 0)})
    )
    assert plan.for_layer("conv").author == "spec[0]"
    weights = {p.layer: p.quantizer.axis for p in plan.placements if p.site == "weight"}
    assert weights == {"conv": None, "head": 1}


def test_a_layer_of_ones_own_with_a_kernel():
    class Scaling(layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(name="kernel", shape=(shape[-1],), initializer="ones")

        def call(self, x):
            return x * self.kernel

    image = keras.Input((4,), name="image")
    model = keras.Model(image, Scaling(name="scaling")(image))
    known = FrameworkInfo([Scaling], ["InputLayer"], [], DefaultDict({Scaling: (0, None)}), {}, {})
    plan = qdq.plan_placement(model, framework_info=known)
    assert planned(plan) == {("image", "output", None), ("scaling", "weight", "kernel"), ("scaling", "output", None)}


def test_wrong_uses():
    with pytest.raises(SpecError, match="partial mode"):
        qdq.plan_placement(network(), "partial", framework_info=info())
    with pytest.raises(SpecError, match="must be a FrameworkInfo"):
        qdq.plan_placement(network(), framework_info={})
    plan = qdq.plan_placement(network())
    with pytest.raises(SpecError, match="already holds"):
        qdq.quantize_model(network(), plan=plan, framework_info=info())


@keras.saving.register_keras_serializable(package="test_framework")
class TwoMatrices(layers.Layer):
    """A layer of the user's own with two matrices, one of them its kernel."""

    def build(self, shape):
        self.kernel = self.add_weight(name="kernel", shape=(shape[-1], shape[-1]))
        self.mixing = self.add_weight(name="mixing", shape=(shape[-1], shape[-1]))

    def call(self, x):
        return x @ self.kernel @ self.mixing


@pytest.mark.parametrize("fused", [False, True])
def test_a_pair_on_its_output_does_not_decide_which_weights_of_an_own_layer_are_quantized(fused):
    x = keras.Input((4,), name="x")
    y = TwoMatrices(name="own")(x)
    model = keras.Model(x, layers.Activation("relu", name="act")(y) if fused else y)
    known = info(kernel_ops=[TwoMatrices], kernel_channels_mapping=None)
    plan = qdq.plan_placement(model, framework_info=known)
    assert ("own", "output", None) in planned(plan) or fused
    assert {p.weight for p in plan.placements if p.site == "weight"} == {"kernel"}
