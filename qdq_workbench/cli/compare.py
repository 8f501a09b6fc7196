"""`qdq-workbench compare`: the differences between two quantized files or two plans."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from typing import Any

from qdq_workbench.cli.inputs import load_arrays, load_plan, require_file
from qdq_workbench.cli.outcome import Command, Outcome, working
from qdq_workbench.errors import SpecError


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", metavar="FIRST", help="an ONNX file with Q/DQ pairs, or a plan (.json)")
    parser.add_argument("second", metavar="SECOND", help="another one of the same kind")
    parser.add_argument(
        "--data", metavar="FILE", help="inputs to compare two ONNX files on, .npy or .npz; default: random"
    )


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq

    are_plans = [pathlib.Path(path).suffix.lower() == ".json" for path in (options.first, options.second)]
    if all(are_plans):
        if options.data:
            raise SpecError(f"Plans are compared without data; leave --data out. Received: {options.data!r}")
        return _compared_plans(options)
    if any(are_plans):
        raise SpecError(
            "Two ONNX files or two plans can be compared, not one of each. "
            f"Received: {options.first!r} and {options.second!r}"
        )
    for path in (options.first, options.second):
        require_file(path)
    data = load_arrays(options.data) if options.data else None
    with working(f"Comparing {options.first} and {options.second}"):
        comparison: Any = qdq.compare(options.first, options.second, data=data)
    # Without a tensor in common there is nothing that agrees.
    agree = bool(comparison.tensors) and not comparison.placement_differences and comparison.first_divergence is None
    return Outcome(comparison.summary(), comparison.to_dict(), passed=agree and not any(comparison.unmatched))


def _compared_plans(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq

    difference: Any = qdq.compare(load_plan(options.first), load_plan(options.second))
    kinds = {"only in the first": difference.removed, "only in the second": difference.added}
    lines = [f"{_shown(place)}: {where}" for where, places in kinds.items() for place in places]
    lines += [f"{_shown(one)}: {_described(one)}, then {_described(other)}" for one, other in difference.changed]
    counts = ", ".join(f"{len(places)} {where}" for where, places in kinds.items())
    head = f"{options.first} against {options.second}: {counts}, {len(difference.changed)} changed"
    return Outcome("\n".join([head, *lines]), dataclasses.asdict(difference), passed=not difference)


def _shown(place: Any) -> str:
    index = "" if place.input_index is None else f" {place.input_index}"
    return f"{place.layer}, {place.site}{index} ({place.tensor})"


def _described(place: Any) -> str:
    grid = place.quantizer
    kind = ("" if grid.signed is None else "signed " if grid.signed else "unsigned ") + f"{grid.num_bits} bits"
    return f"{kind} by {place.author}"


COMPARE = Command(
    "compare", "Show where two quantized files, or two plans, differ.", _configure, _run, reads_models=False
)
