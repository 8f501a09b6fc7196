"""Print the requirements of qdq-workbench, with a chosen TensorFlow build in place of `tensorflow`.

pip cannot express "tensorflow or tensorflow-cpu", so an installation without a GPU takes two steps:

    pip install --no-deps .    (in the checkout; or the path of a wheel in place of the dot)
    python -m qdq_workbench.cli.requirements --tensorflow tensorflow-cpu > requirements.txt
    pip install -r requirements.txt

This module imports only the standard library, because nothing else is installed yet.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata

DISTRIBUTION = "qdq-workbench"
TENSORFLOW_BUILDS = ("tensorflow", "tensorflow-cpu")

_NAME = re.compile(r"^[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"""\s*(?:and\s+)?extra\s*==\s*['"]([^'"]+)['"]""")


def select_requirements(
    declared: Iterable[str], *, tensorflow: str = "tensorflow", extras: Sequence[str] = ()
) -> list[str]:
    """Return the requirements of one installation, selected from the declared ones, for `pip install -r`.

    Extras in `declared`, the lines of a wheel's metadata, are marked by `extra == "name"`. `tensorflow` is the build
    that replaces the requirement `tensorflow`, whose version range stays.

    Example:
        >>> declared = ["tensorflow>=2.18", "onnx>=1.17", "dask>=2024.8; extra == 'dask'"]
        >>> select_requirements(declared, tensorflow="tensorflow-cpu")
        ['tensorflow-cpu>=2.18', 'onnx>=1.17']
        >>> select_requirements(declared, extras=["dask"])
        ['tensorflow>=2.18', 'onnx>=1.17', 'dask>=2024.8']
    """
    chosen = []
    for line in declared:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        extra = _EXTRA.search(marker)
        if extra and extra.group(1) not in extras:
            continue
        name = _NAME.match(requirement)
        # The whole name: other packages, such as tensorflow-model-optimization, begin with it.
        if name and name.group() == "tensorflow":
            requirement = tensorflow + requirement[name.end() :]
        condition = _EXTRA.sub("", marker)
        chosen.append(f"{requirement}; {condition}" if condition else requirement)
    return chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the requirements of the installed distribution, one per line.

    Args:
        arguments: The command line without the program's name; None reads `sys.argv`.

    Returns:
        0, or 2 when the distribution is not installed or an extra is unknown.
    """
    parser = argparse.ArgumentParser(
        prog="python -m qdq_workbench.cli.requirements",
        description="Print the requirements of qdq-workbench with the TensorFlow build of your choice.",
    )
    parser.add_argument("--tensorflow", choices=TENSORFLOW_BUILDS, default="tensorflow")
    parser.add_argument("extras", nargs="*", help="extras to include, such as dev or openvino")
    options = parser.parse_args(arguments)
    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        print(
            f"{DISTRIBUTION} is not installed; run in the checkout: pip install --no-deps . "
            "(or give the path of a wheel in place of the dot)",
            file=sys.stderr,
        )
        return 2
    known = distribution.metadata.get_all("Provides-Extra") or []
    unknown = sorted(set(options.extras) - set(known))
    if unknown:
        print(f"There is no extra {unknown[0]!r}. Known extras: {', '.join(known)}", file=sys.stderr)
        return 2
    lines = select_requirements(distribution.requires or [], tensorflow=options.tensorflow, extras=options.extras)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
