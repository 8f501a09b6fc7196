"""`make agreement`: explanations against ONNX Runtime's optimized graph, under random toggles of many networks.

Results are kept per network (a JSON file); a run goes on where the last one stopped, unless the code has changed.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time
import zlib

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np
import onnx
from agreement.fast_export import FastExport
from agreement.networks import application_names, build
from agreement.statuses import compare
from agreement.toggles import other_grids_plan, random_plan
from predecessor_networks import network_names
from project import ROOT

import qdq_workbench as qdq


def main() -> None:
    """Compare; exit status 1 where a status differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toggles", type=int, default=200, help="plans per network (default: 200)")
    parser.add_argument("--only", nargs="*", help="which networks; all by default")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "build" / "agreement")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    names = options.only or [*network_names(), *application_names()]
    found = [run(name, options.toggles, options.results / f"{name}.json") for name in names]
    plans, compared, differing = (sum(entry[key] for entry in found) for key in ("plans", "compared", "differing"))
    print(f"{len(found)} networks, {plans} plans, {compared} statuses compared, {differing} disagreements")
    sys.exit(1 if differing else 0)


def run(name: str, toggles: int, path: pathlib.Path) -> dict:
    """Compare the plans of one network that are not compared yet.

    Args:
        name: The network.
        toggles: How many plans in all.
        path: The file of its results.
    """
    result = json.loads(path.read_text()) if path.exists() else {"plans": 0, "compared": 0, "differing": 0, "seen": []}
    if result["plans"] >= toggles:
        return result
    started = time.perf_counter()
    export = FastExport(build(name))
    print(f"{name}: converted in {time.perf_counter() - started:.0f} s", flush=True)
    started, before = time.perf_counter(), result["plans"]
    while result["plans"] < toggles:
        one(export, name, result)
        if result["plans"] % 10 == 0 or result["plans"] == toggles:
            path.write_text(json.dumps(result, indent=1) + "\n")
    seconds = (time.perf_counter() - started) / (result["plans"] - before)
    print(
        f"{name}: {result['plans']} plans, {result['compared']} statuses compared, {result['differing']} disagreements "
        f"({seconds:.2f} s per plan)",
        flush=True,
    )
    return result


def one(export: FastExport, name: str, result: dict) -> None:
    """Compare the next plan of a network and count it.

    Args:
        export: The converted network.
        name: Its name.
        result: What was counted so far; it is changed.
    """
    number = result["plans"]
    generator = np.random.default_rng([zlib.crc32(name.encode()), number])
    plan = (
        other_grids_plan(export.graph, generator)
        if number % 3 == 2
        else random_plan(export.graph, generator, plain=number == 0)
    )
    file = export.build(plan, seed=number)
    if number % 2:
        fix_batch(file)
    with tempfile.TemporaryDirectory() as folder:
        compared, differing = compare(qdq.explain(plan), file, pathlib.Path(folder))
    result["plans"] += 1
    result["compared"] += compared
    result["differing"] += len(differing)
    for layer, class_name, status, rule, runs in differing:
        if len(result["seen"]) < 40:
            result["seen"].append([number, layer, class_name, status, rule, *runs])
            print(f"{name}, plan {number}: {layer} ({class_name}) is {status} by {rule}, runs {runs}", flush=True)


def fix_batch(file: onnx.ModelProto) -> None:
    """Set the batch size of a file to 1; every other plan is compared so, and ONNX Runtime opens it sooner.

    Args:
        file: A file with an open batch dimension; it is changed.
    """
    for value in (*file.graph.input, *file.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1


if __name__ == "__main__":
    main()
