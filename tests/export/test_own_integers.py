"""The model's integers in a file of the converter, whose kernels, layouts and biases are made by hand here."""

import types

import numpy as np
import pytest
from litert_parts import LiteMaker

from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.litert.own_integers import _along, _arrangements, write_integers
from qdq_workbench.export.litert.tflite_file import FLOAT32, INT4, INT8, INT16, INT32, INT64, TFLiteFile, scales_of
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

SYMMETRIC = QuantizerSpec(signed=True, symmetric=True)
CODES = np.array([[100, -3], [5, 127], [-60, 7]], np.int8)  # Keras: (inputs, outputs)
SCALES = np.float32([0.011, 0.021])
BIAS = np.float32([1.5, -2.25])


def weight(codes=CODES, scales=SCALES, axis=1, bits=8):
    scales = np.asarray(scales, np.float32)
    spec = SYMMETRIC.replace(axis=axis, num_bits=bits)
    return Encoding(scales, np.zeros(scales.shape, np.int32), spec, codes)


FEW = weight(np.array([[7, -3], [5, 7], [-6, 0]], np.int8), bits=4)


def read(weights, biases=None, activations=(0.5,), bits=8):
    """What the converter was given."""
    pairs = {
        f"p{index}": Encoding(np.float32(scale), np.int32(0), SYMMETRIC.replace(num_bits=bits))
        for index, scale in enumerate(activations)
    }
    return types.SimpleNamespace(activations=pairs, weights=weights, biases=biases or {})


def product(values, *, kind=INT8, op="FULLY_CONNECTED", bias=BIAS, data=(INT8, 0.5), scale_of_bias=None):
    """A file with one product of the given values (outputs, inputs), as the converter quantizes them."""
    maker = LiteMaker()
    maker.tensor("x", (1, 3), data[0], scales=data[1] if data[0] != FLOAT32 else None)
    if kind == FLOAT32:
        maker.tensor("w", values.shape, FLOAT32, values.astype(np.float32))
        theirs = None
    else:
        theirs = np.abs(values).reshape(len(values), -1).max(axis=1) / np.float32(127)
        codes = np.rint(values / theirs.reshape(-1, *[1] * (values.ndim - 1))).astype(np.int8)
        maker.tensor("w", values.shape, INT8, codes, theirs)
    inputs = [0, 1]
    if bias is not None:
        steps = scale_of_bias
        if steps is None and theirs is not None:
            steps = np.float32(0.5) * theirs
        codes = bias if steps is None else np.rint(bias / steps).astype(np.int32)
        inputs.append(maker.tensor("b", bias.shape, FLOAT32 if steps is None else INT32, codes, steps))
    y = maker.tensor("y", (1, 2), data[0], scales=0.1 if data[0] != FLOAT32 else None)
    maker.operator(op, inputs, [y])
    return maker


def written(maker, given, *, dynamic_range=False):
    """Return what was written, and the file opened again."""
    found = write_integers(maker.content(), given, dynamic_range=dynamic_range)
    return found, TFLiteFile(found.content)


def operators(file):
    return [file.name_of(operator) for operator in file.graphs[0].operators]


def version(file, place=-1):
    return file._model.operatorCodes[file.graphs[0].operators[place].opcodeIndex].version


# In an integer kernel


def test_the_weight_and_the_bias_get_the_integers_and_scales_of_the_model():
    ours = weight()
    found, file = written(product(ours.dequantized().T), read({"w": ours}, {"w": BIAS}))
    _, tensor, bias, _ = file.graphs[0].tensors
    np.testing.assert_array_equal(file.values(tensor), CODES.T)
    np.testing.assert_array_equal(scales_of(tensor), SCALES)
    assert tensor.quantization.quantizedDimension == 0
    steps = np.float32(0.5) * SCALES
    np.testing.assert_array_equal(scales_of(bias), steps)
    np.testing.assert_array_equal(file.values(bias), np.rint(BIAS / steps.astype(np.float64)))
    assert (dict(found.types), found.hybrid, found.floats) == ({"w": "int8"}, (), ())
    assert (operators(file), version(file)) == (["FULLY_CONNECTED"], 1)


def test_one_scale_for_the_weight_becomes_one_per_output():
    ours = weight(scales=np.float32(0.01), axis=None)
    _, file = written(product(ours.dequantized().T), read({"w": ours}))
    assert scales_of(file.graphs[0].tensors[1]).tolist() == [np.float32(0.01)] * 2


