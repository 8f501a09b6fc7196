"""A `.tflite` file opened for editing: its operators, tensors and constants.

The classes are those that the FlatBuffers compiler generated from LiteRT's schema, as TensorFlow ships them.
Source: tensorflow/compiler/mlir/lite/schema/schema.fbs, version 3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tensorflow.lite.python import conversion_metadata_schema_py_generated as conversion
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.python import util
from tensorflow.lite.tools import flatbuffer_utils

from qdq_workbench.export.encodings import pack_pairs

FLOAT32 = schema.TensorType.FLOAT32
INT4 = schema.TensorType.INT4
INT8 = schema.TensorType.INT8
INT16 = schema.TensorType.INT16
INT32 = schema.TensorType.INT32
INT64 = schema.TensorType.INT64
_DTYPES = {FLOAT32: "<f4", INT8: "<i1", INT16: "<i2", INT32: "<i4", INT64: "<i8"}
_OPERATORS = {code: name for name, code in vars(schema.BuiltinOperator).items() if isinstance(code, int)}
_ALIGNMENT = 16  # bytes, which the schema requires for the data of every buffer
# The versions of these operators for a type.
_DEQUANTIZE, _QUANTIZE = {INT8: 2, INT16: 3}, {INT8: 1, INT16: 2}
_LONG_CODES = 127  # larger operator codes fit only into `builtinCode`, the newer of the two fields


class _Buffer(schema.BufferT):
    """A buffer with aligned data, which the generated class does not ensure."""

    def Pack(self, builder: Any) -> int:  # noqa: N802 - the generated name
        if self.data is not None:
            builder.Prep(_ALIGNMENT, len(self.data))
        return int(super().Pack(builder))


@dataclasses.dataclass(frozen=True)
class Reader:
    """An operator that reads a tensor.

    Args:
        graph: The subgraph.
        operator: The operator.
        position: Index of the tensor among the operator's inputs.
    """

    graph: Any
    operator: Any
    position: int


class TFLiteFile:
    """A `.tflite` file opened for editing.

    Args:
        content: The file's bytes.
    """

    def __init__(self, content: bytes) -> None:
        self._model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(content, 0))
        self.graphs: Sequence[Any] = self._model.subgraphs
        self.signatures: Sequence[Any] = self._model.signatureDefs or ()
        for graph in self.graphs:
            for operator in graph.operators:
                # Copies: the generated classes give read-only views of the file's bytes.
                operator.inputs = np.array(operator.inputs if operator.inputs is not None else [], np.int32)

    def content(self) -> bytes:
        """Return the file's bytes, without the data of buffers that no tensor refers to."""
        kept = {tensor.buffer for graph in self.graphs for tensor in graph.tensors}
        kept |= {entry.buffer for entry in self._model.metadata or ()}
        before = self._model.buffers
        # Emptied and not removed: tensors refer to buffers by their index.
        self._model.buffers = [_copy(buffer, keep=index in kept) for index, buffer in enumerate(before)]
        return bytes(flatbuffer_utils.convert_object_to_bytearray(self._model))

    def number_anew(self) -> None:
        """Sort the operator codes and the buffers by their first use; those of nothing are left out."""
        operators = [operator for graph in self.graphs for operator in graph.operators]
        codes = list(dict.fromkeys(operator.opcodeIndex for operator in operators))
        for operator in operators:
            operator.opcodeIndex = codes.index(operator.opcodeIndex)
        self._model.operatorCodes = [self._model.operatorCodes[code] for code in codes]
        before, held = self._model.buffers, [tensor for graph in self.graphs for tensor in graph.tensors]
        # By the schema, buffer 0 is always empty.
        numbers = {index: 0 for index, buffer in enumerate(before) if buffer.data is None}
        buffers = [schema.BufferT()]
        for each in (*held, *(self._model.metadata or ())):
            if each.buffer not in numbers:
                numbers[each.buffer] = len(buffers)
                buffers.append(before[each.buffer])
            each.buffer = numbers[each.buffer]
        self._model.buffers = buffers

    def forget_hash(self) -> None:
        """Remove the converter's hash of its own file, which counts the order of tensors and operators."""
        for entry in self._model.metadata or ():
            if entry.name == util.CONVERSION_METADATA_FIELD_NAME.encode():
                data = bytes(self._model.buffers[entry.buffer].data)
                told = conversion.ConversionMetadataT.InitFromObj(
                    conversion.ConversionMetadata.GetRootAsConversionMetadata(data, 0)
                )
                told.environment.modelHash = 0
                util.populate_conversion_metadata(self._model, told)

    def name_of(self, operator: Any) -> str:
        """Return the name of an operator, such as `CONV_2D`."""
        code = self._model.operatorCodes[operator.opcodeIndex]
        # The schema's rule: the old field ends at 127, and old files lack the new one.
        return _OPERATORS[max(code.builtinCode, code.deprecatedBuiltinCode)]

    def need_version(self, operator: Any, version: int) -> None:
        """Raise the version of an operator, so that older interpreters refuse the file."""
        code = self._model.operatorCodes[operator.opcodeIndex]
        code.version = max(code.version, version)

    def readers(self, graph: Any, index: int) -> list[Reader]:
        """Return the operators of a subgraph that read a tensor."""
        return [
            Reader(graph, operator, position)
            for operator in graph.operators
            for position, read in enumerate(operator.inputs)
            if read == index
        ]

    def constants(self) -> Iterator[tuple[Any, int]]:
        """Yield the subgraph and the index of every tensor that has data and that an operator reads."""
        for graph in self.graphs:
            read = {int(index) for operator in graph.operators for index in operator.inputs}
            # -1 stands for an optional input that is left out.
            for index in sorted(read - {-1}):
                if self.values(graph.tensors[index]) is not None:
                    yield graph, index

    def values(self, tensor: Any) -> np.ndarray | None:
        """Return the values or codes of a constant; None for other tensors and for types not in `_DTYPES`."""
        data = self._model.buffers[tensor.buffer].data
        if data is None or not len(data) or tensor.type not in _DTYPES or tensor.shape is None:
            return None
        return np.frombuffer(bytes(data), _DTYPES[tensor.type]).reshape([int(size) for size in tensor.shape])

    def data(self, tensor: Any) -> bytes:
        """Return the bytes of a constant; no bytes for other tensors."""
        data = self._model.buffers[tensor.buffer].data
        return b"" if data is None else bytes(data)

    def set_values(self, tensor: Any, codes: np.ndarray, type_: int) -> None:
        """Replace the data and the type of a constant; other tensors with the same data keep theirs."""
        data = pack_pairs(codes) if type_ == INT4 else np.ascontiguousarray(codes.astype(_DTYPES[type_]))
        # A new buffer, since several tensors may refer to the old one.
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(data.tobytes(), np.uint8)
        self._model.buffers.append(buffer)
        tensor.buffer, tensor.type = len(self._model.buffers) - 1, type_

    def set_scales(self, tensor: Any, scales: np.ndarray, axis: int) -> None:
        """Set symmetric scales of a tensor: one, or one per slice along an axis."""
        quantization = schema.QuantizationParametersT()
        quantization.scale = np.atleast_1d(np.asarray(scales, np.float32))
        quantization.zeroPoint = np.zeros(quantization.scale.size, np.int64)
        quantization.quantizedDimension = axis
        tensor.quantization = quantization

    def dequantize(self, graph: Any, index: int, version: int) -> None:
        """Insert a DEQUANTIZE after a constant, so that its readers read floats."""
        readers = self.readers(graph, index)
        floats = self._floats_like(graph, index)
        for reader in readers:
            reader.operator.inputs[reader.position] = floats
        reading = [reader.operator for reader in readers]
        first = next(
            position for position, each in enumerate(graph.operators) if any(each is operator for operator in reading)
        )
        graph.operators.insert(first, self._operator("DEQUANTIZE", index, floats, version))

    def compute_in_float(self, graph: Any, operator: Any) -> None:
        """Insert a DEQUANTIZE before every int8 or int16 input of an operator, and a QUANTIZE after such a result."""
        result = int(operator.outputs[0])
        position = next(index for index, each in enumerate(graph.operators) if each is operator)
        if graph.tensors[result].type in _QUANTIZE:
            written = self._floats_like(graph, result)
            operator.outputs = np.array([written], np.int32)
            version = _QUANTIZE[graph.tensors[result].type]
            graph.operators.insert(position + 1, self._operator("QUANTIZE", written, result, version))
        for place, source in enumerate([int(index) for index in operator.inputs]):
            type_ = graph.tensors[source].type
            if source >= 0 and type_ in _DEQUANTIZE:
                operator.inputs[place] = self._floats_like(graph, source)
                read = self._operator("DEQUANTIZE", source, operator.inputs[place], _DEQUANTIZE[type_])
                graph.operators.insert(position, read)

    def connect(self, graph: Any, operator: Any) -> None:
        """Remove an operator, so that the readers of its result read its first input."""
        source, result = int(operator.inputs[0]), int(operator.outputs[0])
        graph.operators = [each for each in graph.operators if each is not operator]
        if result in graph.outputs:  # which keep their tensors
            source, result = result, source
        for each in graph.operators:
            each.inputs = np.where(each.inputs == result, source, each.inputs).astype(np.int32)
            each.outputs = np.where(np.asarray(each.outputs) == result, source, each.outputs).astype(np.int32)

    def to_float(self, tensor: Any) -> None:
        """Make floats of a tensor of integers that is no constant."""
        tensor.type, tensor.quantization = FLOAT32, None

    def own_input(self, reader: Reader) -> Any:
        """Return the tensor that an operator reads, replaced by a copy if it has other readers."""
        index = int(reader.operator.inputs[reader.position])
        tensor = reader.graph.tensors[index]
        if len(self.readers(reader.graph, index)) == 1:
            return tensor
        copied = schema.TensorT()
        # A shallow copy is enough: `set_values` and `set_scales` replace fields and change none in place.
        copied.__dict__.update(tensor.__dict__)
        reader.graph.tensors.append(copied)
        reader.operator.inputs[reader.position] = len(reader.graph.tensors) - 1
        return copied

    def _floats_like(self, graph: Any, index: int) -> int:
        source = graph.tensors[index]
        floats = schema.TensorT()
        floats.shape, floats.shapeSignature, floats.hasRank = source.shape, source.shapeSignature, source.hasRank
        # By the schema, buffer 0 is always empty.
        floats.name, floats.type, floats.buffer = source.name + b"_float", FLOAT32, 0
        graph.tensors.append(floats)
        return len(graph.tensors) - 1

    def _operator(self, name: str, source: int, result: int, version: int) -> Any:
        operator = schema.OperatorT()
        operator.opcodeIndex = self._code(getattr(schema.BuiltinOperator, name))
        operator.inputs, operator.outputs = np.array([source], np.int32), np.array([result], np.int32)
        self.need_version(operator, version)
        return operator

    def _code(self, wanted: int) -> int:
        codes = self._model.operatorCodes
        for index, code in enumerate(codes):
            if max(code.builtinCode, code.deprecatedBuiltinCode) == wanted:
                return index
        code = schema.OperatorCodeT()
        code.builtinCode, code.deprecatedBuiltinCode, code.version = wanted, min(wanted, _LONG_CODES), 1
        codes.append(code)
        return len(codes) - 1


