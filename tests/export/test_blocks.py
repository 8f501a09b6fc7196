"""Weights in blocks in files: DequantizeLinear with `block_size`, MatMulNBits, verification, and saved models."""

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from keras import layers
from onnx import numpy_helper
from qdq_files import integer_share
from releases import ONNXRUNTIME

import qdq_workbench as qdq
from qdq_workbench.errors import ExportError
from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.moved_scales import moved_scales
from qdq_workbench.quantizers.blocks import spread
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from qdq_workbench.verification import count_integer_kernels


def small_model():
    """Dense with every kind of activation behind it, called twice; einsums that become one matrix product."""
    keras.utils.set_random_seed(0)
    tokens = keras.Input((3, 70), name="tokens")
    twice = layers.Dense(64, activation="relu", name="twice")
    x = twice(layers.Dense(64, activation="relu6", use_bias=False, name="first")(tokens))
    x = layers.EinsumDense("abc,cde->abde", output_shape=(3, 4, 32), bias_axes="de", name="split")(twice(x))
    x = layers.EinsumDense("abde,dec->abc", output_shape=(3, 40), name="joined")(x)
    x = layers.EinsumDense("abc,dc->abd", output_shape=(3, 24), activation="tanh", name="turned")(x)
    return keras.Model(tokens, layers.Dense(3, name="head")(layers.Flatten()(x)))


@pytest.fixture(scope="module", params=[True, False], ids=["symmetric", "asymmetric"])
def written(request, tmp_path_factory):
    """The quantized model, its file and samples."""
    model = small_model()
    spec = qdq.correction.weights_alone(model, symmetric=request.param)
    q_model = qdq.quantize_model(model, "partial", spec, target="onnxruntime")
    report = qdq.export_onnx(q_model, tmp_path_factory.mktemp("blocks") / "model.onnx")
    return q_model, report, np.random.default_rng(0).normal(size=(5, 3, 70)).astype(np.float32)


def test_a_file_holds_blocks_verifies_and_says_so(written):
    q_model, report, x = written
    qdq.verify_onnx(report.path, q_model, x).raise_if_failed()
    qdq.verify_onnx(report.path).raise_if_failed()
    graph = onnx.load(report.path).graph
    blocks = {
        node.name.partition("/")[0]: {item.name: item.i for item in node.attribute}
        for node in graph.node
        if node.op_type == "DequantizeLinear"
    }
    assert set(blocks) == {"first", "twice", "split", "joined", "turned", "head"}
    assert all(attributes == {"axis": 0, "block_size": 32} for attributes in blocks.values())
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    assert shapes["first/kernel/scale"] == (3, 64)
    assert shapes["joined/kernel/scale"] == (4, 40)
    assert "MatMulNBits" in report.notes[0]
    assert report.opset == 21


def test_onnx_runtime_reads_the_integers_themselves_as_the_explanation_says(written):
    q_model, report, _ = written
    kernels = count_integer_kernels(str(report.path))
    read = {name.partition("/")[0] for name in kernels.integer_nodes}
    shared = set() if ONNXRUNTIME >= (1, 27) else {"twice"}  # earlier, it made two kernels of one weight
    assert read - shared == {"first", "split", "joined", "turned", "head"}
    found = {entry.layer: (entry.status, entry.rule) for entry in qdq.explain(q_model).layers}
    assert {name for name, told in found.items() if told == ("int8", "ORT-BLOCKS")} == read - shared
    assert found["twice"] == ("float", "ORT-BLOCKS-SHARED")


def test_without_rounding_of_activations_the_runtime_computes_what_keras_does(written):
    q_model, report, x = written
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    session = onnxruntime.InferenceSession(str(report.path), options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"tokens": x})
    np.testing.assert_allclose(found, q_model.predict(x, verbose=0), rtol=1e-4, atol=1e-5)


def test_integers_stand_for_the_weights_that_the_model_computes_with(written, tmp_path):
    q_model, _, x = written
    integers = qdq.integer_weights(q_model)
    weight = integers["first/kernel"]
    assert (weight.codes.shape, weight.scale.shape, weight.block_size) == ((70, 64), (3, 64), 32)
    baked = qdq.strip(q_model, bake_weights=True)
    np.testing.assert_array_equal(baked.get_layer("first").kernel.numpy() + 0.0, weight.dequantize() + 0.0)
    path = qdq.files.save_integer_weights(q_model, tmp_path / "weights.npz")
    read = qdq.files.load_integer_weights(path)["joined/kernel"]
    np.testing.assert_array_equal(read.dequantize(), integers["joined/kernel"].dequantize())
    q_model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), q_model.predict(x, verbose=0))
    assert loaded.plan.placements == q_model.plan.placements


