"""Run benchmarks and flag every ratio that is worse than the stored one by more than a margin.

    python benchmarks/compare.py [quantizing exporting graph_widget ...] [--margin 0.25]
    python benchmarks/compare.py "qat_step mobilenet_v2 --batches 16 64" sensitivity     # with options of their own
    python benchmarks/compare.py --store        # keep what this run measures as the new reference
    python benchmarks/compare.py --minutes 5    # stop there, with what was measured until then; default: 25

Where a benchmark records a ratio in time and in processor time, the latter is compared: other programs hardly change
it. "float again" is the noise of a run and is not compared.
The reference is `results/ratios.json`, with the day and the load of every command. Ratios of one run carry over between
machines much better than times do, but not perfectly: store a reference of the machine that compares, while it is
idle. Exit code 1 where something got worse.
"""

import argparse
import datetime as dt
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
REFERENCE = HERE / "results" / "ratios.json"
BENCHMARKS = (
    "quantizing",
    "qat_step",
    "evaluation",
    "calibrating",
    "exporting",
    "onnx_speed",
    "planning",
    "import_time",
    "sensitivity",
    "graph_widget",
)


def command_line(text: str) -> str:
    """Return what the command line names, a benchmark with or without options, if there is such a benchmark."""
    if text.partition(" ")[0] not in BENCHMARKS:
        raise argparse.ArgumentTypeError(f"must start with one of {', '.join(BENCHMARKS)}. Received: {text!r}")
    return text


def measure(commands: list[str], minutes: float) -> tuple[dict[str, float], dict[str, dict[str, object]]]:
    """Run benchmarks and return the ratios that they recorded, and when and at which load each command ran.

    Args:
        commands: Files in this folder, without their suffix, and their options.
        minutes: When to stop: the benchmark that runs then is ended, but keeps what it has recorded.
    """
    until = time.monotonic() + 60.0 * minutes
    runs: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "ratios.json"
        environment = {**os.environ, "QDQ_BENCH_RATIOS": str(path)}
        for command in commands:
            left = until - time.monotonic()
            if left <= 0.0:
                print(f"== {command}: not run, the {minutes:g} minutes are over", flush=True)
                continue
            print(f"== {command}", flush=True)
            name, *options = shlex.split(command)
            started = time.monotonic()
            try:
                line = [sys.executable, str(HERE / f"{name}.py"), *options]
                code = subprocess.run(line, env=environment, check=False, timeout=left).returncode  # noqa: S603 - ours
                print(f"== {command}: {time.monotonic() - started:.0f} s, exit code {code}", flush=True)
            except subprocess.TimeoutExpired:
                print(f"== {command}: ended, the {minutes:g} minutes are over", flush=True)
            today = dt.datetime.now(dt.timezone.utc).date()
            runs[command] = {"date": today.isoformat(), "load": [round(value, 1) for value in os.getloadavg()]}
        found: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found, runs


def verdicts(found: dict[str, float], stored: dict[str, float], margin: float) -> list[tuple[str, str]]:
    """Return a word on every ratio: "worse", "better", "as before" or "new".

    Args:
        found: What was measured now.
        stored: The reference.
        margin: How much worse than stored a ratio may be, as a part of it.
    """
    words = []
    for name, value in found.items():
        title = name.partition(": ")[0]
        if "float again" in name or any(other.startswith(f"{title}, processor time: ") for other in found):
            continue
        before = stored.get(name)
        if before is None:
            words.append(("new", f"{name}: {value:.2f}"))
            continue
        word = "worse" if value > before * (1 + margin) else "better" if value < before / (1 + margin) else "as before"
        words.append((word, f"{name}: {value:.2f}, stored {before:.2f}"))
    return words


def main() -> int:
    """Measure, compare, and store where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", nargs="*", type=command_line, help="which, with options; all by default")
    parser.add_argument("--margin", type=float, default=0.25, help="how much worse a ratio may be; default: 0.25")
    parser.add_argument("--store", action="store_true", help="keep what is measured as the reference")
    parser.add_argument("--minutes", type=float, default=25.0, help="when to stop; default: 25")
    parser.add_argument("--reference", type=pathlib.Path, default=REFERENCE)
    options = parser.parse_args()
    found, runs = measure(options.benchmarks or list(BENCHMARKS), options.minutes)
    known = json.loads(options.reference.read_text(encoding="utf-8")) if options.reference.exists() else {}
    words = verdicts(found, known.get("ratios", {}), options.margin)
    for word, line in words:
        print(f"{word:9} {line}")
    if options.store:
        kept = {
            "cores": os.cpu_count(),
            "runs": {**known.get("runs", {}), **runs},
            "ratios": {**known.get("ratios", {}), **found},
        }
        options.reference.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
        return 0
    return int(not found or any(word == "worse" for word, _ in words))


if __name__ == "__main__":
    sys.exit(main())
