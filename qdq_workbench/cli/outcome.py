"""What a command returns: whether its check passed, and the same result as text and as data."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of one command; `main` prints it and turns it into an exit code.

    Args:
        text: What a person reads; several lines are fine.
        data: The same for programs (`--json`), JSON-compatible.
        passed: False makes the exit code 1.
    """

    text: str
    data: Mapping[str, Any]
    passed: bool = True


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
