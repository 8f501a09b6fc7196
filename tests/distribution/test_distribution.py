"""Training on several devices: ranges are equal everywhere, and what one process computes within tolerance."""

import json
import pathlib
import socket

import pytest

HERE = pathlib.Path(__file__).parent


@pytest.fixture
def started(fresh):
    """Start a script of this folder in a process of its own: devices are set up before TensorFlow starts."""
    return lambda script, *arguments: fresh.start(HERE / script, *arguments)


def result(process):
    """Wait for a script and return the JSON that it printed last."""
    done = process.finish()
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def close(ours, theirs, share):
    """Every end of every range is within a share of the range's width."""
    assert ours.keys() == theirs.keys()
    for name, (low, high) in theirs.items():
        assert ours[name] == pytest.approx([low, high], abs=share * (high - low))


@pytest.mark.slow
def test_mirrored_strategy(started):
    found = result(started("mirrored.py"))
    for figures in found.values():
        assert figures["replicas"] == 2
        assert figures["between replicas"] == {"ranges": 0.0, "weights": 0.0}
        assert figures["mirrored losses"] == pytest.approx(figures["losses"], rel=1e-5)
        assert figures["weights apart"] < 1e-4
        close(figures["mirrored ranges"], figures["ranges"], share=1e-5)
    frozen = found.pop("frozen")
    assert frozen["evaluation apart"] < 1e-5
    assert frozen["ranges"] == frozen["mirrored ranges"] == frozen["start"]
    for moving in found.values():
        assert moving["mirrored ranges"] != moving["start"]
    # the same numbers on both sides, so the very lowest and highest of them
    assert found["all_values"]["mirrored ranges"]["image"] == found["all_values"]["ranges"]["image"]


@pytest.mark.slow
def test_multi_worker_mirrored_strategy(started):
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(str(probe.getsockname()[1]))
    workers = [started("multi_worker.py", str(index), *ports) for index in range(2)]
    first, second = (result(worker) for worker in workers)
    assert first == second
    assert first.pop("replicas") == 2
    alone = result(started("multi_worker.py", "alone"))
    for way, ours in first.items():
        assert ours["losses"] == pytest.approx(alone[way]["losses"], rel=1e-5)
        assert ours["kernel"] == pytest.approx(alone[way]["kernel"], rel=1e-5)
        assert len(ours["ranges"]) == 3
        close(ours["ranges"], alone[way]["ranges"], share=1e-5)
