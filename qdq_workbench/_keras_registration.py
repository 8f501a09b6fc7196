"""Registration of the library's classes with Keras, without importing Keras (and TensorFlow).

`keras.models.load_model` finds a custom class only after the module that registers it was imported. Importing
`qdq_workbench` must stay light, so the registration waits for Keras: it happens at once if Keras is loaded, else right
after the import that loads it, by the user or by a module of this library.

A finder in `sys.meta_path` detects both. It stays there until the classes are registered, because a request for a
module's spec need not load the module: importing TensorFlow requests the spec of Keras.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

from qdq_workbench._interrupts import interrupts_held

_PACKAGE = __name__.partition(".")[0]
_HOME = f"{_PACKAGE}.conversion.engine.quantized_model"  # imports every registered class


def register_with_keras() -> None:
    """Register the library's classes with Keras, now or as soon as it is imported."""
    if _is_loaded("keras"):
        _register()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        # First, because Python asks no finder behind the one that finds a module.
        sys.meta_path.insert(0, _Finder())


def _is_loaded(name: str) -> bool:
    """Return whether a module is imported completely."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def _register() -> None:
    """Import all classes to register; do nothing on a backend other than TensorFlow, which is not supported."""
    if sys.modules["keras"].config.backend() == "tensorflow":
        with interrupts_held():
            importlib.import_module(_HOME)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds Keras and the library's modules by the other finders, and detects when they have been imported."""

    def __init__(self) -> None:
        self._thread = threading.local()
        self._lock = threading.Lock()
        self._half_imported = 0

    def find_spec(self, fullname: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of the other finders, with a loader that notifies this finder."""
        ours = fullname.startswith(f"{_PACKAGE}.")
        if not (ours or fullname == "keras") or getattr(self._thread, "asks", False):
            return None
        # `find_spec` asks all finders, this one included, which then has to pass.
        self._thread.asks = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._thread.asks = False
        if spec is not None and spec.loader is not None:
            spec.loader = _TellingLoader(spec.loader, self, ours=ours)
        return spec

    def begins(self) -> None:
        """Note that a module of the library is being imported; until it is complete, nothing can be registered."""
        with self._lock:
            self._half_imported += 1

    def ends(self) -> None:
        """Note that the import of a module of the library has ended."""
        with self._lock:
            self._half_imported -= 1

    def loaded(self) -> None:
        """Register the classes and remove this finder, if Keras is imported and no module is partially imported."""
        # None is the entry of a module whose import is blocked.
        if self._half_imported or sys.modules.get("keras") is None:
            return
        _register()
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)


class _TellingLoader(importlib.abc.Loader):
    """Loads a module with its own loader, and notifies the finder."""

    def __init__(self, loader: Any, finder: _Finder, *, ours: bool) -> None:
        self._loader = loader
        self._finder = finder
        self._ours = ours

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        if self._ours:
            self._finder.begins()
        try:
            self._loader.exec_module(module)
        finally:
            if self._ours:
                self._finder.ends()
        self._finder.loaded()

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # not set yet while a copy is created: avoid infinite recursion
            raise AttributeError(name)
        return getattr(self._loader, name)
