"""Files appear whole or not at all, and what killed processes left is removed by the next who writes there."""

import concurrent.futures
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import time
import types

import pytest

from qdq_workbench import _files, _scratch
from qdq_workbench._files import (
    as_path,
    lock_folder,
    write_atomically,
    write_folder,
    write_text,
    write_together,
    writes_text,
)
from qdq_workbench._scratch import scratch_folder
from qdq_workbench.errors import FileAccessError, OutputPathError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def fails(path):
    """Write half of a file, and fail."""
    (path / "half" if path.is_dir() else path).write_text("half")
    raise OSError(28, "No space left on device")


def killed_writer(target, write):
    """Let a process write and die in the middle, as by `kill -9`."""
    code = (
        "import os, pathlib, sys\n"
        "from qdq_workbench import _files\n"
        "def die(path):\n"
        "    (path / 'half' if path.is_dir() else path).write_text('half')\n"
        "    os.kill(os.getpid(), 9)\n"
        f"_files.{write}(sys.argv[1], die)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(target)], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr


@pytest.mark.parametrize("write", [write_atomically, write_folder])
def test_an_error_leaves_what_was_there_and_nothing_else(tmp_path, write):
    with pytest.raises(OutputPathError, match="No space left"):
        write(tmp_path / "new", fails)
    assert names(tmp_path) == []
    write_text(tmp_path / "kept", "before") if write is write_atomically else (tmp_path / "kept").mkdir()
    with pytest.raises(OutputPathError, match="No space left"):
        write(tmp_path / "kept", fails)
    assert names(tmp_path) == ["kept"]
    assert write is write_folder or (tmp_path / "kept").read_text() == "before"


@pytest.mark.parametrize("write", ["write_atomically", "write_folder"])
def test_what_a_killed_process_left_is_named_after_its_file_and_removed(tmp_path, write):
    killed_writer(tmp_path / "model.keras", write)
    (left,) = names(tmp_path)
    assert left.startswith(".qdq-")
    assert left.endswith(".model.keras")
    write_text(tmp_path / "other.txt", "whole")
    assert names(tmp_path) == ["other.txt"]


def test_what_others_still_write_stays(tmp_path, monkeypatch):
    here, mine = _files._computer(), os.getpid()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    others = [f".qdq-{here}-{mine}-a.txt", f".qdq-00000000-{ended.pid}-a.txt", ".qdq-readme", f".other-{here}-1-a.txt"]
    for name in (*others, f".qdq-{here}-{ended.pid}-a.txt"):
        (tmp_path / name).write_text("half")
    write_text(tmp_path / "a.txt", "whole")
    assert names(tmp_path) == sorted([*others, "a.txt"])
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 25 * 3600)  # whoever wrote for a day does not write any more
    write_text(tmp_path / "a.txt", "whole")
    assert names(tmp_path) == sorted([*others[2:], "a.txt"])
    monkeypatch.setattr(os, "name", "nt")  # where asking for a process would end it
    assert not _files._is_dead(here, ended.pid)


def test_a_file_keeps_its_permissions_and_a_new_one_has_the_usual(tmp_path):
    before = os.umask(0o027)
    try:
        path = write_text(tmp_path / "a.txt", "1")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o600)
        write_text(path, "2")
        assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("2", 0o600)
        folder = write_folder(tmp_path / "folder", lambda inside: (inside / "file").write_text("1"))
        assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    finally:
        os.umask(before)


@pytest.mark.parametrize("name", ["x" * 255, "й" * 120 + ".weights.h5", "a.keras"])
def test_the_temporary_file_ends_as_its_place(tmp_path, name):
    seen = []
    write_atomically(tmp_path / name, lambda path: seen.append(path.name))
    assert seen[0].endswith("".join(pathlib.Path(name).suffixes))
    assert len(os.fsencode(seen[0])) <= 255
    assert names(tmp_path) == [name]


