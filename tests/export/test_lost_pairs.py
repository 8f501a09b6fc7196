"""Pairs that TensorFlow's converter drops between two opposite Reshapes get a barrier, and are in the file."""

import keras
import numpy as np
import pytest
from keras import layers
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.export.litert import tflite_export
from qdq_workbench.export.litert.lost_pairs import lost_pairs
from qdq_workbench.export.litert.tflite_file import TFLiteFile
from qdq_workbench.quantizers import numerics


def normalized(shape, reader):
    """Return a model with a pair between the Reshapes of a GroupNormalization and of its reader."""
    keras.utils.set_random_seed(0)
    x = keras.Input(shape, name="x")
    norm = layers.GroupNormalization(groups=-1, beta_initializer=keras.initializers.Constant(-0.42), name="norm")
    model = keras.Model(x, reader(norm(x)))
    spec = qdq.QuantizationSpec()
    spec.add("norm", quantize_input=False, quantize_output=True)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="litert")
    qdq.calibrate(q_model, samples(model), verbose=False)
    return q_model


@pytest.fixture
def conversions(monkeypatch):
    """The arguments of every conversion."""
    calls, convert = [], tflite_export.convert

    def counted(*arguments):
        calls.append(arguments)
        return convert(*arguments)

    monkeypatch.setattr(tflite_export, "convert", counted)
    return calls


READERS = {
    "conv": lambda: layers.Conv1D(2, 1, activation="elu", name="reader"),
    "depthwise": lambda: layers.DepthwiseConv1D(3, padding="same", activation="elu", name="reader"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_pair_between_opposite_reshapes_is_in_the_file(reader, conversions, tmp_path):
    q_model = normalized((1, 1), READERS[reader]())
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    assert len(conversions) == 2
    qdq.verify_tflite(report.path, q_model).raise_if_failed()
    assert "CAST" not in report.operators  # the barrier


def test_what_is_kept_is_converted_once(conversions, tmp_path):
    q_model = normalized((4, 6), READERS["conv"]())
    qdq.export_tflite(q_model, tmp_path / "model.tflite")
    assert len(conversions) == 1


def test_a_grid_is_held_within_a_share_of_its_scale(tmp_path):
    q_model = normalized((4, 6), READERS["conv"]())
    file = TFLiteFile(qdq.export_tflite(q_model, tmp_path / "model.tflite").path.read_bytes())
    name = next(tensor.name for tensor in q_model.plan.tensors if tensor.tensor == "norm")
    low, high = q_model.activation_ranges()[name]
    plan = q_model.plan
    spec = next(tensor.quantizer for tensor in plan.tensors if tensor.name == name)
    grid = numerics.qparams_from_range(low, high, spec)
    scale, zero = float(np.float32(grid.scale)), int(grid.zero_point)
    assert not list(lost_pairs(file, plan, {name: (scale, zero)}))
    assert list(lost_pairs(file, plan, {name: (scale * 1.001, zero)})) == [(name, (8, scale * 1.001, zero))]
    assert not list(lost_pairs(file, plan, {name: (scale * 1.001, zero)}, within=0.01))
    assert list(lost_pairs(file, plan, {name: (scale, zero + 1)}, within=0.01))
