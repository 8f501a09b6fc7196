"""Accuracies that workers measure ahead: the search finds what it would have found in one process."""

import contextlib
import os
import unittest.mock

import joblib
import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.analysis import pool, search_workers
from qdq_workbench.analysis.search_workers import Request, first_unknown
from qdq_workbench.errors import WorkerError

LAYERS = ["first", "second", "third", "head"]


@keras.saving.register_keras_serializable(package="test_search_workers")
class Halved(layers.Dense):
    """A layer class that no other process knows of its own accord."""

    def call(self, inputs, training=None):
        return 0.5 * super().call(inputs)


@pytest.fixture(scope="module")
def problem():
    """A calibrated model of 3-bit weights, so that every layer costs accuracy, data with its answers, and a ranking."""
    keras.utils.set_random_seed(5)
    image = keras.Input((8,), name="image")
    value = image
    for name in LAYERS[:-1]:
        value = layers.Dense(12, activation="relu", name=name)(value)
    model = keras.Model(image, Halved(5, name="head")(value), name="workers")
    x = np.random.default_rng(0).normal(size=(128, 8)).astype("float32")
    y = np.argmax(model.predict(x, verbose=0), axis=-1)
    spec = qdq.QuantizationSpec()
    spec.add(LAYERS, quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 3}))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, x, verbose=False)
    return q_model, (x, y), qdq.sensitivity(q_model, (x, y), verbose=False)


WANTED = {"accuracy_floor": 0.8, "objective": "macs", "verbose": False}


@pytest.fixture(scope="module")
def alone(problem):
    """What one process finds."""
    q_model, data, ranking = problem
    return qdq.search(q_model, data, n_jobs=1, ranking=ranking, **WANTED)


@contextlib.contextmanager
def dask_cluster(*, processes):
    """A dask cluster on this machine, as joblib's backend: two workers as threads, or one process that works on two."""
    distributed = pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    import dask

    patient = {f"distributed.comm.timeouts.{what}": "10m" for what in ("connect", "tcp")}  # a loaded machine
    # One process: each imports TensorFlow.
    workers = {"n_workers": 1, "threads_per_worker": 2} if processes else {"n_workers": 2, "threads_per_worker": 1}
    size = {**workers, "processes": processes, "dashboard_address": None}
    with (
        unittest.mock.patch.dict(os.environ),  # dask sets variables for its processes in ours
        dask.config.set(patient),
        distributed.LocalCluster(**size) as cluster,
        distributed.Client(cluster, timeout="10m"),
        joblib.parallel_config("dask"),
    ):
        yield


BACKENDS = {
    "threading": lambda: joblib.parallel_config("threading", n_jobs=2),
    "loky": lambda: joblib.parallel_config("loky", n_jobs=2),
    "dask, threads": lambda: dask_cluster(processes=False),
    "dask, processes": lambda: dask_cluster(processes=True),
}


@pytest.fixture
def ahead(monkeypatch):
    """The placements that workers measured, by key."""
    found = []
    measure = search_workers.ParallelMeasurer.measure

    def noted(self, asked, tell):
        found.extend(one.key for one in asked)
        measure(self, asked, tell)

    monkeypatch.setattr(search_workers.ParallelMeasurer, "measure", noted)
    return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_workers_find_what_one_process_finds(problem, alone, ahead, backend):
    q_model, data, ranking = problem

    with BACKENDS[backend]():
        result = qdq.search(q_model, data, ranking=ranking, **WANTED)

    assert result.to_dict() == alone.to_dict()
    assert len(result.history) > 4
    assert len(set(ahead)) == len(ahead) >= len(result.history) - 1, "each once, and by workers"


@pytest.mark.parametrize(
    "wanted",
    [
        {"accuracy_floor": 0.9, "bits": (4, 8)},
        {"max_bytes": 300, "objective": "accuracy"},
        {"max_loss": 0.1, "objective": "macs", "cases": "auto", "pairs": True},
    ],
)
def test_every_strategy_goes_the_same_way(problem, ahead, monkeypatch, wanted):
    loaded, load = [], pool._load
    monkeypatch.setattr(pool, "_load", lambda job: loaded.append(job.key) or load(job))
    for module in ("search_strategies", "search_run"):
        monkeypatch.setattr(f"qdq_workbench.analysis.{module}.MOST_EXACT", 2)
    q_model, data, ranking = problem
    wanted = {**wanted, "ranking": ranking, "verbose": False}
    alone = qdq.search(q_model, data, n_jobs=1, **wanted)
    assert not ahead

    with joblib.parallel_config("threading", n_jobs=2):
        result = qdq.search(q_model, data, **wanted)

    assert result.to_dict() == alone.to_dict()
    assert ahead
    assert len(loaded) in (1, 2), "by each worker once"


def test_a_search_with_workers_can_be_stopped_and_goes_on(problem, alone, ahead, tmp_path):
    q_model, data, ranking = problem
    wanted = {**WANTED, "ranking": ranking}
    path = tmp_path / "search.json"
    calls = []

    def stop():
        calls.append(1)
        return len(calls) > 2

    with joblib.parallel_config("threading", n_jobs=2):
        stopped = qdq.search(q_model, data, stop=stop, checkpoint=path, **wanted)
        before = set(ahead)
        result = qdq.search(q_model, data, checkpoint=path, **wanted)

    assert not stopped.complete
    assert result.complete
    assert len(ahead) == len(set(ahead)) > len(before), "what was measured is not measured again"
    assert result.to_dict() == alone.to_dict()


@pytest.mark.skipif(
    tuple(map(int, joblib.__version__.split(".")[:2])) < (1, 5), reason="older joblib starts workers without a function"
)
def test_a_worker_that_dies_is_named_and_a_later_search_goes_as_if_nothing_had_been(problem, alone, tmp_path):
    q_model, data, ranking = problem
    path = tmp_path / "search.json"
    wanted = {**WANTED, "ranking": ranking, "checkpoint": path}

    dying = joblib.parallel_config(backend="loky", n_jobs=2, initializer=os._exit, initargs=(3,))
    with dying, pytest.raises(WorkerError, match="n_jobs=2"):
        qdq.search(q_model, data, **wanted)

    assert qdq.search(q_model, data, **wanted).to_dict() == alone.to_dict()


def test_a_function_of_the_users_stays_in_this_process(problem, ahead):
    q_model, data, ranking = problem

    with joblib.parallel_config("threading", n_jobs=2):
        result = qdq.search(
            q_model, data, evaluate=lambda model: 0.5, accuracy_floor=0.4, ranking=ranking, verbose=False
        )

    assert result.best.meets
    assert not ahead


def test_only_as_many_as_there_are_workers_are_asked_for_and_none_if_the_next_is_known():
    read = []

    def likely(*keys):
        for key in keys:
            read.append(key)
            yield None if key is None else Request(key, None, None, by_switches=True)

    assert not first_unknown(likely(None, "a"), 2)
    assert read == [None]
    assert [one.key for one in first_unknown(likely("a", None, "a", "b", "c"), 2)] == ["a", "b"]
    assert read == [None, "a", None, "a", "b"]
