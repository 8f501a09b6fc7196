"""Training on several devices: ranges are equal everywhere, and what one process computes within tolerance."""

import json
import pathlib
import socket
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent


def started(script, *arguments):
    """Start a script of this folder in a process of its own: devices are set up before TensorFlow starts."""
    command = [sys.executable, str(HERE / script), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process):
    """Wait for a script and return the JSON that it printed last."""
    out, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-2000:]
    return json.loads(out.splitlines()[-1])


def close(ours, theirs, share):
    """Every end of every range is within a share of the range's width."""
    assert ours.keys() == theirs.keys()
    for name, (low, high) in theirs.items():
        assert ours[name] == pytest.approx([low, high], abs=share * (high - low))


@pytest.mark.slow
def test_mirrored_strategy():
    found = result(started("mirrored.py"))
    for ranges in ("frozen", "moving"):
        figures = found[ranges]
        assert figures["replicas"] == 2
        assert figures["between replicas"]["ranges"] == 0.0
        assert figures["between replicas"]["weights"] == 0.0
        assert figures["mirrored losses"] == pytest.approx(figures["losses"], rel=0.01)
        assert figures["weights apart"] < 0.01
        assert figures["evaluation apart"] < 0.01
    frozen, moving = found["frozen"], found["moving"]
    assert frozen["ranges"] == frozen["mirrored ranges"] == frozen["start"]
    assert moving["mirrored ranges"] != moving["start"]
    close(moving["mirrored ranges"], moving["ranges"], share=0.01)


@pytest.mark.slow
def test_multi_worker_mirrored_strategy():
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(str(probe.getsockname()[1]))
    workers = [started("multi_worker.py", str(index), *ports) for index in range(2)]
    first, second = (result(worker) for worker in workers)
    assert first["replicas"] == 2
    assert len(first["ranges"]) == 3
    assert first == second
