"""The integers and scales of a quantized model in a file that TensorFlow's converter wrote.

The converter derives the scale of a weight from its largest value, in 8 bits, and leaves the weights of layers that
compute in float as floats. Here every weight gets the codes and the scale of the model:

    in an integer kernel      codes in INT8, or two in a byte (INT4) where the kernel reads them; the bias
                              b_q = round(b / (s_x s_w)) in int32, in int64 beside int16 activations
    in a float kernel         codes, and DEQUANTIZE, which interpreters compute once: the kernel is the same
    the same, dynamic range   codes, which a hybrid kernel reads: it rounds its float input to 8 bits in every run
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from qdq_workbench.export.litert.fake_quant_model import FakeQuantModel
from qdq_workbench.export.litert.kernels import KERNELS, VERSIONS
from qdq_workbench.export.litert.supported_grids import ROUNDED_BY
from qdq_workbench.export.litert.tflite_file import (
    FLOAT32,
    INT4,
    INT8,
    INT16,
    INT32,
    INT64,
    Reader,
    TFLiteFile,
    scales_of,
)
from qdq_workbench.export.litert.wide_activations import widen_activations
from qdq_workbench.quantizers.bias_room import BIAS_LIMIT, bias_scale

_FEW_BITS = 4
_SAME = 1e-6  # relative: the converter computes scales from float32 ends of ranges
_DEQUANTIZE = {INT8: 5, INT4: 6}
_TYPE_NAMES = {INT8: "int8", INT4: "int4"}
_Arrange = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Written:
    """A file with the model's integers.

    Args:
        content: The file's bytes.
        types: Weight -> "int8" or "int4", the type of its codes; weights without the model's integers are missing.
        hybrid: The weights that hybrid kernels read.
        floats: The weights that a DEQUANTIZE reads.
    """

    content: bytes
    types: Mapping[str, str]
    hybrid: tuple[str, ...]
    floats: tuple[str, ...]


def write_integers(content: bytes, read: FakeQuantModel, *, dynamic_range: bool) -> Written:
    """Return a file of the converter with the integers and scales of the model that the converter read.

    `dynamic_range` gives the weights of float layers to hybrid kernels, where they exist.
    """
    writer = _Writer(TFLiteFile(content), read, dynamic_range=dynamic_range)
    writer.run()
    return Written(writer.file.content(), writer.types, tuple(writer.hybrid), tuple(writer.floats))


class _Writer:
    def __init__(self, file: TFLiteFile, read: FakeQuantModel, *, dynamic_range: bool) -> None:
        self.file = file
        self.types: dict[str, str] = {}
        self.hybrid: list[str] = []
        self.floats: list[str] = []
        self._read = read
        self._dynamic_range = dynamic_range

    def run(self) -> None:
        # These two first: `_set_biases` reads the final scales of the activations.
        widen_activations(self.file, self._read)
        self._take_scales()
        # All weights are looked up before the first is written: `_write` adds tensors and changes constants.
        found = [(graph, index, self._weight_in(graph.tensors[index])) for graph, index in self.file.constants()]
        for graph, index, match in found:
            if match is not None:
                self._write(graph, index, *match)
        # Last: `_set_biases` computes int32 codes.
        self._widen_biases()

    def _take_scales(self) -> None:
        """Replace the scales of activations; the converter's differ in the last digits of a float32."""
        ours = np.unique([np.float32(encoding.scale) for encoding in self._read.activations.values()])
        for graph in self.file.graphs:
            for tensor in graph.tensors:
                scales = scales_of(tensor)
                if scales is None or scales.size != 1 or self.file.values(tensor) is not None or not ours.size:
                    continue
                nearest = ours[np.argmin(np.abs(ours - scales[0]))]
                if abs(nearest / scales[0] - 1) < _SAME:
                    tensor.quantization.scale = np.array([nearest], np.float32)

    def _weight_in(self, tensor: Any) -> tuple[str, _Arrange] | None:
        """Return the weight of the model that a constant holds, and the function from its layout to the constant's."""
        codes = self.file.values(tensor)
        if codes is None or tensor.type not in (FLOAT32, INT8) or codes.ndim < 2:
            return None
        # By its values: the converter renames, transposes, reshapes and merges constants.
        values, tolerance = _dequantized(codes, tensor)
        best, found = np.inf, None
        for name, encoding in self._read.weights.items():
            if np.asarray(encoding.codes).size != values.size:
                continue
            ours = encoding.dequantized()
            for arrange in _arrangements(ours.shape, values.shape):
                if not _fits(arrange, ours, values, tolerance):
                    continue
                apart = float(np.abs(arrange(ours) - values).sum())
                # Weights of layers that resemble each other may all lie within the tolerance; the nearest one counts.
                if apart < best:
                    best, found = apart, (name, arrange)
                break
        return found

    def _write(self, graph: Any, index: int, name: str, arrange: _Arrange) -> None:
        tensor, encoding = graph.tensors[index], self._read.weights[name]
        ours = np.asarray(encoding.codes)
        codes, scales = arrange(ours), arrange(np.broadcast_to(encoding.broadcast(encoding.scale), ours.shape))
        readers = self.file.readers(graph, index)
        kernels = [KERNELS.get(self.file.name_of(reader.operator)) for reader in readers]
        axes = {None if kernel is None else kernel.axis for kernel in kernels}
        kernel_axis = axes.pop() if len(axes) == 1 else None
        few = encoding.spec.num_bits <= _FEW_BITS
        if tensor.type == INT8 and not self._reads_floats(readers):
            along = _along(scales, kernel_axis)
            # An integer kernel needs scales along its own axis; with others the converter's integers stay.
            if kernel_axis is None or along is None:
                return
            type_ = INT4 if few and self._all_support(readers, INT4) else INT8
            self._store(name, tensor, codes, along, kernel_axis, type_)
            self._set_biases(readers, name, along)
        elif self._dynamic_range and self._all_support(readers, INT8) and _along(scales, kernel_axis) is not None:
            type_ = INT4 if few and self._all_support(readers, INT4) else INT8
            self._store(name, tensor, codes, _along(scales, kernel_axis), kernel_axis, type_)
            self.hybrid.append(name)
        else:
            # DEQUANTIZE takes scales along any axis.
            options = ((_along(scales, axis), axis) for axis in range(codes.ndim))
            along, axis = next(((found, axis) for found, axis in options if found is not None), (None, 0))
            if along is None:
                return
            type_ = INT4 if few else INT8
            self._store(name, tensor, codes, along, axis, type_)
            self.file.dequantize(graph, index, _DEQUANTIZE[type_])
            self.floats.append(name)
            return
        for reader in readers:
            version = VERSIONS.get(self._signature(reader, type_), 1)
            self.file.need_version(reader.operator, version)

    def _store(self, name: str, tensor: Any, codes: np.ndarray, scales: Any, axis: int | None, type_: int) -> None:
        self.file.set_values(tensor, codes, type_)
        self.file.set_scales(tensor, scales, axis or 0)
        self.types[name] = _TYPE_NAMES[type_]

    def _signature(self, reader: Reader, type_: int) -> tuple[str, int, int]:
        name = self.file.name_of(reader.operator)
        source = reader.operator.inputs[KERNELS[name].data]
        return name, reader.graph.tensors[source].type, type_

    def _reads_floats(self, readers: list[Reader]) -> bool:
        """Return whether a kernel with another input in float is among the readers: the converter made it hybrid."""
        kernels = ((KERNELS.get(self.file.name_of(reader.operator)), reader) for reader in readers)
        return any(
            kernel is not None and reader.graph.tensors[reader.operator.inputs[kernel.data]].type == FLOAT32
            for kernel, reader in kernels
        )

    def _all_support(self, readers: list[Reader], type_: int) -> bool:
        """Return whether the kernels of all readers compute with a weight of a type."""
        for reader in readers:
            kernel = KERNELS.get(self.file.name_of(reader.operator))
            if kernel is None or reader.position != kernel.weight or self._signature(reader, type_) not in VERSIONS:
                return False
        return True

    def _set_biases(self, readers: list[Reader], name: str, scales: np.ndarray) -> None:
        """Round the biases of the kernels that read a weight to int32 with the scale `s_x * s_w`."""
        bias = self._read.biases.get(name)
        for reader in readers:
            kernel, inputs = KERNELS[self.file.name_of(reader.operator)], reader.operator.inputs
            position = kernel.bias
            if position >= len(inputs) or inputs[position] < 0:
                continue
            # The converter merges equal biases, and each kernel needs its own scale.
            tensor = self.file.own_input(Reader(reader.graph, reader.operator, position))
            codes, steps = self.file.values(tensor), scales_of(tensor)
            source = scales_of(reader.graph.tensors[inputs[kernel.data]])
            if codes is None or steps is None or source is None or tensor.type != INT32:
                continue
            theirs = codes * steps.astype(np.float64)
            exact = theirs if bias is None or bias.size != theirs.size else bias.reshape(-1).astype(np.float64)
            # The converter may have added a constant of its own to the bias; then its value counts.
            exact = np.where(np.abs(exact - theirs) <= ROUNDED_BY * steps + _SAME * np.abs(theirs), exact, theirs)
            scale = bias_scale(source, scales)
            rounded = np.rint(exact / scale.astype(np.float64))
            if np.all(np.abs(rounded) <= BIAS_LIMIT):
                self.file.set_values(tensor, rounded, INT32)
                self.file.set_scales(tensor, scale, 0)

    def _widen_biases(self) -> None:
        """Store the biases of kernels with int16 activations in int64, as LiteRT's specification requires."""
        for graph in self.file.graphs:
            for operator in graph.operators:
                kernel = KERNELS.get(self.file.name_of(operator))
                if kernel is None or kernel.bias >= len(operator.inputs) or operator.inputs[kernel.bias] < 0:
                    continue
                if graph.tensors[operator.inputs[kernel.data]].type == INT16:
                    tensor = self.file.own_input(Reader(graph, operator, kernel.bias))
                    codes = self.file.values(tensor)
                    if codes is not None and tensor.type == INT32:
                        self.file.set_values(tensor, codes, INT64)


