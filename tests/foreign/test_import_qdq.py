"""Reading placements back, from our own files and from ONNX Runtime's quantizer; comparing files and plans."""

import keras
import numpy as np
import onnx
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from qdq_files import FileMaker, save
from small_models import residual_net, samples
from target_models import inception_net

import qdq_workbench as qdq
from qdq_workbench.errors import DataError, FileAccessError, SpecError


class Batches(CalibrationDataReader):
    """Feeds samples to ONNX Runtime's quantizer."""

    def __init__(self, data):
        self._batches = iter([{"image": data[start : start + 4]} for start in range(0, len(data), 4)])

    def get_next(self):
        return next(self._batches, None)


@pytest.fixture(params=[residual_net, inception_net], ids=lambda make: make.__name__)
def theirs(request, tmp_path):
    """A model, samples, and the file that `quantize_static` makes of it."""
    model = request.param()
    data = samples(model)
    floats, quantized = tmp_path / "float.onnx", tmp_path / "theirs.onnx"
    qdq.export_float_onnx(model, floats)
    quantize_static(
        floats,
        quantized,
        Batches(data),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return model, data, quantized


def test_the_placement_of_quantize_static_is_found_again(theirs, tmp_path):
    model, data, path = theirs
    imported = qdq.import_qdq(path, model)
    assert imported.unmatched == ()
    kernels = [node for node in qdq.build_graph(model).nodes if any(w.name == "kernel" for w in node.weights)]
    compared = [node for node in kernels if node.outputs[0] in imported.ranges]
    assert compared
    assert set(imported.keras_tensors.values()) >= {"image", "head"}
    q_model = qdq.quantize_model(model, "partial", imported.spec, target="onnxruntime")
    weights = {tensor.name for tensor in q_model.plan.tensors if tensor.kind == "weight"}
    assert weights == {f"{node.layer}/kernel" for node in kernels}
    qdq.calibrate(q_model, data, verbose=False)
    ours = q_model.activation_ranges()
    assert set(ours) == set(imported.ranges)
    for tensor in (node.outputs[0] for node in compared):  # pooling takes over the scale of its input in their file
        low, high = imported.ranges[tensor]
        ends = (min(ours[tensor][0], 0.0), max(ours[tensor][1], 0.0))
        assert np.allclose((low, high), ends, atol=0.03 * (high - low)), tensor
    comparison = qdq.compare(path, qdq.export_onnx(q_model, tmp_path / "ours.onnx").path)
    assert comparison.placement_differences == ()
    assert comparison.first_divergence is None
    assert comparison.unmatched == ((), ())
    assert len(comparison.tensors) == len(ours)


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
def test_our_own_file_gives_the_plan_back(target, tmp_path):
    model = residual_net()
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target=target)
    qdq.calibrate(q_model, samples(model), verbose=False)
    imported = qdq.import_qdq(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, model)
    again = qdq.plan_placement(model, "partial", imported.spec, target=target)
    assert {tensor.name for tensor in again.tensors} == {tensor.name for tensor in q_model.plan.tensors}
    for layer in q_model.activation_quantizers:
        scale = qdq.numerics.qparams_from_range(*layer.range, layer.spec).scale
        low, high = imported.ranges[layer.tensor]
        assert np.isclose(high - low, 255 * scale, rtol=1e-5)
    assert "0 not" in imported.summary()


def test_a_file_alone_is_read_without_a_model(tmp_path):
    maker = FileMaker()
    out = maker.conv(maker.pair("x", "in", scale=0.5, zero=3), "conv")
    found = qdq.import_qdq(save(maker.model(out), tmp_path / "model.onnx"))
    (image, conv) = found.tensors
    (pair,) = image.quantizers
    assert (image.name, pair.scale, pair.zero_point, pair.dtype, pair.range) == ("x", 0.5, 3, "uint8", (-1.5, 126.0))
    assert (conv.name, conv.weight_dtype, conv.quantizers) == ("conv", "int8", ())
    assert np.allclose(conv.weight_scale, 0.01)
    assert found.spec is None
    with pytest.raises(FileAccessError):
        qdq.import_qdq(tmp_path / "missing.onnx")


def test_another_network_is_not_recognised(tmp_path):
    maker = FileMaker()
    out = maker.pair(maker.conv(maker.pair("x", "in"), "conv"), "out")
    image = keras.Input((4, 4, 2), name="image")
    model = keras.Model(image, keras.layers.Conv2D(7, 3, name="other")(image))
    found = qdq.import_qdq(save(maker.model(out), tmp_path / "model.onnx"), model)
    assert found.unmatched == ("conv",)
    assert dict(found.keras_tensors) == {"x": "image"}


def two_convolutions(path, *, middle=True, scale=0.1):
    maker = FileMaker()
    hidden = maker.conv(maker.pair("x", "in"), "first")
    hidden = maker.pair(hidden, "mid", scale=scale, zero=128) if middle else hidden
    return save(maker.model(maker.conv(hidden, "second")), path)


def test_a_difference_in_placement_is_named(tmp_path):
    found = qdq.compare(two_convolutions(tmp_path / "a.onnx"), two_convolutions(tmp_path / "b.onnx", middle=False))
    (difference,) = found.placement_differences
    assert (difference.tensor, difference.pairs, difference.scales[1]) == ("first", (1, 0), None)
    assert "first: quantized only in the first file" in found.summary()
    assert found.to_dict()["tensors"][0]["tensor"] == "x"


