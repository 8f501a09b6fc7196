"""LiteRT files with int16 activations, weights of few bits, and weights alone; what no file can hold."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from litert_models import both, litert, mixed_net, quantized, weights_alone
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.errors import ExportError
from qdq_workbench.export.encodings import pack_pairs
from qdq_workbench.export.litert.kernels import KERNELS, VERSIONS
from qdq_workbench.export.litert.tflite_file import FLOAT32, INT4, INT8, INT16, INT64, TFLiteFile, scales_of
from qdq_workbench.export.litert.tflite_run import run_tflite


def weighted(file):
    """Yield the operators of a file that read weights: operator, name, and the tensors that it reads, by position."""
    (graph,) = file.graphs
    for operator in graph.operators:
        if file.name_of(operator) in KERNELS:
            yield operator, file.name_of(operator), [graph.tensors[at] for at in operator.inputs]


def kernel_weights(path):
    """Return, per operator with weights, the tensors of its data, its weight and its bias."""
    file, found = TFLiteFile(path.read_bytes()), {}
    for _, name, read in weighted(file):
        kernel = KERNELS[name]
        found.setdefault(name, []).append([read[at] for at in (kernel.data, kernel.weight, kernel.bias)])
    return file, found


@pytest.fixture(scope="module", params=[(8, 16), (4, 8), (4, 16)], ids=["W8A16", "W4A8", "W4A16"])
def exported(request, tmp_path_factory):
    q_model = quantized(mixed_net, *request.param)
    return (*request.param, q_model, qdq.export_tflite(q_model, tmp_path_factory.mktemp("widths") / "model.tflite"))


def test_the_file_computes_what_the_model_computes(exported):
    """Kernels round once more, and fixed-point multipliers are short by a few ulp: two steps of the output's grid."""
    _, _, q_model, report = exported
    ours, theirs = both(q_model, report)
    step = _output_step(q_model)
    assert np.abs(ours - theirs).max() <= 2 * step * (1 + 1e-3)
    assert np.ptp(ours) > 20 * step


def _output_step(q_model):
    (pair,) = [layer for layer in q_model.activation_quantizers if layer.tensor == "head"]
    return float(qdq.numerics.qparams_from_range(*pair.range, pair.spec).scale)


def test_scales_and_codes_are_those_of_the_model_bit_for_bit(exported):
    weight_bits, activation_bits, q_model, report = exported
    file, kernels = kernel_weights(report.path)
    steps = set()
    for layer in q_model.activation_quantizers:
        steps.add(np.float32(qdq.numerics.qparams_from_range(*layer.range, layer.spec).scale))
    for tensor in file.graphs[0].tensors:
        if tensor.type == (INT16 if activation_bits == 16 else INT8) and file.values(tensor) is None:
            fixed = np.float32(2.0**-15 if activation_bits == 16 else 2.0**-8)  # of a sigmoid
            assert scales_of(tensor)[0] in steps | {fixed}
    model = qdq.integer_weights(q_model)["head/kernel"]
    ((data, weight, bias),) = kernels["FULLY_CONNECTED"]
    assert weight.type == (INT4 if weight_bits == 4 else INT8)
    np.testing.assert_array_equal(scales_of(weight), model.scale)
    stored = np.asarray(file._model.buffers[weight.buffer].data)
    codes = model.codes.T
    np.testing.assert_array_equal(stored, pack_pairs(codes) if weight_bits == 4 else codes.reshape(-1).view(np.uint8))
    np.testing.assert_array_equal(scales_of(bias), np.float32(scales_of(data)) * scales_of(weight))


def test_which_kernels_read_two_codes_in_a_byte(exported):
    weight_bits, activation_bits, _, report = exported
    file, kernels = kernel_weights(report.path)
    types = {name: {weight.type for _, weight, _ in found} for name, found in kernels.items()}
    few = INT4 if weight_bits == 4 else INT8
    assert types["CONV_2D"] == types["FULLY_CONNECTED"] == {few}
    assert types["DEPTHWISE_CONV_2D"] == {few if activation_bits == 8 else INT8}
    assert types["TRANSPOSE_CONV"] == {INT8}
    assert sum(report.weight_types.values()) == report.weights == 5
    if activation_bits == 16:
        assert {bias.type for found in kernels.values() for _, _, bias in found} == {INT64}
    for buffer in file._model.buffers[1:]:
        address = 0 if buffer.data is None else buffer.data.__array_interface__["data"][0]
        base = np.frombuffer(buffer.data.base, np.uint8).__array_interface__["data"][0] if address else 0
        assert (address - base) % 16 == 0