def _dequantized(codes: np.ndarray, tensor: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a constant, and the tolerance of each in a comparison with the model's."""
    if tensor.type == FLOAT32:
        return codes, np.float32(_SAME) * np.abs(codes)
    scales = scales_of(tensor)
    if scales is None:
        return codes.astype(np.float32), np.zeros(codes.shape, np.float32)
    along = [1] * codes.ndim
    if scales.size > 1:
        along[tensor.quantization.quantizedDimension] = -1
    steps = np.broadcast_to(scales.reshape(along), codes.shape)
    return codes.astype(np.float32) * steps, np.float32(ROUNDED_BY) * steps


def _arrangements(shape: tuple[int, ...], other: tuple[int, ...]) -> Iterator[_Arrange]:
    """Yield one function per order of the axes longer than 1, which permutes them and reshapes to the other shape."""
    seen = set()
    for order in itertools.permutations(range(len(shape))):
        long = tuple(axis for axis in order if shape[axis] > 1)
        if long not in seen:
            seen.add(long)
            yield lambda values, order=order: values.transpose(order).reshape(other)  # type: ignore[misc]


def _fits(arrange: _Arrange, ours: np.ndarray, values: np.ndarray, tolerance: np.ndarray) -> bool:
    return bool(np.all(np.abs(arrange(ours) - values) <= tolerance))


def _along(scales: np.ndarray, axis: int | None) -> np.ndarray | None:
    """Return the scales per slice along an axis; None where they change within a slice."""
    if axis is None:
        return None
    slices = np.moveaxis(scales, axis, 0).reshape(scales.shape[axis], -1)
    return np.asarray(slices[:, 0], np.float32) if np.all(slices == slices[:, :1]) else None
