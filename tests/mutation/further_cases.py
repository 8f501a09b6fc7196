"""Chooses the cases of parametrized tests that `make test` leaves out, and writes them into `tests/exhaustive.txt`.

`further_cases.py build/mutation/reach-....json`, a record that `make soak` has made. A case is left out if it takes
long, if another case of the same test stays, and if two of the tests that stay reach each of its lines, one of them in
its own file. Cases of which each is a fault that was once found, or a thing that is compared, stay. `make exhaustive`
runs what is left out, and what `tests/held_elsewhere.yaml` adds by reading.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import sys
from collections.abc import Collection

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from left_out import LIST, choices
from named_tests import OF_REGRESSIONS

#: Where every case is a thing of its own, whatever lines it reaches: a golden file, a page, a fault, a layer, a grid.
KEPT = (
    "tests/conversion/test_odd_models.py",
    "tests/diagnosis/test_diagnose.py",
    "tests/export/test_build_onnx.py",
    "tests/export/test_passes.py",
    "tests/families/test_contracts.py",
    "tests/fuzz/test_found.py",
    "tests/graph_builder/test_composites.py",
    "tests/peer_suites/test_mct.py",
    "tests/peer_suites/test_tensorflow_quantization.py",
    "tests/peer_suites/test_tfmot.py",
    "tests/quantizers/test_fake_quantize.py",
    "tests/quantizers/test_settled.py",
    "tests/runtimes/test_planted_faults.py",
    "tests/test_docstrings.py",
    "tests/test_golden.py",
    "tests/test_readme.py",
    "tests/verification/test_exporter_faults.py",
    "tests/verification/test_tflite_integers.py",
)
_LONG = 0.08  # seconds of processor time
_REACHED = 2  # how many of the tests that stay reach a line


def main():
    """Write the list, and print how long all tests take and those that are left out."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("record", type=pathlib.Path, help="the record of what the tests reach")
    record = json.loads(parser.parse_args().record.read_text(encoding="utf-8"))
    read = {name for choice in choices() for name in choice.left_out}
    chosen = further_cases(record["tests"], record["lines"], gone=read)
    LIST.write_text("".join(f"{name}\n" for name in sorted(chosen)), encoding="utf-8")
    seconds = {name: taken for name, taken, _ in record["tests"]}
    print(f"{len(seconds)} tests take {sum(seconds.values()):.0f} s, {len(chosen)} cases left out of them "
          f"{sum(seconds[name] for name in chosen):.0f} s")  # fmt: skip


def further_cases(
    tests: list[tuple[str, float, bool]],
    lines: dict[str, dict[str, list[int]]],
    seconds: float = _LONG,
    gone: Collection[str] = (),
) -> list[str]:
    """Return the cases that may be left out, the longest first.

    Args:
        tests: The id of each test, the processor time that it takes, and whether it passed.
        lines: File -> line -> the numbers of the tests that execute it; -1 for the import.
        seconds: Shorter tests stay.
        gone: Ids of tests that are left out anyway.
    """
    reached = _lines_by_test(lines, len(tests))
    for number, (name, *_) in enumerate(tests):
        if name in gone:
            reached[number].clear()
    everywhere = collections.Counter(line for found in reached for line in found)
    in_file: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    cases = collections.Counter(name.partition("[")[0] for name, *_ in tests if name not in gone)
    for (name, *_), found in zip(tests, reached, strict=True):
        in_file[_file(name)].update(found)
    chosen = []
    for number in sorted(range(len(tests)), key=lambda number: -tests[number][1]):
        name, taken, passed = tests[number]
        function, own = name.partition("[")[0], in_file[_file(name)]
        if taken < seconds or not passed or name in gone or cases[function] < 2 or stays(function):
            continue
        if all(everywhere[line] > _REACHED and own[line] > 1 for line in reached[number]):
            everywhere.subtract(reached[number])
            own.subtract(reached[number])
            cases[function] -= 1
            chosen.append(name)
    return chosen


def stays(function: str) -> bool:
    """Return whether all cases of a test stay."""
    path, _, name = function.rpartition("::")
    return _file(path) in KEPT or (_file(path), name) in OF_REGRESSIONS


def _lines_by_test(lines, count):
    reached = [set() for _ in range(count)]
    for path, numbers in lines.items():
        for line, tests in numbers.items():
            for number in tests:
                if number >= 0:
                    reached[number].add((path, line))
    return reached


def _file(name):
    return name.partition("::")[0]


if __name__ == "__main__":
    main()
