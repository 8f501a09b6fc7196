"""The long works of the bench where nothing can be written: a named error or a result, and a bench that goes on."""

import sys
import tempfile

import keras
import numpy as np
import pytest

import qdq_workbench as qdq
from qdq_widgets import Workbench

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="disks are mounted as Unix does"),
]
ROUNDING = {"granularity": "layer", "steps": 10}
SEARCHING = {"accuracy_floor": 0.0, "samples": 16, "verbose": False}
#: What is done, given a bench and the path of a checkpoint.
ACTIONS = {
    "calibrate": lambda bench, _: bench.calibrate(),
    "calibrate(checkpoint=)": lambda bench, path: bench.calibrate(checkpoint=path),
    "evaluate": lambda bench, _: bench.evaluate(),
    "correct_biases": lambda bench, _: bench.correct("correct_biases"),
    "learn_rounding": lambda bench, _: bench.correct("learn_rounding", **ROUNDING),
    "learn_rounding(checkpoint=)": lambda bench, path: bench.correct("learn_rounding", checkpoint=path, **ROUNDING),
    "search": lambda bench, _: bench.search(**SEARCHING),
    "search(checkpoint=)": lambda bench, path: bench.search(checkpoint=path, **SEARCHING),
    "fine_tune": lambda bench, _: bench.fine_tune(1),
    "fine_tune(checkpoint=)": lambda bench, path: bench.fine_tune(1, checkpoint=path),
    "sensitivity": lambda bench, _: bench.sensitivity(samples=16),
    "sensitivity(checkpoint=)": lambda bench, path: bench.sensitivity(samples=16, checkpoint=path),
    "diagnose": lambda bench, _: bench.diagnose(samples=16),
    "measure_speed": lambda bench, _: bench.measure_speed(rounds=1),
    "measure_variants": lambda bench, _: bench.measure_variants(),
}
#: What needs no file, or does without one.
SUCCEED = {"calibrate", "evaluate", "correct_biases", "search", "fine_tune", "sensitivity", "diagnose"}


@pytest.fixture(scope="module")
def network():
    """A network and its data."""
    keras.utils.set_random_seed(0)
    image = keras.Input((6,), name="image")
    hidden = keras.layers.Dense(8, activation="relu", name="hidden")(image)
    model = keras.Model(image, keras.layers.Dense(3, activation="softmax", name="head")(hidden), name="net")
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    generator = np.random.default_rng(0)
    return model, (generator.normal(size=(16, 6)).astype("float32"), generator.integers(0, 3, 16))


def calibrated_bench(model, data):
    bench = Workbench(model, train_data=data, validation_data=data, target="onnxruntime")
    bench.configure("hidden", "weight", num_bits=2)  # or no rounding is better than the nearest
    bench.calibrate()
    bench.keep_variant("first")
    return bench


def wrong_with(name, network, path, fault):
    """Return what is wrong with an action under a fault and with the bench behind it; nothing where all is well."""
    bench, act = calibrated_bench(*network), ACTIONS[name]
    before = bench.plan, bench.stage, np.asarray(bench.q_model(network[1][0]))
    wrong, refused = [], False
    try:
        with fault:
            act(bench, path)
    except qdq.QDQError:
        refused = True
    except Exception as error:  # noqa: BLE001 - the test names it
        wrong, refused = [f"no error of ours: {type(error).__name__}: {error}"], True
    if refused and name in SUCCEED:
        wrong.append("refused, though it needs no file")
    if not refused and name not in SUCCEED:
        wrong.append("nothing was refused")
    if bench.jobs.current is not None:
        wrong.append(f"still at work: {bench.jobs.current.label}")
    if refused:
        same = np.array_equal(np.asarray(bench.q_model(network[1][0])), before[2])
        if not same or (bench.plan, bench.stage) != before[:2]:
            wrong.append("the bench has another plan, stage or model")
        act(bench, path)
    else:
        bench.calibrate()
    bench.toggle("head", "weight")
    bench.undo()
    if not np.isfinite(np.asarray(bench.q_model(network[1][0]))).all():
        wrong.append("the model computes no numbers")
    return [f"{name}: {each}" for each in wrong]


@pytest.fixture
def scratch(disk, monkeypatch):
    """Temporary files go to the small disk."""
    folder = disk.folder / "temporary"
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return disk


@pytest.mark.parametrize("fault", ["full", "read_only"])
def test_where_nothing_can_be_written(network, scratch, fault):
    # What writes on a full disk makes a file first, which a read-only one does not allow: one fault is enough where
    # none is to be noticed.
    actions = ACTIONS if fault == "read_only" else [name for name in ACTIONS if name not in SUCCEED]
    wrong = [
        each
        for number, name in enumerate(actions)
        for each in wrong_with(name, network, scratch.folder / f"{fault}{number}.npz", getattr(scratch, fault)())
    ]
    assert wrong == []
