"""Importing what other tools write: other formats, narrow and float types, scales per channel, branches, swish."""

import keras
import numpy as np
import onnx
import pytest
from foreign_files import ACTIVATION, PAIR, PRODUCT, SCALES, Batches, array, branches, make, weight
from keras import layers
from onnx import helper
from onnxruntime.quantization import QuantFormat, quantize_dynamic, quantize_static
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.errors import FileAccessError, QuantizerError
from qdq_workbench.foreign.float_signatures import ImportedQuantizer, read_float_view
from qdq_workbench.quantizers import numerics


def read(path, *arguments, model=None, **options):
    onnx.save(make(*arguments, **options), path / "model.onnx")
    return qdq.import_qdq(path / "model.onnx", model)


def dense_model():
    image = keras.Input((4,), name="image")
    return keras.Model(image, keras.layers.Dense(4, use_bias=False, name="head")(image))


def one_pair(scale, zero, **constants):
    """A product behind a pair of the scale and zero point given, with an integer weight."""
    nodes = [*PAIR, weight(axis=1), PRODUCT]
    return nodes, [array(scale, "s"), array(*zero), *SCALES, *constants.values()]


@pytest.mark.parametrize(
    ("dtype", "zero", "expected"),
    [
        ("uint4", 8, (-4.0, 3.5)),
        ("int4", 0, (-4.0, 3.5)),
        ("uint8", 128, (-64.0, 63.5)),
        ("int16", 0, (-16384.0, 16383.5)),
    ],
)
def test_pairs_of_every_width_are_imported_with_their_range(dtype, zero, expected, tmp_path):
    found = read(tmp_path, *one_pair(0.5, (zero, "z", dtype)), model=dense_model())
    (pair,) = found.tensors[0].quantizers
    assert (pair.node, pair.dtype, pair.zero_point, pair.range) == ("xq", dtype, zero, expected)
    assert found.unmatched == ()
    assert dict(found.ranges) == {"image": expected}


@pytest.mark.parametrize("with_model", [False, True])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((0.5, (0, "z", "float8")), "'xq' rounds to float8_e4m3fn, not to integers"),
        (([0.1, 0.2, 0.3, 0.4], ([0] * 4, "z", "uint8")), "'xq' has 4 scales; an activation has one range"),
    ],
    ids=["float8", "scales"],
)
def test_pairs_that_are_no_range_of_integers_are_named_with_the_reason(given, says, with_model, tmp_path):
    found = read(tmp_path, *one_pair(*given), model=dense_model() if with_model else None)
    assert found.unmatched == ("x",)
    assert dict(found.ranges) == {}
    image = found.tensors[0]
    assert (image.name, image.quantizers) == ("x", ())
    (reason,) = image.not_imported
    assert says in reason
    assert f"not imported: x: {reason}" in found.summary()
    if with_model:
        entries = [(entry.name, entry.quantize_weight, entry.quantize_output) for entry in found.spec.layers]
        assert entries == [("head", True, False)]


def test_a_computed_scale_is_named(tmp_path):
    nodes, constants = one_pair(0.5, (0, "z", "uint8"))
    constants[0].name = "half"
    found = read(tmp_path, [helper.make_node("Abs", ["half"], ["s"]), *nodes], constants)
    assert found.tensors[0].not_imported == ("the scale or zero point of 'xq' is computed",)
    assert found.unmatched == ("x",)


def test_a_second_pair_that_cannot_be_imported_does_not_take_the_first_away(tmp_path):
    nodes, constants = one_pair(0.5, (0, "z", "uint8"))
    nodes += [
        helper.make_node("QuantizeLinear", ["x", "s", "f"], ["fq"]),
        helper.make_node("DequantizeLinear", ["fq", "s", "f"], ["fd"]),
    ]
    found = read(tmp_path, nodes, [*constants, array(0, "f", "float8")], model=dense_model())
    assert found.unmatched == ()
    assert dict(found.ranges) == {"image": (0.0, 127.5)}
    assert "not imported: x: 'fq' rounds to float8_e4m3fn" in found.summary()