def constants_of(file: TFLiteFile) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the name of every tensor of a file, and its type, shape, scales, zero points and data."""
    for graph in file.graphs:
        for tensor in graph.tensors:
            quantization = tensor.quantization
            zeros = b"" if quantization is None or quantization.zeroPoint is None else quantization.zeroPoint
            scales = scales_of(tensor)
            yield (
                tensor.name.decode(errors="replace"),
                (
                    int(tensor.type),
                    tuple(int(size) for size in (() if tensor.shape is None else tensor.shape)),
                    b"" if scales is None else scales.tobytes(),
                    np.asarray(zeros, np.int64).tobytes() if len(zeros) else b"",
                    file.data(tensor),
                ),
            )


def unpacked(file: TFLiteFile, tensor: Any) -> np.ndarray:
    """Return the codes of a constant of INT8, or of INT4, of which a byte holds two, the first in its lower half."""
    if tensor.type != INT4:
        return np.asarray(file.values(tensor))
    shape = [int(size) for size in tensor.shape]
    pairs = np.frombuffer(file.data(tensor), np.int8)
    # Shifts of signed bytes keep the sign.
    halves = np.stack([(pairs << 4) >> 4, pairs >> 4], axis=-1).reshape(-1)
    return halves[: int(np.prod(shape))].reshape(shape)


def scales_of(tensor: Any) -> np.ndarray | None:
    """Return the scales of a tensor; None without any."""
    quantization = tensor.quantization
    scales = None if quantization is None else quantization.scale
    return None if scales is None or not len(scales) else np.asarray(scales, np.float32)


def _copy(buffer: Any, *, keep: bool) -> _Buffer:
    copied = _Buffer()
    if keep:
        copied.__dict__.update(buffer.__dict__)
    return copied