def test_two_that_write_a_folder_at_the_same_time_do_not_mix_their_files(tmp_path, monkeypatch):
    def write(text):
        def fill(folder):
            for name in ("a", "b", "c"):
                (folder / name).write_text(text)

        return write_folder(tmp_path / "model", fill)

    usual = pathlib.Path.replace

    def slow(path, target):
        time.sleep(0.002)
        return usual(path, target)

    write("first")
    monkeypatch.setattr(pathlib.Path, "replace", slow)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(8):
            list(pool.map(write, map(str, range(8))))
            assert len({(tmp_path / "model" / name).read_text() for name in ("a", "b", "c")}) == 1
    assert names(tmp_path) == ["model"]


def test_files_that_belong_together_take_their_places_together(tmp_path):
    for name in ("one", "two"):
        write_text(tmp_path / name, "before")
    with pytest.raises(OutputPathError, match="two"):
        write_together([(tmp_path / "one", writes_text("after")), (tmp_path / "two", fails)])
    assert {(tmp_path / name).read_text() for name in names(tmp_path)} == {"before"}
    write_together([(tmp_path / name, writes_text("after")) for name in ("one", "two")])
    assert {(tmp_path / name).read_text() for name in names(tmp_path)} == {"after"}


@pytest.mark.parametrize("write", [write_atomically, write_folder])
def test_what_gets_its_name_is_on_the_disk(tmp_path, monkeypatch, write):
    """A power failure behind the name and before the contents would leave an empty file."""
    events = []

    def noted(function, what):
        def call(*arguments):
            events.append(what)
            return function(*arguments)

        return call

    monkeypatch.setattr(os, "fsync", noted(os.fsync, "contents"))
    for name in ("replace", "rename"):
        monkeypatch.setattr(pathlib.Path, name, noted(getattr(pathlib.Path, name), "name"))
    write(tmp_path / "new", lambda path: (path / "file" if path.is_dir() else path).write_text("whole"))
    assert events == ["contents", "name", "contents"]


def test_work_without_room_for_temporary_files_says_so(monkeypatch):
    def no_room(folder, size):
        raise OSError(28, "No space left on device")

    with pytest.raises(ZeroDivisionError), scratch_folder():
        raise ZeroDivisionError
    monkeypatch.setattr(_scratch, "check_room", no_room)
    with pytest.raises(OutputPathError, match="TMPDIR"), scratch_folder():
        raise ZeroDivisionError  # whatever TensorFlow or ONNX Runtime raise
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *_: no_room(None, 0))
    with pytest.raises(OutputPathError, match="TMPDIR"), scratch_folder():
        pass


def test_room_is_asked_for(tmp_path):
    _scratch.check_room(tmp_path, 1 << 20)
    with pytest.raises(OSError, match="MiB free"):
        _scratch.check_room(tmp_path, 1 << 60)
    assert names(tmp_path) == []


def test_a_folder_that_is_there_keeps_what_else_is_in_it(tmp_path):
    def write(folder):
        (folder / "assets").mkdir()
        (folder / "assets" / "words").write_text("new")
        (folder / "config").write_text("new")

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config").write_text("before")
    (tmp_path / "model" / "notes").write_text("mine")
    assert write_folder(tmp_path / "model", write) == tmp_path / "model"
    assert [(tmp_path / "model" / name).read_text() for name in ("assets/words", "config", "notes")] == [
        "new", "new", "mine",
    ]  # fmt: skip
    write_folder(tmp_path / "deep" / "er", write)
    assert names(tmp_path / "deep") == ["er"]
    assert names(tmp_path) == ["deep", "model"]
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputPathError):
        write_folder(tmp_path / "file", write)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_locked_folder_is_entered_by_one_after_the_other(tmp_path):
    order = []

    def work(number):
        with lock_folder(tmp_path):
            order.append(number)
            time.sleep(0.01)
            order.append(number)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert order[::2] == order[1::2]
    with pytest.raises(OutputPathError, match="existing folder"), lock_folder(tmp_path / "missing"):
        pass


def test_without_locks_of_folders_the_work_is_done_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    with lock_folder(tmp_path):
        write_atomically(tmp_path / "file", lambda file: file.write_text("new"))
    assert (tmp_path / "file").read_text() == "new"


def test_a_report_in_place_of_its_path_is_told_where_the_path_is():
    report = types.SimpleNamespace(path=pathlib.Path("model.onnx"))
    with pytest.raises(FileAccessError, match=r"pass report\.path\. Received: path=namespace"):
        as_path(report, FileAccessError)
