"""A LiteRT file opened for editing: what is read, what an edit changes, and what it leaves alone."""

import numpy as np
import pytest
from litert_parts import LiteMaker
from tensorflow.lite.python import schema_py_generated as schema

from qdq_workbench.export.litert.tflite_file import (
    FLOAT32,
    INT4,
    INT8,
    INT16,
    INT32,
    INT64,
    Reader,
    TFLiteFile,
    constants_of,
    scales_of,
)

CODES = np.array([[1, -2, 3], [4, 5, -6]], np.int8)


def dense(*, twice=False):
    """A product whose weight another operator may read, too, and that has no bias."""
    maker = LiteMaker()
    x = maker.tensor("x", (1, 3), INT8, scales=0.5)
    w = maker.tensor("w", (2, 3), INT8, CODES, [0.5, 0.25])
    y, z = maker.tensor("y", (1, 2), INT8, scales=0.1), maker.tensor("z", (2, 3), INT8)
    maker.tensor("unread", (2,), FLOAT32, np.float32([1, 2]))
    maker.operator("FULLY_CONNECTED", [x, w, -1], [y])
    if twice:
        maker.operator("ADD", [w, w], [z])
    return maker


def again(file):
    """Return a file written and opened again."""
    return TFLiteFile(file.content())


def operators(file):
    return [file.name_of(operator) for operator in file.graphs[0].operators]


# Reading


@pytest.mark.parametrize(
    ("kind", "dtype"), [(FLOAT32, "f4"), (INT8, "i1"), (INT16, "i2"), (INT32, "i4"), (INT64, "i8")]
)
@pytest.mark.parametrize("shape", [(2, 3), (), (6,)])
def test_constants_of_every_type_have_their_values(kind, dtype, shape):
    maker = LiteMaker()
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    maker.tensor("c", shape, kind, values)
    file = TFLiteFile(maker.content())
    found = file.values(file.graphs[0].tensors[0])
    assert (found.dtype, found.shape) == (np.dtype(dtype), shape)
    np.testing.assert_array_equal(found, values)
    assert file.data(file.graphs[0].tensors[0]) == values.tobytes()


def test_what_is_computed_has_no_values_and_a_type_of_less_than_a_byte_is_not_read():
    maker = LiteMaker()
    maker.tensor("x", (2,), INT8)
    maker.tensor("packed", (2,), INT4, np.uint8([0x21]))
    file = TFLiteFile(maker.content())
    assert [file.values(tensor) for tensor in file.graphs[0].tensors] == [None, None]
    assert [file.data(tensor) for tensor in file.graphs[0].tensors] == [b"", b"\x21"]


def test_an_operator_is_known_by_the_larger_of_its_two_codes():
    maker = dense()
    long, old = schema.OperatorCodeT(), schema.OperatorCodeT()
    long.builtinCode, long.deprecatedBuiltinCode = schema.BuiltinOperator.BROADCAST_TO, 127
    old.builtinCode, old.deprecatedBuiltinCode = 0, schema.BuiltinOperator.SOFTMAX
    maker.model.operatorCodes += [long, old]
    for index in (1, 2):
        operator = schema.OperatorT()
        operator.opcodeIndex, operator.inputs, operator.outputs = index, [0], [2]
        maker.graph.operators.append(operator)
    assert operators(TFLiteFile(maker.content())) == ["FULLY_CONNECTED", "BROADCAST_TO", "SOFTMAX"]


def test_readers_are_found_at_every_place_and_constants_where_someone_reads_them():
    file = TFLiteFile(dense(twice=True).content())
    graph = file.graphs[0]
    assert [(file.name_of(r.operator), r.position) for r in file.readers(graph, 1)] == [
        *(("FULLY_CONNECTED", 1), ("ADD", 0), ("ADD", 1))
    ]
    assert file.readers(graph, 2) == []
    assert [(g is graph, index) for g, index in file.constants()] == [(True, 1)]


def test_scales_are_one_or_several_or_none():
    file = TFLiteFile(dense().content())
    x, w, _, z, _ = file.graphs[0].tensors
    assert scales_of(x).tolist() == [0.5]
    assert scales_of(w).tolist() == [0.5, 0.25]
    assert scales_of(z) is None
    z.quantization = schema.QuantizationParametersT()
    assert scales_of(z) is None
    z.quantization.scale = []
    assert scales_of(z) is None


