"""TFMOT 0.8.1's public names: each is here, or says what to use instead; schemes, configs and ranges of the ends."""

import json

import keras
import numpy as np
import onnx
import pytest
from keras import layers

import qdq_workbench as qdq
import qdq_workbench.tfmot as tfmot  # noqa: PLR0402 - the line that users change
from qdq_workbench.errors import NotQuantizedError, SpecError
from qdq_workbench.placement.plan import PlacementPlan

qk = tfmot.quantization.keras
configs = qk.default_8bit.default_8bit_quantize_configs
registry = qk.default_8bit.default_8bit_quantize_registry


@pytest.mark.parametrize(
    "name",
    [
        "QuantizeConfig", "QuantizeWrapper", "QuantizeWrapperV2", "fix_input_output_range", "quantize_annotate_layer",
        "quantize_annotate_model", "quantize_apply", "quantize_model", "quantize_scope", "remove_input_range",
        "quantizers.AllValuesQuantizer", "quantizers.FixedQuantizer", "quantizers.LastValueQuantizer",
        "quantizers.MovingAverageQuantizer", "quantizers.Quantizer", "default_8bit.Default8BitQuantizeScheme",
        "experimental.default_n_bit.DefaultNBitQuantizeScheme",
    ],
)  # fmt: skip
def test_names_that_are_here(name):
    found = qk
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found)


@pytest.mark.parametrize(
    ("home", "name", "instead"),
    [
        (qk, "QuantizeScheme", "QuantizationSpec"),
        (qk, "QuantizeRegistry", "QuantizeConfig per layer"),
        (qk, "QuantizeLayoutTransform", "fold_batch_norm"),
        (qk, "graph_transformations", "CustomQDQInsertionCase"),
        (qk, "collab_opts", "codebook_weights"),
        (qk.default_8bit, "Default8BitQuantizeRegistry", "QuantizeConfig per layer"),
        (qk.default_8bit, "default_8bit_transforms", "fold_batch_norm"),
        (qk.experimental.default_n_bit, "DefaultNBitQuantizeRegistry", "QuantizationSpec"),
        (tfmot, "sparsity", "prune"),
        (tfmot, "clustering", "codebook_weights"),
    ],
)
def test_names_that_have_no_counterpart_say_what_to_do(home, name, instead):
    with pytest.raises(AttributeError, match=f"{name}.*{instead}"):
        getattr(home, name)
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        _ = home.nonsense


def network():
    keras.utils.set_random_seed(3)
    image = keras.Input((6, 6, 2), name="image")
    x = layers.Conv2D(3, 3, activation="relu", name="conv")(image)
    x = layers.Flatten(name="flat")(x)
    return keras.Model(image, layers.Dense(2, activation="softmax", name="head")(x))


def grids(q_model, kind):
    return {tensor.name: tensor.quantizer.label for tensor in q_model.plan.tensors if tensor.kind == kind}


@pytest.mark.parametrize(
    ("scheme", "weights", "bits"),
    [
        (qk.default_8bit.Default8BitQuantizeScheme(), {"conv/kernel": "int8/axis 3", "head/kernel": "int8"}, 8),
        (
            qk.default_8bit.Default8BitQuantizeScheme(disable_per_axis=True),
            {"conv/kernel": "int8", "head/kernel": "int8"},
            8,
        ),
        (
            qk.experimental.default_n_bit.DefaultNBitQuantizeScheme(num_bits_weight=4, num_bits_activation=6),
            {"conv/kernel": "int4/axis 3", "head/kernel": "int4"},
            6,
        ),
    ],
)
def test_schemes(scheme, weights, bits):
    q_model = qk.quantize_apply(qk.quantize_annotate_model(network()), scheme)
    assert grids(q_model, "weight") == weights
    assert {layer.spec.num_bits for layer in q_model.activation_quantizers} == {bits}
    with pytest.raises(SpecError, match="DefaultNBitQuantizeScheme"):
        qk.quantize_apply(qk.quantize_annotate_model(network()), scheme="8bit")


def test_configs_by_hand():
    image = keras.Input((6, 6, 2), name="image")
    conv = layers.Conv2D(3, 3, activation="relu", name="conv")
    conv = qk.quantize_annotate_layer(conv, registry.Default8BitConvQuantizeConfig(["kernel"], ["activation"], False))
    x = layers.Dropout(0.1, name="drop")(conv(image))
    act = qk.quantize_annotate_layer(
        layers.Activation("relu", name="act"), registry.Default8BitActivationQuantizeConfig()
    )
    pool = layers.AveragePooling2D(2, name="pool")
    x = qk.quantize_annotate_layer(pool, configs.Default8BitOutputQuantizeConfig())(act(x))
    x = layers.Flatten(name="flat")(x)
    free = qk.quantize_annotate_layer(layers.Dense(4, name="free"), configs.NoOpQuantizeConfig())
    head = layers.Dense(2, name="head")
    head = qk.quantize_annotate_layer(head, tfmot.Default8BitQuantizeConfig(["kernel"], ["activation"], False))
    q_model = qk.quantize_apply(keras.Model(image, head(free(x))), target="tensorrt")
    assert grids(q_model, "weight") == {"conv/kernel": "int8/axis 3", "head/kernel": "int8"}
    assert set(grids(q_model, "activation")) == {"image", "conv", "act", "pool", "head"}
    assert all(isinstance(layer, qk.QuantizeWrapper) for layer in q_model.wrappers)


