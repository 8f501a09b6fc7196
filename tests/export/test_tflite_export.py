"""`export_tflite`: our ranges, integer operators, the interpreter's numbers, and what it refuses."""

import keras
import numpy as np
import pytest
from keras import layers
from own_configs import KernelConfig
from small_models import flat, residual_net, samples, shake, two_headed_net
from target_models import zoo_net

import qdq_workbench as qdq
from qdq_workbench.errors import ExportError, NotQuantizedError, OutputPathError, UncalibratedError
from qdq_workbench.export.litert import comparison, tflite_export
from qdq_workbench.export.litert.tflite_run import make_interpreter, run_tflite
from qdq_workbench.quantizers import LastValueQuantizer


def quantized(make, target="litert", **options):
    model = make()
    q_model = qdq.quantize_model(model, target=target, **options)
    qdq.calibrate(q_model, samples(model), verbose=False)
    return q_model


@pytest.mark.parametrize("make", [residual_net, two_headed_net, zoo_net])
def test_the_interpreter_computes_what_keras_computes(make, tmp_path):
    q_model = quantized(make)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    assert all(integer == total for integer, total in report.operators.values())
    data = samples(q_model, seed=5)
    ours = dict(zip(q_model.source_output_names, flat(q_model(data)), strict=True))
    arrays = dict(zip(q_model.plan.graph.inputs, keras.tree.flatten(data), strict=True))
    theirs = run_tflite(report.path.read_bytes(), arrays)
    assert list(theirs) == sorted(ours)
    for name, values in ours.items():
        # A little more than one step of an 8-bit grid over the output's values; a softmax has steps of 1/256.
        step = 1 / 256 if name == "soft" else np.ptp(values) / 100
        assert np.abs(values - theirs[name]).mean() < step / 3
        assert (values.argmax(-1) == theirs[name].argmax(-1)).mean() > 0.9


def test_scales_are_ours(tmp_path):
    q_model = quantized(residual_net)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    details = make_interpreter(report.path.read_bytes()).get_tensor_details()
    grids = [detail["quantization_parameters"] for detail in details if detail["dtype"] is np.int8]
    found = [
        (float(scale), int(zero))
        for grid in grids
        # TensorFlow 2.20 has one zero point for all channels.
        for scale, zero in np.broadcast(grid["scales"], grid["zero_points"])
    ]
    for layer in q_model.activation_quantizers:
        qparams = qdq.numerics.qparams_from_range(*layer.range, layer.spec)
        near = [abs(scale / float(qparams.scale) - 1) < 1e-5 and zero == qparams.zero_point for scale, zero in found]
        assert any(near), layer.tensor
    weights = qdq.integer_weights(q_model)["head/kernel"]
    scales = sorted(scale for scale, _ in found)
    assert all(np.isclose(scales, float(scale), rtol=1e-5).any() for scale in weights.scale)


def test_a_model_for_another_target_is_planned_anew(tmp_path):
    report = qdq.export_tflite(quantized(residual_net, "onnxruntime"), tmp_path / "model.tflite")
    assert "Planned anew for litert" in report.notes[0]
    assert report.operators["CONV_2D"] == (2, 2)
    assert report.to_dict()["operators"]["CONV_2D"] == [2, 2]
    assert "CONV_2D 2/2" in report.summary()


@pytest.mark.parametrize("batch", [3, None])
def test_other_batch_sizes(batch, tmp_path):
    q_model = quantized(residual_net)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite", batch=batch)
    data = samples(q_model, count=7)
    theirs = run_tflite(report.path.read_bytes(), {"image": data})["head"]
    assert theirs.shape == (7, 3)
    assert np.abs(theirs - np.asarray(q_model(data))).max() < 0.05


def test_odd_names(tmp_path):
    image = keras.Input((4,), name="my input-1")
    model = keras.Model(image, layers.Dense(2, name="scores (raw)")(image))
    q_model = quantized(lambda: model)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    theirs = run_tflite(report.path.read_bytes(), {"my_input_1": samples(model)})
    assert list(theirs) == ["scores__raw_"]


def test_what_cannot_be_written_is_refused(tmp_path):
    path = tmp_path / "model.tflite"
    with pytest.raises(NotQuantizedError):
        qdq.export_tflite(residual_net(), path)
    with pytest.raises(UncalibratedError, match="no range"):
        qdq.export_tflite(qdq.quantize_model(residual_net(), target="litert"), path)
    with pytest.raises(OutputPathError):
        qdq.export_tflite(quantized(residual_net), tmp_path / "nowhere" / "model.tflite")
    q_model = quantized(residual_net)
    for name in ("model", "model.onnx"):
        with pytest.raises(OutputPathError, match=r"must end in \.tflite"):
            qdq.export_tflite(q_model, tmp_path / name)
    with pytest.raises(OutputPathError, match="Received: path=None"):
        qdq.export_tflite(q_model, None)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ExportError, match="batch=0"):
        qdq.export_tflite(quantized(residual_net), path, batch=0)
    assert not path.exists()


