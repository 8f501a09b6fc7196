"""Pairs that follow another grid keep their own in a LiteRT file, which no barrier is in."""

import keras
import numpy as np
from keras import layers
from litert_models import both
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.export.litert.barriers import Barrier
from qdq_workbench.export.litert.tflite_file import TFLiteFile


def exported(model, folder, *entries):
    """A quantized model, the report on its file, and that of the verification."""
    spec = qdq.QuantizationSpec()
    for entry in entries:
        spec.add(**entry)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="litert")
    qdq.calibrate(q_model, samples(model), verbose=False)
    report = qdq.export_tflite(q_model, folder / "model.tflite")
    return q_model, report, qdq.files.verify_tflite(report.path, q_model)


def chains():
    """Layers behind a Resizing, whose pair has the range of the image, and the entry that gives them pairs."""
    image = keras.Input((8, 8, 2), name="image")
    resized = layers.Resizing(8, 5, interpolation="bilinear", name="resize")(image)
    noise = keras.Sequential([keras.Input((8, 5, 2)), layers.GaussianNoise(0.1, name="noise")], name="part")
    twice = layers.SpatialDropout2D(0.2, name="twice")
    ends = [
        layers.AlphaDropout(0.1, name="alpha")(layers.Dropout(0.2, name="drop")(resized)),
        twice(twice(resized)),
        noise(resized),
        layers.Conv2D(2, 1, name="conv")(layers.ActivityRegularization(l2=0.1, name="nothing")(resized)),
        layers.Activation("linear", name="linear")(layers.Identity(name="same")(resized)),
    ]
    vanishing = ["drop", "alpha", "twice", "part/noise", "nothing", "same", "linear"]
    return keras.Model(image, ends), {"name": ["resize", *vanishing], "quantize_input": True, "quantize_output": True}


def test_a_pair_behind_another_grid_keeps_its_own(tmp_path):
    keras.utils.set_random_seed(0)
    model, entry = chains()
    _, report, verified = exported(model, tmp_path, entry)
    assert verified.passed, verified.summary()
    assert "CAST" not in report.operators
    assert report.mean_difference < 0.01 * report.mean_size  # 4 % where values beyond a range are not clipped


def test_a_pair_behind_a_moved_tensor_keeps_the_range_that_its_reader_sets(tmp_path):
    image = keras.Input((8, 8, 1), name="image")
    model = keras.Model(image, layers.Conv2D(6, 1, name="conv")(layers.Permute((3, 2, 1), name="moved")(image)))
    fixed = qdq.LayerQuantizeConfig(activation={"quantizer": "fixed", "init_min": -1.0, "init_max": 2.0})
    moved = {"name": "moved", "quantize_weight": False, "quantize_output": True}
    q_model, report, verified = exported(model, tmp_path, moved, {"name": "conv", "quantize_config": fixed})
    assert q_model.activation_ranges()["moved"] == (-1.0, 2.0)
    assert verified.passed, verified.summary()
    assert report.operators == {"TRANSPOSE": (1, 1), "CONV_2D": (1, 1)}


def test_a_file_without_the_second_grid_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Barrier, "call", lambda self, inputs: inputs)
    keras.utils.set_random_seed(0)
    model, entry = chains()
    _, _, verified = exported(model, tmp_path, entry)
    (detail,) = (check.detail for check in verified.checks if not check.passed)
    assert "no tensor has the grid of the pair 'drop'" in detail


def test_two_pairs_of_one_grid_are_one():
    image = keras.Input((4,), name="image")
    model = keras.Model(image, layers.Dropout(0.5, name="second")(layers.Dropout(0.5, name="first")(image)))
    spec = qdq.QuantizationSpec()
    spec.add(["first", "second"], quantize_input=True, quantize_output=True)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="litert")
    qdq.calibrate(q_model, samples(model), verbose=False)
    content = qdq.export.litert.tflite_export.build_tflite(q_model, 1, dynamic_range=False)[2].content
    file = TFLiteFile(content)
    assert [file.name_of(each) for each in file.graphs[0].operators] == ["QUANTIZE", "DEQUANTIZE"]


def test_a_barrier_computes_nothing_in_keras():
    values = np.float32([[-3.0, 0.5]])
    np.testing.assert_array_equal(np.asarray(Barrier()(values)), values)


def test_a_constant_behind_a_barrier_is_what_it_was(tmp_path):
    keras.utils.set_random_seed(0)
    x = keras.Input((6, 3), name="x")
    norm = layers.LayerNormalization((1, 2), gamma_initializer="zeros", beta_initializer="ones", name="ones")
    dense = layers.Dense(4, name="dense")
    # The converter computes the tanh, which has no pair in front, and the barrier behind it.
    model = keras.Model(x, dense(layers.Activation("tanh", name="tanh")(norm(x))))
    q_model, report, _ = exported(model, tmp_path)
    ours, theirs = both(q_model, report)
    np.testing.assert_allclose(theirs, ours, atol=0.01 * np.abs(ours).max())
