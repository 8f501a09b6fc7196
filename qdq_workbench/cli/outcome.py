"""What a command returns: whether its check passed, and the same result as text and as data."""

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
        text: What a person reads; several lines are fine.
        data: The same for programs (`--json`), JSON-compatible.
        passed: False makes the exit code 1.
        remarks: What the user was told before the work, for `--json`.
    """

    text: str
    data: Mapping[str, Any]
    passed: bool = True
    remarks: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Command:
    """One command of the command line.

    Args:
        name: What the user types.
        summary: One line for the list of commands.
        configure: Adds the command's arguments to its parser; must not import anything heavy.
        run: Does the work.
        reads_models: Whether it reads Keras models, so that it has the options for models with code of their own.
    """

    name: str
    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Outcome]
    reads_models: bool = True


@contextlib.contextmanager
def working(text: str) -> Iterator[None]:
    """Show in a terminal that something without steps of its own is going on.

    Args:
        text: What, such as "Comparing".
    """
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def shortened(text: str) -> str:
    """Return a message without the middle of its longest words: paths of thousands of characters hide what it says.

    Args:
        text: The message.
    """
    return re.sub(rf"\S{{{_LONGEST_WORD},}}", lambda found: f"{found[0][:_SHOWN]}[...]{found[0][-_SHOWN:]}", text)
