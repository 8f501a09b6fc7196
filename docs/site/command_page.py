"""Writes docs/commands.md, the reference of the command line, from its parser: `python docs/site/command_page.py`.

`tests/test_site.py` compares the page with the parser, so that it cannot go stale.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Iterable

from qdq_workbench.cli.main import COMMANDS, EXIT_CODES, build_parser
from qdq_workbench.cli.own_code import add_own_code_arguments

PAGE = pathlib.Path(__file__).parents[1] / "commands.md"
_HEAD = """\
# Command line

<!-- Written by `python docs/site/command_page.py` from the parser; do not edit. -->

`qdq-workbench COMMAND --help` prints the same. {exit_codes}.
[The README](../README.md#command-line) has one line of each command.

Options of every command:

{common}

Options of the commands that read Keras models (all but {others}):

{own_code}
"""


def commands_page() -> str:
    """Return the page.

    Raises:
        ValueError: If an argument has no help.
    """
    parser = build_parser()
    (subcommands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    own = argparse.ArgumentParser(add_help=False)
    add_own_code_arguments(own)
    shared = {"json", "debug", "help", *(action.dest for action in own._actions)}
    common = [action for action in subcommands.choices["lint"]._actions if action.dest in ("json", "debug")]
    parts = [
        _HEAD.format(
            exit_codes=EXIT_CODES[0].upper() + EXIT_CODES[1:],
            common=_table(common, "Option"),
            own_code=_table(own._actions, "Option"),
            others=", ".join(f"`{command.name}`" for command in COMMANDS if not command.reads_models),
        )
    ]
    for command in COMMANDS:
        actions = [action for action in subcommands.choices[command.name]._actions if action.dest not in shared]
        arguments = [action for action in actions if not action.option_strings]
        options = [action for action in actions if action.option_strings]
        tables = [_table(arguments, "Argument"), _table(options, "Option")]
        parts.append("\n\n".join([f"## {command.name}", command.summary, *filter(None, tables)]) + "\n")
    return "\n".join(parts)


def _table(actions: Iterable[argparse.Action], title: str) -> str:
    rows = [f"| {_form(action)} | {_meaning(action)} |" for action in actions]
    return "\n".join([f"| {title} | Meaning |", "|---|---|", *rows]) if rows else ""


def _form(action: argparse.Action) -> str:
    value = action.metavar or ("NAME" if action.choices is not None else action.dest.upper())
    names = ", ".join(action.option_strings)
    return f"`{value}`" if not names else f"`{names}`" if action.nargs == 0 else f"`{names} {value}`"


def _meaning(action: argparse.Action) -> str:
    if not action.help:
        raise ValueError(f"An argument has no help. Received: {action.option_strings or action.dest}")
    text = (action.help % {**vars(action), "prog": "qdq-workbench"}).replace("|", "\\|")
    if action.choices is not None:
        text += "; one of " + ", ".join(f"`{choice}`" for choice in action.choices)
    if action.option_strings and action.required:
        text += " (required)"
    if not action.option_strings and action.nargs in {"?", "*"}:
        text += " (optional)"
    return text


if __name__ == "__main__":
    PAGE.write_text(commands_page(), encoding="utf-8")
