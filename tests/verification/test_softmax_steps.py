"""ONNX Runtime's softmax of integers, whose kernel rounds 1/scale down: what it moves is allowed, and nothing else."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from onnx import numpy_helper

import qdq_workbench as qdq
from qdq_workbench.onnx_graph.sessions import make_session, with_outputs
from qdq_workbench.verification import softmax_steps
from qdq_workbench.verification.alone import OptimizationParity
from qdq_workbench.verification.integer_kernels import optimized_graph
from qdq_workbench.verification.parity import Parity
from qdq_workbench.verification.softmax_steps import moved_by_softmax

SAMPLES = 16
WHOLE, BETWEEN = 127 / 128, 0.766  # of a grid of 127 steps: 1/scale is 128, or 165.8 of which the kernel takes 165


def _sums(x, softmax):
    return layers.Dense(1, kernel_initializer="ones", name="sum")(softmax(x))


def _behind_a_reshape(x, softmax):
    return _sums(x, lambda tensor: layers.Reshape((1, 48), name="moved")(softmax(tensor)))


def _in_front_of_a_transpose(x, softmax):
    return _sums(x, lambda tensor: layers.Permute((2, 1), name="moved")(softmax(tensor)))


def _behind_two_moves(x, _softmax):
    swapped = layers.Permute((2, 1))(layers.Softmax(name="no_pair_behind")(x))
    return _sums(swapped, layers.Reshape((1, 48), name="moved"))


def _along_another_axis(x, _softmax):
    return _sums(layers.Softmax(axis=1, name="softmax")(x), layers.Reshape((1, 48), name="moved"))


def _in_channels_first(x, softmax):
    image = layers.Reshape((6, 2, 4))(x)
    return layers.Conv2D(1, 1, kernel_initializer="ones", name="sum")(softmax(image))


def _twice(x, softmax):
    again = layers.Softmax(name="again")
    return _sums(x, lambda tensor: again(softmax(tensor)))


MODELS = [
    _sums,
    _behind_a_reshape,
    _in_front_of_a_transpose,
    _behind_two_moves,
    _along_another_axis,
    _in_channels_first,
    _twice,
]


def _files(build, largest, folder, *, signed=True, **options):
    keras.utils.set_random_seed(0)
    x = keras.Input((6, 8), name="x")
    model = keras.Model(x, build(x, layers.Softmax(name="softmax")))
    spec = qdq.QuantizationSpec()
    fixed = {"quantizer": "fixed", "init_min": 0.0, "init_max": largest, "signed": signed}
    for layer in model.layers:
        if layer.name in ("softmax", "again", "moved"):
            config = qdq.LayerQuantizeConfig(output=fixed)
            spec.add(layer.name, quantize_input=True, quantize_output=True, quantize_config=config)
        if layer.name == "no_pair_behind":
            spec.add(layer.name, quantize_input=True, quantize_output=False)
    spec.add("sum", quantize_input=False, quantize_weight=False)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="tensorrt")
    data = np.random.default_rng(0).normal(size=(SAMPLES, 6, 8)).astype(np.float32)
    qdq.calibrate(q_model, data, verbose=False, freeze=True)
    return onnx.load(qdq.export_onnx(q_model, folder / "model.onnx", **options).path), q_model, {"x": data}


@pytest.mark.parametrize("signed", [True, False], ids=["int8", "uint8"])
@pytest.mark.parametrize("build", MODELS)
def test_the_difference_is_that_of_the_kernel(build, signed, tmp_path):
    """Also where the input has another integer type: ONNX Runtime makes uint8 of every pair."""
    proto, q_model, inputs = _files(build, BETWEEN, tmp_path, signed=signed)
    (moved,) = moved_by_softmax(proto, inputs).values()
    (found,) = Parity(proto, q_model, inputs).end_to_end(optimized=True)
    assert moved > 1e-3
    assert found.passed
    assert found.mean_difference == pytest.approx(moved, rel=1e-3)


@pytest.mark.parametrize("signed", [True, False], ids=["int8", "uint8"])
@pytest.mark.parametrize("build", MODELS)
def test_a_right_file_passes_without_its_model(build, signed, tmp_path):
    proto, _, inputs = _files(build, BETWEEN, tmp_path, signed=signed)
    assert all(check.passed for check in OptimizationParity(proto, inputs).checks())


def test_a_kernel_that_is_further_off_is_not_excused(tmp_path, monkeypatch):
    proto, _, inputs = _files(_sums, BETWEEN, tmp_path)

    def coarse(*args):
        optimized = optimized_graph(*args)
        (kernel,) = (node for node in optimized.graph.node if node.op_type == "QLinearSoftmax")
        optimized.graph.initializer.append(numpy_helper.from_array(np.array(1.0, np.float32), "coarse"))
        kernel.input[1] = "coarse"
        return optimized

    monkeypatch.setattr(softmax_steps, "optimized_graph", coarse)
    (name,) = (node.output[0] for node in proto.graph.node if node.name == "softmax/QuantizeLinear")
    runs = [
        make_session(with_outputs(model, [name]), optimized=False).run([name], inputs)[0].astype(int)
        for model in (proto, softmax_steps._with_kernels(proto))
    ]
    assert np.abs(runs[0] - runs[1]).max() == 1


def test_a_scale_with_a_whole_reciprocal_moves_nothing(tmp_path):
    proto, _, inputs = _files(_sums, WHOLE, tmp_path)
    assert list(moved_by_softmax(proto, inputs).values()) == [0.0]


def test_a_file_with_a_fixed_batch_is_measured_on_all_samples(tmp_path):
    proto, _, inputs = _files(_sums, BETWEEN, tmp_path)
    (of_all,) = moved_by_softmax(proto, inputs).values()
    proto, _, inputs = _files(_sums, BETWEEN, tmp_path, dynamic_batch=False)
    (of_each,) = moved_by_softmax(proto, inputs).values()
    assert of_each == pytest.approx(of_all, rel=1e-6)
    assert of_all > 0


def test_a_softmax_that_stays_in_float_moves_nothing(tmp_path):
    """Its result is an output of the model, too, without the pair."""

    def read_twice(x, softmax):
        y = softmax(x)
        return [layers.Dense(1, name="sum")(layers.Reshape((1, 48), name="moved")(y)), y + 0.5]

    proto, _, inputs = _files(read_twice, BETWEEN, tmp_path)
    (softmax,) = (node for node in proto.graph.node if node.op_type == "Softmax")
    for node in proto.graph.node:
        if node.op_type == "Add":
            node.input[:] = [softmax.output[0], *node.input[1:]]
    assert list(moved_by_softmax(proto, inputs).values()) == [0.0, 0.0]
