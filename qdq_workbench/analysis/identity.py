"""Hashes of functions, objects and models by what they compute, equal in every process.

A function is hashed by its bytecode, constants, defaults, and the values, functions and classes that it refers to in
closures and globals; one of an installed package by its name. Variables that a function or a method changes while it
runs, such as a counter or a list of results, do not count, so that the hash is the same in a later run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import enum
import functools
import hashlib
import json
import os
import pathlib
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np

import qdq_workbench

# The library's own folder too: an editable installation is outside of site-packages.
_INSTALLED = tuple(
    os.path.realpath(folder) + os.sep
    for folder in (*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")), *qdq_workbench.__path__)
)
_VARIABLES = ("STORE_GLOBAL", "STORE_DEREF", "DELETE_GLOBAL", "DELETE_DEREF")
_ATTRIBUTES = ("STORE_ATTR", "DELETE_ATTR")
_FILLS = frozenset(
    ("append", "extend", "add", "update", "pop", "insert", "clear", "setdefault", "remove", "popitem", "discard")
)
_FILLING = ("STORE_SUBSCR", "DELETE_SUBSCR")
_HAS_DOCSTRING = 0x4000000  # a flag of code since Python 3.13
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


def identity_of(value: Any) -> str:
    """Return a hash of any value, functions and objects of the user's own included.

    Example:
        >>> def scaled(factor):
        ...     return lambda x: factor * x
        >>> identity_of(scaled(2)) == identity_of(scaled(2)), identity_of(scaled(2)) == identity_of(scaled(3))
        (True, False)
    """
    return _hashed(_Walk().described(value))


class _Walk:
    """Describes one value as JSON-compatible lists.

    A function, class or object that occurs again is described by the position of its first occurrence; so is a
    collection inside itself.
    """

    def __init__(self) -> None:
        self._path: list[Any] = []
        self._seen: dict[int, tuple[int, Any]] = {}  # by id; the object is kept so that its id is not reused

    def described(self, value: Any) -> Any:
        # Before the plain values: a member of an IntEnum is an int as well.
        if isinstance(value, enum.Enum):
            return ["enum", type(value).__qualname__, value.name]
        if isinstance(value, _PLAIN):
            return [type(value).__name__, repr(value)]
        place = next((index for index, outer in enumerate(self._path) if outer is value), None)
        if place is not None:
            return ["inside", place]
        if id(value) in self._seen:
            return ["again", self._seen[id(value)][0]]
        if not isinstance(value, (list, tuple, Mapping, set, frozenset, np.ndarray)):  # equal ones may be one object
            self._seen[id(value)] = (len(self._seen), value)
        self._path.append(value)
        try:
            return next(found for describe in self._ways() if (found := describe(value)) is not None)
        finally:
            self._path.pop()

    def _ways(self) -> Iterator[Callable[[Any], Any]]:
        yield from (self._collection, self._array, self._callable, self._object)

    def _collection(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return ["list", *map(self.described, value)]
        if isinstance(value, Mapping):
            return ["dict", *sorted(([self.described(k), self.described(v)] for k, v in value.items()), key=_order)]
        if isinstance(value, (set, frozenset)):
            return ["set", *sorted(map(self.described, value), key=_order)]
        return ["path", str(value)] if isinstance(value, pathlib.PurePath) else None

    def _array(self, value: Any) -> Any:
        if isinstance(value, np.random.Generator):
            return ["random"]
        is_array = isinstance(value, (np.ndarray, np.generic, keras.Variable)) or keras.ops.is_tensor(value)
        if not is_array or isinstance(value, keras.KerasTensor):
            return None
        array = np.asarray(value if isinstance(value, (np.ndarray, np.generic)) else keras.ops.convert_to_numpy(value))
        if array.dtype.hasobject:
            return ["array", list(array.shape), *map(self.described, array.reshape(-1).tolist())]
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        return ["array", str(array.dtype), list(array.shape), digest]

    def _callable(self, value: Any) -> Any:
        if isinstance(value, functools.partial):
            return ["partial", *map(self.described, (value.func, value.args, value.keywords))]
        if isinstance(value, types.MethodType):
            return ["method", self.described(value.__self__), self.described(value.__func__)]
        if isinstance(value, (staticmethod, classmethod)):
            return [type(value).__name__, self.described(value.__func__)]
        if isinstance(value, property):
            return ["property", *map(self.described, (value.fget, value.fset))]
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.CodeType):
            return _code(value)
        if isinstance(value, type):
            return self._class(value)
        traced = getattr(value, "python_function", None)  # tf.function
        return None if traced is None else ["traced", self.described(traced)]

    def _function(self, function: types.FunctionType) -> Any:
        code = function.__code__
        # Functions that a factory of an installed package returns have one name and differ in closure and defaults.
        rest = [self._referred(code, _closure(function)), *map(self.described, _defaults(function))]
        if _is_installed(code.co_filename):
            return ["function", function.__module__, function.__qualname__, *rest]
        return ["function", _code(code), *rest, self._referred(code, _globals(function))]

    def _referred(self, code: types.CodeType, values: Iterable[tuple[str, Any]]) -> Any:
        """Describe the values that a function refers to; collections that it fills count by their names alone."""
        kept = [(name, value) for name, value in values if name not in _names(code, _VARIABLES)]
        filled = (list, dict, set) if _fills(code) else ()
        return [[name] if isinstance(value, filled) else [name, self.described(value)] for name, value in kept]

    def _class(self, cls: type) -> Any:
        name = ["class", cls.__module__, cls.__qualname__]
        if not _is_users(cls):
            return name
        ours = sorted((key, value) for key, value in vars(cls).items() if _is_content(key, value))
        return ["class", cls.__qualname__, *([k, self.described(v)] for k, v in ours), *map(self._class, cls.__bases__)]

    def _object(self, value: Any) -> Any:
        """Describe any other object by its class, its configuration or attributes, and a layer's variables."""
        found = ["object", self.described(type(value)), str(getattr(value, "__qualname__", ""))]
        if callable(getattr(value, "get_config", None)):
            found += [self.described(config_of(value)), self.described(_plain_attributes(value))]
            found += map(self.described, value.variables if isinstance(value, keras.layers.Layer) else ())
        elif dataclasses.is_dataclass(value):
            found += [
                [field.name, self.described(getattr(value, field.name, None))] for field in dataclasses.fields(value)
            ]
        elif _is_users(type(value)):
            changed = _changed_attributes(type(value))
            found += sorted([key, self.described(item)] for key, item in _attributes(value) if key not in changed)
        return found


