"""The page of the reference ratios, made from `benchmarks/results/ratios.json` when the site is built."""

from __future__ import annotations

import json
import pathlib
import re

RESULTS = pathlib.Path(__file__).parents[2] / "benchmarks" / "results" / "ratios.json"
_HEAD = """\
# Reference ratios

Ratios of `benchmarks/results/ratios.json`, with which `python benchmarks/compare.py` compares a run. Each divides
medians of interleaved rounds of one run on {cores} CPU cores; below 1 is less time than the denominator takes. "float
again / float" is the noise. Training steps, `predict` and calibration by mse are not among the rows:
[performance](../../docs/performance.md) has their figures, and explains all of them, with goals.
"""
#: Ratios of code that has become faster since they were stored: references for `compare.py`, no figures for readers.
_OLDER = re.compile(r"training step|predict 256 images|: mse / float predict")
_IN_PROCESSOR_TIME = ", processor time"


def ratios_page(text: str | None = None) -> str:
    """Return the page as Markdown, with links as from `benchmarks/results/`.

    Args:
        text: The reference as JSON; None for that of the repository.
    """
    reference = json.loads(RESULTS.read_text(encoding="utf-8") if text is None else text)
    rows: dict[tuple[str, str], dict[bool, float]] = {}
    for name, ratio in reference["ratios"].items():
        if _OLDER.search(name):
            continue
        run, _, what = name.rpartition(": ")
        found = rows.setdefault((run.removesuffix(_IN_PROCESSOR_TIME), what), {})
        found[run.endswith(_IN_PROCESSOR_TIME)] = ratio
    lines = ["| Run | Ratio | Time | Processor time |", "|---|---|---|---|"]
    for (run, what), ratios in rows.items():
        cells = [f"{ratios[kind]:.2f}" if kind in ratios else "-" for kind in (False, True)]
        lines.append(f"| {run} | {what} | {cells[0]} | {cells[1]} |")
    return "\n".join([_HEAD.format(cores=reference["cores"]), *lines, ""])