def change_a_scale(model):
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == "twice/kernel/scale")
    values = numpy_helper.to_array(tensor).copy()
    values[1, 5] *= 1.01
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def swap_two_blocks(model):
    for end in ("scale", "zero_point"):
        tensor = next(tensor for tensor in model.graph.initializer if tensor.name == f"twice/kernel/{end}")
        values = numpy_helper.to_array(tensor).copy()
        values[[0, 1]] = values[[1, 0]]
        if end == "scale":
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def halve_the_blocks(model):
    """Halve the length of the blocks, with every scale twice: as good for a runtime, but not what was exported."""
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == "twice/kernel/scale")
    tensor.CopyFrom(numpy_helper.from_array(np.repeat(numpy_helper.to_array(tensor), 2, 0), tensor.name))
    zero = next(tensor for tensor in model.graph.initializer if tensor.name == "twice/kernel/zero_point")
    values = np.repeat(numpy_helper.to_array(zero).astype(int), 2, 0)
    zero.CopyFrom(onnx.helper.make_tensor(zero.name, zero.data_type, values.shape, values.ravel().tolist()))
    node = next(node for node in model.graph.node if node.name == "twice/kernel/DequantizeLinear")
    next(item for item in node.attribute if item.name == "block_size").i = 16


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (change_a_scale, "weight 'twice/kernel': scale"),
        (swap_two_blocks, "weight 'twice/kernel': scale"),
        (halve_the_blocks, "block_size is 16, expected 32"),
    ],
)
def test_verification_finds_any_change_of_a_block(written, built_once, tmp_path, change, words):
    q_model, report, x = written
    model = onnx.load(report.path)
    change(model)
    onnx.save(model, tmp_path / "changed.onnx")
    found = qdq.verify_onnx(tmp_path / "changed.onnx", q_model, x)
    assert not found.passed
    assert words in found.summary()
    assert not qdq.verify_onnx(tmp_path / "changed.onnx", data=x).passed


def test_scales_that_do_not_fit_the_integers_are_a_stray(written, built_once, tmp_path):
    q_model, report, _ = written
    model = onnx.load(report.path)
    node = next(node for node in model.graph.node if node.name == "twice/kernel/DequantizeLinear")
    next(item for item in node.attribute if item.name == "block_size").i = 16
    onnx.save(model, tmp_path / "changed.onnx")
    assert "do not fit blocks of 16 on axis 0" in qdq.verify_onnx(tmp_path / "changed.onnx", q_model).summary()


def test_an_opset_without_blocks_is_refused(written, tmp_path):
    with pytest.raises(ExportError, match="knows blocks from opset 21 on"):
        qdq.export_onnx(written[0], tmp_path / "old.onnx", opset=19)


@pytest.mark.parametrize(
    ("shape", "axis", "block", "target", "found"),
    [
        ((4, 32, 8), 1, 32, (128, 8), (0, 32)),
        ((4, 48, 8), 1, 32, (192, 8), (0, 16)),
        ((4, 50, 8), 1, 32, (200, 8), None),
        ((70, 4, 8), 0, 32, (70, 32), (0, 32)),
        ((20, 8), 0, 32, (20, 8), (0, 32)),
        ((20, 8), 0, 20, (20, 8), (1, None)),
    ],
)
def test_blocks_behind_a_reshape(shape, axis, block, target, found):
    spec = QuantizerSpec(num_bits=4, axis=axis, block_size=block)
    codes = np.zeros(shape, np.int8)
    scale = np.random.default_rng(0).uniform(1, 2, [-(-n // block) if i == axis else n for i, n in enumerate(shape)])
    encoding = Encoding(scale, np.zeros(scale.shape), spec, codes)
    place = moved_scales(encoding, [lambda array: array.reshape(target)])
    assert (None if place is None else (place.axis, place.block_size)) == found
    if place is not None:
        found_scales = QuantizerSpec(axis=place.axis, block_size=place.block_size)
        wide = spread(encoding.scale.reshape(-1)[place.index], target, found_scales)
        expected = np.broadcast_to(encoding.broadcast(encoding.scale), shape).reshape(target)
        np.testing.assert_array_equal(np.broadcast_to(wide, target), expected)


def test_other_layers_take_no_part():
    """Only what multiplies matrices or looks rows up is named, and a later entry overrules it."""
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Flatten()(layers.Conv2D(4, 3, name="conv")(image))
    model = keras.Model(image, layers.Dense(2, name="head")(layers.Dense(32, name="hidden")(x)))
    spec = qdq.correction.weights_alone(model, 4, 64)
    spec.add("head", quantize_input=False, quantize_weight=False)
    plan = qdq.plan_placement(model, "partial", spec, target="onnxruntime")
    assert [placement.tensor for placement in plan.placements] == ["hidden/kernel"]
    with pytest.raises(qdq.errors.SpecError, match="no layer whose weights are quantized alone"):
        qdq.correction.weights_alone(keras.Model(image, layers.Conv2D(4, 3)(image)))


def test_what_has_no_kernel_is_explained(tmp_path):
    """Blocks that two axes cut to another length, and blocks behind integers, are computed in float."""
    keras.utils.set_random_seed(0)
    tokens = keras.Input((3, 2, 24), name="tokens")
    x = layers.EinsumDense("abde,dec->abc", output_shape=(3, 32), name="cut")(tokens)
    model = keras.Model(tokens, layers.Dense(32, name="behind")(x))
    spec = qdq.correction.weights_alone(model)
    four_bits = qdq.LayerQuantizeConfig(weight={"num_bits": 4, "block_size": 32})
    spec.add("behind", quantize_input=True, quantize_config=four_bits)
    q_model = qdq.quantize_model(model, "partial", spec, target="onnxruntime")
    samples = np.random.default_rng(0).normal(size=(8, 3, 2, 24)).astype(np.float32)
    qdq.calibrate(q_model, samples, verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    qdq.verify_onnx(report.path, q_model, samples).raise_if_failed()
    assert integer_share(count_integer_kernels(str(report.path)), "MatMul", "Gemm") == 0.0
    found = {entry.layer: (entry.status, entry.rule) for entry in qdq.explain(q_model).layers}
    assert found["cut"] == ("float", "ORT-BLOCKS-SIZE")
    assert found["behind"] == ("float", "ORT-BLOCKS-INPUT")
