"""Interleaved rounds: every candidate once per round, so that a slow moment of the machine hits all of them."""

import json
import os
import pathlib
import time
from collections.abc import Callable, Mapping


def interleaved(candidates: Mapping[str, Callable[[], object]], rounds: int = 7, repeat: int = 1) -> dict[str, float]:
    """Return the median seconds of one call of each candidate.

    Args:
        candidates: Functions by name; each has run once before the clock starts.
        rounds: How often every candidate takes its turn.
        repeat: Calls per turn; short calls need several.
    """
    for function in candidates.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, function in candidates.items():
            started = time.perf_counter()
            for _ in range(repeat):
                function()
            times[name].append((time.perf_counter() - started) / repeat)
    return {name: sorted(values)[len(values) // 2] for name, values in times.items()}


def print_ratios(title: str, seconds: Mapping[str, float], base: str) -> None:
    """Print every candidate's time as a ratio to the base's.

    Args:
        title: What was measured.
        seconds: What `interleaved` returned.
        base: The candidate that the others are compared with.
    """
    found = {name: value / seconds[base] for name, value in seconds.items() if name != base}
    record({f"{title}: {name} / {base}": value for name, value in found.items()})
    ratios = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
    print(f"{title}: {base} {1e3 * seconds[base]:.1f} ms; ratios: {ratios}", flush=True)


def record(ratios: Mapping[str, float]) -> None:
    """Add ratios to the file that the environment variable QDQ_BENCH_RATIOS names; without one, do nothing.

    `compare.py` sets it. Less is better.

    Args:
        ratios: What was measured, by what it is.
    """
    name = os.environ.get("QDQ_BENCH_RATIOS")
    if not name:
        return
    path = pathlib.Path(name)
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**known, **ratios}, indent=2) + "\n", encoding="utf-8")
