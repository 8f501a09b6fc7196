"""Whatever users call data reaches Keras: datasets, dictionaries, several inputs and outputs."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_benches import tiny_data, tiny_model
from small_models import two_headed_net

from qdq_widgets import Workbench
from qdq_widgets.data import batch_count, few_pairs, few_samples, fit_arguments, inputs_only
from qdq_widgets.errors import BenchError


def test_the_whole_walk_on_a_tf_data_dataset(tmp_path):
    dataset = tf.data.Dataset.from_tensor_slices(tiny_data()).batch(16)
    bench = Workbench(tiny_model(), train_data=dataset, validation_data=dataset)
    bench.calibrate()
    assert bench.calibration.samples == 48
    run = bench.fine_tune(1)
    assert run.epochs == (0.0, 1.0)
    assert sum(bench.histogram("image").counts) > 0
    assert bench.export(tmp_path / "model.onnx").passed
    half = bench.export(tmp_path / "half.onnx", "tensorrt", float_type="float16")
    assert (half.passed, half.report.float_type) == (True, "float16")


def test_the_whole_walk_on_several_inputs_and_outputs(tmp_path):
    generator = np.random.default_rng(0)
    inputs = {
        "left": generator.standard_normal((40, 6)).astype("float32"),
        "right": generator.standard_normal((40, 4)).astype("float32"),
    }
    labels = {"first": generator.standard_normal((40, 2)), "second": generator.standard_normal((40, 3))}
    losses = {"first": "mse", "second": "mse"}
    bench = Workbench(two_headed_net(), train_data=(inputs, labels), validation_data=(inputs, labels), loss=losses)
    bench.calibrate(batch_size=10)
    assert bench.calibration.batches == 4
    run = bench.fine_tune(1, batch_size=10)
    assert run.state == "done"
    assert run.last.loss > 0
    bench.view.work.widget.selected_index = 1  # no accuracy among the metrics: the curves draw what there is
    assert bench.view.work.panes[1].errors.message == ""
    assert bench.export(tmp_path / "model.onnx").passed


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        images, labels = tiny_data()
        return images[16 * index : 16 * index + 16], labels[16 * index : 16 * index + 16]


def test_a_keras_py_dataset_trains_and_calibrates():
    bench = Workbench(tiny_model(), train_data=Batches(), validation_data=Batches())
    bench.calibrate()
    assert bench.calibration.batches == 3
    assert bench.fine_tune(1).state == "done"


def test_counting_batches():
    images, labels = tiny_data(33)
    assert batch_count((images, labels), 16) == 3
    assert batch_count({"a": images}, 16) == 3
    assert batch_count([images, images], 16) == 3
    assert batch_count(tf.data.Dataset.from_tensor_slices(images).batch(8), 16) == 5
    assert batch_count((image for image in images), 16) is None


def test_a_few_samples_of_anything():
    images, labels = tiny_data()
    assert few_samples((images, labels), 5).shape[0] == 5
    assert few_samples({"a": images}, 5)["a"].shape[0] == 5
    assert len(few_samples([images[:2], images[2:4]], 1)[0]) == 1
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(8)
    assert len(list(few_samples(dataset, 64))) == 2
    assert inputs_only((images, labels)) is images


def test_data_without_labels_are_refused_with_the_way_out():
    images, _ = tiny_data()
    with pytest.raises(BenchError, match="pass a pair"):
        fit_arguments(images, "train_data")
    with pytest.raises(BenchError, match=r"\(inputs, labels\)"):
        fit_arguments((images,), "train_data")
    with pytest.raises(BenchError, match="train_data=None"):
        fit_arguments(None, "train_data")


def test_a_few_samples_keep_their_labels():
    images, labels = np.zeros((9, 2)), np.arange(9)
    few = few_pairs((images, labels), 4)
    assert [len(part) for part in few] == [4, 4]
    assert len(few_pairs({"a": images}, 3)["a"]) == 3
    assert [len(part) for part in few_pairs([images, images], 3)] == [3, 3]
    batches = iter([images])
    assert few_pairs(batches, 3) is batches


def test_labelled_data_in_a_list_are_a_pair_for_the_calibration_too():
    images, labels = tiny_data()
    bench = Workbench(tiny_model(), train_data=[images, labels], validation_data=[images, labels])
    bench.calibrate()
    assert bench.calibration.samples == len(images)
    assert bench.fine_tune(1).state == "done"