def test_few_bits_are_packed_where_the_kernel_reads_them():
    found, file = written(product(FEW.dequantized().T), read({"w": FEW}))
    assert (dict(found.types), file.graphs[0].tensors[1].type, version(file)) == ({"w": "int4"}, INT4, 10)
    maker = product(FEW.dequantized().T[:, :, None, None], op="CONV_2D", bias=None)
    found, file = written(maker, read({"w": FEW}))
    assert (dict(found.types), version(file)) == ({"w": "int4"}, 7)
    maker = LiteMaker()  # a transposed convolution does not
    ours = FEW.dequantized().T
    maker.tensor("shape", (4,), INT32, np.int32([1, 1, 1, 2]))
    theirs = np.abs(ours).max(axis=1) / np.float32(127)
    maker.tensor("w", (2, 1, 1, 3), INT8, np.rint(ours / theirs[:, None]).astype(np.int8), theirs)
    maker.operator(
        "TRANSPOSE_CONV", [0, 1, maker.tensor("x", (1, 1, 1, 3), INT8, scales=0.5)], [maker.tensor("y", (1,))]
    )
    found, file = written(maker, read({"w": FEW}))
    assert (dict(found.types), file.graphs[0].tensors[1].type) == ({"w": "int8"}, INT8)


def test_scales_along_another_axis_leave_the_converters_integers():
    ours = weight(scales=np.float32([0.01, 0.02, 0.03]), axis=0)
    maker = product(ours.dequantized().T)
    before = TFLiteFile(maker.content())
    found, file = written(maker, read({"w": ours}))
    assert dict(found.types) == {}
    np.testing.assert_array_equal(file.values(file.graphs[0].tensors[1]), before.values(before.graphs[0].tensors[1]))


def test_a_weight_that_the_file_does_not_hold_is_missing():
    other = weight(CODES[::-1].copy())
    found, _ = written(product(weight().dequantized().T), read({"other": other}))
    assert dict(found.types) == {}


def test_of_weights_within_the_tolerance_the_nearest_is_taken():
    full = np.array([[127, -3], [5, 127], [-60, 7]], np.int8)
    weights = {"near": weight(full), "far": weight(full, SCALES * np.float32(1.001))}
    for names in (("far", "near"), ("near", "far")):
        given = read({name: weights[name] for name in names})
        assert dict(written(product(weights["near"].dequantized().T), given)[0].types) == {"near": "int8"}
    given = read({"far": weights["far"]})
    assert dict(written(product(weights["near"].dequantized().T), given)[0].types) == {"far": "int8"}


# Biases


def test_a_constant_that_the_converter_added_to_a_bias_counts():
    ours = weight()
    _, file = written(product(ours.dequantized().T), read({"w": ours}, {"w": BIAS + 1}))
    bias = file.graphs[0].tensors[2]
    np.testing.assert_allclose(file.values(bias) * scales_of(bias), BIAS, atol=0.01)


def test_a_bias_beyond_its_room_stays():
    tiny = weight(scales=np.float32([1e-12, 1e-12]))
    maker = product(tiny.dequantized().T, scale_of_bias=np.float32([0.01, 0.01]))
    _, file = written(maker, read({"w": tiny}))
    assert scales_of(file.graphs[0].tensors[2]).tolist() == np.float32([0.01, 0.01]).tolist()


@pytest.mark.parametrize("left_out", [True, False])
def test_a_product_without_a_bias_changes_no_other_tensor(left_out):
    ours = weight()
    maker = product(ours.dequantized().T, bias=None)
    maker.tensor("last", (2,), INT32, np.int32([7, 8]), [1, 1])
    if left_out:
        maker.graph.operators[0].inputs.append(-1)
    found, file = written(maker, read({"w": ours}))
    assert dict(found.types) == {"w": "int8"}
    assert scales_of(file.graphs[0].tensors[3]).tolist() == [1, 1]


def test_a_bias_that_two_kernels_share_gets_a_scale_for_each():
    one, two = weight(), weight(CODES[::-1].copy(), SCALES * 2)
    maker = product(one.dequantized().T)
    values = two.dequantized().T
    theirs = np.abs(values).max(axis=1) / np.float32(127)
    w = maker.tensor("v", (2, 3), INT8, np.rint(values / theirs[:, None]).astype(np.int8), theirs)
    maker.operator("FULLY_CONNECTED", [0, w, 2], [maker.tensor("z", (1, 2), INT8, scales=0.1)])
    _, file = written(maker, read({"one": one, "two": two}, {"one": BIAS, "two": BIAS}))
    biases = [file.graphs[0].tensors[operator.inputs[2]] for operator in file.graphs[0].operators]
    for tensor, scales in zip(biases, (SCALES, SCALES * 2), strict=True):
        np.testing.assert_array_equal(scales_of(tensor), np.float32(0.5) * scales)
        np.testing.assert_allclose(file.values(tensor) * scales_of(tensor), BIAS, atol=0.02)


def test_biases_beside_wide_activations_have_64_bits():
    ours = weight()
    maker = product(ours.dequantized().T, data=(INT16, 0.5))
    _, file = written(maker, read({"w": ours}, {"w": BIAS}))
    bias = file.graphs[0].tensors[2]
    assert bias.type == INT64
    np.testing.assert_array_equal(file.values(bias), np.rint(BIAS / (np.float32(0.5) * SCALES).astype(np.float64)))


