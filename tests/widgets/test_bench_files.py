"""A save of a bench that is killed at any step leaves the bench of before, or the new one, whole."""

import concurrent.futures
import json
import pathlib
import time

import pytest
from small_benches import tiny_model

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.bench_files import BENCH, FLOAT, TUNED, model_file, write_files

# Saves a bench once for each step that a save has, in processes that die at that step; without the test's threads.
KILLED = """
import os, pathlib, sys
import qdq_workbench.files  # what a save loads when it first needs it takes seconds: not in each process
from qdq_widgets.bench_files import write_files

folder, names = pathlib.Path(sys.argv[1]), sys.argv[2].split()
usual, left = pathlib.Path.write_text, 0

def dying(usual, half=None):
    def call(path, *arguments, **keywords):
        global left
        left -= 1
        if left < 0:
            if half:
                half(path)
            os.kill(os.getpid(), 9)
        return usual(path, *arguments, **keywords)
    return call

for step in range(100):
    process = os.fork()
    if not process:
        left = step
        pathlib.Path.write_text = dying(usual, lambda path: usual(path, "half"))
        pathlib.Path.replace, pathlib.Path.unlink = dying(pathlib.Path.replace), dying(pathlib.Path.unlink)
        models = {name: lambda path: path.write_text("after") for name in names}
        write_files(folder / str(step), {"of": "after"}, models)
        os._exit(0)
    if os.waitpid(process, 0)[1] == 0:
        print(step)
        break
"""


def write(folder, text, names):
    write_files(folder, {"of": text}, {name: lambda path: path.write_text(text) for name in names})


def read(folder, names):
    data = json.loads((folder / BENCH).read_text())
    return data["of"], {model_file(folder, data, name).read_text() for name in names}


@pytest.mark.parametrize(("before", "after"), [((FLOAT, TUNED), (FLOAT, TUNED)), ((FLOAT, TUNED), (FLOAT,))])
def test_killed_at_any_step(tmp_path, before, after, fresh):
    for step in range(20):
        (tmp_path / str(step)).mkdir()
        write(tmp_path / str(step), "before", before)
    ended = fresh.start(KILLED, str(tmp_path), " ".join(after)).finish()
    assert ended.returncode == 0, ended.stderr
    steps = int(ended.stdout)
    assert steps >= 5
    found = []
    for step in range(steps):
        folder = tmp_path / str(step)
        found.append(json.loads((folder / BENCH).read_text())["of"])
        assert read(folder, before if found[-1] == "before" else after) == (found[-1], {found[-1]})
        write(folder, "repaired", after)
        assert sorted(path.name for path in folder.iterdir()) == sorted([BENCH, *after])
        assert read(folder, after) == ("repaired", {"repaired"})
    assert set(found) == {"before", "after"}
    assert found == sorted(found, reverse=True)


def test_a_failure_leaves_the_bench_of_before(tmp_path):
    write(tmp_path, "before", [FLOAT])

    def fail(path):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_files(tmp_path, {"of": "after"}, {FLOAT: fail})
    assert read(tmp_path, [FLOAT]) == ("before", {"before"})
    assert sorted(path.name for path in tmp_path.iterdir()) == [BENCH, FLOAT]


@pytest.mark.parametrize("mark", ["../../model", 7, None, "ABCDEF12", ""])
def test_a_mark_that_no_save_wrote_is_no_part_of_a_name(tmp_path, mark):
    assert model_file(tmp_path, {"mark": mark}, FLOAT) == tmp_path / FLOAT
    (tmp_path / BENCH).write_text(json.dumps({"mark": mark}))
    write(tmp_path, "new", [FLOAT])
    assert read(tmp_path, [FLOAT]) == ("new", {"new"})


def test_two_benches_that_are_saved_at_the_same_time_do_not_mix(tmp_path, monkeypatch):
    usual = pathlib.Path.replace

    def slow(path, target):
        time.sleep(0.01)
        return usual(path, target)

    monkeypatch.setattr(pathlib.Path, "replace", slow)
    targets = {"first": "onnxruntime", "second": "tensorrt"}
    benches = [Workbench(tiny_model(name=name), target=target) for name, target in targets.items()]
    for _ in range(3):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda bench: bench.save(tmp_path), benches))
        name = qdq.load_model(tmp_path / FLOAT).name
        assert json.loads((tmp_path / BENCH).read_text())["steps"][0]["state"]["target"] == targets[name]
        assert sorted(path.name for path in tmp_path.iterdir()) == [BENCH, FLOAT]
