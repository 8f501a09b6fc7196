import keras
import numpy as np
import onnx
import pytest
from keras import layers
from onnx import numpy_helper
from small_models import nested_net, residual_net, samples, two_headed_net

import qdq_workbench as qdq
from qdq_workbench.errors import DataError, FileAccessError, NotQuantizedError, VerificationError


@pytest.fixture(scope="module", params=["onnxruntime", "tensorrt"])
def exported(request, tmp_path_factory):
    model = residual_net()
    q_model = qdq.quantize_model(model, target=request.param)
    qdq.calibrate(q_model, samples(model, 64), verbose=False)
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    qdq.export_onnx(q_model, path)
    return q_model, path


def initializer(proto, name):
    return next(tensor for tensor in proto.graph.initializer if tensor.name == name)


def change(proto, name, function):
    tensor = initializer(proto, name)
    tensor.CopyFrom(numpy_helper.from_array(function(numpy_helper.to_array(tensor)), name))


def node(proto, name):
    return next(node for node in proto.graph.node if node.name == name)


def wrong_axis(proto):
    axis = next(a for a in node(proto, "conv/kernel/DequantizeLinear").attribute if a.name == "axis")
    axis.i = 1


def scale_by_one_percent(proto):
    change(proto, "stem_relu/scale", lambda scale: (scale * np.float32(1.01)).astype(np.float32))


def weight_scale_by_one_percent(proto):
    def one_channel(scale):
        changed = scale.copy()
        changed[2] *= np.float32(1.01)
        return changed

    change(proto, "conv/kernel/scale", one_channel)


def shifted_zero_point(proto):
    change(proto, "stem_relu/zero_point", lambda zero: (zero + 1).astype(zero.dtype))


def dropped_pair(proto):
    quantize, dequantize = (node(proto, f"stem_relu/{kind}Linear") for kind in ("Quantize", "Dequantize"))
    for reader in proto.graph.node:
        for index, name in enumerate(reader.input):
            if name == dequantize.output[0]:
                reader.input[index] = quantize.input[0]
    proto.graph.node.remove(quantize)
    proto.graph.node.remove(dequantize)


def changed_weight(proto):
    def first(codes):
        changed = codes.copy()
        changed.flat[0] = changed.flat[0] - 1 if changed.flat[0] > 0 else changed.flat[0] + 1
        return changed

    change(proto, "conv/kernel/quantized", first)


def changed_bias(proto):
    convolution = next(node for node in proto.graph.node if node.op_type == "Conv")
    constants = {tensor.name for tensor in proto.graph.initializer}
    dequantize = {node.output[0]: node.input[0] for node in proto.graph.node if node.op_type == "DequantizeLinear"}
    bias = convolution.input[2]
    name = bias if bias in constants else dequantize[bias]
    change(proto, name, lambda values: (values * 2 + 1).astype(values.dtype))


MUTATIONS = [
    wrong_axis,
    scale_by_one_percent,
    weight_scale_by_one_percent,
    shifted_zero_point,
    dropped_pair,
    changed_weight,
    changed_bias,
]


@pytest.mark.parametrize("with_model", [True, False])
def test_a_good_file_passes(exported, with_model):
    q_model, path = exported
    report = qdq.verify_onnx(path, q_model if with_model else None, samples(q_model, 32) if with_model else None)
    assert report.passed, report.summary()
    assert report.raise_if_failed() is report
    assert report.figures["pairs"] == len(q_model.plan.tensors)
    if with_model:
        assert report.figures["lsb"]["worst"] <= 1
        assert report.figures["agreement"] == 1.0


@pytest.mark.parametrize("with_model", [True, False])
@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_a_changed_file_fails(exported, mutate, with_model, built_once, tmp_path):
    q_model, path = exported
    proto = onnx.load(path)
    mutate(proto)
    onnx.save(proto, tmp_path / "changed.onnx")
    report = qdq.verify_onnx(tmp_path / "changed.onnx", q_model if with_model else None)
    assert not report.passed
    with pytest.raises(
        VerificationError, match=r"does not do what its plan says.*qdq-workbench docs verification_failed"
    ):
        report.raise_if_failed()
    assert report.summary().endswith("(qdq-workbench docs verification_failed)")


