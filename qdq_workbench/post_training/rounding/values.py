"""The tensors between units, over all samples: in memory up to a bound, beyond it in a temporary file each."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench._scratch import scratch_room_named

Array = npt.NDArray[Any]
#: How many bytes are kept in memory.
IN_MEMORY = 2 << 30


class Values:
    """Arrays by name.

    Args:
        arrays: The first ones, such as the model's inputs; they stay where they are.
        in_memory: How many bytes of later arrays may lie in memory.
    """

    def __init__(self, arrays: Mapping[str, Array], in_memory: int = IN_MEMORY) -> None:
        self._arrays = dict(arrays)
        self._in_memory = in_memory

    def read(self, names: Collection[str]) -> dict[str, Array]:
        """Return some arrays by name."""
        return {name: self._arrays[name] for name in names}

    def add(self, arrays: Mapping[str, Array]) -> None:
        """Keep more arrays."""
        for name, array in arrays.items():
            held = sum(each.nbytes for each in self._arrays.values() if not isinstance(each, np.memmap))
            self._arrays[name] = array if held + array.nbytes <= self._in_memory else _in_file(array)

    def keep(self, names: Collection[str]) -> None:
        """Forget all arrays but some."""
        self._arrays = {name: array for name, array in self._arrays.items() if name in names}


def _in_file(array: Array) -> Array:
    """Return the same array in a temporary file, which is gone with the array."""
    with tempfile.TemporaryFile() as file, scratch_room_named():
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)  # pages without room end the process
        file.flush()
        mapped: Array = np.memmap(file, array.dtype, "r+", shape=array.shape)
    return mapped