def config_of(operation: Any) -> Any:
    """Return the part of an object's configuration that affects its computation: no names, initializers or training."""
    try:
        config = {key: value for key, value in operation.get_config().items() if key != "name"}
    except Exception:  # noqa: BLE001 - a user's class may raise anything
        return _plain_attributes(operation)
    function = getattr(operation, "function", None)
    if isinstance(operation, keras.layers.Lambda):  # its configuration holds bytes that differ between processes
        config = {**config, "function": function, "output_shape": None, "mask": None}
    return _without_training(config)


def _plain_attributes(value: Any) -> dict[str, Any]:
    """Return the JSON-compatible attributes, since not every configuration holds all of them."""
    found = {}
    for key, item in _attributes(value):
        with contextlib.suppress(TypeError, ValueError):
            json.dumps(item)
            found[key] = item
    return {key: item for key, item in found.items() if not (key in _NOT_ATTRIBUTES or key.endswith(_SECONDARY))}


_SECONDARY = ("_initializer", "_regularizer", "_constraint")
_NOT_COMPUTED = frozenset(("seed", "build_config", "compile_config", "shared_object_id", "trainable"))
_NOT_ATTRIBUTES = _NOT_COMPUTED | {"name", "_name", "_path", "built", "_trainable"}  # a built layer's path is its name


