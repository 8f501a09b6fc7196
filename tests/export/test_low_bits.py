"""Weights of 2 to 8 bits and activations of 16 in files: what is stored, what is reported, what runs on integers."""

import functools

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from releases import ONNXRUNTIME
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.errors import VerificationError
from qdq_workbench.verification import count_integer_kernels

MODEL = residual_net()
X = samples(MODEL)


@pytest.fixture(scope="module")
def exported_once(tmp_path_factory):
    """Return what `exported` does of weights of few bits; each file has a folder of its own, where tests only read."""

    @functools.cache
    def export(bits, opset):
        return exported(tmp_path_factory.mktemp("few_bits"), {"num_bits": bits}, opset)

    return export


def exported(tmp_path, weight, opset=None, activation=None, target="onnxruntime"):
    spec = qdq.QuantizationSpec()
    config = qdq.LayerQuantizeConfig(weight=weight, activation=activation)
    spec.add(["stem", "conv", "head"], quantize_config=config)
    q_model = qdq.quantize_model(MODEL, quantization_spec=spec, target=target)
    qdq.calibrate(q_model, X, verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx", opset=opset)
    verified = qdq.verify_onnx(report.path, q_model, X)
    verified.raise_if_failed()
    qdq.verify_onnx(report.path).raise_if_failed()
    return report, verified, stored_types(report.path)


def stored_types(path):
    """Return the types of the integers that feed a DequantizeLinear directly, biases left out."""
    graph = onnx.load(str(path)).graph
    constants = {tensor.name: tensor.data_type for tensor in graph.initializer}
    read = [node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"]
    types = {constants[name] for name in read if name in constants}
    return {onnx.TensorProto.DataType.Name(kind) for kind in types} - {"INT32"}


@pytest.mark.parametrize(
    ("weight", "opset", "types"),
    [
        ({"num_bits": 4}, None, {"INT8"}),
        ({"num_bits": 4}, 21, {"INT4"}),
        ({"num_bits": 3, "signed": False, "symmetric": False}, 21, {"UINT4"}),
        ({"num_bits": 2, "narrow_range": False, "per_axis": False, "quantizer": "lsq"}, 21, {"INT4"}),
        ({"num_bits": 5}, 21, {"INT8"}),
        ({"num_bits": 16}, None, {"INT16"}),
    ],
)
def test_weights(exported_once, tmp_path, weight, opset, types):
    bits = weight["num_bits"]
    once = list(weight) == ["num_bits"]
    report, _, stored = exported_once(bits, opset) if once else exported(tmp_path, weight, opset)
    assert stored == types
    note = next((note for note in report.notes if f"weights with {bits} bits" in note), None)
    if bits == 16:
        assert note is None
    elif "4" in "".join(types):
        assert "two in a byte" in note
    else:
        assert "stored as 8-bit integers" in note
        assert ("opset=21" in note) == (bits <= 4)


def test_four_bits_need_less_room_but_no_integer_kernel_reads_them(exported_once, tmp_path):
    packed, on_floats, _ = exported_once(4, 21)
    wide, on_integers, _ = exported(tmp_path, {"num_bits": 4}, 20)
    assert packed.bytes < wide.bytes
    assert on_floats.figures["integer_kernels"]["Conv"][0] == 0
    assert on_integers.figures["integer_kernels"]["Conv"] == [2, 2]


def test_two_weights_take_one_byte(exported_once):
    """As int32_data, where make_tensor puts them, most bytes above 127 take two."""
    report, _, _ = exported_once(4, 21)
    constants = onnx.load(str(report.path)).graph.initializer
    packed = [tensor for tensor in constants if tensor.data_type == onnx.TensorProto.INT4]
    assert packed
    for tensor in packed:
        assert len(tensor.raw_data) == (int(np.prod(tensor.dims)) + 1) // 2


def test_sixteen_bit_activations(tmp_path):
    report, _, _ = exported(tmp_path, {"num_bits": 8}, activation={"num_bits": 16})
    assert report.opset == 21
    graph = onnx.load(str(report.path)).graph
    kinds = {onnx.TensorProto.DataType.Name(t.data_type) for t in graph.initializer if t.name.endswith("/zero_point")}
    assert "UINT16" in kinds


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(("narrow", "per_axis"), [(True, True), (False, True), (False, False)])
def test_folding_keeps_asymmetric_and_wide_weights_exact(tmp_path, per_axis, narrow, signed):
    """Some gains of the batch normalizations are negative."""
    weight = {"num_bits": 5, "symmetric": False, "narrow_range": narrow, "signed": signed, "per_axis": per_axis}
    report, _, _ = exported(tmp_path, weight, target="tensorrt")
    assert report.folded == 2


def test_folding_keeps_the_lowest_code_of_a_wide_symmetric_grid(tmp_path):
    weight = {"num_bits": 8, "narrow_range": False, "quantizer": "fixed", "init_min": -0.05, "init_max": 0.05}
    if ONNXRUNTIME < (1, 27):  # which has no kernel for the zero points, and says so
        with pytest.raises(VerificationError, match="zero point of per-channel filter must be same"):
            exported(tmp_path, {**weight, "per_axis": False})
        return
    report, _, _ = exported(tmp_path, {**weight, "per_axis": False})
    assert report.folded == 2


def test_four_bits_for_everything(tmp_path):
    """Steps of s_x * s_w would be coarse for biases then: convolutions, which are float anyway, have exact ones."""
    spec = qdq.QuantizationSpec()
    config = qdq.LayerQuantizeConfig(weight={"num_bits": 4}, activation={"num_bits": 4})
    spec.add("*", match="glob", quantize_config=config)
    q_model = qdq.quantize_model(MODEL, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, X, verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    verified = qdq.verify_onnx(report.path, q_model, X)
    verified.raise_if_failed()
    assert {t.quantizer.num_bits for t in q_model.plan.tensors} == {4}
    details = {check.name: check.detail for check in verified.checks}
    assert details["tensor by tensor"].startswith("0 of ")
    assert not [finding for finding in qdq.lint_onnx(report.path).findings if finding.rule == "QDQ-BIAS"]


def biased(activation, bits):
    keras.utils.set_random_seed(0)
    x = keras.Input((6, 6, 3), name="x")
    y = keras.layers.Conv2D(4, 3, name="conv", activation=activation, bias_initializer="random_normal")(x)
    model = keras.Model(x, keras.layers.Conv2D(4, 3, name="last")(y))
    spec = qdq.QuantizationSpec()
    spec.add("last", quantize_config=qdq.LayerQuantizeConfig(activation={"num_bits": bits}))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    return q_model


@pytest.mark.parametrize(("activation", "bits"), [("relu", 4), (None, 4), ("relu6", 4), ("relu", 8), ("relu6", 8)])
def test_a_bias_is_exact_where_no_integer_kernel_reads_it_and_derived_where_one_does(tmp_path, activation, bits):
    q_model = biased(activation, bits)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(str(path)).graph.initializer}
    codes, scale = constants["conv/bias/quantized"], constants["conv/bias/scale"]
    exact = np.array_equal(codes * scale, q_model.get_layer("quant_conv").layer.bias.numpy())
    verified = qdq.verify_onnx(path, q_model, samples(q_model))
    verified.raise_if_failed()
    assert exact == (bits == 4)
    integer = [name.partition("/")[0] for name in count_integer_kernels(path).integer_nodes]
    assert ("conv" in integer) == (bits == 8)


@pytest.mark.parametrize("activation", [None, "softmax"])
def test_biases_stay_float_in_front_of_sixteen_bits(tmp_path, activation):
    """Steps of s_x * s_w are coarser than those of the 16-bit grid that the result is rounded to."""
    x = keras.Input((6, 6, 3), name="x")
    y = keras.layers.Conv2D(4, 3, name="first", bias_initializer="random_normal", activation=activation)(x)
    model = keras.Model(x, keras.layers.Conv2D(4, 3, name="second", bias_initializer="random_normal")(y))
    spec = qdq.QuantizationSpec()
    spec.add("first", quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 4}))
    spec.add("second", quantize_config=qdq.LayerQuantizeConfig(activation={"num_bits": 16}))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    qdq.verify_onnx(report.path, q_model, samples(model)).raise_if_failed()
    types = {tensor.name: tensor.data_type for tensor in onnx.load(str(report.path)).graph.initializer}
    assert "first/bias/quantized" not in types
    assert types["second/bias/quantized"] == onnx.TensorProto.INT32


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("layer", [keras.layers.Conv1DTranspose, keras.layers.Conv2DTranspose])
def test_transposed_convolutions_compute_what_keras_computes_with_all_of_onnxruntimes_optimizations(
    tmp_path, layer, bits
):
    """ONNX Runtime rounds their float biases to steps of s_x * s_w when it loads a file, and computes in float."""
    keras.utils.set_random_seed(1)
    rank = 1 if layer is keras.layers.Conv1DTranspose else 2
    start = keras.initializers.RandomNormal(stddev=0.5, seed=3)
    x = y = keras.Input((5,) * rank + (4,), name="x")
    for index in range(3):
        y = layer(4, 3, padding="same", bias_initializer=start, activation="relu", name=f"up{index}")(y)
    model = keras.Model(x, y)
    spec = qdq.QuantizationSpec()
    config = qdq.LayerQuantizeConfig(weight={"num_bits": bits}, activation={"num_bits": bits})
    spec.add("*", match="glob", quantize_config=config)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    data = samples(model)
    qdq.calibrate(q_model, data, verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    qdq.verify_onnx(path, q_model, data).raise_if_failed()
    session = onnxruntime.InferenceSession(str(path))
    np.testing.assert_allclose(session.run(None, {"x": data})[0], q_model(data, training=False), atol=1e-5)
