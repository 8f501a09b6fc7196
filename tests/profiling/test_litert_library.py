"""LiteRT's C interface on a made-up library: errors, options, data, what is freed; test_litert.py runs the real one."""

import ctypes
import gc
import importlib.machinery
import importlib.util
import pathlib

import numpy as np
import pytest

from qdq_workbench.errors import QDQError, VerificationError
from qdq_workbench.profiling import litert_library
from qdq_workbench.profiling.litert_library import LiteRTLibrary, LiteRTSession

FILE = pathlib.Path("model.tflite")
NAME = ctypes.c_char_p(b"x")


class Functions:
    """Stands in for the library: numbers what it makes, and records its calls and what it destroys."""

    def __init__(self, failing=None, sizes=None):
        self.failing, self.sizes = failing, sizes or {}
        self.calls, self.made, self.destroyed, self.options = [], 0, [], {}

    def __getattr__(self, name):
        if not name.startswith("LiteRt") or name == "LiteRtGone":
            raise AttributeError(name)
        return lambda *arguments: self._call(name.removeprefix("LiteRt"), arguments)

    def _call(self, name, arguments):
        if name.startswith("Destroy"):
            self.destroyed.append(name.removeprefix("Destroy"))
            return None
        self.calls.append(name)
        if name == self.failing:
            return 7
        if name == "CreateOpaqueOptions":
            self.options[arguments[0]] = ctypes.string_at(arguments[1])
        if name in ("GetSignatureInputName", "GetSignatureOutputName"):
            arguments[-1]._obj.value = ctypes.cast(NAME, ctypes.c_void_p).value
        elif name in self.sizes:
            arguments[-1]._obj.value = self.sizes[name]
        elif name.startswith(("Create", "CompiledModelGet", "GetModelSignature")):
            self.made += 1
            arguments[-1]._obj.value = self.made
        return 0


def library_of(functions):
    library = LiteRTLibrary.__new__(LiteRTLibrary)
    library._library = functions
    return library


def test_a_package_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    with pytest.raises(
        QDQError, match=r"not installed.*pip install 'ai-edge-litert>=2\.3'.* Received: runtime='litert'"
    ):
        LiteRTLibrary()


def test_a_package_without_the_library_is_named(monkeypatch, tmp_path):
    found = importlib.machinery.ModuleSpec("ai_edge_litert", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: found)

    with pytest.raises(QDQError, match=r"ships no library libLiteRt.*__init__\.py"):
        LiteRTLibrary()


def test_the_library_beside_the_package_is_opened(monkeypatch, tmp_path):
    (tmp_path / "libLiteRt.so").touch()
    found = importlib.machinery.ModuleSpec("ai_edge_litert", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: found)
    monkeypatch.setattr(litert_library.ctypes, "CDLL", lambda path: ("opened", path))

    assert LiteRTLibrary()._library == ("opened", str(tmp_path / "libLiteRt.so"))


def test_a_function_that_fails_is_named_with_its_status():
    library = library_of(Functions(failing="RunCompiledModel"))

    with pytest.raises(VerificationError, match="LiteRtRunCompiledModel returned 7"):
        library.call("RunCompiledModel")
    library.call("StartProfiler")


def test_a_function_that_is_missing_is_one_of_another_version():
    with pytest.raises(QDQError, match=r"no function LiteRtGone\. Install it with: pip install"):
        library_of(Functions()).call("Gone")


def test_what_a_function_writes_is_returned():
    library = library_of(Functions(sizes={"GetNumProfilerEvents": 3}))

    assert library.number("GetNumProfilerEvents", of=ctypes.c_int) == 3
    assert [library.new("CreateOptions").value for _ in range(2)] == [1, 2]


def test_a_session_frees_what_it_made_in_reverse_order():
    functions = Functions(sizes={"GetNumSignatureInputs": 0, "GetNumSignatureOutputs": 1})
    session = LiteRTSession(library_of(functions), FILE, {}, None)
    assert functions.destroyed == []

    del session
    gc.collect()
    assert functions.destroyed == ["TensorBuffer", "CompiledModel", "Options", "Model", "Environment"]


