"""LiteRT's C interface, whose library is part of the package `ai-edge-litert`.

The package's Python classes time whole runs only; the profiler of operators is in the C interface alone.
Source: litert/c/litert_profiler.h and litert_profiler_event.h of LiteRT 2.
"""

from __future__ import annotations

import ctypes
import importlib.util
import pathlib
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from qdq_workbench.errors import QDQError, VerificationError

_ON_CPU, _WRITE = 1, 1
_TYPE_BYTES = 512  # more than any version's description of a tensor's type takes
_INSTALL = "Install it with: pip install 'ai-edge-litert>=2.3'"
_Pointer = ctypes.c_void_p


class _Event(ctypes.Structure):
    _fields_ = (
        ("tag", ctypes.c_char_p),
        ("kind", ctypes.c_int),
        ("start", ctypes.c_uint64),
        ("microseconds", ctypes.c_uint64),
        ("memory", ctypes.c_size_t * 6),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
        ("source", ctypes.c_int),
    )


#: Kind, tag, microseconds and number of the operator of each event of the profiler.
Event = tuple[int, str, int, int]


@ctypes.CFUNCTYPE(None, _Pointer)
def _keep(_: Any) -> None:
    """Free nothing, since the text of an option is owned by Python."""


class LiteRTLibrary:
    """The functions of the library, by name; each raises an error where the library returns one.

    Raises:
        QDQError: If the package is not installed, or is one without this library.
    """

    def __init__(self) -> None:
        spec = importlib.util.find_spec("ai_edge_litert")
        if spec is None or spec.origin is None:
            raise QDQError(
                f"LiteRT's own package is not installed, and TensorFlow's interpreter has no profiler. {_INSTALL}. "
                "Received: runtime='litert'"
            )
        found = list(pathlib.Path(spec.origin).parent.glob("libLiteRt.*"))
        if not found:
            raise QDQError(
                f"This version of LiteRT's package has no profiler: it ships no library libLiteRt. {_INSTALL}. "
                f"Received: {spec.origin}"
            )
        self._library = ctypes.CDLL(str(found[0]))

    def call(self, name: str, *arguments: Any) -> None:
        """Call the library's function `LiteRt<name>`.

        One that fails raises `VerificationError`; one that the library does not have, `QDQError`.
        """
        try:
            function = getattr(self._library, f"LiteRt{name}")
        except AttributeError as error:
            raise QDQError(f"This version of LiteRT has no function LiteRt{name}. {_INSTALL}") from error
        status = function(*arguments)
        if status:
            raise VerificationError(f"LiteRT refuses the file or its data: LiteRt{name} returned {status}")

    def new(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """Return the object that the function `LiteRt<name>` creates or finds, and writes to its last argument."""
        made = _Pointer()
        self.call(name, *arguments, ctypes.byref(made))
        return made

    def number(self, name: str, *arguments: Any, of: Any = ctypes.c_size_t) -> int:
        """Return the number, of a ctypes type, that the function `LiteRt<name>` writes to its last argument."""
        found = of()
        self.call(name, *arguments, ctypes.byref(found))
        return int(found.value)

    def free(self, kind: str, made: ctypes.c_void_p) -> None:
        """Destroy an object of a kind such as "Model"."""
        getattr(self._library, f"LiteRtDestroy{kind}")(made)


class LiteRTSession:
    """A `.tflite` file, open in LiteRT on the CPU, with one batch of inputs.

    Args:
        library: The library.
        path: The file.
        feed: One batch, by name of the input.
        threads: Threads within a kernel; None for LiteRT's own choice, which is one.
        profiled: Whether with the profiler.
    """

    def __init__(
        self,
        library: LiteRTLibrary,
        path: pathlib.Path,
        feed: Mapping[str, np.ndarray],
        threads: int | None,
        *,
        profiled: bool = False,
    ) -> None:
        self._library = library
        self._made: list[tuple[str, ctypes.c_void_p]] = []
        self._texts: list[Any] = []
        # Before the first object, so that a constructor that fails frees what it made. With the list, since a reference
        # to the session would keep it alive.
        weakref.finalize(self, _free_all, library, self._made)
        self._environment = self._own("Environment", library.new("CreateEnvironment", 0, None))
        model = self._own("Model", library.new("CreateModelFromFile", self._environment, str(path).encode()))
        options = self._own("Options", library.new("CreateOptions"))
        library.call("SetOptionsHardwareAccelerators", options, _ON_CPU)
        if profiled:
            self._set(options, b"runtime_options_string", b"enable_profiling = true\n")
        if threads is not None:
            self._set(options, b"xnnpack", b"num_threads = %d\n" % threads)
        self._compiled = self._own(
            "CompiledModel", library.new("CreateCompiledModel", self._environment, model, options)
        )
        # ctypes passes a plain integer as a C int, which is narrower than a size_t.
        signature = library.new("GetModelSignature", model, ctypes.c_size_t(0))
        self._inputs = self._buffers("Input", signature, lambda name: feed[name])
        self._outputs = self._buffers("Output", signature, lambda _: None)
        self._profiler = library.new("CompiledModelGetProfiler", self._compiled) if profiled else None

    def run(self) -> None:
        """Run the file once."""
        sizes = ctypes.c_size_t(len(self._inputs)), ctypes.c_size_t(len(self._outputs))
        ends = (sizes[0], self._inputs, sizes[1], self._outputs)
        self._library.call("RunCompiledModel", self._compiled, ctypes.c_size_t(0), *ends)

    def run_profiled(self) -> list[Event]:
        """Run the file once with the profiler and return its events, in their order."""
        library, profiler = self._library, self._profiler
        library.call("ResetProfiler", profiler)
        library.call("StartProfiler", profiler)
        self.run()
        library.call("StopProfiler", profiler)
        count = library.number("GetNumProfilerEvents", profiler, of=ctypes.c_int)
        events = (_Event * count)()
        library.call("GetProfilerEvents", profiler, count, events)
        return [(event.kind, (event.tag or b"").decode(), event.microseconds, event.first) for event in events]

    def _own(self, kind: str, made: ctypes.c_void_p) -> ctypes.c_void_p:
        self._made.append((kind, made))
        return made

    def _set(self, options: ctypes.c_void_p, name: bytes, text: bytes) -> None:
        held = ctypes.create_string_buffer(text)
        self._texts.append(held)
        made = self._library.new("CreateOpaqueOptions", name, ctypes.cast(held, _Pointer), _keep)
        self._library.call("AddOpaqueOptions", options, made)

    def _buffers(
        self, end: str, signature: ctypes.c_void_p, values: Callable[[str], np.ndarray | None]
    ) -> ctypes.Array[ctypes.c_void_p]:
        library, found = self._library, []
        for place in map(ctypes.c_size_t, range(library.number(f"GetNumSignature{end}s", signature))):
            tensor = library.new(f"GetSignature{end}TensorByIndex", signature, place)
            type_ = ctypes.create_string_buffer(_TYPE_BYTES)
            library.call("GetRankedTensorType", tensor, type_)
            needs = library.new(f"GetCompiledModel{end}BufferRequirements", self._compiled, ctypes.c_size_t(0), place)
            made = library.new("CreateManagedTensorBufferFromRequirements", self._environment, type_, needs)
            found.append(self._own("TensorBuffer", made))
            name = library.new(f"GetSignature{end}Name", signature, place)
            given = values(ctypes.string_at(name.value or 0).decode())
            if given is not None:
                self._fill(made, np.ascontiguousarray(given))
        return (_Pointer * len(found))(*(one.value for one in found))

    def _fill(self, buffer: ctypes.c_void_p, values: np.ndarray) -> None:
        library = self._library
        size = library.number("GetTensorBufferSize", buffer)
        if size < values.nbytes:
            raise VerificationError(f"LiteRT's input has {size} bytes. Received: {values.nbytes} bytes of data")
        where = _Pointer()
        library.call("LockTensorBuffer", buffer, ctypes.byref(where), _WRITE)
        ctypes.memmove(where, values.ctypes.data, values.nbytes)
        library.call("UnlockTensorBuffer", buffer)


def _free_all(library: LiteRTLibrary, made: list[tuple[str, ctypes.c_void_p]]) -> None:
    """Destroy the objects of a session in reverse order of creation."""
    while made:
        library.free(*made.pop())
