"""Two processes export to one path by the command line at the same time: one wins, and its file is whole."""

import time

import keras
import numpy as np
import pytest

import qdq_workbench as qdq

TIMES = 3
LIMIT = 300.0  # seconds until both processes have made their first exports
# The first export of each comes before the start, so that the others meet.
EXPORTER = """
import pathlib, sys, time
from qdq_workbench.cli.main import main
model, path, alone = sys.argv[1:4]
assert main(["export", model, "-o", alone]) == 0
pathlib.Path(alone + ".ready").touch()
while not pathlib.Path(alone).with_name("go").exists():
    time.sleep(0.01)
for _ in range(int(sys.argv[4])):
    assert main(["export", model, "-o", path]) == 0
"""


def small_model(seed, images, path):
    """Save a calibrated model; another seed gives other weights."""
    keras.utils.set_random_seed(seed)
    image = keras.Input((6,), name="image")
    hidden = keras.layers.Dense(64, activation="relu", name="hidden")(image)
    model = keras.Model(image, keras.layers.Dense(3, name="head")(hidden), name="net")
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, images, verbose=False)
    q_model.save(path)
    return q_model


@pytest.mark.slow
def test_two_processes_that_export_to_one_path(tmp_path, fresh):
    images = np.random.default_rng(0).normal(size=(16, 6)).astype("float32")
    models = [small_model(seed, images, tmp_path / f"{seed}.keras") for seed in (0, 1)]
    alone = [tmp_path / "alone" / f"{seed}.onnx" for seed in (0, 1)]
    path = tmp_path / "shared" / "net.onnx"
    for folder in (alone[0].parent, path.parent):
        folder.mkdir()
    processes = [
        fresh.start(EXPORTER, str(tmp_path / f"{seed}.keras"), str(path), str(alone[seed]), str(TIMES))
        for seed in (0, 1)
    ]
    end = time.monotonic() + LIMIT
    while not all(each.with_name(f"{each.name}.ready").exists() for each in alone) and time.monotonic() < end:
        time.sleep(0.05)
    (alone[0].parent / "go").touch()  # whatever became of them: a process that waits on would not end
    ended = [process.finish() for process in processes]
    assert [process.returncode for process in ended] == [0, 0], [process.stderr[-2000:] for process in ended]
    assert time.monotonic() < end
    assert [each.name for each in path.parent.iterdir()] == ["net.onnx"]
    # Exports are the same byte for byte, so a mixture of both would be neither.
    (winner,) = [seed for seed in (0, 1) if path.read_bytes() == alone[seed].read_bytes()]
    qdq.verify_onnx(path, models[winner], images).raise_if_failed()
    with pytest.raises(qdq.QDQError):
        qdq.verify_onnx(path, models[1 - winner], images).raise_if_failed()