@keras.saving.register_keras_serializable(package="tflite_test")
class Unconvertible(layers.Layer):
    """Uses an operation that LiteRT does not have."""

    def call(self, inputs):
        import tensorflow as tf

        return tf.raw_ops.Digamma(x=inputs)

    def compute_output_shape(self, shape):
        return shape


def test_an_operation_without_a_litert_form_is_named(tmp_path):
    image = keras.Input((4,), name="image")
    model = keras.Model(image, Unconvertible()(layers.Dense(3, name="dense")(image)))
    with pytest.raises(ExportError, match=r"no LiteRT form of the model(.|\n)*Digamma"):
        qdq.export_tflite(quantized(lambda: model), tmp_path / "model.tflite")


@keras.saving.register_keras_serializable(package="tflite_test")
class Fickle(layers.Layer):
    """Computes something else when it is traced, as the converter does."""

    def call(self, inputs):
        import tensorflow as tf

        return inputs if tf.executing_eagerly() else inputs * -3.0

    def compute_output_shape(self, shape):
        return shape


def fickle():
    image = keras.Input((4,), name="image")
    x = layers.Dense(6, name="before")(image)
    x = layers.Dense(5, name="behind")(Fickle(name="fickle")(x))
    return keras.Model(image, layers.Dense(3, name="head")(x))


def test_a_file_that_computes_something_else_names_the_tensors(tmp_path):
    report = qdq.export_tflite(quantized(fickle), tmp_path / "model.tflite")
    assert report.mean_difference > 0.2 * report.mean_size
    (note,) = report.notes
    assert "NOT accurate" in note
    assert "nearest to the cause: 'fickle' by" in note
    assert "'behind' by" in note
    assert "'before'" not in note
    assert note in report.summary()


def test_a_file_that_computes_something_else_is_told_although_the_tensors_cannot_be_compared(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise ExportError("no second file")

    monkeypatch.setattr(comparison, "convert", refuse)
    (note,) = qdq.export_tflite(quantized(fickle), tmp_path / "model.tflite").notes
    assert "NOT accurate" in note
    assert "the converter refuses the file that would tell" in note


def test_a_file_of_a_model_without_pairs_that_computes_something_else_is_told(tmp_path):
    image = keras.Input((4,), name="image")
    q_model = qdq.quantize_model(keras.Model(image, Fickle(name="fickle")(image)))
    notes = qdq.export_tflite(q_model, tmp_path / "model.tflite").notes
    (note,) = (each for each in notes if "NOT accurate" in each)
    assert "no pair" in note


def test_an_accurate_file_carries_no_warning(tmp_path):
    assert qdq.export_tflite(quantized(residual_net), tmp_path / "model.tflite").notes == ()


def test_readers_with_other_quantizers_keep_their_own_range(tmp_path):
    """The narrow range of one reader must not clip what the other one reads."""
    image = keras.Input((4,), name="image")
    hidden = layers.Dense(6, name="hidden")(image)
    model = keras.Model(image, [layers.Dense(3, name=name)(hidden) for name in ("narrow", "wide")])
    spec = qdq.QuantizationSpec()
    fixed = {"quantizer": "fixed", "init_min": -0.1, "init_max": 0.1}
    spec.add("narrow", quantize_config=qdq.LayerQuantizeConfig(activation=fixed))
    q_model = quantized(lambda: model, quantization_spec=spec)
    next(layer for layer in q_model.activation_quantizers if layer.tensor == "hidden").set_range(-9.0, 9.0)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    data = samples(model, seed=5)
    theirs = run_tflite(report.path.read_bytes(), {"image": data})
    for name, ours in zip(("narrow", "wide"), flat(q_model(data)), strict=True):
        assert np.abs(ours - theirs[name]).mean() < 0.01 * np.abs(ours).mean()


@keras.saving.register_keras_serializable(package="tflite_test")
class AlongInputs(KernelConfig):
    """Scales of the kernel along its input channels."""

    def kernel_quantizer(self):
        return LastValueQuantizer(8, per_axis=True, symmetric=True, narrow_range=True, axis=-2)


def test_nothing_is_folded_in_front_of_scales_along_another_axis(tmp_path):
    image = keras.Input((4, 4, 3), name="image")
    x = layers.Conv2D(6, 3, name="conv")(image)
    x = layers.ReLU(name="relu")(layers.BatchNormalization(name="norm")(x))
    model = shake(keras.Model(image, layers.Dense(3, name="head")(layers.Flatten(name="flat")(x))))
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_config=AlongInputs())
    q_model = quantized(lambda: model, quantization_spec=spec)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    assert report.mean_difference < 0.02 * report.mean_size
    assert "rounds 'conv/kernel' once more" in report.notes[0]
    norm = next(entry for entry in qdq.explain(q_model.plan, "onnxruntime").layers if entry.layer == "norm")
    assert "lie along another axis" in norm.reason


