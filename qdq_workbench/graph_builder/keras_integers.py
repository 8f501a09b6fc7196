"""Layers that Keras has quantized by itself (`model.quantize`): float copies of them, and their integers.

    int8   kernel (in, out) int8, kernel_scale (out,)               value = q / kernel_scale
    int4   two integers a byte; per channel as int8, or with zero points in groups along the inputs:
           kernel_scale and kernel_zero (groups, out)               value = (q - zero) * scale
    gptq   quantized_kernel (out, in) uint8, two integers a byte at 4 bits; kernel_scale and kernel_zero (out, groups),
           the group of every input in g_idx                        value = (q - zero) * scale

Kernels of EinsumDense have several axes in place of `in` or `out`. Tested with Keras 3.15. The internals used are
the attributes named here, `_embeddings`, `_int4_block_size` and `is_gptq_calibrated`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from qdq_workbench._pages import page
from qdq_workbench.errors import UnsupportedModelError, first_line
from qdq_workbench.graph.contractions import product_terms
from qdq_workbench.graph.kinds import MATRIX_PRODUCTS
from qdq_workbench.graph_builder.keras_layers import keras_layers
from qdq_workbench.graph_builder.layer_parts import inner_layers, layer_weights
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

Array = npt.NDArray[Any]
_HELD = "_qdq_keras_integers"
_MODES = ("int8", "int4", "gptq")


@dataclasses.dataclass(frozen=True)
class KerasIntegers:
    """A weight as Keras quantized it.

    Args:
        codes: The integers, in the shape of the float weight.
        scale: float32, in the shape of the grid's scales.
        zero_point: int32, of that shape.
        spec: The grid.
        values: The dequantized values, as Keras computes them.
    """

    codes: Array
    scale: Array
    zero_point: Array
    spec: QuantizerSpec
    values: Array


def has_integers(operation: Any) -> bool:
    """Return whether Keras has quantized a layer, or a layer inside it."""
    if not isinstance(operation, keras.layers.Layer):
        return False
    return any(_mode_of(layer) is not None for layer in (operation, *inner_layers(operation)))


def integers_of(layer: Any) -> dict[str, KerasIntegers]:
    """Return the integers of a layer's weights that Keras quantized, by weight name; empty for other layers."""
    return vars(layer).get(_HELD, {}) if isinstance(layer, keras.layers.Layer) else {}


def float_copy(layer: Any, path: str) -> Any:
    """Return a float copy of a layer that Keras quantized, or that holds one, with the dequantized values."""
    parts = [layer, *inner_layers(layer)]
    found = {index: _read(part, path) for index, part in enumerate(parts) if _mode_of(part) is not None}
    try:
        copy = type(layer).from_config(_float_config(layer.get_config()))
        copy.build_from_config(layer.get_build_config())
        copies = [copy, *inner_layers(copy)]
    except Exception as error:
        raise _refusal(layer, path, f"no float layer can be made of it: {first_line(error)}") from error
    by_variable: dict[int, KerasIntegers] = {}
    for index, (source, made) in enumerate(zip(parts, copies, strict=True)):
        _copy_own(source, made, found.get(index), by_variable)
    named = {name: by_variable[id(v)] for name, v in layer_weights(copy) if id(v) in by_variable}
    vars(copy)[_HELD] = named
    copy.trainable = layer.trainable
    return copy


def _mode_of(layer: Any) -> str | None:
    """Return the mode in which Keras quantized a layer without layers inside; None if it did not."""
    mode = getattr(layer, "quantization_mode", None)
    return mode if mode is not None and layer.weights and not inner_layers(layer) else None


def _refusal(layer: Any, path: str, why: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"Keras has quantized layer {path!r} in a way that cannot be read: {why}. Give the float model, as it was "
        "before model.quantize(...); int8, int4 and gptq without activation order are read: "
        f"{page('howto/four_bits.md', 'Models that Keras quantized')}. "
        f"Received: layer of class {type(layer).__name__} with dtype policy {layer.dtype_policy.name!r}"
    )


def _float_config(config: Any) -> Any:
    """Return a configuration with the float policy in place of a quantized one, at any depth."""
    if isinstance(config, (list, tuple)):
        return type(config)(_float_config(item) for item in config)
    if not isinstance(config, dict):
        return config
    # `source_name` is the float policy from which a quantized one was made.
    if "DTypePolicy" in str(config.get("class_name")) and "source_name" in config.get("config", {}):
        return {"module": "keras", "class_name": "DTypePolicy", "config": {"name": config["config"]["source_name"]}}
    return {key: None if key == "quantization_config" else _float_config(value) for key, value in config.items()}


