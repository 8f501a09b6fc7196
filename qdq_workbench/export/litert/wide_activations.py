"""Conversion of int8 activations to int16, in a file that TensorFlow's converter wrote.

The converter's own int16 mode refuses to join and to repeat int16 tensors and to multiply by constants, and gives
sigmoids a scale that their kernel refuses. So the converter gets the same ranges in 8 bits, symmetric and narrow:

    s_8 = r / 127        ->        s_16 = r / 32767, zero point 0

Operators with an output range of their own have scale 1/32768 in int16. Those without an int16 kernel compute in float
between a DEQUANTIZE and a QUANTIZE. Weights stay as they are.
Source: LiteRT 8-bit quantization specification, "16x8"; tensorflow/lite/kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from qdq_workbench.errors import ExportError
from qdq_workbench.export.litert.fake_quant_model import FakeQuantModel
from qdq_workbench.export.litert.float_ranges import FIXED_SCALES
from qdq_workbench.export.litert.kernels import KERNELS
from qdq_workbench.export.litert.supported_grids import INT16_BITS, NARROWEST_SCALE
from qdq_workbench.export.litert.tflite_file import INT8, INT16, TFLiteFile, scales_of

_LARGEST = {8: 127, INT16_BITS: 32767}
_SAME = 1e-5  # relative: the converter takes ranges in float32
_FIXED = {"SOFTMAX": 2.0**-15, "LOGISTIC": 2.0**-15, "TANH": 2.0**-15, "LOG_SOFTMAX": 2.0**-11}
_SIGMOIDS = ("TANH", "LOGISTIC")  # whose results have their int8 scales where a product reads them
_IN_FLOAT = ("HARD_SWISH", "TILE", "LOG_SOFTMAX", "PRELU")  # which have no int16 kernel, or one that is not exact
_COMPARING = ("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")  # which compare int16 codes, whatever their scales
_POWER_OF_TWO = ("ADD", "SUB")  # their option restricts int16 scales to powers of two; converters switch it off


def widen_activations(file: TFLiteFile, read: FakeQuantModel) -> None:
    """Turn the int8 activations of a file into int16 ones with the model's scales, if its pairs have 16 bits."""
    pairs = [encoding for encoding in read.activations.values() if encoding.spec.num_bits == INT16_BITS]
    if not pairs:
        return
    ours = np.unique([np.float32(encoding.scale) for encoding in pairs])
    for graph in file.graphs:
        fixed = _fixed_scales(file, graph)
        for index, tensor in enumerate(graph.tensors):
            scales = scales_of(tensor)
            if tensor.type != INT8 or scales is None or _is_weight(file, graph, index):
                continue
            codes = file.values(tensor)
            if codes is not None:
                _widen_constant(file, tensor, codes, scales)
                continue
            scale = fixed.get(index)
            file.set_scales(tensor, np.array(scale or _our_scale(scales[0], ours, tensor)), 0)
            tensor.type = INT16
        for operator in list(graph.operators):
            # Only now: which operators read int16 is known once all tensors have their types.
            if file.name_of(operator) in (*_IN_FLOAT, *_COMPARING) and graph.tensors[operator.inputs[0]].type == INT16:
                file.compute_in_float(graph, operator)
            if file.name_of(operator) in _POWER_OF_TWO and operator.builtinOptions is not None:
                operator.builtinOptions.potScaleInt16 = False


def _fixed_scales(file: TFLiteFile, graph: Any) -> dict[int, float]:
    """Return the scales of the tensors that operators with a range of their own write."""
    writers = {
        int(operator.outputs[0]): file.name_of(operator) for operator in graph.operators if len(operator.outputs)
    }
    found = {index: _FIXED[name] for index, name in writers.items() if name in _FIXED}
    for operator in graph.operators:
        name = writers.get(int(operator.inputs[0])) if file.name_of(operator) == "QUANTIZE" else None
        if name in _SIGMOIDS:
            result = int(operator.outputs[0])
            scales = scales_of(graph.tensors[result])
            if scales is not None and float(scales[0]) == FIXED_SCALES[name]:
                found[result] = _FIXED[name]
    return found


def _is_weight(file: TFLiteFile, graph: Any, index: int) -> bool:
    if file.values(graph.tensors[index]) is None:
        return False
    kernels = ((KERNELS.get(file.name_of(reader.operator)), reader) for reader in file.readers(graph, index))
    return any(kernel is not None and reader.position == kernel.weight for kernel, reader in kernels)


def _our_scale(scale: np.float32, ours: np.ndarray, tensor: Any) -> np.float32:
    wanted = np.float64(scale) * _LARGEST[8] / _LARGEST[INT16_BITS]
    nearest = np.float32(ours[np.argmin(np.abs(ours - wanted))])
    if abs(scale / NARROWEST_SCALE - 1) < _SAME:
        return np.float32(wanted)
    if abs(nearest / wanted - 1) > _SAME:
        raise ExportError(
            "TensorFlow's converter chose a range of its own, which has no 16-bit form here. Quantize the model with "
            "8-bit activations, or leave the layer behind it in float: "
            "spec.add(name, quantize_input=False, quantize_weight=False). "
            f"Received: the tensor {tensor.name.decode(errors='replace')!r}, scale {scale:.6g} in 8 bits"
        )
    return nearest


def _widen_constant(file: TFLiteFile, tensor: Any, codes: np.ndarray, scales: np.ndarray) -> None:
    """Convert a constant operand to int16 with the same scale and zero point 0."""
    zero = int(tensor.quantization.zeroPoint[0])
    file.set_values(tensor, codes.astype(np.int16) - zero, INT16)
    file.set_scales(tensor, scales, int(tensor.quantization.quantizedDimension))