def test_masks_reach_the_sequence_layers_behind_a_pair(tmp_path):
    tokens = keras.Input((8, 6), name="tokens")
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True), name="both")(layers.Masking(name="mask")(tokens))
    x = layers.MultiHeadAttention(2, 4, name="attention")(x, x)
    model = keras.Model(tokens, layers.Dense(3, name="head")(x))
    data = np.random.default_rng(0).normal(size=(16, 8, 6)).astype("float32")
    data[:, 5:] = 0.0
    q_model = qdq.quantize_model(model, target="litert")
    qdq.calibrate(q_model, data, verbose=False)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    theirs = run_tflite(report.path.read_bytes(), {"tokens": data})["head"]
    ours = np.asarray(q_model(data))
    assert np.abs(ours - theirs).mean() < 0.01 * np.abs(ours).mean()


def test_silu_is_exported_although_keras_gives_it_a_gradient_of_its_own(tmp_path):
    image = keras.Input((6, 6, 3), name="image")
    model = keras.Model(image, layers.Conv2D(2, 3, activation="silu", name="conv")(image))
    q_model = quantized(lambda: model)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    assert report.mean_difference < 0.02 * report.mean_size


@pytest.mark.parametrize("times", [1, 2])
def test_the_layer_of_all_steps_is_one_operator(times, tmp_path):
    steps = keras.Input((5, 2, 8, 8, 3)[2 - times :], name="steps")
    inner = layers.Conv2D(4, 3, activation="relu", bias_initializer="normal", name="inner")
    for number in range(times):
        inner = layers.TimeDistributed(inner, name=f"level_{number}")
    model = keras.Model(steps, layers.Dense(2, name="head")(layers.Flatten(name="flat")(inner(steps))))
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="litert")
    data = samples(model)
    qdq.calibrate(q_model, data, verbose=False)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    assert report.operators["CONV_2D"] == (1, 1)
    assert "STRIDED_SLICE" not in report.operators
    assert qdq.verify_tflite(report.path, q_model, data).passed


@pytest.mark.parametrize("batch", [1, 2, None])
def test_a_layer_of_all_steps_is_called_on_any_number_of_steps(batch, tmp_path):
    steps = keras.Input((None, 6, 3), name="steps")
    inner = layers.Conv1D(4, 3, bias_initializer="normal", name="inner")
    model = keras.Model(steps, layers.TimeDistributed(inner, name="held")(steps))
    q_model = qdq.quantize_model(model, target="litert")
    qdq.calibrate(q_model, np.random.default_rng(0).uniform(-1, 1, (4, 3, 6, 3)).astype("float32"), verbose=False)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite", batch=batch)
    for count in (1, 2, 5):
        data = np.random.default_rng(count).uniform(-1, 1, (4, count, 6, 3)).astype("float32")
        found = run_tflite(report.path.read_bytes(), {"steps": data})["held"]
        assert found.shape == (4, count, 4, 4)
        np.testing.assert_allclose(found, flat(q_model(data))[0], atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_the_policy_that_is_set_for_new_layers_has_no_part_in_a_file(policy, tmp_path):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        steps = keras.Input((5, 4), name="steps")
        x = layers.TimeDistributed(layers.Dense(4, name="inner"), name="held")(layers.Dropout(0.1, name="drop")(steps))
        model = keras.Model(steps, layers.Dense(2, name="head")(layers.Softmax(name="soft")(x)))
        q_model = quantized(lambda: model, custom_qdq_cases=[qdq.AutoQDQCase()])
        report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
        assert qdq.verify_tflite(report.path, q_model).passed
    finally:
        keras.config.set_dtype_policy(before)


def test_a_file_of_another_shape_is_not_written(monkeypatch, tmp_path):
    def make(classes):
        image = keras.Input((4,), name="image")
        return keras.Model(image, layers.Dense(classes, name="head")(image), name="small")

    other = qdq.export_tflite(quantized(lambda: make(3)), tmp_path / "other.tflite").path
    q_model, path = quantized(lambda: make(2)), tmp_path / "model.tflite"
    failed = {check.name: check for check in qdq.verify_tflite(other, q_model).checks if not check.passed}
    assert "'head' has shape (32, 3), where the model's has (32, 2)" in failed["outputs"].detail
    real = comparison.outputs_of_both
    monkeypatch.setattr(comparison, "outputs_of_both", lambda model, _, *rest: real(model, other.read_bytes(), *rest))
    with pytest.raises(ExportError, match=r"'head' has shape \(8, 3\), where the model's has \(8, 2\).*'small"):
        qdq.export_tflite(q_model, path)
    assert not path.exists()


@pytest.mark.parametrize(("inner", "behind", "loops"), [("Dense", layers.LSTM(3), 1), ("LSTM", layers.Dense(2), 2)])
def test_a_mask_is_read_step_by_step_where_the_layer_inside_takes_it(inner, behind, loops, tmp_path):
    words = keras.Input((2, 4) if inner == "LSTM" else (4,), dtype="int32", name="words")
    x = layers.Embedding(20, 3, mask_zero=True, name="embedded")(words)
    x = layers.TimeDistributed(getattr(layers, inner)(3), name="held")(x)
    model = keras.Model(words, behind(x))
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="litert")
    data = np.random.default_rng(0).integers(0, 3, (8, *words.shape[1:])).astype(np.int32)
    qdq.calibrate(q_model, data, verbose=False)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    assert report.operators["WHILE"] == (0, loops)
    assert report.operators["FULLY_CONNECTED"] == (1, 1)
    assert qdq.verify_tflite(report.path, q_model, data).passed


