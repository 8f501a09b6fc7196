"""Grids and integers of LiteRT files against the model: faults of the exporter are found without a new conversion."""

import re

import keras
import numpy as np
import pytest
from exporter_faults import IN_LITERT, plant
from litert_models import mixed_net, quantized, weights_alone
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.errors import ExportError
from qdq_workbench.export.litert import fake_quant_model
from qdq_workbench.export.litert.own_integers import write_integers
from qdq_workbench.export.litert.tflite_export import build_tflite, converted, for_litert
from qdq_workbench.export.litert.tflite_file import INT8, INT32, TFLiteFile, scales_of, unpacked
from qdq_workbench.verification.tflite_integers import check_tflite_integers

WIDTHS = {"images": (8, 8), "few": (4, 8), "wide": (8, 16)}
#: The steps behind TensorFlow's converter, for whose faults a model is converted once.
BEHIND_THE_CONVERTER = {f"export/litert/{name}" for name in ("own_integers", "tflite_file", "wide_activations")}


def turned_net():
    """The mixed network, with gains of both signs in its normalization."""
    model = mixed_net()
    norm = model.get_layer("norm")
    norm.gamma.assign(np.where(np.arange(6) % 2, -1.0, 1.0) * np.abs(norm.gamma.numpy()))
    return model


@pytest.fixture(scope="module")
def q_models():
    return {name: quantized(turned_net, *bits) for name, bits in WIDTHS.items()}


def written(q_model, *, dynamic_range=False):
    return build_tflite(for_litert(q_model)[0], 1, dynamic_range=dynamic_range)[2].content


def checked(content, q_model):
    return check_tflite_integers(TFLiteFile(content), q_model)


@pytest.fixture(scope="module")
def conversions(q_models):
    return {name: converted(for_litert(q_model)[0], 1) for name, q_model in q_models.items()}


def with_our_integers(conversion):
    read, _, content = conversion
    return write_integers(content, read, dynamic_range=False).content


@pytest.fixture(scope="module")
def contents(conversions):
    return {name: with_our_integers(conversion) for name, conversion in conversions.items()}


@pytest.mark.parametrize("name", WIDTHS)
def test_a_file_holds_what_follows_from_the_model(q_models, contents, name):
    check = checked(contents[name], q_models[name])
    assert check.passed, check.detail
    assert check.detail == "the grids of 13 pairs and the values of 5 weights follow from the model"


@pytest.mark.parametrize("dynamic_range", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_weights_alone_are_found_behind_dequantize_and_in_hybrid_kernels(bits, dynamic_range):
    q_model = weights_alone(mixed_net(), bits)
    check = checked(written(q_model, dynamic_range=dynamic_range), q_model)
    assert check.passed, check.detail
    assert "the values of 5 weights" in check.detail


@pytest.mark.parametrize("fault", IN_LITERT, ids=str)
def test_a_fault_of_the_exporter_is_found(q_models, conversions, contents, fault, monkeypatch):
    q_model = q_models[fault.model]
    plant(fault, monkeypatch)
    is_behind = fault.path in BEHIND_THE_CONVERTER
    try:
        content = with_our_integers(conversions[fault.model]) if is_behind else written(q_model)
    except ExportError:
        assert fault.said == ""
        return
    assert content != contents[fault.model]
    check = checked(content, q_model)
    assert not check.passed
    assert fault.said
    assert fault.said in check.detail


def bias_of_another_size(file, graph, operator):
    tensor = graph.tensors[operator.inputs[2]]
    file.set_values(tensor, file.values(tensor)[:-1], INT32)
    tensor.shape = np.array([5], np.int32)
    file.set_scales(tensor, scales_of(tensor)[:-1], 0)


def scales_of_another_size(file, graph, operator):
    tensor = graph.tensors[operator.inputs[1]]
    file.set_scales(tensor, scales_of(tensor)[:-1], 0)


def no_bias(file, graph, operator):
    operator.inputs = operator.inputs[:2]


def one_step_more(file, graph, operator):
    tensor = graph.tensors[operator.inputs[2]]
    codes = file.values(tensor).copy()
    codes[0] += 1
    file.set_values(tensor, codes, INT32)


def code_of_the_kernel(file, graph, operator):
    tensor = graph.tensors[operator.inputs[1]]
    codes = file.values(tensor).copy()
    codes.flat[0] ^= 64
    file.set_values(tensor, codes, INT8)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (bias_of_another_size, r"bias of 'conv': it has 5 values, and the model's 6"),
        (scales_of_another_size, r"scales that do not fit their tensor"),
        (no_bias, r"bias of 'conv': \d of 6 values are not the model's"),
        (one_step_more, r"bias of 'conv': 1 of 6 values are not the model's"),
        (code_of_the_kernel, r"weight 'conv/kernel': \d+ of 162 values are not the model's"),
    ],
)
def test_a_changed_kernel_is_named(q_models, contents, change, said):
    file = TFLiteFile(contents["images"])
    graph = file.graphs[0]
    operator = next(each for each in graph.operators if file.name_of(each) == "CONV_2D")
    change(file, graph, operator)
    check = checked(file.content(), q_models["images"])
    assert not check.passed
    assert re.search(said, check.detail), check.detail