def test_the_contents_of_all_tensors_can_be_compared():
    found = dict(constants_of(TFLiteFile(dense().content())))
    kind, shape, scales, zeros, data = found["w"]
    assert (kind, shape, data) == (INT8, (2, 3), CODES.tobytes())
    assert scales == np.float32([0.5, 0.25]).tobytes()
    assert zeros == np.int64([0, 0]).tobytes()
    assert found["z"][2:] == (b"", b"", b"")
    for change in (
        lambda f, t: f.set_scales(t, [0.5, 0.5], 0),
        lambda f, t: f.set_values(t, CODES + 1, INT8),
        lambda f, t: f.set_values(t, CODES, INT16),
        lambda _, t: t.quantization.zeroPoint.__setitem__(0, 1),
        lambda _, t: setattr(t, "shape", [3, 2]),
    ):
        file = TFLiteFile(dense().content())
        file.set_scales(file.graphs[0].tensors[1], [0.5, 0.25], 0)  # arrays of its own, which can be changed
        change(file, file.graphs[0].tensors[1])
        assert dict(constants_of(file))["w"] != found["w"]


# Versions


def test_a_version_is_raised_and_never_lowered():
    file = TFLiteFile(dense().content())
    (operator,) = file.graphs[0].operators
    for wanted, version in ((5, 5), (3, 5), (9, 9)):
        file.need_version(operator, wanted)
        assert again(file)._model.operatorCodes[0].version == version


# Values and scales


def test_new_values_are_those_of_one_tensor_alone():
    maker = dense()
    maker.tensor("same", (2, 3), INT8, buffer=1)
    file = TFLiteFile(maker.content())
    tensors = file.graphs[0].tensors
    file.set_values(tensors[1], np.array([[1.0, 2, 3], [4, 5, 300]]), INT32)
    file.set_scales(tensors[1], np.float32(0.5), 1)
    file = again(file)
    first, same = file.graphs[0].tensors[1], file.graphs[0].tensors[5]
    assert file.values(first).tolist() == [[1, 2, 3], [4, 5, 300]]
    np.testing.assert_array_equal(file.values(same), CODES)
    assert (scales_of(first).tolist(), list(first.quantization.zeroPoint)) == ([0.5], [0])
    assert first.quantization.quantizedDimension == 1


def test_values_of_four_bits_are_packed_two_in_a_byte():
    file = TFLiteFile(dense().content())
    file.set_values(file.graphs[0].tensors[1], CODES, INT4)
    tensor = again(file).graphs[0].tensors[1]
    assert (tensor.type, list(tensor.shape)) == (INT4, [2, 3])
    assert file.data(file.graphs[0].tensors[1]) == bytes([0xE1, 0x43, 0xA5])


def test_values_in_another_order_of_memory_are_written_in_their_own():
    file = TFLiteFile(dense().content())
    file.set_values(file.graphs[0].tensors[1], np.asfortranarray(CODES), INT8)
    np.testing.assert_array_equal(again(file).values(again(file).graphs[0].tensors[1]), CODES)


def test_data_that_nobody_refers_to_are_dropped_and_all_others_are_aligned():
    maker = dense()
    note = schema.MetadataT()
    note.name, note.buffer = "min_runtime_version", len(maker.model.buffers)
    maker.model.metadata = [note]
    held = schema.BufferT()
    held.data = np.frombuffer(b"1.5.0", np.uint8)
    maker.model.buffers.append(held)
    file = TFLiteFile(maker.content())
    file.set_values(file.graphs[0].tensors[1], CODES + 1, INT8)
    content = file.content()
    assert CODES.tobytes() not in content
    for data in ((CODES + 1).tobytes(), np.float32([1, 2]).tobytes(), b"1.5.0"):
        assert content.count(data) == 1
        assert content.index(data) % 16 == 0
    assert len(again(file)._model.buffers) == 5


# Operators between tensors