def test_a_dense_layer_with_a_bias_is_an_integer_operator_on_volumes_too(tmp_path):
    volume = keras.Input((3, 4, 2, 5), name="volume")
    shared = layers.Dense(5, bias_initializer="normal", name="shared")
    model = keras.Model(volume, layers.Add(name="sum")([shared(volume), shared(layers.ReLU(name="relu")(volume))]))
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="litert")
    data = samples(model)
    qdq.calibrate(q_model, data, verbose=False)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    assert report.operators["FULLY_CONNECTED"] == (2, 2)
    assert qdq.verify_tflite(report.path, q_model, data).passed


def test_a_folded_normalization_gives_a_dense_layer_on_volumes_its_bias(tmp_path):
    volume = keras.Input((3, 4, 2, 5), name="volume")
    x = layers.Dense(5, use_bias=False, name="dense")(volume)
    model = shake(keras.Model(volume, layers.BatchNormalization(name="normalized")(x)))
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="litert")
    data = samples(model)
    qdq.calibrate(q_model, data, verbose=False)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    assert report.operators["FULLY_CONNECTED"] == (1, 1)
    assert "ADD" not in report.operators
    assert qdq.verify_tflite(report.path, q_model, data).passed


def test_an_einsum_that_turns_its_result_runs_on_integers(tmp_path):
    """Without a pair behind it the converter left its product with integers in front and floats behind."""
    tokens = keras.Input((5, 4), name="tokens")
    turned = layers.EinsumDense("abc,cde->adbe", (2, None, 3), bias_axes="de", name="turned")
    q_model = quantized(lambda: keras.Model(tokens, turned(tokens)))
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    assert qdq.explain(q_model).for_layer("turned").status == "int8"
    assert all(integer == total for integer, total in report.operators.values())
    assert report.mean_difference < 0.02 * report.mean_size


def test_a_file_that_the_interpreter_refuses_is_not_written(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise RuntimeError("Node number 3 (FULLY_CONNECTED) failed to prepare.")

    tokens = keras.Input((5, 4), name="tokens")
    model = keras.Model(tokens, layers.Dense(3, activation="silu", name="turned")(tokens))
    with monkeypatch.context() as refusing:
        refusing.setattr(tflite_export, "compare", refuse)
        with pytest.raises(
            ExportError, match=r"int8 kernel: 'turned'\. Leave such layers in float(.|\n)*Node number 3"
        ):
            qdq.export_tflite(quantized(lambda: model), tmp_path / "model.tflite")
    assert list(tmp_path.iterdir()) == []
    with monkeypatch.context() as refusing:
        refusing.setattr(tflite_export, "compare", refuse)
        tokens = keras.Input((None, 4), name="tokens")
        q_model = qdq.quantize_model(keras.Model(tokens, layers.Dense(3, name="open")(tokens)), target="litert")
        qdq.calibrate(q_model, np.ones((2, 5, 4), "float32"), verbose=False)
        with pytest.raises(ExportError, match=r"Or give the model's inputs fixed sizes in place of None"):
            qdq.export_tflite(q_model, tmp_path / "model.tflite")
    spec = qdq.QuantizationSpec()
    spec.add("turned", quantize_input=False, quantize_weight=False)
    q_model = quantized(lambda: model, quantization_spec=spec)
    assert qdq.export_tflite(q_model, tmp_path / "model.tflite").path.exists()
