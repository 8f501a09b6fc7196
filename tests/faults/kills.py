"""`kill -9` at random moments of whatever writes files: what was there stays, or what is new is whole.

    python tests/faults/kills.py --count 100 --seed 0

The processes that are killed are forked from one that has imported TensorFlow and done nothing with it, because an
import takes longer than everything else.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import json
import logging
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import keras
import numpy as np
import onnx

import qdq_workbench as qdq
from qdq_workbench.cli.main import main as command_line
from qdq_workbench.export.metadata import graph_digest, read_metadata

logging.getLogger("absl").setLevel(logging.ERROR)  # Keras calls HDF5 files legacy
SAVES = {
    "save .keras": ("q.keras", lambda q_model, path: q_model.save(path)),
    "save .h5": ("q.h5", lambda q_model, path: q_model.save(path)),
    "save weights": ("q.weights.h5", lambda q_model, path: q_model.save_weights(path)),
    "save folder": ("q_folder", lambda q_model, path: q_model.save(path, zipped=False)),
}
# What goes on from its last step: the file that it goes on from, and the one that holds its result.
RESUMED = {
    "sensitivity": ("sweep.json", "swept.json"),
    "resume calibrate": ("calibration.json", "calibration_result.json"),
    "search": ("search.json", "found.json"),
    "learn_rounding": ("rounding.npz", "learned.json"),
    "finetune": ("training.npz", "trained.json"),
}
KINDS = (*SAVES, "export", "calibrate", "bench", *RESUMED)
_UNITS, _CLASSES = 200, 3


def samples() -> tuple[np.ndarray, np.ndarray]:
    """Images and labels."""
    generator = np.random.default_rng(0)
    return generator.normal(size=(64, _UNITS)).astype("float32"), generator.integers(0, _CLASSES, 64)


def network() -> keras.Model:
    """Layers large enough that a file takes a while, and several for a search."""
    keras.utils.set_random_seed(0)
    image = x = keras.Input((_UNITS,), name="image")
    for index in range(4):
        x = keras.layers.Dense(_UNITS, activation="relu", name=f"dense_{index}")(x)
    return keras.Model(image, keras.layers.Dense(_CLASSES, activation="softmax", name="head")(x), name="network")


def ends_of(model: keras.Model) -> list[keras.layers.Layer]:
    """Return the first and the last layer, which a file holds far from each other."""
    prefix = "quant_" if isinstance(model, qdq.QuantizedModel) else ""
    layers = [model.get_layer(f"{prefix}{name}") for name in ("dense_0", "head")]
    return [getattr(layer, "layer", layer) for layer in layers]


def set_version(model: keras.Model, version: float) -> None:
    """Make a model another version of itself."""
    for layer in ends_of(model):
        layer.bias.assign(np.full(layer.bias.shape, version, "float32"))


def version_of(model: keras.Model) -> float:
    """Return which version a model is, all of it."""
    versions = {float(value) for layer in ends_of(model) for value in np.asarray(layer.bias)}
    assert len(versions) == 1, f"a mixture of versions: {versions}"
    return versions.pop()


def digest_of(model: keras.Model) -> str:
    """Return a hash of the weights of a model."""
    return hashlib.sha256(b"".join(np.asarray(weight).tobytes() for weight in model.weights)).hexdigest()


class Work:
    """What the processes do that are killed.

    Args:
        folder: Where they write.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Write what the others begin with: first files of every kind, which no kill may take away."""
        q_model = qdq.quantize_model(network(), target="onnxruntime")
        set_version(q_model, 0.0)
        qdq.calibrate(q_model, samples()[0], verbose=False).save(self.folder / "ranges.json")
        q_model.save(self.folder / "base.keras")
        np.savez(self.folder / "data.npz", x=samples()[0], y=samples()[1])
        for name, save in SAVES.values():
            save(q_model, self.folder / name)
        q_model.save(self.folder / "calibrated.keras")
        qdq.export_onnx(q_model, self.folder / "model.onnx")

    def prepare_bench(self) -> None:
        """The same for what begins with a bench."""
        self._bench().save(self.folder / "bench")
        shutil.copytree(self.folder / "bench", self.folder / "base_bench")

    def run(self, kind: str) -> None:
        """Write until killed; what goes on from its last step ends by itself."""
        if kind in RESUMED:
            checkpoint, result = (self.folder / name for name in RESUMED[kind])
            q_model = qdq.load_model(self.folder / "base.keras")
            self._ready()
            found = self._found(kind, q_model, checkpoint)
            result.write_text(json.dumps(found))
            return
        if kind == "bench":
            bench = self._bench(self.folder / "base_bench")
            self._ready()
            for version in range(1, 10_000):
                set_version(bench.model, version)
                bench.keep_variant(f"version {version}")
                bench.save(self.folder / "bench")
            return
        q_model = qdq.load_model(self.folder / "base.keras")
        if kind == "clean":
            self._write("save .keras", q_model)
            if (self.folder / "base_bench").exists():
                self._bench(self.folder / "base_bench").save(self.folder / "bench")
            return
        self._ready()
        for version in range(1, 10_000):
            set_version(q_model, version)
            self._write(kind, q_model)

    def _found(self, kind: str, q_model: qdq.QuantizedModel, checkpoint: pathlib.Path) -> dict[str, object]:
        """Do what takes a while, such as a search for what no placement reaches"""
        if kind == "sensitivity":
            swept = qdq.sensitivity(q_model, np.tile(samples()[0], (200, 1)), checkpoint=checkpoint, verbose=False)
            return swept.to_dict()
        if kind == "resume calibrate":

            def batches():
                for _ in range(600):
                    yield samples()[0]

            return qdq.calibrate(q_model, batches(), "mse", checkpoint=checkpoint, verbose=False).to_dict()
        if kind == "search":
            searched = qdq.search(
                q_model, samples(), accuracy_floor=1.0, checkpoint=checkpoint, n_jobs=1, verbose=False
            )
            return searched.to_dict()
        if kind == "finetune":
            trained = self.folder / "trained.keras"
            command = f"finetune {self.folder}/base.keras --data {self.folder}/data.npz --epochs 60 -o {trained}"
            with contextlib.redirect_stdout(sys.stderr):  # the other one is the server's
                assert command_line([*command.split(), "--checkpoint", str(checkpoint)]) == 0
            return {"weights": digest_of(qdq.load_model(trained))}
        report = qdq.correction.learn_rounding(
            q_model, samples()[0], granularity="layer", steps=300, checkpoint=checkpoint, verbose=False
        )
        return {"weights": digest_of(q_model), "units": [[*unit.layers, unit.learned_error] for unit in report.units]}

    def _write(self, kind: str, q_model: qdq.QuantizedModel) -> None:
        if kind in SAVES:
            name, save = SAVES[kind]
            save(q_model, self.folder / name)
        elif kind == "export":
            qdq.export_onnx(q_model, self.folder / "model.onnx")
        else:
            qdq.calibrate(q_model, samples()[0], verbose=False).save(self.folder / "ranges.json")
            q_model.save(self.folder / "calibrated.keras")

    def _bench(self, folder: pathlib.Path | None = None) -> object:
        from qdq_widgets import Workbench

        if folder is not None:
            return Workbench.load(folder, train_data=samples())
        model = network()
        set_version(model, 0.0)
        model.compile("sgd", "sparse_categorical_crossentropy")
        bench = Workbench(model, train_data=samples())
        bench.calibrate()
        bench.fine_tune(1)
        bench.keep_variant("version 0")
        return bench

    def _ready(self) -> None:
        (self.folder / "ready").touch()


class Checks:
    """What is found behind a kill.

    Args:
        folder: Where the processes wrote.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def run(self, kind: str) -> None:
        """Read what a killed process may have been writing; raises where it is lost or half-written."""
        if kind in SAVES:
            name, _ = SAVES[kind]
            version_of(self._loaded(self.folder / name))
        elif kind == "export":
            proto = onnx.load(self.folder / "model.onnx")
            onnx.checker.check_model(proto, full_check=True)
            assert graph_digest(proto) == read_metadata(proto)["graph_sha256"]
        elif kind == "calibrate":
            qdq.CalibrationResult.load(self.folder / "ranges.json")
            version_of(self._loaded(self.folder / "calibrated.keras"))
        elif kind in ("search", "sensitivity", "resume calibrate"):
            for path in self.folder.glob(f"{pathlib.Path(RESUMED[kind][0]).stem}*.json"):
                json.loads(path.read_text())
        elif kind in {"learn_rounding", "finetune"}:
            for path in self.folder.glob(RESUMED[kind][0]):
                np.load(path, allow_pickle=False).close()
        else:
            self._bench()

    def left(self) -> list[str]:
        """Return what is in the folder beside the files, as killed processes leave it."""
        hidden = [path.name for path in self.folder.rglob(".*")]
        marked = [path.name for path in self.folder.glob("bench/*") if "-" in path.name and path.name[0] != "."]
        return sorted(hidden + marked)

    def _loaded(self, path: pathlib.Path) -> keras.Model:
        if path.name.endswith(".weights.h5"):
            q_model = qdq.load_model(self.folder / "base.keras")
            q_model.load_weights(path)
            return q_model
        return keras.models.load_model(path) if path.is_dir() else qdq.load_model(path)

    def _bench(self) -> None:
        from qdq_widgets import Workbench

        bench = Workbench.load(self.folder / "bench", train_data=samples())
        assert bench.stage == "fine-tuned"
        assert bench.q_model.predict(samples()[0], verbose=0).shape == (64, _CLASSES)
        assert bench.variants[-1].name == f"version {version_of(bench.model):.0f}"