def test_the_explanation_says_what_runs_on_integers(exported):
    weight_bits, activation_bits, q_model, report = exported
    explanation = qdq.explain(q_model)
    rules = {entry.layer: entry.rule for entry in explanation.layers}
    wide = activation_bits == 16
    assert rules["conv"] == rules["concat"] == ("LITERT-INT16" if wide else "LITERT-INTEGER")
    assert rules["up"] == rules["swish"] == ("LITERT-NO-INT16" if wide else "LITERT-INTEGER")
    assert report.operators["HARD_SWISH"] == ((0, 1) if wide else (1, 1))
    floats = [name for name, (integer, total) in report.operators.items() if integer < total]
    assert floats == ([name for name in report.operators if name in ("TILE", "HARD_SWISH")] if wide else [])
    if weight_bits == 4:
        assert "two in a byte" in explanation.for_layer("head").reason
        assert "from int8" in explanation.for_layer("transposed").reason


def test_few_bits_make_a_smaller_file(tmp_path):
    inputs = keras.Input((64,), name="inputs")
    model = keras.Model(inputs, layers.Dense(128, name="head")(inputs))
    sizes = {
        bits: qdq.export_tflite(quantized(lambda: model, bits), tmp_path / f"{bits}.tflite").bytes for bits in (8, 4)
    }
    assert sizes[8] - sizes[4] == pytest.approx(64 * 128 / 2, abs=64)


def test_a_weight_whose_largest_code_is_not_used_keeps_its_scale(tmp_path):
    """The converter derives a scale from the largest value, which would be another one here."""
    inputs = keras.Input((6,), name="inputs")
    model = keras.Model(inputs, layers.Dense(4, name="head")(inputs))
    spec = qdq.QuantizationSpec()
    fixed = {"quantizer": "fixed", "init_min": -2.0, "init_max": 2.0}
    spec.add("head", quantize_config=qdq.spec.LayerQuantizeConfig(weight=fixed))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="litert")
    qdq.calibrate(q_model, samples(model), verbose=False)
    assert np.abs(qdq.integer_weights(q_model)["head/kernel"].codes).max() < 100
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    _, kernels = kernel_weights(report.path)
    np.testing.assert_array_equal(
        scales_of(kernels["FULLY_CONNECTED"][0][1]), qdq.integer_weights(q_model)["head/kernel"].scale
    )


@pytest.mark.parametrize("bits", [8, 4])
def test_weights_alone_are_integers_that_become_floats_once(bits, tmp_path):
    q_model = weights_alone(mixed_net(), bits)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    ours, theirs = both(q_model, report)
    assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(ours).max()
    assert report.weight_types == {"int8" if bits == 8 else "int4": 5}
    assert "turns into floats once" in report.notes[0]
    assert all(integer == 0 for integer, _ in report.operators.values())
    rules = {entry.layer: entry.rule for entry in qdq.explain(q_model).layers}
    assert rules["head"] == rules["depthwise"] == "LITERT-WEIGHTS"


@pytest.mark.parametrize("bits", [8, 4])
def test_hybrid_kernels_differ_by_the_rounding_of_their_input(bits, tmp_path):
    """Half a step of the input, max|x| / 254, times the sum of the sizes of a column of weights."""
    inputs = keras.Input((64,), name="inputs")
    q_model = weights_alone(keras.Model(inputs, layers.Dense(32, name="head")(inputs)), bits)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite", dynamic_range=True)
    data = samples(q_model, seed=5)
    ours, theirs = both(q_model, report, data)
    weights = qdq.integer_weights(q_model)["head/kernel"]
    values = np.abs(weights.codes * weights.scale)
    bound = np.abs(data).max(axis=1, keepdims=True) / 254 * values.sum(axis=0)
    assert np.all(np.abs(ours - theirs) <= bound * (1 + 1e-5))
    assert np.abs(ours - theirs).max() > 1e-4
    assert "hybrid kernels read: 'head/kernel'" in report.notes[0]
    assert kernel_weights(report.path)[1]["FULLY_CONNECTED"][0][1].type == (INT8 if bits == 8 else INT4)


def test_kernels_without_a_hybrid_form_read_floats(tmp_path):
    tokens = keras.Input((5,), dtype="int32", name="tokens")
    x = layers.GlobalAveragePooling1D(name="mean")(layers.Embedding(12, 6, name="words")(tokens))
    q_model = weights_alone(keras.Model(tokens, layers.Dense(3, name="head")(x)), 8)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite", dynamic_range=True)
    assert "turns into floats once, for kernels that compute in float: 'words/embeddings'." in report.notes[0]
    assert "hybrid kernels read: 'head/kernel'." in report.notes[1]
    data = np.random.default_rng(0).integers(0, 12, (4, 5)).astype("int32")
    theirs = run_tflite(report.path.read_bytes(), {"tokens": data})["head"]
    assert np.abs(theirs - np.asarray(q_model(data))).max() < 0.01