def _copy_own(source: Any, made: Any, integers: KerasIntegers | None, found: dict[int, KerasIntegers]) -> None:
    """Copy the values of a layer's own variables, not of layers inside; a quantized weight is dequantized."""
    if integers is None:
        for theirs, ours in zip(_own(source), _own(made), strict=True):
            ours.assign(theirs)
        return
    table = isinstance(source, keras.layers.Embedding)
    variable = made._embeddings if table else made._kernel
    variable.assign(integers.values.astype(np.float32))
    found[id(variable)] = integers
    if getattr(source, "bias", None) is not None:
        made.bias.assign(source.bias)


def _own(layer: Any) -> list[Any]:
    inside = {id(variable) for part in inner_layers(layer) for variable in part.variables}
    return [variable for variable in layer.variables if id(variable) not in inside]


def _read(layer: Any, path: str) -> KerasIntegers:
    """Return the integers of one layer; refuse those that another version of Keras stores differently."""
    try:
        return _integers(layer, path)
    except (AttributeError, TypeError, ValueError) as error:
        if isinstance(error, UnsupportedModelError):
            raise
        raise _refusal(layer, path, f"Keras {keras.__version__} stores them otherwise: {first_line(error)}") from error


def _integers(layer: Any, path: str) -> KerasIntegers:
    mode = layer.quantization_mode
    if mode not in _MODES:
        raise _refusal(layer, path, f"{mode!r} scales inputs, or stores floats")
    if getattr(layer, "lora_enabled", False):
        raise _refusal(layer, path, "it has LoRA matrices; merge_lora(model) before quantizing folds them in")
    if isinstance(layer, keras.layers.Embedding):
        return _table(layer, mode, path)
    if not isinstance(layer, keras_layers(MATRIX_PRODUCTS)):
        raise _refusal(layer, path, f"of its class {mode!r} is not known")
    shape, axes = _kernel_axes(layer, path)
    if mode == "gptq":
        return _gptq(layer, shape, axes, path)
    codes = np.asarray(keras.ops.convert_to_numpy(layer.kernel)).reshape(shape).astype(np.int32)
    if mode == "int4" and getattr(layer, "_int4_block_size", None) not in (None, -1):
        scale, zero = (_numpy(layer.kernel_scale), _numpy(layer.kernel_zero).astype(np.int32))
        grid = QuantizerSpec(num_bits=4, symmetric=False)
        return _in_groups(layer, path, codes, scale, zero, int(layer._int4_block_size), axes, grid)
    factor = _numpy(layer.kernel_scale).reshape(-1)
    outs = math.prod(size for axis, size in enumerate(shape) if axis not in axes)
    if factor.size != outs or not _leading(axes):
        raise _refusal(layer, path, "its scales do not lie along the output axes behind the others")
    flat = codes.reshape(-1, outs)
    grid = _symmetric(flat, 8 if mode == "int8" else 4)
    # Keras divides; a product with the rounded reciprocal, which is the scale, may differ in the last bit.
    values = (flat.astype(np.float32) / factor).reshape(shape)
    scale = (np.float32(1) / factor).astype(np.float32)
    return _one_group(layer, path, codes, scale, np.zeros(outs, np.int32), axes, grid, values)