@pytest.mark.parametrize("mutate", [scale_by_one_percent, shifted_zero_point, changed_weight], ids=lambda m: m.__name__)
def test_the_numbers_alone_would_tell_too(exported, mutate):
    """The comparison tensor by tensor does not lean on the structure check."""
    from qdq_workbench.verification.parity import Parity

    q_model, path = exported
    proto = onnx.load(path)
    inputs = {"image": samples(q_model, 64)}
    tensors = Parity(proto, q_model, inputs).tensors()
    assert max(tensor.worst for tensor in tensors) <= 1
    before = sum(tensor.off_by_one for tensor in tensors)
    mutate(proto)
    tensors = Parity(proto, q_model, inputs).tensors()
    assert max(tensor.worst for tensor in tensors) > 1 or sum(tensor.off_by_one for tensor in tensors) > before + 10


@pytest.mark.parametrize("make", [nested_net, two_headed_net])
@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt"])
def test_nested_shared_and_many_headed_models(make, target, tmp_path):
    model = make()
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, samples(model, 64), verbose=False)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    qdq.verify_onnx(tmp_path / "model.onnx", q_model, samples(model, 32)).raise_if_failed()


def test_a_file_for_another_target_is_compared_with_the_replanned_model(tmp_path):
    model = residual_net()
    q_model = qdq.quantize_model(model, target="tensorrt")
    qdq.calibrate(q_model, samples(model, 64), verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx", target="onnxruntime")
    assert "Planned anew for onnxruntime" in report.summary()
    qdq.verify_onnx(tmp_path / "model.onnx", q_model).raise_if_failed()


def test_the_model_that_was_trained_further_is_noticed(tmp_path):
    model = residual_net()
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, samples(model), verbose=False)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    kernel = q_model.get_layer("quant_head").layer.kernel
    kernel.assign(kernel * 1.5)
    assert not qdq.verify_onnx(tmp_path / "model.onnx", q_model).passed


def test_a_fixed_batch(tmp_path):
    model = residual_net()
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    qdq.export_onnx(q_model, tmp_path / "model.onnx", dynamic_batch=False)
    qdq.verify_onnx(tmp_path / "model.onnx", q_model, samples(model, 4)).raise_if_failed()


def test_a_deep_network_with_random_weights_is_judged_by_its_own_sensitivity(tmp_path):
    keras.utils.set_random_seed(0)
    image = keras.Input((12, 12, 3), name="image")
    hidden = image
    for index in range(12):
        hidden = layers.Conv2D(8, 3, padding="same", activation="relu", name=f"conv_{index}")(hidden)
    model = keras.Model(image, layers.Dense(10, name="head")(layers.Flatten()(hidden)))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model, 64), verbose=False)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    qdq.verify_onnx(tmp_path / "model.onnx", q_model, samples(model, 64, seed=1)).raise_if_failed()


def test_bad_arguments(exported, tmp_path):
    q_model, path = exported
    with pytest.raises(FileAccessError, match="Cannot read"):
        qdq.verify_onnx(tmp_path / "missing.onnx")
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(VerificationError, match="not an ONNX model"):
        qdq.verify_onnx(tmp_path / "text.onnx")
    with pytest.raises(NotQuantizedError):
        qdq.verify_onnx(path, residual_net())
    with pytest.raises(DataError, match="must be"):
        qdq.verify_onnx(path, q_model, np.zeros((4, 8, 8, 3), "float32"))
    foreign = onnx.load(path)
    del foreign.metadata_props[:]
    onnx.save(foreign, tmp_path / "foreign.onnx")
    with pytest.raises(VerificationError, match="carries no plan"):
        qdq.verify_onnx(tmp_path / "foreign.onnx")
    assert qdq.verify_onnx(tmp_path / "foreign.onnx", q_model).passed