@pytest.mark.parametrize(
    ("failing", "freed"),
    [
        ("CreateEnvironment", []),
        ("CreateModelFromFile", ["Environment"]),
        ("CreateCompiledModel", ["Options", "Model", "Environment"]),
    ],
)
def test_a_session_that_cannot_be_made_frees_what_it_has(failing, freed):
    functions = Functions(failing=failing)

    with pytest.raises(VerificationError, match=failing):
        LiteRTSession(library_of(functions), FILE, {}, None)
    gc.collect()
    assert functions.destroyed == freed


@pytest.mark.parametrize(
    ("threads", "profiled", "options"),
    [
        (None, False, {}),
        (3, False, {b"xnnpack": b"num_threads = 3\n"}),
        (None, True, {b"runtime_options_string": b"enable_profiling = true\n"}),
    ],
)
def test_only_the_options_that_are_asked_for_are_set(threads, profiled, options):
    functions = Functions(sizes={"GetNumSignatureInputs": 0, "GetNumSignatureOutputs": 0})

    session = LiteRTSession(library_of(functions), FILE, {}, threads, profiled=profiled)

    assert functions.options == options
    assert ("CompiledModelGetProfiler" in functions.calls) == profiled
    session.run()
    assert functions.calls[-1] == "RunCompiledModel"


def test_data_that_are_larger_than_the_input_are_not_copied():
    sizes = {"GetNumSignatureInputs": 1, "GetNumSignatureOutputs": 0, "GetTensorBufferSize": 15}
    functions = Functions(sizes=sizes)

    with pytest.raises(VerificationError, match=r"input has 15 bytes\. Received: 16 bytes of data"):
        LiteRTSession(library_of(functions), FILE, {"x": np.zeros(4, np.float32)}, None)
    assert "LockTensorBuffer" not in functions.calls


def test_data_fill_the_input_of_their_name():
    memory = np.zeros(4, np.float32)
    sizes = {"GetNumSignatureInputs": 1, "GetNumSignatureOutputs": 0, "GetTensorBufferSize": 16}
    functions = Functions(sizes=sizes)

    def lock(buffer, where, mode):
        assert mode == 1, "for writing"
        where._obj.value = memory.ctypes.data
        return 0

    functions.LiteRtLockTensorBuffer = lock
    given = np.arange(8, dtype=np.float32)[::2]
    LiteRTSession(library_of(functions), FILE, {"other": memory, "x": given}, None)

    np.testing.assert_array_equal(memory, given)
    assert "UnlockTensorBuffer" in functions.calls


def test_events_of_a_run_are_those_between_start_and_stop():
    sizes = {"GetNumSignatureInputs": 0, "GetNumSignatureOutputs": 0, "GetNumProfilerEvents": 2}
    functions = Functions(sizes=sizes)

    def events(_, count, found):
        assert count == 2
        found[0].tag, found[0].kind, found[0].microseconds, found[0].first = b"Convolution", 8, 5, 1
        return 0

    functions.LiteRtGetProfilerEvents = events
    session = LiteRTSession(library_of(functions), FILE, {}, None, profiled=True)
    functions.calls.clear()

    assert session.run_profiled() == [(8, "Convolution", 5, 1), (0, "", 0, 0)]
    assert functions.calls == [
        "ResetProfiler", "StartProfiler", "RunCompiledModel", "StopProfiler", "GetNumProfilerEvents",
    ]  # fmt: skip


def test_a_file_runs_on_the_processor_with_as_many_buffers_as_it_has_ends():
    functions = Functions(sizes={"GetNumSignatureInputs": 0, "GetNumSignatureOutputs": 2})
    given = {}

    def record(name):
        def call(*arguments):
            given[name] = arguments
            return 0

        return call

    functions.LiteRtSetOptionsHardwareAccelerators = record("accelerators")
    functions.LiteRtRunCompiledModel = record("run")
    LiteRTSession(library_of(functions), FILE, {}, None).run()

    assert given["accelerators"][1] == 1  # kLiteRtHwAcceleratorCpu
    _, signature, inputs, _, outputs, buffers = given["run"]
    assert (signature.value, inputs.value, outputs.value) == (0, 0, 2)
    assert len(buffers) == 2
