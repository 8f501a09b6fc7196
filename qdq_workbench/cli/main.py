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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import qdq_workbench
from qdq_workbench._documents import json_number
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


class _WrongUsage(SystemExit):
    """The exit of the parser for a wrong command line; it knows the message, for `--json`."""

    def __init__(self, message: str) -> None:
        super().__init__(BAD_USAGE)
        self.message = message


class _Store(argparse.Action):
    """Stores the value of an argument; an option with an empty one is an error, as from an empty shell variable."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - argparse's interface
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if option_string is not None and values == "":
            raise argparse.ArgumentError(self, "its value is empty; give one, or leave the option out. Received: ''")
        self.keep(namespace, values)

    def keep(self, namespace: argparse.Namespace, value: Any) -> None:
        """Set the value; `_Append` adds it to those before."""
        setattr(namespace, self.dest, value)


class _Append(_Store):
    """Appends the value of a repeatable option to a copy of its list."""

    def keep(self, namespace: argparse.Namespace, value: Any) -> None:
        super().keep(namespace, [*(getattr(namespace, self.dest) or ()), value])


class _Parser(argparse.ArgumentParser):
    """The standard parser, but with shortened error messages, and with options by their whole names only."""

    def __init__(self, **settings: Any) -> None:
        # An abbreviation may mean something else as soon as a command gets another option.
        super().__init__(allow_abbrev=False, **settings)
        for name, action in ((None, _Store), ("store", _Store), ("append", _Append)):
            self.register("action", name, action)

    def error(self, message: str) -> NoReturn:
        text = shortened(message)
        self.print_usage(sys.stderr)
        print(f"{self.prog}: error: {text}", file=sys.stderr)
        raise _WrongUsage(text)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line; the parsed namespace has the `Command` as `command`."""
    parser = _Parser(
        prog="qdq-workbench",
        description="Quantize Keras 3 models with Q/DQ pairs and export them to clean INT8 ONNX files.",
        epilog=f"{EXIT_CODES}. {WHERE}.",
    )
    parser.add_argument("--version", action="version", version=f"qdq-workbench {qdq_workbench.__version__}")
    # Every command's parser has its own -h; one of `parents` would conflict with it.
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
    with _standard_streams():
        try:
            try:
                return _run(arguments)
            finally:
                sys.stdout.flush()  # raises OSErrors here, where they are handled; also after --help, which exits
        except BrokenPipeError:
            _drop_output()
            return _BROKEN_PIPE
        except OSError as error:  # those of the command itself are reported in `_run`
            print(f"OSError: The output cannot be written: {error.strerror}.", file=sys.stderr)
            _drop_output()
            return BAD_USAGE


@contextlib.contextmanager
def _standard_streams() -> Iterator[None]:
    """Let os.devnull stand for a stream that the caller has closed, for which Python has None."""
    with contextlib.ExitStack() as stack:
        # A file gets the lowest free number. In this order each gets that of its stream; `startup` needs number 2.
        if sys.stdin is None:
            stack.enter_context(pathlib.Path(os.devnull).open("rb"))
        for name, redirect in (("stdout", contextlib.redirect_stdout), ("stderr", contextlib.redirect_stderr)):
            if getattr(sys, name) is None:
                nobody = stack.enter_context(pathlib.Path(os.devnull).open("w", encoding="utf-8"))
                stack.enter_context(redirect(nobody))
        yield


def _drop_output() -> None:
    """Redirect both output streams to os.devnull, because Python flushes them at exit and would report an error."""
    # A stream in memory has no descriptor (io.UnsupportedOperation, an OSError); a closed one raises ValueError.
    with contextlib.suppress(OSError, ValueError), pathlib.Path(os.devnull).open("wb") as nobody:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nobody.fileno(), stream.fileno())


def _run(arguments: Sequence[str] | None) -> int:
    """Run one command; return its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = build_parser().parse_args(given)
    except _WrongUsage as wrong:
        # No options were parsed, so only the arguments themselves tell whether JSON is wanted.
        if "--json" in given:
            _print_error("UsageError", wrong.message)
        raise
    try:
        if options.command.needs_keras:
            import_keras()
        # Standard output is for the result only; progress and the output of libraries go to standard error.
        # `catch_warnings` restores the filters that `scale_remarks` changes.
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            if options.command.reads_models:
                load_own_code(options.imports, unsafe=options.unsafe)
            outcome = options.command.run(options)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        if options.json:
            _print_error("KeyboardInterrupt", "Interrupted.")
        # 128 + 2: the code that a shell reports for a program ended by SIGINT.
        return 130
    except Exception as error:  # noqa: BLE001 - the outermost frame: every error becomes one screen and an exit code
        return _report_error(error, options)
    _print_outcome(outcome, as_json=options.json)
    return GOOD if outcome.passed else CHECK_FAILED


def _print_outcome(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        remarks = {"remarks": list(outcome.remarks)} if outcome.remarks else {}
        _print_json({"passed": outcome.passed, **outcome.data, **remarks})
    else:
        # A name may have letters that the terminal's encoding has not; on standard error Python writes them so, too.
        encoding = sys.stdout.encoding or "utf-8"
        print(outcome.text.encode(encoding, "backslashreplace").decode(encoding))


def _print_json(data: Mapping[str, Any]) -> None:
    print(json.dumps(_of_json(data), indent=2, allow_nan=False))


def _of_json(value: Any) -> Any:
    """Return a result with its infinite numbers and NaN as strings: JSON has none, and its readers end at them."""
    if isinstance(value, Mapping):
        return {key: _of_json(item) for key, item in value.items()}
    return [_of_json(item) for item in value] if isinstance(value, (list, tuple)) else json_number(value)


def _print_error(kind: str, message: str) -> None:
    _print_json({"passed": False, "error": {"type": kind, "message": message}})


def _report_error(error: Exception, options: argparse.Namespace) -> int:
    expected = isinstance(error, (QDQError, OSError))
    # UnverifiableFileError is of both kinds: nothing was checked, so the file is a wrong argument.
    is_failed_check = isinstance(error, (VerificationError, ExportError)) and not isinstance(error, FileAccessError)
    message = shortened(str(error))
    if options.debug:
        traceback.print_exception(error)
    else:
        advice = "" if expected else "\nThis error was not foreseen; run the command again with --debug for its origin."
        print(f"{type(error).__name__}: {message}{advice}", file=sys.stderr)
    if options.json:
        _print_error(type(error).__name__, message)
    # An unforeseen error is a fault of the program, not bad usage.
    return CHECK_FAILED if is_failed_check or not expected else BAD_USAGE


if __name__ == "__main__":
    sys.exit(main())