def test_only_what_marked_layers_read_is_quantized_in_front_of_them():
    image, other = keras.Input((4,), name="image"), keras.Input((4,), name="other")
    hidden = layers.Dense(4, activation="relu", name="hidden")(image)
    second = layers.Dense(4, activation="elu", name="second")(other)
    marked = [
        qk.quantize_annotate_layer(layers.Dense(2, name=name))(x)
        for name, x in (("left", hidden), ("right", second), ("direct", other))
    ]
    q_model = qk.quantize_apply(keras.Model([image, other], marked), target="tensorrt")
    # `image` is read by a float layer only, and TFMOT has no rule for a Dense with elu
    assert set(grids(q_model, "activation")) == {"other", "hidden", "left", "right", "direct"}
    assert set(grids(q_model, "weight")) == {"left/kernel", "right/kernel", "direct/kernel"}


def test_ranges_of_the_ends_are_fixed_or_removed(tmp_path):
    q_model = qk.quantize_model(network())
    x = np.random.default_rng(0).normal(size=(8, 6, 6, 2)).astype(np.float32)
    fixed = qk.fix_input_output_range(q_model, input_min=-2.0, input_max=2.0, output_min=-3.0, output_max=5.0)
    ranges = {layer.tensor: layer.range for layer in fixed.activation_quantizers}
    assert (ranges["image"], ranges["head"]) == ((-2.0, 2.0), (-3.0, 5.0))
    fixed.compile("sgd", "mse")
    fixed.fit(10 * x, np.zeros((8, 2)), verbose=0)
    qdq.calibrate(fixed, 10 * x, verbose=False)
    after = {layer.tensor: layer.range for layer in fixed.activation_quantizers}
    assert (after["image"], after["head"]) == ((-2.0, 2.0), (-3.0, 5.0))
    assert after["conv"] != ranges["conv"]
    report = qdq.export_onnx(fixed, tmp_path / "fixed.onnx")
    qdq.verify_onnx(report.path, fixed, x).raise_if_failed()

    free = qk.remove_input_range(q_model)
    assert [layer.tensor for layer in free.activation_quantizers] == ["conv", "head"]
    assert q_model.activation_quantizers[0].tensor == "image"
    with pytest.raises(SpecError, match="lower end below"):
        qk.fix_input_output_range(q_model, input_min=1.0, input_max=1.0)
    with pytest.raises(NotQuantizedError):
        qk.remove_input_range(network())


TARGETS = ["tensorrt", "onnxruntime", "openvino", "litert"]


def ends_of(q_model):
    found = {layer.tensor: layer for layer in q_model.activation_quantizers}
    return {
        name: (layer.range, layer.spec.num_bits, layer.spec.narrow_range, layer.quantizer.updates_range)
        for name, layer in found.items()
        if name in ("image", "head")
    }


@pytest.mark.parametrize("target", TARGETS)
def test_fixed_ends_hold_for_every_target_and_in_files(target, tmp_path):
    fixed = qk.fix_input_output_range(
        qk.quantize_model(network()), input_min=0.0, input_max=254.0, output_max=127.0, narrow_range=True
    )
    fixed.save(tmp_path / "fixed.keras")
    plan = PlacementPlan.from_dict(json.loads(json.dumps(fixed.plan.to_dict())))
    assert plan == fixed.plan
    other = qdq.retarget(keras.models.load_model(tmp_path / "fixed.keras"), target)
    assert ends_of(other) == {"image": ((0.0, 254.0), 8, True, False), "head": ((0.0, 127.0), 8, True, False)}
    assert qdq.explain(fixed.plan, target).plan == other.plan
    report = qdq.export_onnx(fixed, tmp_path / "fixed.onnx", target=target)
    initializers = {tensor.name: tensor for tensor in onnx.load(report.path).graph.initializer}
    scale = next(values for name, values in initializers.items() if name.startswith("image") and "scale" in name)
    signed = not other.activation_quantizers[0].spec.symmetric
    assert onnx.numpy_helper.to_array(scale) == (1.0 if signed else 2.0)
    x = np.random.default_rng(0).uniform(0, 254, (8, 6, 6, 2)).astype("float32")
    qdq.verify_onnx(report.path, fixed, x).raise_if_failed()


def test_ends_of_other_models_are_fixed_for_targets_that_bring_the_pair():
    """The output of a model planned for LiteRT has its pair from the target; it stays fixed all the same."""
    image = keras.Input((3,), name="image")
    model = keras.Model(image, layers.Dense(2, name="head")(image))
    q_model = qk.fix_input_output_range(qdq.quantize_model(model, target="litert"), output_min=-3.0, output_max=5.0)
    assert ends_of(q_model)["head"][0] == (-3.0, 5.0)
    there = qdq.retarget(q_model, "tensorrt")
    assert "head" not in ends_of(there)
    assert ends_of(qdq.retarget(there, "litert"))["head"] == ((-3.0, 5.0), 8, False, False)


def test_inputs_without_a_range_stay_so_for_every_target():
    free = qk.remove_input_range(qk.quantize_model(network()))
    for target in TARGETS:
        assert [layer.tensor for layer in qdq.retarget(free, target).activation_quantizers] == ["conv", "head"]
    reasons = {item.tensor: item.reason for item in qdq.retarget(free, "tensorrt").plan.unquantized}
    assert "left in float for all" in reasons["image"]


@pytest.mark.parametrize("function", [qk.quantize_model, qk.quantize_apply])
def test_quantized_models_are_refused_by_name(function):
    with pytest.raises(SpecError, match=r"quantized already.*strip"):
        function(qk.quantize_model(network()))
