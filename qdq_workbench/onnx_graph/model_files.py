"""Reading and writing ONNX files, also those beyond the 2 GB of one protobuf message.

A larger model is two files: `model.onnx`, and `model.onnx.<digest>.data` with its constants. Because the second one is
named after its content, an earlier export of that name stays complete until the new `model.onnx` replaces it; its data
file is then removed, unless another model in the folder (a copy of the earlier export) refers to it.
"""

from __future__ import annotations

import glob
import hashlib
import pathlib
from collections.abc import Iterator

import onnx

from qdq_workbench._files import check_place, write_atomically
from qdq_workbench.errors import ExportError, FileAccessError, QDQError

#: The suffixes of an ONNX file's name.
SUFFIXES = (".onnx",)
#: Bytes of constants above which a model is written as two files; names, nodes and shapes take the rest of 2 GB.
SINGLE_FILE_LIMIT = 2_000_000_000
#: Bytes of the largest constant: ONNX keeps a tensor in one protobuf message, which cannot be longer.
TENSOR_LIMIT = 2**31 - 2**16
_LARGE, _CHUNK, _DIGITS = 1 << 20, 1 << 24, 12


def read_model(
    path: pathlib.Path,
    *,
    in_place_of_litert: str,
    refusal: type[QDQError] = FileAccessError,
    advice: str = "Expected a .onnx file",
) -> onnx.ModelProto:
    """Return an ONNX model, with the data that it keeps in other files; raise FileAccessError if it cannot be read.

    `refusal` is raised for a file that is no ONNX model; the one for a LiteRT file holds `in_place_of_litert`, the
    functions that read it.
    """
    received = f"Received: path={str(path)!r}"
    if is_litert(path):
        raise refusal(f"The file is a LiteRT file, and {in_place_of_litert}. {received}")
    try:
        model = onnx.load(str(path))
    except OSError as error:
        raise FileAccessError(f"Cannot read the file: {error.strerror or error}. {received}") from error
    except Exception as error:
        raise refusal(f"The file is not an ONNX model, or is damaged: {error}. {advice}. {received}") from error
    # protobuf reads an empty file, and some of other kinds, as a message without fields.
    if not model.graph.output:
        raise refusal(f"The file is not an ONNX model, or is empty: it has no outputs. {advice}. {received}")
    return model


def write_model(proto: onnx.ModelProto, path: str | pathlib.Path) -> pathlib.Path:
    """Write an ONNX model atomically and return its path; a second file has its constants where one cannot hold them.

    A large model is emptied of its constants, and `onnx.checker` checks it from the file alone.
    """
    target = check_place(path)
    # Read first: the file that refers to the earlier data is about to be replaced.
    before = _own_data_files(target)
    written: set[pathlib.Path] = set()
    if constant_bytes(proto) <= SINGLE_FILE_LIMIT:
        write_atomically(target, lambda temporary: temporary.write_bytes(proto.SerializeToString()))
    else:
        # The data first, so that no model file ever refers to data that are not there.
        data = target.with_name(f"{target.name}.{_content_digest(proto)}.data")
        write_atomically(data, lambda temporary: _move_constants(proto, temporary, data.name))
        write_atomically(target, lambda temporary: _write_checked(proto, temporary))
        written = {data}
    for old in _unused(before - written, target):
        old.unlink(missing_ok=True)
    return target


def _unused(data: set[pathlib.Path], target: pathlib.Path) -> set[pathlib.Path]:
    """Return the data files that no other model in the folder refers to (such as a copy of the earlier export)."""
    if not data:
        return data
    others = (file for file in target.parent.iterdir() if file.suffix.lower() in SUFFIXES and file != target)
    return data.difference(*(data_files(other) for other in others))


def _own_data_files(target: pathlib.Path) -> set[pathlib.Path]:
    """Return the data files of an earlier export to a path: those in its folder, named after it, that it refers to."""
    beside = set(target.parent.glob(f"{glob.escape(target.name)}.*.data"))
    return beside.intersection(data_files(target)) if beside else set()


def constant_bytes(proto: onnx.ModelProto) -> int:
    """Return the size of a model's constants in bytes, without those in other files."""
    return sum(len(tensor.raw_data) for tensor in proto.graph.initializer)


def data_files(path: str | pathlib.Path) -> list[pathlib.Path]:
    """Return the files beside an ONNX file that hold its constants; none where there is no readable file."""
    path = pathlib.Path(path)
    try:
        proto = onnx.load(str(path), load_external_data=False)
    except Exception:  # noqa: BLE001 - a damaged file raises several unrelated classes
        return []
    names = {entry.value for tensor in proto.graph.initializer for entry in tensor.external_data if _is_place(entry)}
    return sorted(path.parent / name for name in names)


def is_litert(path: str | pathlib.Path) -> bool:
    """Return whether a file is a LiteRT file, by its identifier; False if it cannot be read."""
    try:
        with pathlib.Path(path).open("rb") as file:
            return file.read(8)[4:] == b"TFL3"
    except OSError:
        return False


def file_digest(path: str | pathlib.Path) -> str:
    """Return the SHA-256 of an ONNX file's bytes followed by those of its data files."""
    digest = hashlib.sha256()
    for part in (pathlib.Path(path), *data_files(path)):
        with part.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def _is_place(entry: onnx.StringStringEntryProto) -> bool:
    return bool(entry.key == "location")


def _large_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    # The default threshold of onnx.save_model: shapes and other small constants stay where shape inference sees them.
    return (tensor for tensor in proto.graph.initializer if len(tensor.raw_data) >= 1024)


def _content_digest(proto: onnx.ModelProto) -> str:
    digest = hashlib.sha256()
    for tensor in _large_tensors(proto):
        digest.update(tensor.name.encode())
        digest.update(tensor.raw_data)
    return digest.hexdigest()[:_DIGITS]


def _move_constants(proto: onnx.ModelProto, path: pathlib.Path, name: str) -> None:
    """Move the constants to a data file, each at a multiple of 4,096 bytes, and refer to them there."""
    with path.open("wb") as file:
        for tensor in _large_tensors(proto):
            # ONNX recommends multiples of the page size, with which a runtime can map the file into memory.
            file.write(b"\0" * (-file.tell() % 4096))
            offset, length = file.tell(), len(tensor.raw_data)
            file.write(tensor.raw_data)
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", name), ("offset", offset), ("length", length)):
                tensor.external_data.add(key=key, value=str(value))


def _write_checked(proto: onnx.ModelProto, path: pathlib.Path) -> None:
    path.write_bytes(proto.SerializeToString())
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        raise ExportError(
            "The exported model did not pass onnx.checker, which is an error of the exporter; please report it with "
            f"the model. Received: {type(error).__name__}: {error}"
        ) from error