def test_another_zero_point_is_another_grid(q_models, contents):
    file = TFLiteFile(contents["images"])
    ours = [t for t in file.graphs[0].tensors if t.type == INT8 and file.values(t) is None and scales_of(t) is not None]
    image = next(tensor for tensor in ours if b"image" in tensor.name)
    same = [t for t in ours if scales_of(t)[0] == scales_of(image)[0]]
    for tensor in same:
        tensor.quantization.zeroPoint = np.asarray(tensor.quantization.zeroPoint) + 1
    detail = checked(file.content(), q_models["images"]).detail
    assert detail.startswith("no tensor has the grid of the pair 'image")


def test_what_the_converter_rearranges_is_counted_and_no_difference():
    keras.utils.set_random_seed(0)
    steps = keras.Input((5, 6, 6, 3), name="steps")
    model = keras.Model(steps, keras.layers.ConvLSTM2D(2, 3, name="cells")(steps))
    q_model = qdq.quantize_model(model, target="litert")
    qdq.calibrate(q_model, samples(model), verbose=False)
    check = checked(written(q_model), q_model)
    assert check.passed
    assert check.detail.endswith("2 weights were merged or rearranged by TensorFlow's converter")


def in_front_of_a_relu():
    """A pair between a convolution and its ReLU, which the converter leaves out."""
    image = keras.Input((4, 4, 2), name="image")
    model = keras.Model(image, keras.layers.ReLU(name="relu")(keras.layers.Conv2D(3, 1, name="conv")(image)))
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_output=True)
    return model, spec


def rows_of_a_table():
    """An Embedding, which no kernel with weights reads: the converter rounds it once more."""
    rows = keras.Input((5,), name="rows", dtype="int32")
    return keras.Model(
        rows, keras.layers.Dense(2, name="head")(keras.layers.Embedding(10, 4, name="table")(rows))
    ), None


def tiny_values():
    """Weights below the least scale of the converter."""
    image = keras.Input((4, 4, 2), name="image")
    model = keras.Model(image, keras.layers.Conv2D(3, 1, name="conv")(image))
    model.get_layer("conv").kernel.assign(1e-13 * model.get_layer("conv").kernel)
    return model, None


def last_of_a_dense_block():
    """A convolution that a concatenation alone reads: the converter gives it the scale of the concatenation."""
    image = keras.Input((4, 4, 2), name="image")
    first = keras.layers.ReLU(name="relu")(keras.layers.Conv2D(3, 1, name="first")(image))
    joined = keras.layers.Concatenate(name="joined")([first, keras.layers.Conv2D(3, 1, name="conv")(first)])
    return keras.Model(image, keras.layers.Conv2D(2, 1, name="last")(joined)), None


def tiny_inputs():
    """Weights whose scales are raised for the bias, with inputs that the converter gives a wider range."""
    image = keras.Input((4, 4, 2), name="image")
    conv = keras.layers.Conv2D(3, 2, name="conv")
    model = keras.Model(image, conv(image))
    conv.bias.assign([-0.4, 0.3, 0.2])
    return model, None


MAKERS = [in_front_of_a_relu, last_of_a_dense_block, rows_of_a_table, tiny_values, tiny_inputs]


@pytest.mark.parametrize("make", MAKERS)
def test_what_the_converter_decides_is_no_difference(make):
    keras.utils.set_random_seed(0)
    model, spec = make()
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="litert")
    size = np.float32(1e-8 if make is tiny_inputs else 1.0)
    qdq.calibrate(q_model, size * samples(model), verbose=False)
    check = checked(written(q_model), q_model)
    assert check.passed, check.detail


