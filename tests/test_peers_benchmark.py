"""The benchmark beside other packages says why a peer fails, and what it measured as ratios."""

import importlib.util
import sys

import pytest
from project import ROOT


@pytest.fixture
def peers():
    found = importlib.util.spec_from_file_location("peers", ROOT / "benchmarks" / "peers.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_a_worker_that_cannot_start_says_why(peers, tmp_path, monkeypatch):
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "broken_worker.py").write_text("import no_package_of_this_name")
    monkeypatch.setattr(peers, "HERE", tmp_path)
    with pytest.raises(RuntimeError, match=r"ended with code 1: ModuleNotFoundError.*no_package_of_this_name"):
        peers.Worker("broken", sys.executable, "resnet8", 32)


def test_a_worker_that_cannot_prepare_says_why(peers, tmp_path, monkeypatch):
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "broken_worker.py").write_text("""print('{"error": "TypeError: no such layer"}')""")
    monkeypatch.setattr(peers, "HERE", tmp_path)
    with pytest.raises(RuntimeError, match="TypeError: no such layer"):
        peers.Worker("broken", sys.executable, "resnet8", 32)


WORKER = """
import json, sys
print(json.dumps({"ready": True}), flush=True)
for turn, _ in enumerate(sys.stdin):
    if turn == LAST:
        sys.exit("out of memory")
    print(json.dumps({"seconds": {"float": 1.0, "quantized": 2.0}}), flush=True)
"""


def test_a_worker_that_dies_in_the_middle_is_reported_and_the_others_go_on(peers, tmp_path, monkeypatch):
    (tmp_path / "peers").mkdir()
    for name, last in (("dies", "1"), ("dies_at_once", "0"), ("lives", "None")):
        (tmp_path / "peers" / f"{name}_worker.py").write_text(WORKER.replace("LAST", last))
    monkeypatch.setattr(peers, "HERE", tmp_path)
    pythons = dict.fromkeys(("dies", "dies_at_once", "lives"), sys.executable)
    assert peers.measure("resnet8", pythons, rounds=3) == [
        ("resnet8", "dies", "fails after 1 of 3 rounds", "the worker ended with code 1: out of memory"),
        ("resnet8", "dies", "quantized / float", "2.00 (2.00 to 2.00)"),
        ("resnet8", "dies_at_once", "fails after 0 of 3 rounds", "the worker ended with code 1: out of memory"),
        ("resnet8", "lives", "quantized / float", "2.00 (2.00 to 2.00)"),
    ]


def test_a_worker_that_gives_no_answer_is_ended(peers, tmp_path, monkeypatch):
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "silent_worker.py").write_text("import time\ntime.sleep(600)")
    monkeypatch.setattr(peers, "HERE", tmp_path)
    monkeypatch.setattr(peers, "PATIENCE", 1)
    with pytest.raises(RuntimeError, match="no answer within 1 seconds"):
        peers.Worker("silent", sys.executable, "resnet8", 32)


def test_ratios_are_those_of_medians(peers):
    turns = [{"float": 1.0, "quantized": q, "clone": 2.0, "convert": 6.0} for q in (1.0, 3.0, 2.0)]
    assert dict(peers.ratios(turns)) == {
        "quantized / float": "2.00 (1.00 to 3.00)",
        "convert / clone": "3.00 (3.00 to 3.00)",
    }