def test_a_constant_is_dequantized_in_front_of_its_first_reader():
    maker = dense(twice=True)
    maker.graph.operators.reverse()
    maker.graph.operators.insert(0, maker.graph.operators.pop())
    file = TFLiteFile(maker.content())
    file.dequantize(file.graphs[0], 1, 5)
    file = again(file)
    graph = file.graphs[0]
    assert operators(file) == ["DEQUANTIZE", "FULLY_CONNECTED", "ADD"]
    first, product, total = graph.operators
    (floats,) = first.outputs
    assert list(first.inputs) == [1]
    assert list(product.inputs) == [0, floats, -1]
    assert list(total.inputs) == [floats, floats]
    tensor = graph.tensors[floats]
    assert (tensor.name, tensor.type, list(tensor.shape), tensor.buffer) == (b"w_float", FLOAT32, [2, 3], 0)
    assert file._model.operatorCodes[first.opcodeIndex].version == 5


def test_operators_that_do_not_read_a_constant_stay_in_front_of_its_dequantization():
    maker = dense()
    maker.operator("ADD", [4, 4], [3])
    maker.graph.operators.reverse()
    file = TFLiteFile(maker.content())
    file.dequantize(file.graphs[0], 1, 2)
    assert operators(file) == ["ADD", "DEQUANTIZE", "FULLY_CONNECTED"]
    file.dequantize(file.graphs[0], 4, 3)
    assert operators(file) == ["DEQUANTIZE", "ADD", "DEQUANTIZE", "FULLY_CONNECTED"]
    codes = [code for code in file._model.operatorCodes if code.builtinCode == schema.BuiltinOperator.DEQUANTIZE]
    assert [code.version for code in codes] == [3]  # one entry for both


def wide():
    maker = LiteMaker()
    x, alpha = maker.tensor("x", (2,), INT16, scales=0.5), maker.tensor("alpha", (2,), INT16, np.int16([1, 2]))
    number, y = maker.tensor("number", (2,), INT32), maker.tensor("y", (2,), INT16, scales=0.25)
    maker.operator("ABS", [x], [y])
    maker.operator("PRELU", [x, alpha, number], [y])
    maker.operator("NEG", [y], [x])
    return TFLiteFile(maker.content())


def test_an_operator_of_wide_integers_computes_in_float_between_its_neighbours():
    file = wide()
    graph = file.graphs[0]
    file.compute_in_float(graph, graph.operators[1])
    file = again(file)
    graph = file.graphs[0]
    assert operators(file) == ["ABS", "DEQUANTIZE", "DEQUANTIZE", "PRELU", "QUANTIZE", "NEG"]
    _, *before, operator, quantize, _ = graph.operators
    assert {int(each.inputs[0]): int(each.outputs[0]) for each in before} == dict(
        zip([0, 1], operator.inputs[:2].tolist(), strict=True)
    )
    assert operator.inputs[2] == 2  # no int16
    assert (quantize.inputs[0], quantize.outputs[0]) == (operator.outputs[0], 3)
    assert graph.tensors[operator.outputs[0]].name == b"y_float"
    versions = [file._model.operatorCodes[each.opcodeIndex].version for each in (before[0], quantize)]
    assert versions == [3, 2]


def test_a_result_of_another_type_is_not_quantized():
    file = wide()
    graph = file.graphs[0]
    graph.tensors[3].type = FLOAT32
    file.compute_in_float(graph, graph.operators[1])
    assert operators(file) == ["ABS", "DEQUANTIZE", "DEQUANTIZE", "PRELU", "NEG"]


def test_an_input_with_other_readers_is_replaced_by_a_copy():
    file = TFLiteFile(dense(twice=True).content())
    graph = file.graphs[0]
    product, total = graph.operators
    before = len(graph.tensors)
    own = file.own_input(Reader(graph, product, 1))
    assert len(graph.tensors) == before + 1
    assert product.inputs[1] == before
    assert list(total.inputs) == [1, 1]
    assert own is graph.tensors[before]
    file.set_values(own, CODES + 1, INT8)
    file.set_scales(own, [1, 1], 0)
    np.testing.assert_array_equal(file.values(graph.tensors[1]), CODES)
    assert scales_of(graph.tensors[1]).tolist() == [0.5, 0.25]
    assert file.own_input(Reader(graph, product, 1)) is own  # it has no other readers now
    assert len(graph.tensors) == before + 1
