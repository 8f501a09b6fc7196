"""The tensors between units, over all samples: in memory up to a bound, beyond it in a temporary file each.

Beside them a copy of the values that a variable has before a unit learns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from qdq_workbench._scratch import scratch_room_named

Array = npt.NDArray[Any]
#: Maximum bytes that are kept in memory.
IN_MEMORY = 2 << 30


class Values:
    """Arrays by name.

    Args:
        arrays: The first arrays, such as the model's inputs; they are not moved to files.
        in_memory: Maximum bytes in memory, the first arrays included; a later array beyond it goes to a file.
    """

    def __init__(self, arrays: Mapping[str, Array], in_memory: int = IN_MEMORY) -> None:
        self._arrays = dict(arrays)
        self._in_memory = in_memory

    def read(self, names: Collection[str]) -> dict[str, Array]:
        """Return some arrays by name."""
        return {name: self._arrays[name] for name in names}

    def add(self, arrays: Mapping[str, Array]) -> None:
        """Add arrays, each in memory or in a temporary file."""
        for name, array in arrays.items():
            held = sum(each.nbytes for each in self._arrays.values() if not isinstance(each, np.memmap))
            self._arrays[name] = array if held + array.nbytes <= self._in_memory else _in_file(array)

    def keep(self, names: Collection[str]) -> None:
        """Forget all arrays but some."""
        self._arrays = {name: array for name, array in self._arrays.items() if name in names}


def copy_of(variable: Any) -> Array:
    """Return the values of a variable as an array that later assignments do not change."""
    return np.array(keras.ops.convert_to_numpy(variable))


def _in_file(array: Array) -> Array:
    """Return the array mapped from a temporary file, which is deleted with the array."""
    with tempfile.TemporaryFile() as file, scratch_room_named():
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)  # a memmap on a full disk would crash
        file.flush()
        mapped: Array = np.memmap(file, array.dtype, "r+", shape=array.shape)
    return mapped
