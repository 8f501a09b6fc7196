"""The outcome of a command: whether its check passed, and the result as text and as data."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_LONGEST_WORD, _SHOWN = 300, 120


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of one command; `main` prints it and turns it into an exit code.

    Args:
        text: The result as text, one or more lines.
        data: The result for `--json`, JSON-compatible.
        passed: Whether the check passed; False gives the exit code 1.
        remarks: The remarks that were printed before the work, for `--json`.
    """

    text: str
    data: Mapping[str, Any]
    passed: bool = True
    remarks: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Command:
    """One command of the command line.

    Args:
        name: The name on the command line.
        summary: One line for the list of commands.
        configure: Adds the command's arguments to its parser; must not import TensorFlow.
        run: Runs the command.
        reads_models: Whether it reads Keras models, and so has the options --import and --unsafe.
        needs_keras: Whether Keras is imported first, which takes seconds.
    """

    name: str
    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Outcome]
    reads_models: bool = True
    needs_keras: bool = True


@contextlib.contextmanager
def working(text: str) -> Iterator[None]:
    """Show a spinner with a text such as "Comparing" in the terminal while the body runs."""
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def shortened(text: str) -> str:
    """Return a message with the middle of words of 300 characters and more, such as long paths, removed."""
    return re.sub(rf"\S{{{_LONGEST_WORD},}}", lambda found: f"{found[0][:_SHOWN]}[...]{found[0][-_SHOWN:]}", text)