def _without_training(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_without_training(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    named = "trainable" in value  # a layer; the name of a dtype policy is its meaning
    return {
        key: _without_training(item)
        for key, item in value.items()
        if not (key in _NOT_COMPUTED or (named and key == "name") or str(key).endswith(_SECONDARY))
    }


def _code(code: types.CodeType) -> Any:
    """Describe bytecode, without lines and file names."""
    constants = [_code(item) if isinstance(item, types.CodeType) else _constant(item) for item in code.co_consts]
    if _has_docstring(code):
        constants[0] = ""
    # Bytecode refers to constants and names by position, so that it says little without them.
    names = [list(code.co_names), list(code.co_varnames), list(code.co_freevars), list(code.co_cellvars)]
    return ["code", code.co_code.hex(), constants, names, code.co_argcount, code.co_kwonlyargcount, code.co_flags]


def _has_docstring(code: types.CodeType) -> bool:
    """Return whether the first constant is a docstring: only functions have one, not generator expressions."""
    if sys.version_info >= (3, 13):
        return bool(code.co_flags & _HAS_DOCSTRING)
    # Functions without a docstring have None in its place.
    return not code.co_name.startswith("<") and isinstance(next(iter(code.co_consts), None), str)


def _constant(value: Any) -> Any:
    # The order of a set differs between processes.
    if isinstance(value, frozenset):
        return ["frozenset", *sorted(map(repr, value))]
    return [_constant(item) for item in value] if isinstance(value, tuple) else [type(value).__name__, repr(value)]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


@functools.lru_cache(maxsize=1024)
def _names(code: types.CodeType, operations: tuple[str, ...]) -> frozenset[str]:
    """Return the names that code uses in these operations of Python's bytecode."""
    steps = (step for part in _codes(code) for step in dis.get_instructions(part))
    return frozenset(str(step.argval) for step in steps if step.opname in operations)


@functools.lru_cache(maxsize=1024)
def _fills(code: types.CodeType) -> bool:
    """Return whether code changes the contents of lists, dictionaries or sets."""
    parts = list(_codes(code))
    return any(_FILLS & set(part.co_names) for part in parts) or any(
        step.opname in _FILLING for part in parts for step in dis.get_instructions(part)
    )


def _closure(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            yield name, cell.cell_contents


def _defaults(function: types.FunctionType) -> tuple[Any, Any]:
    return function.__defaults__, function.__kwdefaults__


def _globals(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function refers to, without modules."""
    for name in sorted(_names(function.__code__, ("LOAD_GLOBAL", "LOAD_NAME"))):
        value = function.__globals__.get(name)
        if value is not None and not isinstance(value, types.ModuleType):
            yield name, value


def _changed_attributes(cls: type) -> set[str]:
    """Return the attributes that the methods of a class other than its constructor assign to."""
    methods = (
        (name, method)
        for base in cls.__mro__
        for name, method in vars(base).items()
        if isinstance(method, types.FunctionType)
    )
    return {name for own, method in methods if own != "__init__" for name in _names(method.__code__, _ATTRIBUTES)}


def _attributes(value: Any) -> Iterable[tuple[str, Any]]:
    slots = [name for base in type(value).__mro__ for name in getattr(base, "__slots__", ())]
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return {**found, **getattr(value, "__dict__", {})}.items()


def _is_content(key: str, value: Any) -> bool:
    """Return whether an entry of a class's namespace is written by its author and is not a collection of data."""
    written = not (key.startswith("__") and key.endswith("__")) or isinstance(value, types.FunctionType)
    return written and not isinstance(value, (list, dict, set)) and not key.startswith("_abc_")


def _is_users(cls: type) -> bool:
    """Return whether a class is neither of Python's own nor of an installed package."""
    # Without a file are built-in modules, and the `__main__` of a notebook, whose classes are the user's.
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return not _is_installed(file) if file else cls.__module__.partition(".")[0] not in sys.stdlib_module_names


@functools.lru_cache(maxsize=1024)
def _is_installed(file: str) -> bool:
    return file.startswith("<frozen") or os.path.realpath(file).startswith(_INSTALLED)


def _order(item: Any) -> str:
    return json.dumps(item)


def _hashed(described: Any) -> str:
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()
