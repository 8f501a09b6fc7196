"""Layers with quantizers of their own, from the spec to the verified file."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from small_models import dtype_policy, nested_net, residual_net, samples

import qdq_workbench as qdq
from qdq_workbench import numerics
from qdq_workbench.errors import SpecError
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.quantizers import FixedQuantizer, LSQQuantizer, MovingAverageQuantizer

Config = qdq.LayerQuantizeConfig


class KernelConfig(qdq.QuantizeConfig):
    """Four bits per output channel; the setter assigns what Keras 3 refuses to take."""

    def __init__(self, num_bits=4):
        self.num_bits = num_bits

    def get_weights_and_quantizers(self, layer):
        return [(layer.kernel, qdq.LastValueQuantizer(self.num_bits, per_axis=True, narrow_range=True))]

    def get_activations_and_quantizers(self, layer):
        return []

    def set_quantize_weights(self, layer, quantize_weights):
        assert isinstance(layer, layers.Layer)
        layer.kernel = quantize_weights[0]

    def set_quantize_activations(self, layer, quantize_activations):
        pass

    def get_output_quantizers(self, layer):
        return []

    def get_config(self):
        return {"num_bits": self.num_bits}


def mixed_spec():
    """Several bits, methods and two readers of one tensor with different settings."""
    spec = qdq.QuantizationSpec()
    spec.add(
        "conv",
        quantize_config=Config(
            weight={"num_bits": 4, "quantizer": "lsq"}, activation={"num_bits": 6, "symmetric": False, "signed": False}
        ),
    )
    spec.add("add", quantization_index=[1], quantize_config=Config(activation={"quantizer": "lsq"}))
    spec.add(
        "head",
        quantize_config=Config(
            weight={"num_bits": 5, "symmetric": False, "narrow_range": False, "quantizer": "moving_average"},
            activation={"num_bits": 16},
        ),
    )
    return spec


@pytest.fixture(scope="module")
def trained():
    """A model with mixed quantizers, calibrated and trained for a few steps."""
    model = residual_net()
    q_model = qdq.quantize_model(model, quantization_spec=mixed_spec(), target="onnxruntime")
    x = samples(model)
    qdq.calibrate(q_model, x, verbose=False, freeze=True)
    steps = {v.path: np.array(v) for v in q_model.variables if v.path.endswith("_step")}
    q_model.compile(keras.optimizers.Adam(0.01), "mse")
    q_model.fit(x, np.zeros((16, 3), np.float32), batch_size=4, verbose=0)
    return model, q_model, x, steps


def test_the_plan_says_what_was_asked_and_goes_through_json(trained):
    plan = trained[1].plan
    grids = {tensor.name: (tensor.quantizer.label, tensor.method and tensor.method.name) for tensor in plan.tensors}
    assert grids["conv/kernel"] == ("int4/axis 3", "lsq")
    assert grids["head/kernel"] == ("int5/axis 1", "moving_average")
    assert grids["stem_relu"] == ("uint6", None)
    assert grids["stem_relu@2"] == ("uint8", "lsq")
    assert grids["pool"] == ("uint16", None)
    again = PlacementPlan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert (again.tensors, again.placements, again.decisions) == (plan.tensors, plan.placements, plan.decisions)
    assert not plan.diff(again)


def test_one_tensor_has_a_pair_per_quantizer(trained):
    _, q_model, _, _ = trained
    names = [layer.name for layer in q_model.activation_quantizers]
    assert "qdq_stem_relu" in names
    assert "qdq_stem_relu_2" in names
    kinds = {layer.tensor: type(layer.quantizer) for layer in q_model.activation_quantizers}
    assert (kinds["stem_relu"], kinds["stem_relu@2"]) == (MovingAverageQuantizer, LSQQuantizer)
    assert {*q_model.activation_ranges()} == {t.name for t in q_model.plan.tensors if t.kind == "activation"}


def test_learned_steps_are_trained_and_other_ranges_stay_as_calibrated(trained):
    _, q_model, _, steps = trained
    assert len(steps) == 2
    for variable in q_model.variables:
        if variable.path in steps:
            assert not np.array_equal(variable, steps[variable.path])
    assert [bool(p.frozen.numpy()) for p in q_model.activation_quantizers if p.tensor == "stem_relu@2"] == [False]
    assert [bool(p.frozen.numpy()) for p in q_model.activation_quantizers if p.tensor == "stem_relu"] == [True]


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt"])
def test_the_file_is_what_the_model_computes(trained, tmp_path, target):
    _, q_model, x, _ = trained
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx", target=target)
    qdq.verify_onnx(report.path, q_model, x).raise_if_failed()
    assert any("4 bits" in note for note in report.notes)


def test_saving_cloning_and_converting_keep_every_state(trained, tmp_path):
    _, q_model, x, _ = trained
    q_model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(x), q_model(x))
    assert loaded.plan.tensors == q_model.plan.tensors
    assert isinstance(loaded.get_layer("quant_conv").quantize_config, Config)
    clone = keras.models.clone_model(q_model)
    clone.set_weights(q_model.get_weights())
    np.testing.assert_array_equal(clone(x), q_model(x))
    there = qdq.retarget(q_model, "tensorrt")
    back = qdq.retarget(there, "onnxruntime")
    for name, params in q_model.weight_qparams().items():
        assert there.weight_qparams()[name] == back.weight_qparams()[name] == params
    assert back.get_layer("quant_conv").quantize_config == q_model.get_layer("quant_conv").quantize_config


def test_integers_and_baked_weights_are_what_the_wrappers_compute(trained):
    _, q_model, _, _ = trained
    found = qdq.integer_weights(q_model)
    baked = qdq.strip(q_model, bake_weights=True)
    for wrapper in q_model.wrappers:
        for (weight, quantizer, ranges), name in zip(wrapper._weight_vars, wrapper.weight_quantizers, strict=True):
            values = np.asarray(quantizer(weight, training=False, weights=ranges))
            np.testing.assert_array_equal(found[f"{wrapper.layer.name}/{name}"].dequantize(), values)
            np.testing.assert_array_equal(baked.get_layer(wrapper.layer.name).kernel, values)
    assert len(np.unique(found["conv/kernel"].codes)) > 5


def test_switched_off_it_is_the_float_model(trained):
    model, q_model, x, _ = trained
    fresh = qdq.quantize_model(model, quantization_spec=mixed_spec())
    fresh.quantization_enabled = False
    np.testing.assert_array_equal(fresh(x), model(x))
    assert len(q_model.wrappers) == len(fresh.wrappers)


def test_a_weight_quantizer_with_a_state_starts_from_the_weight_and_follows_training():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, name="head")])
    spec = qdq.QuantizationSpec()
    spec.add("head", quantize_config=Config(weight={"quantizer": "all_values", "num_bits": 6}))
    q_model = qdq.quantize_model(model, quantization_spec=spec)
    kernel, wrapper = np.asarray(model.get_layer("head").kernel), q_model.get_layer("quant_head")
    low, high = wrapper.weight_range("kernel")
    np.testing.assert_array_equal([low, high], [kernel.min(0), kernel.max(0)])
    wrapper.layer.kernel.assign(3 * kernel)
    np.testing.assert_array_equal(wrapper.weight_range("kernel")[1], high)  # inference does not learn
    q_model(np.ones((1, 4), np.float32), training=True)
    np.testing.assert_allclose(wrapper.weight_range("kernel")[1], np.maximum(high, 3 * high), rtol=1e-6)
    wrapper.trainable = False
    wrapper.layer.kernel.assign(9 * kernel)
    before = wrapper.weight_range("kernel")
    q_model(np.ones((1, 4), np.float32), training=True)
    np.testing.assert_array_equal(wrapper.weight_range("kernel"), before)


def test_a_wrapper_by_itself_starts_from_its_weights():
    wrapper = qdq.WeightedBaseQuantizeWrapper(
        layers.Dense(2),
        weight_quantizers={"kernel": qdq.QuantizerSpec(4)},
        weight_methods={"kernel": {"name": "all_values", "settings": {}}},
    )
    wrapper(np.ones((1, 3), np.float32))
    kernel = np.asarray(wrapper.layer.kernel)
    np.testing.assert_array_equal(wrapper._weight_states["kernel"].range(), [kernel.min(), kernel.max()])


def test_a_fixed_weight_range_clips():
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1, kernel_initializer="ones", name="head")])
    spec = qdq.QuantizationSpec()
    fixed = {"quantizer": "fixed", "init_min": -0.5, "init_max": 0.5, "per_axis": False}
    spec.add("head", quantize_config=Config(weight=fixed))
    q_model = qdq.quantize_model(model, quantization_spec=spec)
    np.testing.assert_allclose(qdq.integer_weights(q_model)["head/kernel"].dequantize(), [[0.5], [0.5]])


def test_a_frozen_layer_keeps_its_learned_step():
    model = residual_net()
    model.get_layer("conv").trainable = False
    q_model = qdq.quantize_model(model, quantization_spec=mixed_spec())
    x = samples(model)
    qdq.calibrate(q_model, x, verbose=False)
    before = q_model.get_layer("quant_conv").weight_range("kernel")
    q_model.compile("sgd", "mse")
    q_model.fit(x, np.ones((16, 3), np.float32), verbose=0)
    np.testing.assert_array_equal(q_model.get_layer("quant_conv").weight_range("kernel"), before)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(policy, tmp_path):
    with dtype_policy(policy):
        model = residual_net()
    q_model = qdq.quantize_model(model, quantization_spec=mixed_spec())
    x = samples(model)
    q_model.compile("adam", "mse")
    q_model.fit(x, np.zeros((16, 3), np.float32), verbose=0)
    assert q_model.uncalibrated_tensors() == []
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    qdq.verify_onnx(report.path, q_model, x).raise_if_failed()


class TestUserConfig:
    def spec(self, name="conv", config=None, **flags):
        spec = qdq.QuantizationSpec()
        spec.add(name, quantize_config=config or KernelConfig(), **flags)
        return spec

    def test_is_honoured_everywhere(self, tmp_path):
        model, x = residual_net(), samples(residual_net())
        before = [np.array(weight) for weight in model.get_weights()]
        q_model = qdq.quantize_model(model, quantization_spec=self.spec(), target="onnxruntime")
        assert q_model.plan.for_layer("conv").author == "spec[0]"
        codes = qdq.integer_weights(q_model)["conv/kernel"].codes
        assert (codes.min(), codes.max()) == (-7, 7)
        assert q_model.get_layer("quant_conv").quantize_config.num_bits == 4
        qdq.calibrate(q_model, x, verbose=False)
        report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
        qdq.verify_onnx(report.path, q_model, x).raise_if_failed()
        for weight, old in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(weight, old)
        assert isinstance(model.get_layer("conv").kernel, keras.Variable)

    def test_an_unregistered_class_is_saved_and_asked_for_when_it_is_read(self, tmp_path):
        class Local(KernelConfig):
            pass

        model = residual_net()
        q_model = qdq.quantize_model(model, quantization_spec=self.spec(config=Local(3)))
        q_model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        x = samples(model)
        np.testing.assert_array_equal(loaded(x), q_model(x))
        with pytest.raises(SpecError, match="Local"):
            _ = loaded.get_layer("quant_conv").quantize_config
        with keras.saving.custom_object_scope({"Local": Local}):
            assert loaded.get_layer("quant_conv").quantize_config.num_bits == 3

    def test_on_a_graph_alone_it_says_what_to_do(self):
        graph = qdq.build_graph(residual_net())
        with pytest.raises(SpecError, match="Pass the Keras model"):
            qdq.plan_placement(graph, quantization_spec=self.spec())
        spec = qdq.QuantizationSpec()
        spec.add("conv", quantize_config=Config(weight={"num_bits": 4}))
        assert qdq.plan_placement(graph, quantization_spec=spec).for_layer("conv").quantize_weight

    def test_on_a_nested_and_on_a_shared_layer(self):
        model = nested_net()
        spec = self.spec("backbone/conv")
        spec.add("shared", quantize_config=KernelConfig(3))
        q_model = qdq.quantize_model(model, quantization_spec=spec)
        found = qdq.integer_weights(q_model)
        assert (found["backbone/conv/kernel"].num_bits, found["shared/kernel"].num_bits) == (4, 3)
        assert (found["backbone/conv/kernel"].codes.max(), found["shared/kernel"].codes.max()) == (7, 3)

    def test_two_calls_of_a_shared_layer_must_agree(self):
        spec = qdq.QuantizationSpec()
        spec.add("shared#1", quantize_config=Config(weight={"num_bits": 4}))
        assert (
            next(
                t for t in qdq.plan_placement(nested_net(), quantization_spec=spec).tensors if t.name == "shared/kernel"
            ).quantizer.num_bits
            == 4
        )
        spec.add("shared", quantize_config=Config(weight={"num_bits": 5}))
        spec.add("shared#1", quantize_config=Config(weight={"num_bits": 4}))
        with pytest.raises(SpecError, match="one set of weights"):
            qdq.plan_placement(nested_net(), quantization_spec=spec)

    def test_a_later_entry_of_the_same_class_wins(self):
        spec = qdq.QuantizationSpec()
        spec.add("Conv2D", is_keras_class=True, quantize_config=KernelConfig(3))
        spec.add("Conv2D", is_keras_class=True, quantize_config=KernelConfig(5))
        spec.add("stem", quantize_config=KernelConfig(6))
        plan = qdq.plan_placement(residual_net(), quantization_spec=spec)
        bits = {t.name: t.quantizer.num_bits for t in plan.tensors if t.kind == "weight"}
        assert bits == {"stem/kernel": 6, "conv/kernel": 5, "head/kernel": 8}
        assert plan.for_layer("conv").replaced == ("spec[0]",)

    def test_names_any_weight_of_any_layer(self):
        class Beta(KernelConfig):
            def get_weights_and_quantizers(self, layer):
                return [(layer.beta, qdq.LastValueQuantizer(5))]

            def set_quantize_weights(self, layer, quantize_weights):
                layer.beta = quantize_weights[0]

        model = residual_net()
        q_model = qdq.quantize_model(model, quantization_spec=self.spec("norm", Beta(), quantize_input=False))
        beta = np.asarray(model.get_layer("norm").beta)
        params = numerics.qparams_from_range(beta.min(), beta.max(), qdq.QuantizerSpec(5))
        found = qdq.integer_weights(q_model)["norm/beta"]
        np.testing.assert_array_equal(found.codes, numerics.quantize(beta, params))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"get_weights_and_quantizers": lambda _, layer: [(tf.Variable(1.0), LSQQuantizer())]}, "no weight of"),
            ({"get_weights_and_quantizers": lambda _, layer: [(layer.kernel, "8 bits")]}, "must be one of"),
            ({"get_weights_and_quantizers": lambda _, layer: [layer.kernel]}, "list of pairs"),
            (
                {"get_weights_and_quantizers": lambda _, layer: 2 * [(layer.kernel, LSQQuantizer())]},
                "returned a weight twice",
            ),
            ({"set_quantize_weights": lambda *_: None}, "does not put the quantized 'kernel'"),
            (
                {"set_quantize_weights": lambda _, layer, weights: setattr(layer, "kernel", weights[0] * 2)},
                "does not put the quantized 'kernel'",
            ),
            ({"get_output_quantizers": lambda *_: [LSQQuantizer(), LSQQuantizer()]}, "takes one quantizer"),
            ({"get_output_quantizers": lambda *_: [object()]}, "must be one of"),
            ({"get_weights_and_quantizers": lambda *_: 3}, "list of pairs"),
            ({"get_output_quantizers": lambda *_: LSQQuantizer()}, "list of quantizers"),
            (
                {
                    "get_activations_and_quantizers": lambda _, layer: [(layer.activation, LSQQuantizer())],
                    "get_output_quantizers": lambda *_: [LSQQuantizer(num_bits=4)],
                },
                "one tensor",
            ),
        ],
    )
    def test_what_cannot_be_written_as_pairs_is_refused(self, change, message):
        config = type("Wrong", (KernelConfig,), change)()
        with pytest.raises(SpecError, match=message):
            qdq.plan_placement(residual_net(), quantization_spec=self.spec(config=config))

    def test_weights_must_go_into_their_own_places(self):
        class Swapped(KernelConfig):
            def get_weights_and_quantizers(self, layer):
                return [(layer.kernel, LSQQuantizer()), (layer.bias, LSQQuantizer())]

            def set_quantize_weights(self, layer, quantize_weights):
                layer.bias, layer.kernel = quantize_weights

        with pytest.raises(SpecError, match="another value into layer"):
            qdq.plan_placement(residual_net(), quantization_spec=self.spec(config=Swapped()))

    def test_activation_and_output_quantizers_are_the_output_pair(self):
        class Output(KernelConfig):
            def get_activations_and_quantizers(self, layer):
                return [(layer.activation, FixedQuantizer(0.0, 2.0, 5, symmetric=False))]

        plan = qdq.plan_placement(residual_net(), quantization_spec=self.spec("head", Output()))
        placement = plan.output_placement("head")
        assert (placement.quantizer.num_bits, placement.method.name) == (5, "fixed")
        assert plan.for_layer("head").quantize_output
        inside = keras.Sequential([keras.Input((3, 2)), layers.LSTM(2, name="cell")])
        with pytest.raises(SpecError, match="inside the layer"):
            qdq.plan_placement(inside, quantization_spec=self.spec("cell", RecurrentOutput()))

    def test_on_an_operation_or_an_input_it_is_refused(self):
        x = keras.Input((4,), name="x")
        model = keras.Model(x, layers.Dense(2, name="head")(x + x))
        operation = next(node.name for node in qdq.build_graph(model).nodes if node.is_operation)
        with pytest.raises(SpecError, match="an operation"):
            qdq.plan_placement(model, quantization_spec=self.spec(operation))
        with pytest.raises(SpecError, match="an input"):
            qdq.plan_placement(model, quantization_spec=self.spec("x", quantize_input=False))


class RecurrentOutput(KernelConfig):
    """Quantizes an activation inside a recurrent layer."""

    def get_weights_and_quantizers(self, layer):
        return []

    def set_quantize_weights(self, layer, quantize_weights):
        pass

    def get_activations_and_quantizers(self, layer):
        return [(layer.recurrent_activation, LSQQuantizer())]


def test_a_model_with_tfmot_quantizers_loads_after_importing_the_root_alone(fresh, tmp_path):
    model = qdq.tfmot.quantize_model(keras.Sequential([keras.Input((4,)), layers.Dense(2, name="head")]))
    model.save(tmp_path / "model.keras")
    code = (
        "import keras, numpy, qdq_workbench as qdq; "
        f"m = keras.models.load_model({str(tmp_path / 'model.keras')!r}); "
        "print(m.activation_quantizers[-1].range, m.get_layer('quant_head').quantize_config.weight_attrs)"
    )
    done = fresh.run(code)
    assert done.stdout.strip() == "(-6.0, 6.0) ['kernel']", done.stderr[-2000:]