def test_a_constant_behind_a_layer_may_be_in_its_bias():
    image = keras.Input((4, 4, 3), name="image")
    result = keras.layers.Conv2D(2, 1, bias_initializer="ones", name="conv")(image) + np.float32([0.5, -0.25])
    model = keras.Model(image, result)
    q_model = qdq.quantize_model(model, target="litert")
    qdq.calibrate(q_model, samples(model), verbose=False)
    check = checked(written(q_model), q_model)
    assert check.passed, check.detail


def test_two_codes_of_a_byte_are_read(contents):
    file = TFLiteFile(contents["few"])
    tensor = next(t for t in file.graphs[0].tensors if len(file.data(t)) and t.type not in (INT8, INT32))
    codes = np.arange(15) % 15 - 7
    tensor.shape = np.array([3, 5], np.int32)
    file.set_values(tensor, codes, tensor.type)
    np.testing.assert_array_equal(unpacked(file, tensor), codes.reshape(3, 5))


def test_a_plain_network_says_so_in_its_report(tmp_path):
    q_model = quantized(residual_net)
    report = qdq.files.verify_tflite(qdq.export_tflite(q_model, tmp_path / "model.tflite").path, q_model)
    assert report.passed
    assert "follow from the model" in report.summary()


def ones_of(x):
    """Ones, whatever is normalized: the converter leaves out the product with a gain of zeros, and all before it."""
    norm = keras.layers.LayerNormalization(axis=(1, 2), gamma_initializer="zeros", beta_initializer="ones", name="ones")
    return norm(x)


def dense(x, name, **settings):
    return keras.layers.Dense(4, name=name, **settings)(x)


def residual(x):
    first = dense(x, "first")
    return keras.layers.Add(name="sum")([first, ones_of(dense(first, "branch"))])


def gated(x):
    gate = keras.layers.Rescaling(1.0, offset=-1.0, name="zeros")(ones_of(dense(x, "gate")))
    return keras.layers.Multiply(name="product")([dense(x, "first"), gate])


def in_front_of_a_kernel(x):
    return dense(ones_of(dense(x, "first")), "head")


def through_a_tanh(x):
    return dense(keras.layers.Activation("tanh", name="tanh")(ones_of(dense(x, "first"))), "head")


def returned(x):
    first = dense(x, "first")
    return [first, keras.layers.Activation("relu", name="relu")(ones_of(dense(first, "branch")))]


def one_channel(x):
    norm = keras.layers.BatchNormalization(axis=1, gamma_initializer="zeros", name="norm")
    return norm(keras.layers.Activation("tanh", name="tanh")(keras.layers.Dense(1, name="first")(x)))


def head_of_zeros(x):
    return dense(keras.layers.Activation("tanh", name="tanh")(dense(x, "first")), "head", kernel_initializer="zeros")


def folded_zeros(x):
    return keras.layers.BatchNormalization(gamma_initializer="zeros", name="norm")(dense(x, "first"))


def constant_net(make, *bits):
    def net():
        keras.utils.set_random_seed(0)
        x = keras.Input((6, 3), name="x")
        return keras.Model(x, make(x))

    return quantized(net, *bits)


@pytest.mark.parametrize("bits", [(8, 8), (8, 16)], ids=str)
@pytest.mark.parametrize("make", [residual, gated, in_front_of_a_kernel, through_a_tanh, returned, one_channel])
def test_what_no_output_depends_on_need_not_be_in_the_file(make, bits, tmp_path):
    q_model = constant_net(make, *bits)
    report = qdq.files.verify_tflite(qdq.export_tflite(q_model, tmp_path / "model.tflite").path, q_model)
    assert report.passed, report.summary()
    assert "never vary" in report.summary()


@pytest.mark.parametrize(
    ("make", "lost", "behind"),
    [
        (residual, "first", []),
        (in_front_of_a_kernel, "ones", ["head"]),  # of floats alone, the converter computes the product, too
        (through_a_tanh, "tanh", ["head"]),
        (head_of_zeros, "tanh", []),
        (folded_zeros, "x", []),
    ],
)
def test_beside_it_a_lost_pair_is_named(make, lost, behind, monkeypatch):
    call = fake_quant_model._FakeQuantize.call
    monkeypatch.setattr(
        fake_quant_model._FakeQuantize,
        "call",
        lambda self, inputs: inputs if self.name == f"qdq.{lost}" else call(self, inputs),
    )
    q_model = constant_net(make)
    check = checked(written(q_model), q_model)
    assert not check.passed
    assert re.findall("grid of the pair '(.+?)'", check.detail) == [lost, *behind]
