"""The entry point of `qdq-workbench`: parse, run one command, print its outcome, choose the exit code."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import NoReturn

import qdq_workbench
from qdq_workbench._pages import WHERE
from qdq_workbench.cli.calibrate import CALIBRATE
from qdq_workbench.cli.certify import CERTIFY
from qdq_workbench.cli.compare import COMPARE
from qdq_workbench.cli.demo.command import DEMO
from qdq_workbench.cli.diagnose import DIAGNOSE
from qdq_workbench.cli.docs import DOCS
from qdq_workbench.cli.explain import EXPLAIN
from qdq_workbench.cli.export import EXPORT
from qdq_workbench.cli.finetune import FINETUNE
from qdq_workbench.cli.gptq import GPTQ
from qdq_workbench.cli.import_placement import IMPORT
from qdq_workbench.cli.lab import LAB
from qdq_workbench.cli.learn_rounding import LEARN_ROUNDING
from qdq_workbench.cli.lint import LINT
from qdq_workbench.cli.outcome import Command, Outcome, shortened
from qdq_workbench.cli.own_code import add_own_code_arguments, load_own_code
from qdq_workbench.cli.plan import PLAN
from qdq_workbench.cli.profile import PROFILE
from qdq_workbench.cli.quantize import QUANTIZE
from qdq_workbench.cli.search import SEARCH
from qdq_workbench.cli.sensitivity import SENSITIVITY
from qdq_workbench.cli.startup import import_keras
from qdq_workbench.cli.verify import VERIFY
from qdq_workbench.errors import ExportError, FileAccessError, QDQError, VerificationError

COMMANDS: tuple[Command, ...] = (
    DEMO,
    PLAN,
    QUANTIZE,
    CALIBRATE,
    LEARN_ROUNDING,
    GPTQ,
    FINETUNE,
    EXPORT,
    VERIFY,
    CERTIFY,
    LINT,
    COMPARE,
    PROFILE,
    IMPORT,
    EXPLAIN,
    SENSITIVITY,
    DIAGNOSE,
    SEARCH,
    LAB,
    DOCS,
)

GOOD, CHECK_FAILED, BAD_USAGE = 0, 1, 2
_BROKEN_PIPE = 141  # the exit code that a shell reports for a program ended by SIGPIPE: 128 + 13
EXIT_CODES = "exit codes: 0 good, 1 the check failed, 2 bad usage (a wrong argument, file, model or spec)"


class _Parser(argparse.ArgumentParser):
    """The standard parser, but with shortened error messages."""

    def error(self, message: str) -> NoReturn:
        super().error(shortened(message))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line; the parsed namespace has the `Command` as `command`."""
    parser = _Parser(
        prog="qdq-workbench",
        description="Quantize Keras 3 models with Q/DQ pairs and export them to clean INT8 ONNX files.",
        epilog=f"{EXIT_CODES}. {WHERE}.",
    )
    parser.add_argument("--version", action="version", version=f"qdq-workbench {qdq_workbench.__version__}")
    common = _Parser(add_help=False)
    common.add_argument("--json", action="store_true", help="print the result as JSON")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name,
            help=command.summary,
            description=command.summary,
            parents=[common],
            epilog=EXIT_CODES,
        )
        command.configure(sub)
        if command.reads_models:
            add_own_code_arguments(sub)
        sub.set_defaults(command=command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The command line without the program's name; None reads `sys.argv`.

    Returns:
        The exit code: 0 good, 1 the check failed, 2 bad usage; 130 after Ctrl-C, 141 if the reader of the output has
        closed the pipe, such as `| head`.
    """
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()  # raises BrokenPipeError here, where it is handled; also after --help, which exits
    except BrokenPipeError:
        _drop_output()
        return _BROKEN_PIPE


def _drop_output() -> None:
    """Redirect both output streams to os.devnull, because Python flushes them at exit and would report an error."""
    with contextlib.suppress(OSError, ValueError), pathlib.Path(os.devnull).open("wb") as nobody:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nobody.fileno(), stream.fileno())


def _run(arguments: Sequence[str] | None) -> int:
    """Run one command; return its exit code."""
    options = build_parser().parse_args(arguments)
    try:
        if options.command.needs_keras:
            import_keras()
        # Standard output is for the result only; progress and the output of libraries go to standard error.
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            if options.command.reads_models:
                load_own_code(options.imports, unsafe=options.unsafe)
            outcome = options.command.run(options)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - the outermost frame: every error becomes one screen and an exit code
        return _report_error(error, options)
    _print_outcome(outcome, as_json=options.json)
    return GOOD if outcome.passed else CHECK_FAILED


def _print_outcome(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        remarks = {"remarks": list(outcome.remarks)} if outcome.remarks else {}
        print(json.dumps({"passed": outcome.passed, **outcome.data, **remarks}, indent=2))
    else:
        print(outcome.text)


def _report_error(error: Exception, options: argparse.Namespace) -> int:
    expected = isinstance(error, (QDQError, OSError))
    is_failed_check = isinstance(error, (VerificationError, ExportError)) and not isinstance(error, FileAccessError)
    message = shortened(str(error))
    if options.debug:
        traceback.print_exception(error)
    else:
        advice = "" if expected else "\nThis error was not foreseen; run the command again with --debug for its origin."
        print(f"{type(error).__name__}: {message}{advice}", file=sys.stderr)
    if options.json:
        print(json.dumps({"passed": False, "error": {"type": type(error).__name__, "message": message}}, indent=2))
    return CHECK_FAILED if is_failed_check or not expected else BAD_USAGE


if __name__ == "__main__":
    sys.exit(main())
