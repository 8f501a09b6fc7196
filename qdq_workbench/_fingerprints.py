"""Hashes of everything that the result of a run depends on: a file to resume from belongs to one of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np


def text_of(*told: Any) -> str:
    """Return values as JSON, equal in every process; what JSON does not have is written as text."""
    return json.dumps(told, sort_keys=True, default=str)


def unnamed(graph: Any) -> dict[str, Any]:
    """Return a `ModelGraph` without its name, which says nothing about the model: Keras counts it up."""
    return {**graph.to_dict(), "name": ""}


def fingerprint_of(text: str, variables: Iterable[Any] = (), arrays: Iterable[Any] = ()) -> str:
    """Return the hash of a text, of variables, and of arrays with their types and shapes."""
    digest = hashlib.sha256(text.encode())
    for variable in variables:
        # The state of a random generator changes with every call of its layer.
        if "seed" not in variable.name:
            digest.update(np.asarray(variable).tobytes())
    add_arrays(digest, arrays)
    return digest.hexdigest()


def array_digest(array: Any) -> str:
    """Return the hash of an array with its type and shape."""
    return fingerprint_of("", arrays=[array])


def bytes_digest(array: Any) -> str:
    """Return the hash of an array's elements in row-major order, without its type and shape."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def add_arrays(digest: Any, arrays: Iterable[Any]) -> None:
    """Add arrays to a hash; the bytes alone are equal for some arrays of different types or shapes."""
    for array in map(np.asarray, arrays):
        digest.update(f"{array.dtype}{array.shape}".encode())
        # Without a copy, as these may be all data of a training; objects have no bytes of their own to look at.
        is_plain = not array.dtype.hasobject
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8) if is_plain else array.tobytes())
