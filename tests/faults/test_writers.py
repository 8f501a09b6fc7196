"""Whatever writes, on a disk that is full or read-only: a named error, and nothing else has happened."""

import ast
import concurrent.futures
import pathlib
import shutil
import sys
import tempfile
import traceback

import numpy as np
import pytest
from faults.small_disk import short_files
from faults.writers import COMMANDS, WRITERS, Things
from project import ROOT

import qdq_workbench as qdq
from qdq_workbench.cli.main import main
from qdq_workbench.errors import OutputPathError
from qdq_workbench.post_training.rounding.values import _in_file

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file"),
    pytest.mark.skipif(sys.platform == "win32", reason="disks are mounted and files limited as Unix does"),
]
_PACKAGES = (ROOT / "qdq_workbench", ROOT / "widgets" / "qdq_widgets")
TWICE = (
    "QuantizationSpec.save",
    "QuantizedModel.save .keras",
    "QuantizedModel.save folder",
    "save_integer_weights .npz",
    "export_onnx",
    "export_tflite",
)
#: What writes at the end of a long job, through the same doors; and what tests/cli/test_lab.py has.
NOT_HERE = {"qdq_workbench/cli/demo/artefacts.py: write_artefacts", "qdq_workbench/cli/lab.py: quickstart"}
#: The functions through which files take their places.
_DOORS = {"write_atomically", "write_together", "write_text", "write_folder", "write_files"}


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    return Things(tmp_path_factory.mktemp("things"))


@pytest.fixture(autouse=True)
def one_job(things, monkeypatch):
    monkeypatch.chdir(things.folder)


def contents(folder):
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def emptied(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def refused(writer, things, path):
    """Return what is wrong with how a writer fails; nothing where it ends in a named error that names a file."""
    before = contents(path.parent)
    try:
        writer.write(things, path)
    except qdq.QDQError as error:
        wrong = [] if str(path.parent) in str(error) else [f"names no file: {error}"]
    except Exception:  # noqa: BLE001 - the test names it
        wrong = [traceback.format_exc(limit=-3)]
    else:
        return ["nothing was refused"]
    after = contents(path.parent)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    return wrong + ([f"changed: {sorted(changed)}"] if changed else [])


def refused_command(line, things, folder, capsys):
    """Return what is wrong with how a command fails; of several files the first ones may be there, each whole."""
    code = main(line.filled(things, folder))
    streams = capsys.readouterr()
    wrong = []
    if (code, "Traceback" in streams.err, "not foreseen" in streams.err) != (2, False, False):
        wrong.append(f"exit code {code}: {streams.err[-600:]}")
    if str(folder) not in streams.err:
        wrong.append(f"names no file: {streams.err[-600:]}")
    return wrong + [f"left behind: {name}" for name in contents(folder) if pathlib.Path(name).name[0] == "."]


def test_a_full_disk(things, disk, capsys, monkeypatch):
    seen = watched(monkeypatch)
    outputs = things.outputs()
    wrong = []
    for writer in WRITERS:
        path = emptied(disk.folder) / writer.files[0]
        if not writer.goes_on:
            writer.write(things, path)
            assert {name.split("/")[0] for name in contents(disk.folder)} == set(writer.files)
        for pages in (0,) if writer.goes_on else (0, 1, 4):  # later steps may go on to fail
            with disk.full(pages):
                found = refused(writer, things, path)
            if pages and found == ["nothing was refused"]:
                break
            wrong += [f"{writer}, {pages} pages free: {each}" for each in found]
        writer.write(things, path)
    for line in COMMANDS:
        emptied(disk.folder)
        with disk.full():
            wrong += [f"{line}: {each}" for each in refused_command(line, things, disk.folder, capsys)]
    assert wrong == []
    np.testing.assert_array_equal(things.outputs(), outputs)
    missed = {f"{path.relative_to(ROOT)}: {function}" for path, function in places_that_write() - seen}
    assert missed == NOT_HERE, "add to tests/faults/writers.py what writes there"


def test_files_that_may_not_grow(things, tmp_path, capsys):
    outputs = things.outputs()
    wrong = []
    for writer in WRITERS:
        path = emptied(tmp_path / "files") / writer.files[0]
        if not writer.goes_on:
            writer.write(things, path)
        with short_files():
            found = refused(writer, things, path)
        wrong += [f"{writer}: {each}" for each in found if "Temporary files" not in each]
        writer.write(things, path)
    assert wrong == []
    np.testing.assert_array_equal(things.outputs(), outputs)


def test_a_read_only_folder(things, disk, capsys):
    wrong = []
    for writer in WRITERS:
        path = emptied(disk.folder) / writer.files[0]
        if not writer.goes_on:
            writer.write(things, path)
        with disk.read_only():
            wrong += [f"{writer}: {each}" for each in refused(writer, things, path)]
    emptied(disk.folder)
    for line in COMMANDS:
        with disk.read_only():
            wrong += [f"{line}: {each}" for each in refused_command(line, things, disk.folder, capsys)]
    assert wrong == []


def test_a_folder_in_the_place_of_a_file_and_a_file_in_that_of_a_folder(things, tmp_path):
    wrong = []
    for writer in WRITERS:
        for place, name in enumerate(writer.files):
            taken = emptied(tmp_path / "files") / name
            if "." in name:
                taken.mkdir()
                (taken / "inside").write_text("mine")
            else:
                taken.write_text("mine")
            found = refused(writer, things, taken.parent / writer.files[0])
            is_first_whole = place and found == [f"changed: {sorted(writer.files[:place])}"]
            wrong += [] if is_first_whole else [f"{writer}, {name}: {each}" for each in found]
    assert wrong == []


@pytest.mark.parametrize("writer", [writer for writer in WRITERS if writer.name in TWICE], ids=str)
def test_two_at_the_same_time(things, tmp_path, writer):
    path = tmp_path / writer.files[0]
    writer.write(things, path)
    alone = contents(tmp_path)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: writer.write(things, path), range(8)))
    assert set(contents(tmp_path)) == set(alone)


def watched(monkeypatch):
    """Note, for every temporary file that is made, which functions of ours are at work."""
    seen = set()

    def noting(make):
        def call(*arguments, **keywords):
            frame = sys._getframe(1)
            while frame is not None:
                seen.add((pathlib.Path(frame.f_code.co_filename), frame.f_code.co_name))
                frame = frame.f_back
            return make(*arguments, **keywords)

        return call

    for name in ("mkstemp", "mkdtemp"):
        monkeypatch.setattr(tempfile, name, noting(getattr(tempfile, name)))
    return seen


def places_that_write():
    """Return the files and functions of ours that call one of the doors."""
    places = set()
    for path in (path for package in _PACKAGES for path in package.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef):
                calls = [ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)]
                is_place = _DOORS & {call.removeprefix("qdq.") for call in calls}
                places |= {(path, function.name)} if is_place else set()
    return places


def test_values_that_do_not_fit_in_memory_do_not_fit_on_a_full_disk_either():
    values = np.arange(100_000.0)
    np.testing.assert_array_equal(_in_file(values), values)
    with short_files(), pytest.raises(OutputPathError, match="TMPDIR"):
        _in_file(values)
