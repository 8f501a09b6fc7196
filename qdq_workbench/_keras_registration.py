"""Making Keras know our classes, without importing Keras (and TensorFlow) ourselves.

`keras.models.load_model` finds a custom class only after the module that registers it was imported. Importing
`qdq_workbench` must stay light, so the registration waits for Keras: it happens at once where Keras is loaded already,
else right behind the import that loads it: the user's own `import keras`, or that of one of our modules.

A finder in `sys.meta_path` notices both. It stays there until our classes are registered, because whoever asks for a
module's spec need not load the module: importing TensorFlow asks for Keras's.
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
    """Register our classes with Keras, now or as soon as it is imported."""
    if _is_loaded("keras"):
        _register()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _is_loaded(name: str) -> bool:
    """Return whether a module is there, and not in the middle of its import."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def _register() -> None:
    """Import every class that Keras must know; on another backend than TensorFlow there is nothing to load."""
    if sys.modules["keras"].config.backend() == "tensorflow":
        with interrupts_held():
            importlib.import_module(_HOME)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds Keras and our own modules as everybody else does, and notices when they have been imported."""

    def __init__(self) -> None:
        self._thread = threading.local()
        self._lock = threading.Lock()
        self._half_imported = 0

    def find_spec(self, fullname: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        """Return what the other finders find, with a loader that tells when it has loaded."""
        ours = fullname.startswith(f"{_PACKAGE}.")
        if not (ours or fullname == "keras") or getattr(self._thread, "asks", False):
            return None
        self._thread.asks = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._thread.asks = False
        if spec is not None and spec.loader is not None:
            spec.loader = _TellingLoader(spec.loader, self, ours=ours)
        return spec

    def begins(self) -> None:
        """One of our modules is being imported: until that is over, what we register may not find it complete."""
        with self._lock:
            self._half_imported += 1

    def ends(self) -> None:
        """The import of one of our modules is over."""
        with self._lock:
            self._half_imported -= 1

    def loaded(self) -> None:
        """Register our classes if Keras is there and none of our modules is half imported; then the work is done."""
        if self._half_imported or "keras" not in sys.modules:
            return
        _register()
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)


class _TellingLoader(importlib.abc.Loader):
    """Loads a module with its own loader, and tells the finder."""

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
        if name == "_loader":  # a copy that is being made has none yet
            raise AttributeError(name)
        return getattr(self._loader, name)