def test_the_tensor_where_numbers_part_is_named(tmp_path):
    one, other = two_convolutions(tmp_path / "a.onnx"), two_convolutions(tmp_path / "b.onnx", scale=0.0001)
    found = qdq.compare(one, other)
    assert found.placement_differences == ()
    assert found.first_divergence.tensor == "first"
    assert found.first_divergence.sqnr_db < 20
    assert "first at 'first'" in found.summary()
    same = qdq.compare(one, one, data={"x": np.ones((1, 2, 4, 4), np.float32)})
    assert same.first_divergence is None
    assert max(item.sqnr_db for item in same.tensors if item.sqnr_db is not None) == 200.0
    with pytest.raises(DataError, match="one array per input"):
        qdq.compare(one, other, data={"y": np.ones(3)})


def test_plans_are_compared_as_plans(tmp_path):
    model = residual_net()
    plan = qdq.plan_placement(model)
    assert not qdq.compare(plan, plan)
    assert qdq.compare(plan, qdq.plan_placement(model, custom_qdq_cases=[qdq.ResNetV1QDQCase()])).added
    with pytest.raises(SpecError, match="not one of each"):
        qdq.compare(plan, two_convolutions(tmp_path / "a.onnx"))


def test_comparing_changes_no_file(tmp_path):
    path = two_convolutions(tmp_path / "a.onnx")
    before = path.read_bytes()
    qdq.compare(path, path)
    qdq.import_qdq(path)
    assert path.read_bytes() == before
    onnx.checker.check_model(onnx.load(path))


def test_integer_weights_that_find_no_layer_are_named(tmp_path):
    maker = FileMaker()
    out = maker.conv(maker.pair("x", "in"), "conv")
    image = keras.Input((4, 4, 2), name="image")
    model = keras.Model(image, keras.layers.Conv2D(7, 3, name="other")(image))
    found = qdq.import_qdq(save(maker.model(out), tmp_path / "model.onnx"), model)
    assert found.unmatched == ("conv",)


def model_with_activations_inside():
    image = keras.Input((6, 6, 2), name="image")
    hidden = keras.layers.Conv2D(3, 3, activation="swish", name="conv")(image)
    hidden = keras.layers.Flatten()(hidden)
    return keras.Model(image, keras.layers.Dense(3, activation="softmax", name="head")(hidden))


def plan_again(model, q_model, path):
    """Export a model that was quantized, import the file, and plan what was imported."""
    qdq.calibrate(q_model, samples(model), verbose=False)
    imported = qdq.import_qdq(qdq.export_onnx(q_model, path).path, model)
    return imported, qdq.plan_placement(model, "partial", imported.spec, target=q_model.plan.target)


def test_weights_of_layers_with_activations_inside_are_found_again(tmp_path):
    model = model_with_activations_inside()
    q_model = qdq.quantize_model(model, target="onnxruntime")
    imported, again = plan_again(model, q_model, tmp_path / "model.onnx")
    assert imported.unmatched == ()
    assert sorted(imported.inside.values()) == ["conv", "head"]
    assert {tensor.name for tensor in again.tensors} == {tensor.name for tensor in q_model.plan.tensors}
    assert "0 not" in imported.summary()


def test_a_pair_in_the_middle_of_a_layer_stays_unmatched_and_its_weight_is_taken(tmp_path):
    maker = FileMaker()
    hidden = maker.pair(maker.conv(maker.pair("x", "in"), "conv"), "mid")
    out = maker.node("Sigmoid", [hidden], "out")
    image = keras.Input((4, 4, 2), name="image")
    model = keras.Model(image, keras.layers.Conv2D(2, 3, activation="sigmoid", name="conv")(image))
    found = qdq.import_qdq(save(maker.model(out), tmp_path / "model.onnx"), model)
    assert found.unmatched == ("conv",)
    assert dict(found.inside) == {"conv": "conv"}
    assert found.spec.layers[-1].name == "conv"
    assert found.spec.layers[-1].quantize_weight


def test_each_call_of_a_shared_layer_keeps_its_own_placement(tmp_path):
    image = keras.Input((4, 6), name="image")
    shared = keras.layers.LayerNormalization(name="norm")
    model = keras.Model(image, shared(keras.ops.sigmoid(shared(image))))
    spec = qdq.QuantizationSpec()
    spec.add(["norm", "norm#1"], quantize_input=False, quantize_weight=False, quantize_output=[True, False])
    q_model = qdq.quantize_model(model, "partial", spec)
    _, again = plan_again(model, q_model, tmp_path / "model.onnx")
    assert [tensor.name for tensor in again.tensors] == ["norm"]


@pytest.mark.parametrize("symmetric", [True, False])
def test_weights_in_blocks_come_back_in_blocks(symmetric, tmp_path):
    tokens = keras.Input((64,), name="tokens")
    hidden = keras.layers.Dense(32, activation="relu", name="first")(tokens)
    hidden = keras.layers.ReLU(6.0)(keras.layers.Dense(32, name="second")(hidden))
    model = keras.Model(tokens, keras.layers.Dense(8, name="head")(hidden))
    spec = qdq.correction.weights_alone(model, num_bits=4, block_size=16, symmetric=symmetric)
    q_model = qdq.quantize_model(model, "partial", spec, target="onnxruntime")
    imported = qdq.import_qdq(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, model)
    again = qdq.plan_placement(model, "partial", imported.spec, target="onnxruntime")
    assert "3 tensors recognised in the model, 0 not" in imported.summary()
    assert [(p.tensor, p.quantizer) for p in again.placements] == [
        (p.tensor, p.quantizer) for p in q_model.plan.placements
    ]