class Killer:
    """Starts processes and kills them.

    Args:
        folder: Where they write.
        seed: Of the moments.
        kinds: Of processes.
    """

    def __init__(self, folder: pathlib.Path, seed: int, kinds: tuple[str, ...]) -> None:
        self.folder, self.random = folder, random.Random(seed)  # noqa: S311 - no secrets
        command = [sys.executable, __file__, "--serve", str(folder)]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for step in ("prepare", *(["prepare bench"] if "bench" in kinds else [])):
            self._ask(step)
            assert self._over() == 0, "preparing failed"

    def kill(self, kind: str, longest: float) -> bool:
        """Kill a process of a kind within `longest` seconds of work; return whether it still ran."""
        (self.folder / "ready").unlink(missing_ok=True)
        process = self._ask(kind)
        until = time.monotonic() + 300.0
        while not (self.folder / "ready").exists():
            assert time.monotonic() < until, f"{kind} does not begin"
            time.sleep(0.01)
        time.sleep(self.random.uniform(0.0, longest))
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.kill(process, signal.SIGKILL)
        status = self._over()
        assert status in (0, signal.SIGKILL), f"{kind} failed by itself, with status {status}"
        return status != 0

    def finish(self, kind: str) -> None:
        """Let a process end by itself."""
        self._ask(kind)
        assert self._over() == 0, f"{kind} failed"

    def close(self) -> None:
        """End the server."""
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait()

    def _ask(self, kind: str) -> int:
        self._server.stdin.write(f"{kind}\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def _over(self) -> int:
        return int(self._server.stdout.readline())


def serve(folder: pathlib.Path) -> None:
    """Fork a process for every line, with what it imports already there; print its number, then how it ended."""
    import qdq_widgets

    for package in (qdq, qdq_widgets):
        for name in (*package.__all__, *getattr(package, "_NAMED_MODULES", ())):
            getattr(package, name)
    for line in sys.stdin:
        process = os.fork()
        if not process:
            warnings.simplefilter("ignore")
            work, kind = Work(folder), line.strip()
            preparing = {"prepare": work.prepare, "prepare bench": work.prepare_bench}
            preparing[kind]() if kind in preparing else work.run(kind)
            os._exit(0)
        sys.stdout.write(f"{process}\n")
        sys.stdout.flush()
        status = os.waitpid(process, 0)[1]
        sys.stdout.write(f"{os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)}\n")
        sys.stdout.flush()


def longest_of(kind: str) -> float:
    """Return how many seconds a process works at most before it is killed."""
    longest = {"export": 4.0, "calibrate": 4.0, "bench": 3.0, **dict.fromkeys(RESUMED, 8.0)}
    return longest.get(kind, 1.0)


def run(count: int, seed: int, kinds: tuple[str, ...] = KINDS) -> tuple[collections.Counter[str], list[str]]:
    """Kill `count` processes; return how many of each kind, and what was lost."""
    done: collections.Counter[str] = collections.Counter()
    lost: list[str] = []
    with tempfile.TemporaryDirectory(prefix="qdq-kills-") as name:
        folder = pathlib.Path(name)
        killer, checks = Killer(folder, seed, kinds), Checks(folder)
        while sum(done[kind] for kind in kinds) < count:
            kind = kinds[sum(done[kind] for kind in kinds) % len(kinds)]
            if not killer.kill(kind, longest_of(kind)):
                done[f"{kind} ended before"] += 1
                for begun, _ in RESUMED.values():
                    (folder / begun).unlink(missing_ok=True)
                continue
            done[kind] += 1
            try:
                checks.run(kind)
            except Exception as error:  # noqa: BLE001 - whatever reading half a file raises
                lost.append(f"{kind}: {type(error).__name__}: {error}"[:400])
                print("LOST", lost[-1], flush=True)
            done["leftovers seen"] += bool(checks.left())
            print(sum(done[kind] for kind in kinds), kind, checks.left(), flush=True)
        for kind in RESUMED:
            if kind in kinds:
                lost += _resumed(killer, folder, kind)
        killer.finish("clean")
        left = checks.left()
        lost += [f"left behind: {left}"] if left else []
        killer.close()
    return done, lost


def _resumed(killer: Killer, folder: pathlib.Path, kind: str) -> list[str]:
    """End what was killed in the middle, and compare it with a run that never was."""
    checkpoint, result = (folder / name for name in RESUMED[kind])
    for _ in range(30):
        if checkpoint.exists():
            break
        if not killer.kill(kind, longest_of(kind)):
            checkpoint.unlink(missing_ok=True)
    else:
        return [f"{kind}: no kill in its middle"]
    killer.finish(kind)
    resumed = json.loads(result.read_text())
    for path in folder.glob(f"{checkpoint.stem}*{checkpoint.suffix}"):
        path.unlink()
    killer.finish(kind)
    fresh = json.loads(result.read_text())
    return [] if resumed == fresh else [f"{kind}: the resumed result differs"]


def main():
    """Kill; exit status 1 where something was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many kills (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other moments (default: 0)")
    parser.add_argument("--serve", metavar="FOLDER", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    done, lost = run(options.count, options.seed)
    print(f"{dict(sorted(done.items()))}; {len(lost)} lost: {lost}")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