def refuse(target, message, tmp_path, spec=None):
    image = keras.Input((6, 6, 2), name="image")
    pooled = layers.GlobalAveragePooling2D(name="pool")(layers.Conv2D(3, 3, name="conv")(image))
    model = keras.Model(image, layers.Dense(2, name="head")(pooled))
    q_model = qdq.quantize_model(model, target=target, quantization_spec=spec)
    qdq.calibrate(q_model, samples(model), verbose=False)
    with pytest.raises(ExportError, match=message):
        qdq.export_tflite(q_model, tmp_path / "model.tflite")
    assert list(tmp_path.iterdir()) == []
    return {entry.rule for entry in qdq.explain(q_model).layers}


def test_grids_that_litert_has_no_tensors_for_are_refused(tmp_path):
    asymmetric = dataclasses.replace(litert(), activation=litert().activation.replace(num_bits=16, symmetric=False))
    assert "LITERT-GRID" in refuse(asymmetric, "int16 activations are signed and have no zero point", tmp_path)
    assert "LITERT-GRID" in refuse(litert(8, 4), "activations have 8 or 16 bits", tmp_path)
    assert "LITERT-GRID" in refuse(litert(16), "signed weights of at most 8 bits", tmp_path)
    shifted = dataclasses.replace(litert(), weight=litert().weight.replace(symmetric=False, narrow_range=False))
    assert "LITERT-GRID" in refuse(shifted, "without a zero point", tmp_path)


def test_ranges_that_the_converter_widens_have_16_bits_too(tmp_path):
    inputs = keras.Input((6,), name="inputs")
    model = keras.Model(inputs, layers.Dense(3, name="head")(layers.Dense(4, name="faint")(inputs)))
    model.get_layer("faint").kernel.assign(model.get_layer("faint").kernel * 1e-9)
    q_model = quantized(lambda: model, 8, 16)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    assert report.operators["FULLY_CONNECTED"] == (2, 2)
    ours, theirs = both(q_model, report)
    assert np.abs(ours - theirs).max() <= 1e-6 / 127


def test_a_specification_gives_every_activation_16_bits(tmp_path):
    wide = {"num_bits": 16, "symmetric": True}
    spec = qdq.QuantizationSpec()
    config = qdq.spec.LayerQuantizeConfig(activation=wide, output=wide)
    spec.add(["Conv2D", "Dense", "Add", "GlobalAveragePooling2D"], is_keras_class=True, quantize_config=config)
    spec.save(tmp_path / "wide.yaml")
    model = residual_net()
    q_model = qdq.quantize_model(
        model, quantization_spec=qdq.QuantizationSpec.load(tmp_path / "wide.yaml"), target="litert"
    )
    qdq.calibrate(q_model, samples(model), verbose=False)
    ours, theirs = both(q_model, qdq.export_tflite(q_model, tmp_path / "model.tflite"))
    assert np.abs(ours - theirs).max() <= 2 * _output_step(q_model)


def test_two_widths_of_activations_are_refused(tmp_path):
    spec = qdq.QuantizationSpec()
    wide = {"num_bits": 16, "symmetric": True}
    spec.add("head", quantize_config=qdq.spec.LayerQuantizeConfig(activation=wide))
    assert "LITERT-GRID" in refuse(
        litert(), r"one width(.|\n)*Received: 8 bits for .*, 16 bits for 'pool", tmp_path, spec
    )


def test_hybrid_kernels_have_the_versions_that_tensorflow_gives_them(tmp_path):
    image = keras.Input((8, 8, 64), name="image")
    x = layers.DepthwiseConv2D(5, name="depthwise")(layers.Conv2D(64, 3, name="conv")(image))
    model = keras.Model(image, layers.Dense(32, name="head")(layers.GlobalAveragePooling2D()(x)))
    model.export(tmp_path / "saved", verbose=False)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "saved"))
    converter.optimizations = [tf.lite.Optimize.DEFAULT]  # weights alone: 8 bits, from 1,024 elements on
    file = TFLiteFile(converter.convert())
    found = {}
    for operator, name, read in weighted(file):
        key = (name, read[KERNELS[name].data].type, read[KERNELS[name].weight].type)
        found[key] = file._model.operatorCodes[operator.opcodeIndex].version
    assert set(found) == {(name, FLOAT32, INT8) for name in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")}
    assert found == {key: VERSIONS[key] for key in found}
