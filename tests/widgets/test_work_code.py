"""The code of the work on a plan, for every kind of data that a bench takes: it runs and reads the same samples."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from qdq_widgets import Workbench
from qdq_widgets.data import VERIFIED_SAMPLES

COUNT = VERIFIED_SAMPLES + 32
LABELS = np.zeros(COUNT, "int64")


def values(seed):
    return np.random.default_rng(seed).standard_normal((COUNT, 4)).astype("float32")


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return values(0)[16 * index : 16 * index + 16], LABELS[:16]


def dense(names):
    inputs = [keras.Input((4,), name=name) for name in names]
    joined = layers.Add()(inputs) if len(inputs) > 1 else inputs[0]
    return keras.Model(inputs if len(inputs) > 1 else inputs[0], layers.Dense(3, name="head")(joined))


@pytest.mark.parametrize(
    ("names", "given"),
    [
        ("a", {"validation_data": (values(0), LABELS)}),
        ("a", {"validation_data": tf.data.Dataset.from_tensor_slices((values(0), LABELS)).batch(16)}),
        ("a", {"validation_data": Batches()}),
        ("ab", {"validation_data": ({"a": values(0), "b": values(1)}, LABELS)}),
        ("ab", {"validation_data": ([values(0), values(1)], LABELS)}),
        ("ab", {"calibration_data": {"a": values(0), "b": values(1)}}),
        ("ab", {"calibration_data": [values(0), values(1)]}),
    ],
    ids=["pair", "dataset", "py_dataset", "pair of a dict", "pair of a list", "dict", "list"],
)
def test_the_verification_in_the_code_runs_with_every_kind_of_data(names, given, tmp_path):
    first = {"calibration_data": [values(0), values(1)][: len(names)] if len(names) > 1 else values(0)}
    given = {**first, **given}
    bench = Workbench(dense(names), target="onnxruntime", **given)
    bench.calibrate()
    bench.export(tmp_path / "model.onnx")
    line = bench.to_code().splitlines()[-1]
    assert "verify_onnx" in line
    read = []

    class Verifying:
        @staticmethod
        def verify_onnx(path, q_model, data):
            import qdq_workbench

            read.append(data)
            return qdq_workbench.verify_onnx(path, q_model, data=data)

    exec(line, {"qdq": Verifying, "q_model": bench.q_model, **given})
    arrays = [part for part in keras.tree.flatten(read[0]) if hasattr(part, "shape")]
    assert all(len(array) == VERIFIED_SAMPLES for array in arrays)


def test_the_numbers_of_a_calibration_are_pythons():
    bench = Workbench(dense("a"), calibration_data=values(0))
    bench.calibrate("percentile", percentile=np.float64(99.0), batch_size=16)
    for code in (bench.to_code(), bench.to_script()):
        scope = {"model": bench.model, "calibration_data": values(0)}
        exec(code, scope)
        again = scope["wb"].q_model if "wb" in scope else scope["q_model"]
        assert again.activation_ranges() == bench.q_model.activation_ranges()
