"""Splits of which some results are read by nobody are the same operators on integers in every LiteRT file."""

import keras
from export.test_barriers import exported
from keras import layers, ops

import qdq_workbench as qdq
from qdq_workbench.export.litert.tflite_file import TFLiteFile

TIMES = 4  # without the fix, each of the six splits is in float in about every second file


def splits():
    """Splits by a count, at places and into single steps, in a nested model, and with a pair behind one result."""
    image = keras.Input((4, 6), name="image")
    inside = keras.Input((4, 6), name="inside")
    halves = ops.split(ops.maximum(inside, inside), 2, axis=2)
    part = keras.Model(inside, [halves[0], layers.Dense(3, name="unread")(halves[1])], name="part")
    outputs = [
        ops.split(image, 3, axis=2)[0],
        ops.split(image, 3, axis=2)[2],
        ops.split(image, [1, 4], axis=2)[1],
        ops.unstack(image, 4, axis=1)[3],
        ops.split(ops.minimum(image, image), 2, axis=1)[1],
        part(image)[0],
    ]
    return keras.Model(image, outputs)


def test_they_are_on_integers_in_every_file(tmp_path):
    keras.utils.set_random_seed(0)
    model = splits()
    entries = [
        {"name": ["Split", "Unstack"], "is_keras_class": True, "quantize_input": True},
        {"name": "split_3", "quantize_input": True, "quantize_output": True},
    ]
    q_model, report, verified = exported(model, tmp_path, *entries)
    assert verified.passed, verified.summary()
    # One split of the image in thirds is both.
    assert {name: report.operators[name] for name in ("SPLIT", "SPLIT_V", "UNPACK")} == {
        "SPLIT": (3, 3),
        "SPLIT_V": (1, 1),
        "UNPACK": (1, 1),
    }
    written = report.path.read_bytes()
    for number in range(1, TIMES):
        path = tmp_path / f"{number}.tflite"
        qdq.export_tflite(q_model, path)
        assert path.read_bytes() == written
    (signature,) = TFLiteFile(written).signatures
    assert sorted(each.name.decode() for each in signature.outputs) == sorted(model.output_names)