def test_a_pair_of_another_type_has_no_range():
    with pytest.raises(QuantizerError, match=r"must be one of integers.*Received: dtype='float8_e4m3fn'"):
        ImportedQuantizer("q", 1.0, 0, "float8_e4m3fn").range  # noqa: B018 - the property computes it


@pytest.mark.parametrize(
    ("codes", "zero", "dtype"),
    [("int8", "int8", "int8"), ("int4", "int4", "int4"), ("float8", "float8", ""), ("float", "int8", "int8")],
)
@pytest.mark.parametrize("turned", [False, True])
def test_weights_are_found_behind_a_transpose_and_a_pair(codes, zero, dtype, turned, tmp_path):
    nodes = [*PAIR]
    kernel, target = "k", "t" if turned else "wd"
    if codes == "float":
        nodes.append(helper.make_node("QuantizeLinear", ["k", "v", "o"], ["kq"], axis=1))
        kernel = "kq"
    nodes.append(helper.make_node("DequantizeLinear", [kernel, "v", "o"], [target], axis=1))
    nodes += [helper.make_node("Transpose", ["t"], ["wd"], perm=[1, 0])] if turned else []
    constants = [*ACTIVATION, SCALES[0], array([0] * 4, "o", zero), array(np.ones((4, 4)), "k", codes)]
    found = read(tmp_path, [*nodes, PRODUCT], constants, model=dense_model())
    assert found.tensors[1].weight_dtype == dtype
    assert len(found.tensors[1].weight_scale) == (4 if dtype else 0)
    assert found.unmatched == (() if dtype else ("y",))
    placed = [entry.quantize_weight for entry in found.spec.layers if entry.name == "head"]
    assert placed == ([True] if dtype else [])
    assert bool(dtype) is ("its weight, behind" not in found.summary())


def test_pairs_in_branches_are_not_left_out_without_a_word(tmp_path):
    found = read(tmp_path, *branches(0.1))
    (note,) = found.notes
    assert note.startswith("4 Q and DQ nodes stand in branches")
    assert f"note: {note}" in found.summary()
    assert read(tmp_path, *one_pair(0.5, (0, "z", "uint8"))).notes == ()


def test_a_pair_behind_a_branch_is_imported(tmp_path):
    (choice,), constants = branches(0.1)
    choice.output[0] = "b"
    nodes = [
        choice,
        helper.make_node("QuantizeLinear", ["b", "s", "z"], ["bq"]),
        helper.make_node("DequantizeLinear", ["bq", "s", "z"], ["y"]),
    ]
    found = read(tmp_path, nodes, constants)
    assert [(item.name, len(item.quantizers)) for item in found.tensors] == [("b", 1)]


def test_optional_inputs_and_outputs_that_are_left_out_are_no_tensor():
    nodes = [
        helper.make_node("Dropout", ["x"], ["h", ""]),
        helper.make_node("Clip", ["c", "", "high"], ["d"]),
        helper.make_node("Abs", ["d"], ["e"]),
        helper.make_node("Add", ["h", "e"], ["a"]),
        *(
            helper.make_node(*part)
            for part in (("QuantizeLinear", ["a", "s", "z"], ["q"]), ("DequantizeLinear", ["q", "s", "z"], ["y"]))
        ),
    ]
    constants = [*ACTIVATION, array(1.0, "high"), array([1.0] * 4, "c")]
    assert list(read_float_view(make(nodes, constants))) == ["x", "a"]


def exported(model, path):
    qdq.export_float_onnx(model, path)
    return path


def test_files_in_other_formats_are_refused_by_name(tmp_path):
    model = residual_net()
    floats, file = exported(model, tmp_path / "float.onnx"), tmp_path / "q.onnx"
    quantize_static(floats, file, Batches(samples(model)), quant_format=QuantFormat.QOperator)
    with pytest.raises(
        FileAccessError, match=r"QOperator format.*QLinearConv.*quant_format=QuantFormat\.QDQ.*Received"
    ):
        qdq.import_qdq(file, model)
    quantize_dynamic(floats, file)
    with pytest.raises(FileAccessError, match=r"quantized dynamically: .*MatMulInteger"):
        qdq.import_qdq(file)