# Scales of activations


@pytest.mark.parametrize(("ours", "taken"), [(0.5000002, True), (0.50001, False)])
def test_scales_of_activations_are_ours_where_they_differ_in_the_last_digits(ours, taken):
    maker = product(weight().dequantized().T)
    _, file = written(maker, read({}, activations=(0.3, ours)))
    x, w, _, y = file.graphs[0].tensors
    assert scales_of(x)[0] == np.float32(ours if taken else 0.5)
    assert scales_of(y)[0] == np.float32(0.1)
    assert scales_of(w).size == 2
    assert scales_of(written(maker, read({}, activations=()))[1].graphs[0].tensors[0])[0] == 0.5


# In a float kernel


def floats(values, **options):
    return product(values, kind=FLOAT32, data=(FLOAT32, None), **options)


@pytest.mark.parametrize(("ours", "kind", "op_version"), [(weight(), "int8", 5), (FEW, "int4", 6)])
def test_a_float_kernel_reads_dequantized_integers(ours, kind, op_version):
    found, file = written(floats(ours.dequantized().T), read({"w": ours}))
    assert operators(file) == ["DEQUANTIZE", "FULLY_CONNECTED"]
    assert (dict(found.types), found.hybrid, found.floats) == ({"w": kind}, (), ("w",))
    assert version(file, 0) == op_version
    assert file.graphs[0].tensors[1].type == {"int8": INT8, "int4": INT4}[kind]
    np.testing.assert_array_equal(scales_of(file.graphs[0].tensors[1]), SCALES)


def test_a_dequantized_weight_may_have_its_scales_along_any_axis():
    ours = weight(scales=np.float32([0.01, 0.02, 0.03]), axis=0)
    _, file = written(floats(ours.dequantized().T), read({"w": ours}))
    tensor = file.graphs[0].tensors[1]
    assert tensor.quantization.quantizedDimension == 1
    np.testing.assert_array_equal(scales_of(tensor), np.float32([0.01, 0.02, 0.03]))


@pytest.mark.parametrize(("ours", "kind"), [(weight(), "int8"), (FEW, "int4")])
def test_a_hybrid_kernel_reads_the_integers_themselves(ours, kind):
    found, file = written(floats(ours.dequantized().T), read({"w": ours}), dynamic_range=True)
    assert (operators(file), version(file)) == (["FULLY_CONNECTED"], 12)
    assert (dict(found.types), found.hybrid, found.floats) == ({"w": kind}, ("w",), ())


@pytest.mark.parametrize("op", ["BATCH_MATMUL", "ADD"])
def test_an_operator_without_a_hybrid_kernel_reads_floats(op):
    ours = weight()
    found, file = written(floats(ours.dequantized().T, op=op, bias=None), read({"w": ours}), dynamic_range=True)
    assert operators(file) == ["DEQUANTIZE", op]
    assert found.floats == ("w",)


def test_a_weight_at_the_place_of_the_data_is_no_weight_of_a_hybrid_kernel():
    ours = weight()
    maker = floats(ours.dequantized().T, bias=None)
    maker.graph.operators[0].inputs.reverse()
    assert written(maker, read({"w": ours}), dynamic_range=True)[0].floats == ("w",)


def test_scales_along_inputs_are_dequantized_also_with_a_dynamic_range():
    ours = weight(scales=np.float32([0.01, 0.02, 0.03]), axis=0)
    assert written(floats(ours.dequantized().T), read({"w": ours}), dynamic_range=True)[0].floats == ("w",)


def test_vectors_are_not_taken_for_weights():
    ours = weight(np.int8([[5], [7]]), np.float32([0.1]))
    maker = LiteMaker()
    w = maker.tensor("w", (2,), FLOAT32, ours.dequantized().reshape(-1))
    maker.operator("MUL", [maker.tensor("x", (2,)), w], [maker.tensor("y", (2,))])
    assert dict(written(maker, read({"w": ours}))[0].types) == {}


# Layouts


def test_arrangements_permute_the_long_axes_each_once():
    values = np.arange(6).reshape(2, 1, 3)
    found = {tuple(arrange(values).reshape(-1)) for arrange in _arrangements((2, 1, 3), (6,))}
    assert found == {(0, 1, 2, 3, 4, 5), (0, 3, 1, 4, 2, 5)}
    assert len(list(_arrangements((2, 1, 3), (6,)))) == 2
    assert len(list(_arrangements((2, 3, 4), (24,)))) == 6
    assert len(list(_arrangements((1, 1), (1,)))) == 1


def test_scales_along_an_axis():
    scales = np.broadcast_to(np.float32([1, 2, 3]), (2, 3))
    assert _along(scales, 1).tolist() == [1, 2, 3]
    assert _along(scales, 0) is None
    assert _along(scales, None) is None
    assert _along(np.ones((2, 3), np.float32), 0).tolist() == [1, 1]
    assert _along(scales, 1).dtype == np.float32
