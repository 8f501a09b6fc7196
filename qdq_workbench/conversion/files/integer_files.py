"""Integer weights as files: `save_integer_weights` and `load_integer_weights`.

One entry per weight, called `<layer>/<weight>`. A quantized one has the parts

    codes        the integers in the Keras layout: int8 or uint8 up to 8 bits, int16 or uint16 beyond, int32 for biases
    scale        float32: one number, one per slice along `axis`, or one per block
    zero_point   int32, of the scale's shape
    num_bits     width of the grid; 32 for biases
    signed       whether the grid is signed
    axis         axis of the scales or of the blocks; -1 for a single scale
    block_size   how many values along `axis` share a scale; only where there are blocks

and stands for `(codes - zero_point) * scale` in float32. Any other weight has the part `values`. In an `.npz` file the
parts are arrays called `<layer>/<weight>/<part>`; in an `.h5` file every weight is a group with its parts as datasets.
"""

from __future__ import annotations

import io
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from qdq_workbench._files import as_path, check_name, write_atomically
from qdq_workbench.conversion.engine.integer_weights import IntegerTensor, integer_weights
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.files.own_data import check_own_data
from qdq_workbench.errors import DataError, FileAccessError, first_line

_SUFFIXES = (".npz", ".h5", ".hdf5")


def save_integer_weights(q_model: QuantizedModel, path: str | pathlib.Path) -> pathlib.Path:
    """Write a quantized model's weights as integers to a file, for custom runtimes.

    With n bits, grid [qmin, qmax] (qmin is one higher on a narrow grid) and the range (low, high) of a weight,
    extended to contain 0, which is that of its values or the one that its quantizer stores:

        symmetric    s = max(-low, high) / (2^(n-1) - 1)        z = 0, or 2^(n-1) when unsigned
        asymmetric   s = (high - low) / (qmax - qmin)           z = qmin - low / s, rounded with halves up, on the grid
        codes        q = clamp(round(w / s) + z, qmin, qmax)    halves to even
        value        (q - z) * s                                equals the fake-quantized weight bit for bit

    per tensor, or per slice along an axis with one s and z each. A learned step (LSQ) is s itself. A bias of a layer
    whose input and kernel are quantized is b = round(bias / (s_x * s_w)) as int32 with zero point 0, because the
    integer product of input and kernel has the scale s_x * s_w. Batch normalizations are not folded: fold first
    (`fold_batch_norm`) to have their gains inside the kernels, with new ranges. `save_firmware` writes them
    folded, with the topology and the scales, multipliers and shifts of the activations.

    Args:
        q_model: A model made by `quantize_model`, calibrated for integer biases.
        path: File name ending in `.npz`, `.h5` or `.hdf5`.

    Returns:
        The path.

    Raises:
        NotQuantizedError: If the model was not made by `quantize_model`.
        OutputPathError: If the file cannot be written, or has another suffix.

    Example:
        >>> import keras, tempfile
        >>> from qdq_workbench import quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(1, name="head", kernel_initializer="ones")(image))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = save_integer_weights(quantize_model(model), pathlib.Path(folder) / "weights.npz")
        ...     load_integer_weights(path)["head/kernel"].codes.tolist()
        [[127], [127]]
    """
    suffix = check_name(path, _SUFFIXES).suffix.lower()
    parts = {name: _parts(weight) for name, weight in integer_weights(q_model).items()}
    write = _write_npz if suffix == ".npz" else _write_h5
    return write_atomically(path, lambda temporary: write(temporary, parts))


def load_integer_weights(path: str | pathlib.Path) -> dict[str, IntegerTensor | np.ndarray]:
    """Read a file that `save_integer_weights` wrote.

    Args:
        path: The file.

    Returns:
        The weights, as `integer_weights` returns them.

    Raises:
        FileAccessError: If the file cannot be read.
        DataError: If it is not such a file.

    Example:
        >>> import keras, tempfile
        >>> from qdq_workbench import quantize_model
        >>> q_model = quantize_model(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="head")]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = save_integer_weights(q_model, pathlib.Path(folder) / "weights.h5")
        ...     sorted(load_integer_weights(path))
        ['head/bias', 'head/kernel']
    """
    file = as_path(path, FileAccessError)
    try:
        found = _read_npz(file) if file.suffix.lower() == ".npz" else _read_h5(file)
    except FileAccessError:
        raise
    except Exception as error:  # NumPy, h5py and zlib may raise anything for a damaged file
        raise FileAccessError(
            f"Cannot read integer weights from the file: {first_line(error)}. Give a file that save_integer_weights "
            f"wrote. Received: path={str(path)!r}"
        ) from error
    try:
        return {name: _weight(parts) for name, parts in found.items()}
    except KeyError as error:
        raise DataError(
            f"The file holds no integer weights: a part called {error} is missing. Give a file that "
            f"save_integer_weights wrote. Received: path={str(path)!r}"
        ) from error
    except (TypeError, ValueError) as error:
        raise DataError(
            f"The file holds no integer weights, or damaged ones: {first_line(error)}. Give a file that "
            f"save_integer_weights wrote. Received: path={str(path)!r}"
        ) from error


def _parts(weight: IntegerTensor | np.ndarray) -> dict[str, np.ndarray]:
    if not isinstance(weight, IntegerTensor):
        return {"values": np.asarray(weight)}
    return {
        "codes": weight.codes,
        "scale": np.asarray(weight.scale, np.float32),
        "zero_point": np.asarray(weight.zero_point, np.int32),
        "num_bits": np.asarray(weight.num_bits, np.int32),
        "signed": np.asarray(weight.signed),
        "axis": np.asarray(-1 if weight.axis is None else weight.axis, np.int32),
        **({} if weight.block_size is None else {"block_size": np.asarray(weight.block_size, np.int32)}),
    }


def _weight(parts: Mapping[str, np.ndarray]) -> IntegerTensor | np.ndarray:
    if "values" in parts:
        return parts["values"]
    axis = int(parts["axis"])
    return IntegerTensor(
        parts["codes"],
        parts["scale"],
        parts["zero_point"],
        int(parts["num_bits"]),
        None if axis < 0 else axis,
        bool(parts["signed"]),
        int(parts["block_size"]) if "block_size" in parts else None,
    )


def _write_npz(path: pathlib.Path, parts: Mapping[str, Mapping[str, Any]]) -> None:
    arrays = {f"{name}/{part}": value for name, items in parts.items() for part, value in items.items()}
    with path.open("wb") as file:
        np.savez(file, **arrays)


def _read_npz(path: pathlib.Path) -> dict[str, dict[str, np.ndarray]]:
    found: dict[str, dict[str, np.ndarray]] = {}
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        for key in arrays.files:
            name, _, part = key.rpartition("/")
            found.setdefault(name, {})[part] = arrays[key]
    return found


def _write_h5(path: pathlib.Path, parts: Mapping[str, Mapping[str, Any]]) -> None:
    import h5py

    held = io.BytesIO()  # HDF5 itself ends the process where the disk is full
    with h5py.File(held, "w") as file:
        for name, items in parts.items():
            group = file.create_group(name)
            for part, value in items.items():
                group.create_dataset(part, data=value)
    path.write_bytes(held.getbuffer())


def _read_h5(path: pathlib.Path) -> dict[str, dict[str, np.ndarray]]:
    import h5py

    found: dict[str, dict[str, np.ndarray]] = {}

    def visit(key: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            name, _, part = key.rpartition("/")
            found.setdefault(name, {})[part] = item[()]

    with h5py.File(path, "r") as file:
        check_own_data(file, path)
        file.visititems(visit)
    return found
