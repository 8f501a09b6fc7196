"""Training steps and conversions of other quantization packages beside ours, in interleaved rounds of one run.

    python benchmarks/peers.py [--networks resnet8 mobilenet_v2 resnet50] [--rounds 5]
        [--peers ours tfmot mct qkeras hgq2 nvidia] [--python nvidia=/path/to/python] [--markdown results.md]

Every peer has a virtual environment of its own under build/peers, made of public packages, and a worker process that
lives through all rounds; in a round each worker in turn does its float and its quantized steps and its conversion.
A peer's ratios are those to the float model of its own framework. What cannot be installed or fails is reported and
left out; what fails in the middle keeps the rounds that it has done. NVIDIA's toolkit is not on the package index: give
the Python that has it with --python nvidia=...
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import select
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent / "build" / "peers"
TF215 = ["tensorflow-cpu==2.15.1", "numpy<2", "setuptools<81"]
PACKAGES: dict[str, list[str]] = {
    "tfmot": ["tensorflow-cpu==2.21.*", "tf-keras==2.21.*", "tensorflow-model-optimization==0.8.1"],
    "mct": [*TF215, "model-compression-toolkit==2.6.1"],
    # QKeras 0.9.0 names pyparser where it needs pyparsing; tfmot 0.8 would bring tf_keras's layers beside tf.keras's.
    "qkeras": [*TF215, "qkeras==0.9.0", "pyparsing<3.3", "tensorflow-model-optimization==0.7.5"],
    "hgq2": ["tensorflow-cpu==2.21.*", "keras==3.15.*", "hgq2"],
}
PEERS = ("ours", *PACKAGES, "nvidia")
INSTALL = 900  # seconds for pip
PATIENCE = 600  # seconds for a worker's answer: building a model and tracing it, or one turn
BATCHES = {"resnet8": 32, "mobilenet_v2": 16, "resnet50": 16}


def python_of(peer: str, given: dict[str, str]) -> str:
    """Return the interpreter that has a peer's packages, installing them where they are not.

    Args:
        peer: Its name.
        given: Interpreters named on the command line.

    Raises:
        RuntimeError: If there is none.
    """
    if peer in given:
        return given[peer]
    if peer == "ours":
        return sys.executable
    if peer not in PACKAGES:
        raise RuntimeError("not on the package index; give the Python that has it with --python " + peer + "=PATH")
    folder = BUILD / peer
    python, done = folder / "bin" / "python", folder / "installed.json"
    if done.exists() and json.loads(done.read_text(encoding="utf-8")) == PACKAGES[peer]:
        return str(python)
    print(f"{peer}: installing {' '.join(PACKAGES[peer])} into {folder}", flush=True)
    venv.create(folder, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES[peer]]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL)  # noqa: S603 - above
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"pip found no set of versions within {INSTALL} seconds") from error
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        raise RuntimeError("cannot be installed: " + lines[-1][:300])
    done.write_text(json.dumps(PACKAGES[peer]), encoding="utf-8")
    return str(python)


class Worker:
    """A peer's process; it waits until it is asked for a turn.

    Args:
        peer: Name of the peer and of its file.
        python: Its interpreter.
        network: What it measures.
        batch: Images per step.
    """

    def __init__(self, peer: str, python: str, network: str, batch: int) -> None:
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
        environment["PYTHONPATH"] = str(HERE)  # for architectures.py
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
        self._process = subprocess.Popen(  # noqa: S603 - a file of this folder
            [python, str(HERE / "peers" / f"{peer}_worker.py"), network, str(batch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        try:
            self._answer()
        except RuntimeError:
            self.stop()
            raise

    def turn(self) -> dict[str, float]:
        """Return the seconds of every call of one turn."""
        with contextlib.suppress(OSError):  # a worker that has ended reads nothing; its answer says why
            print(file=self._process.stdin, flush=True)
        seconds: dict[str, float] = self._answer()["seconds"]
        return seconds

    def stop(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def _answer(self) -> dict[str, Any]:
        if not select.select([self._process.stdout], [], [], PATIENCE)[0]:
            self._process.kill()
            raise RuntimeError(f"the worker gave no answer within {PATIENCE} seconds")
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._log.seek(0)
            last = (self._log.read().decode(errors="replace").strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"the worker ended with code {code}: {last[:200]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


def measure(network: str, pythons: dict[str, str], rounds: int) -> list[tuple[str, ...]]:
    """Return the rows of the table for one network.

    Args:
        network: Its name.
        pythons: The interpreter of every peer.
        rounds: How often every peer takes its turn.
    """
    workers, rows = {}, []
    for peer, python in pythons.items():
        try:
            workers[peer] = Worker(peer, python, network, BATCHES[network])
        except RuntimeError as error:  # noqa: PERF203 - the others are measured all the same
            rows.append((network, peer, "fails", str(error)))
    turns: dict[str, list[dict[str, float]]] = {peer: [] for peer in workers}
    for _ in range(rounds):
        for peer in list(workers):
            try:
                turns[peer].append(workers[peer].turn())
            except (RuntimeError, OSError) as error:  # noqa: PERF203 - as above
                workers.pop(peer).stop()
                rows.append((network, peer, f"fails after {len(turns[peer])} of {rounds} rounds", str(error)))
    for worker in workers.values():
        worker.stop()
    for peer, done in turns.items():
        rows += [(network, peer, *row) for row in ratios(done)] if done else []
    return sorted(rows, key=lambda row: list(pythons).index(row[1]))


def ratios(turns: list[dict[str, float]]) -> Iterable[tuple[str, str]]:
    """Return what was measured as ratios of medians, and how far single rounds were apart."""
    for name in turns[0]:
        if name in ("float", "clone"):
            continue
        base = "clone" if name.startswith("convert") else "float"
        value = statistics.median(turn[name] for turn in turns) / statistics.median(turn[base] for turn in turns)
        single = [turn[name] / turn[base] for turn in turns]
        yield f"{name} / {base}", f"{value:.2f} ({min(single):.2f} to {max(single):.2f})"


def report(rows: list[tuple[str, ...]], rounds: int) -> str:
    """Return the table as Markdown."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    machine = f"{os.cpu_count()} cores ({platform.machine()}), load {load}"
    lines = [
        f"{machine}; medians of {rounds} rounds, single rounds in brackets.",
        "",
        "| network | package | what | ratio |",
        "|---|---|---|---|",
    ]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def main() -> None:
    """Install, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["resnet8", "mobilenet_v2"], choices=list(BATCHES))
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", nargs="+", default=[], metavar="PEER=PATH", help="an interpreter that has the peer")
    parser.add_argument("--markdown", type=pathlib.Path, help="also write the table here")
    options = parser.parse_args()
    given = dict(item.split("=", 1) for item in options.python)
    pythons, rows = {}, []
    for peer in options.peers:
        try:
            pythons[peer] = python_of(peer, given)
        except RuntimeError as error:  # noqa: PERF203 - the others are measured all the same
            rows.append(("all", peer, "left out", str(error)))
    for network in options.networks:
        found = measure(network, pythons, options.rounds)
        print("\n".join(" | ".join(row) for row in found), flush=True)
        rows += found
    text = report(rows, options.rounds)
    print(text)
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