def _kernel_axes(layer: Any, path: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape of a float kernel, and the axes that are summed over."""
    if isinstance(layer, keras.layers.Dense):
        return (int(layer.input_spec.axes[-1]), int(layer.units)), (0,)
    # `_kernel` may be packed, two integers to a byte, and a kernel of GPTQ is a matrix.
    shape = tuple(getattr(layer, "original_kernel_shape", None) or layer.kernel.shape)
    _, letters, result = product_terms(layer.equation)
    if len(letters) != len(shape):
        raise _refusal(layer, path, f"its equation {layer.equation!r} leaves the axes of the kernel open")
    return shape, tuple(axis for axis, letter in enumerate(letters) if letter not in result)


def _gptq(layer: Any, shape: tuple[int, ...], axes: tuple[int, ...], path: str) -> KerasIntegers:
    if not getattr(layer, "is_gptq_calibrated", False):
        raise _refusal(layer, path, "GPTQ has not been run on it")
    rows = math.prod(shape[axis] for axis in axes)
    scale, zero = _numpy(layer.kernel_scale).T, _numpy(layer.kernel_zero).astype(np.int32).T
    matrix = np.asarray(keras.ops.convert_to_numpy(layer.kernel)).astype(np.int32)
    if matrix.shape != (scale.shape[1], rows) or not _leading(axes):
        raise _refusal(layer, path, "Keras did not divide its kernel along the axes that are summed up over")
    codes = np.ascontiguousarray(matrix.T).reshape(shape)
    bits = int(layer.dtype_policy.weight_bits)
    grid = QuantizerSpec(num_bits=bits, signed=False, symmetric=False)
    groups = np.floor(_numpy(layer.g_idx)).astype(np.int64)
    size = rows if scale.shape[0] == 1 else int(layer.dtype_policy.group_size)
    if scale.shape[0] > 1 and not np.array_equal(groups, np.arange(rows) // size):
        raise _refusal(layer, path, "with activation order the inputs of a group are not neighbours")
    return _in_groups(layer, path, codes, scale, zero, size, axes, grid)


def _table(layer: Any, mode: str, path: str) -> KerasIntegers:
    """Return the integers of an Embedding: one scale per row, or groups along it."""
    stored = _numpy(layer._embeddings)
    size = int(layer.output_dim)
    if mode == "int4":
        stored = _numpy(keras.quantizers.unpack_int4(layer._embeddings, size, axis=-1))
    codes, scale = stored.astype(np.int32), _numpy(layer.embeddings_scale)
    block = getattr(layer, "_int4_block_size", None) if mode == "int4" else None
    if block in (None, -1):
        if scale.shape != (codes.shape[0],):
            raise _refusal(layer, path, "its table has other scales than one per row")
        grid = _symmetric(codes.T, 8 if mode == "int8" else 4).replace(axis=0)
        inverse = (np.float32(1) / scale).astype(np.float32)
        values: Array = codes.astype(np.float32) / scale[:, None]
        return KerasIntegers(codes, inverse, np.zeros(scale.shape, np.int32), grid, values)
    zero = _numpy(layer.embeddings_zero).astype(np.int32)
    grid = QuantizerSpec(num_bits=4, symmetric=False, axis=1, block_size=int(block))
    group = np.arange(size) // int(block)
    values = (codes - zero[:, group]).astype(np.float32) * scale[:, group]
    return KerasIntegers(codes, scale, zero, grid, values)


def _symmetric(columns: Array, bits: int) -> QuantizerSpec:
    """Return the symmetric grid of integers: narrow, unless the lowest integer occurs."""
    lowest = -(2 ** (bits - 1))
    return QuantizerSpec(num_bits=bits, narrow_range=bool(columns.min(initial=0) > lowest))


def _one_group(
    layer: Any,
    path: str,
    codes: Array,
    scale: Array,
    zero: Array,
    axes: tuple[int, ...],
    grid: QuantizerSpec,
    values: Array,
) -> KerasIntegers:
    """Return integers with one scale per output: along one axis, or as one block if the outputs have several axes."""
    outs = [axis for axis in range(codes.ndim) if axis not in axes]
    if len(outs) == 1:
        return KerasIntegers(codes, scale, zero, grid.replace(axis=outs[0]), values)
    # One scale per combination of output axes is a block along the summed axis; a block has 2 values or more.
    if len(axes) != 1 or codes.shape[axes[0]] < 2:
        raise _refusal(layer, path, "its scales lie along several axes, and it sums up over several too")
    shape = [1 if axis in axes else size for axis, size in enumerate(codes.shape)]
    spec = grid.replace(axis=axes[0], block_size=codes.shape[axes[0]])
    return KerasIntegers(codes, scale.reshape(shape), zero.reshape(shape), spec, values)


def _in_groups(
    layer: Any,
    path: str,
    codes: Array,
    scale: Array,
    zero: Array,
    group: int,
    axes: tuple[int, ...],
    grid: QuantizerSpec,
) -> KerasIntegers:
    """Return integers in blocks along the last axis that is summed over.

    A group that crosses the end of that axis becomes several blocks with the same scale.
    """
    if not _leading(axes):
        raise _refusal(layer, path, "the axes that it sums up over do not come first")
    rows = math.prod(codes.shape[axis] for axis in axes)
    inner = codes.shape[axes[-1]]
    if group >= rows:
        values = ((codes.reshape(rows, -1) - zero[0]).astype(np.float32) * scale[0]).reshape(codes.shape)
        return _one_group(layer, path, codes, scale[0], zero[0], axes, grid, values)
    # Where groups cross the end of the axis, blocks of the common divisor cross neither.
    block = group if len(axes) == 1 or inner % group == 0 else math.gcd(group, inner)
    if block < 2:
        raise _refusal(layer, path, f"groups of {group} do not fit its axis of {inner} inputs")
    starts = np.concatenate([np.arange(0, inner, block) + first for first in range(0, rows, inner)])
    number = starts // group
    shape = [-(-size // block) if axis == axes[-1] else size for axis, size in enumerate(codes.shape)]
    of_row = np.arange(rows) // group
    flat = codes.reshape(rows, -1)
    values = ((flat - zero[of_row]).astype(np.float32) * scale[of_row]).reshape(codes.shape)
    spec = grid.replace(axis=axes[-1], block_size=block)
    return KerasIntegers(codes, scale[number].reshape(shape), zero[number].reshape(shape), spec, values)


def _leading(axes: tuple[int, ...]) -> bool:
    return axes == tuple(range(len(axes)))


def _numpy(value: Any) -> Array:
    return np.asarray(keras.ops.convert_to_numpy(value))