def test_a_pair_inside_a_swish_is_known_to_be_inside_its_layer(tmp_path):
    image = keras.Input((6, 6, 2), name="image")
    hidden = keras.layers.Conv2D(3, 3, name="conv")(image)
    hidden = keras.layers.Activation("swish", name="swish")(hidden)
    model = keras.Model(image, keras.layers.Conv2D(2, 3, name="head")(hidden))
    floats, file = exported(model, tmp_path / "float.onnx"), tmp_path / "q.onnx"
    quantize_static(floats, file, Batches(samples(model)), quant_format=QuantFormat.QDQ)
    found = qdq.import_qdq(file, model)
    (sigmoid,) = found.unmatched
    assert dict(found.inside) == {sigmoid: "swish"}
    assert f"in the middle of layer 'swish', where no pair can be placed: {sigmoid}" in found.summary()
    assert set(found.ranges) == {"image", "conv", "swish", "head"}
    plan = qdq.plan_placement(model, "partial", found.spec, target="onnxruntime")
    names = {tensor.name for tensor in plan.tensors}
    assert names == {"image", "conv", "swish", "head", "conv/kernel", "head/kernel"}


@pytest.mark.parametrize(
    "settings",
    [{"num_bits": 4}, {"num_bits": 5, "symmetric": True}, {"narrow_range": True}, {"num_bits": 12}],
    ids=["4 bits", "5 bits", "narrow", "12 bits"],
)
@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt"])
def test_a_pair_with_a_clip_keeps_its_bits_and_range(settings, target, tmp_path):
    """Such grids do not fill their integer type; a Clip in front of the pair limits them."""
    image = keras.Input((8, 8, 3), name="image")
    model = keras.Model(image, layers.Conv2D(2, 3, name="conv")(layers.Conv2D(4, 3, name="first")(image)))
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_config=qdq.LayerQuantizeConfig(activation=settings))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    qdq.calibrate(q_model, np.random.default_rng(0).normal(size=(8, 8, 8, 3)).astype("float32"), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    found = qdq.import_qdq(path, model)
    assert found.unmatched == ()
    again = qdq.plan_placement(model, "partial", found.spec, target=target)
    for name in ("image", "first"):
        (pair,) = (tensor.quantizer for tensor in q_model.plan.tensors if tensor.name == name)
        (other,) = (tensor.quantizer for tensor in again.tensors if tensor.name == name)
        assert (other.num_bits, other.narrow_range) == (pair.num_bits, pair.narrow_range)
        represented = numerics.qparams_from_range(*q_model.activation_ranges()[name], pair).representable_range
        np.testing.assert_allclose(found.ranges[name], represented, rtol=1e-5)


def test_the_specification_says_how_many_bits(tmp_path):
    image = keras.Input((8, 8, 3), name="image")
    hidden = layers.Conv2D(4, 3, name="conv")(image)
    model = keras.Model(image, layers.Dense(2, name="head")(layers.Flatten(name="flat")(layers.ReLU()(hidden))))
    spec = qdq.QuantizationSpec()
    settings = {
        "conv": {"weight": {"num_bits": 4}, "activation": {"num_bits": 16}},
        "head": {"weight": {"num_bits": 4}},
    }
    for name, config in settings.items():
        spec.add(name, quantize_config=qdq.LayerQuantizeConfig(**config))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, np.random.default_rng(0).normal(size=(8, 8, 8, 3)).astype("float32"), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx", opset=21).path
    again = qdq.plan_placement(model, "partial", qdq.import_qdq(path, model).spec, target="onnxruntime")
    widths = [{tensor.name: tensor.quantizer.num_bits for tensor in plan.tensors} for plan in (q_model.plan, again)]
    assert widths[0] == widths[1]
    assert set(widths[0].values()) == {4, 8, 16}