def test_a_file_alone_takes_data_in_any_form(exported, tmp_path):
    import tensorflow as tf

    _, path = exported
    x = samples(residual_net(), 16)
    labelled = tf.data.Dataset.from_tensor_slices((x, np.zeros(16))).batch(4)
    for data in (x, {"image": x}, (x, np.zeros(16)), labelled):
        assert qdq.verify_onnx(path, data=data).passed
    for data, message in [
        (x[:, :4], "must be"),
        ({"picture": x}, "lack"),
        ("x.npz", "needs data"),
        (x * np.nan, "NaN"),
    ]:
        with pytest.raises(DataError, match=message):
            qdq.verify_onnx(path, data=data)
    with pytest.raises(FileAccessError, match="path must be"):
        qdq.verify_onnx(None)
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(VerificationError, match="no outputs"):
        qdq.verify_onnx(tmp_path / "empty.onnx", exported[0])


def test_a_tensor_of_another_shape_is_named(tmp_path):
    x = keras.Input((None, 3), name="x")
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_output=True)
    q_model = qdq.quantize_model(keras.Model(x, layers.Conv1D(4, 3, name="conv")(x)), quantization_spec=spec)
    data = np.random.default_rng(0).normal(size=(4, 6, 3)).astype("float32")
    qdq.calibrate(q_model, data, verbose=False)
    path = str(qdq.export_onnx(q_model, tmp_path / "model.onnx").path)
    proto = onnx.load(path)
    conv = next(item for item in proto.graph.node if item.op_type == "Conv")
    kept = [item for item in conv.attribute if item.name not in ("pads", "auto_pad")]
    del conv.attribute[:]
    rank = len(next(item for item in kept if item.name == "kernel_shape").ints)
    conv.attribute.extend([*kept, onnx.helper.make_attribute("pads", [0, 1] * rank)])
    onnx.save(proto, path)
    with pytest.raises(VerificationError, match="another shape"):
        qdq.verify_onnx(path, q_model, data)


def swapped_outputs(proto):
    first, second = (onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in proto.graph.output)
    del proto.graph.output[:]
    proto.graph.output.extend([second, first])


def renamed_input(proto):
    old = proto.graph.input[0].name
    proto.graph.input[0].name = "foo"
    for reader in proto.graph.node:
        reader.input[:] = ["foo" if name == old else name for name in reader.input]


@pytest.mark.parametrize(
    ("mutate", "said"),
    [
        (swapped_outputs, r"the outputs are '.*' \(float\), '.*' \(float\), expected"),
        (renamed_input, "inputs are 'foo'"),
    ],
)
def test_inputs_and_outputs_have_the_models_names_and_order(mutate, said, tmp_path):
    model = two_headed_net()
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model, 16), verbose=False)
    proto = onnx.load(qdq.export_onnx(q_model, tmp_path / "model.onnx").path)
    mutate(proto)
    onnx.save(proto, tmp_path / "changed.onnx")
    report = qdq.verify_onnx(tmp_path / "changed.onnx", q_model, data=samples(model, 16))
    assert not report.passed
    failed = {check.name for check in report.checks if not check.passed}
    assert "structure" in failed <= {"structure", "readers"}  # the plan has the names of the inputs, too
    with pytest.raises(VerificationError, match=said):
        report.raise_if_failed()


def test_a_layer_that_makes_layers_inside_has_no_names_of_its_own(tmp_path):
    """Keras numbers them anew in the model that is built for comparison: the readers of its pair are the same."""

    class Mixing(layers.Layer):
        def build(self, shape):
            self.dense = layers.Dense(3)
            self.dense.build(shape)

        def call(self, x):
            return self.dense(x)

    inputs = keras.Input((4,))
    spec = qdq.QuantizationSpec()
    spec.add("mixing")
    q_model = qdq.quantize_model(keras.Model(inputs, Mixing(name="mixing")(inputs)), quantization_spec=spec)
    data = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    qdq.calibrate(q_model, data, verbose=False)
    qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "mixing.onnx").path, q_model, data).raise_if_failed()
