import json
import os
import pathlib
import subprocess
import sys

import pytest

import qdq_workbench
from qdq_workbench.cli import main as entry
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.errors import ExportError, SpecError, UnverifiableFileError, VerificationError

NAMES = [command.name for command in entry.COMMANDS]


@pytest.fixture
def run(monkeypatch):
    """Run the command line with one command that does what the test says."""

    def run_with(behaviour, *arguments):
        command = Command("work", "Work.", lambda parser: None, behaviour)
        monkeypatch.setattr(entry, "COMMANDS", (command,))
        return entry.main(["work", *arguments])

    return run_with


def raiser(error):
    def behaviour(options):
        raise error

    return behaviour


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_with_its_exit_codes(name, capsys):
    with pytest.raises(SystemExit) as stop:
        entry.main([name, "--help"])

    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "exit codes" in text
    assert "--json" in text


def test_help_loads_no_framework():
    code = (
        "import sys\n"
        "from qdq_workbench.cli.main import main\n"
        "try: main(['quantize', '--help'])\n"
        "except SystemExit: pass\n"
        "loaded = {'keras', 'tensorflow', 'onnx', 'onnxruntime', 'plotly', 'sklearn', 'numpy'} & set(sys.modules)\n"
        "print(sorted(loaded), file=sys.stderr)"
    )

    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert finished.stderr.strip() == "[]"


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["plan"], ["plan", "m.keras", "--mode", "half"]])
def test_a_wrong_command_line_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        entry.main(arguments)

    assert stop.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_a_target_by_another_name_is_told_the_right_one(capsys):
    with pytest.raises(SystemExit) as stop:
        entry.main(["plan", "m.keras", "--target", "ORT"])

    assert stop.value.code == 2
    errors = capsys.readouterr().err
    assert "there is no target 'ORT'. Did you mean 'onnxruntime'? The targets are 'litert', 'onnxruntime'" in errors


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 1)])
def test_exit_code_tells_whether_the_check_passed(run, capsys, passed, code):
    assert run(lambda options: Outcome("done", {"pairs": 3}, passed)) == code
    assert capsys.readouterr().out == "done\n"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [([], "done\n"), (["--json"], '{\n  "passed": true,\n  "pairs": 3\n}\n')],
    ids=["text", "json"],
)
def test_the_result_is_all_of_standard_output(run, capsys, flags, expected):
    def chatty(options):
        print("a library says something")
        return Outcome("done", {"pairs": 3})

    assert run(chatty, *flags) == 0

    streams = capsys.readouterr()
    assert streams.out == expected
    assert "a library says something" in streams.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SpecError("no such layer"), 2),
        (FileNotFoundError("no such file"), 2),
        (VerificationError("a scale differs"), 1),
        (UnverifiableFileError("not an ONNX model"), 2),
        (ExportError("no ONNX form"), 1),
        (ZeroDivisionError("a mistake of ours"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_take_one_screen_without_traceback(run, capsys, error, code):
    assert run(raiser(error)) == code

    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.startswith(f"{type(error).__name__}: {error}")
    assert "Traceback" not in streams.err


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["work"]], ids=" ".join)
def test_a_pipe_that_nobody_reads_ends_the_command_quietly(arguments):
    code = (
        "import sys\n"
        "from qdq_workbench.cli import main as entry\n"
        "from qdq_workbench.cli.outcome import Command, Outcome\n"
        "entry.import_keras = lambda: None\n"
        "work = Command('work', 'Work.', lambda parser: None, lambda options: Outcome('line\\n' * 50_000, {}), False)\n"
        "entry.COMMANDS += (work,)\n"
        "input()\n"
        f"sys.exit(entry.main({arguments!r}))"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    pipes["env"] = {
        **os.environ,
        "PYTHONUNBUFFERED": "",
    }  # without a buffer argparse hears of the pipe, and says nothing
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) as process:
        process.stdout.close()  # as `head` does when it has its lines
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stderr.read() == ""
        assert process.wait(60) == 141


def test_debug_shows_the_traceback(run, capsys):
    assert run(raiser(SpecError("no such layer")), "--debug") == 2
    assert "Traceback" in capsys.readouterr().err


def test_the_version(capsys):
    with pytest.raises(SystemExit) as stop:
        entry.main(["--version"])

    assert stop.value.code == 0
    assert capsys.readouterr().out == f"qdq-workbench {qdq_workbench.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "{path}"],
        ["lint", "{path}.onnx"],
        ["verify", "{path}"],
        ["compare", "{path}", "{path}"],
        ["quantize", "m.keras", "-o", "{path}.keras"],
        ["explain", "{path}.json"],
        ["plan", "m.keras", "--opset", "{path}"],
        ["plan", "m.keras", "--mode", "{path}"],
        ["plan", "m.keras", "--import", "{path}.py"],
        ["demo", "--data", "{path}"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("path", ["a" * 5000, "/".join(["folder"] * 700)], ids=["one name", "many folders"])
def test_long_paths_are_not_echoed(capsys, arguments, path):
    try:
        code = entry.main([argument.format(path=path) for argument in arguments])
    except SystemExit as stop:
        code = stop.code

    errors = capsys.readouterr().err
    assert code == 2
    assert "not foreseen" not in errors
    assert max(map(len, errors.split())) < 400


def test_errors_are_json_too(run, capsys):
    assert run(raiser(SpecError("no such layer")), "--json") == 2
    assert json.loads(capsys.readouterr().out) == {
        "passed": False,
        "error": {"type": "SpecError", "message": "no such layer"},
    }


def test_interruption_exits_with_130(run):
    assert run(raiser(KeyboardInterrupt())) == 130


def test_infinite_numbers_are_strings_in_json(run, capsys):
    data = {"layers": [{"sqnr": float("inf")}], "range": (float("-inf"), float("nan"), 1.0)}

    assert run(lambda options: Outcome("done", data), "--json") == 0

    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found == {"passed": True, "layers": [{"sqnr": "inf"}], "range": ["-inf", "nan", 1.0]}


def test_an_interruption_is_json_too(run, capsys):
    assert run(raiser(KeyboardInterrupt()), "--json") == 130
    assert json.loads(capsys.readouterr().out)["error"] == {"type": "KeyboardInterrupt", "message": "Interrupted."}


def test_a_wrong_command_line_is_json_too(capsys):
    with pytest.raises(SystemExit) as stop:
        entry.main(["plan", "m.keras", "--mode", "half", "--json"])

    streams = capsys.readouterr()
    assert stop.value.code == 2
    found = json.loads(streams.out)
    assert (found["passed"], found["error"]["type"]) == (False, "UsageError")
    assert found["error"]["message"] in streams.err
    assert "invalid choice: 'half'" in found["error"]["message"]


def test_an_abbreviated_option_is_unknown(capsys):
    with pytest.raises(SystemExit) as stop:
        entry.main(["plan", "m.keras", "--js", "--mode", "full"])

    assert stop.value.code == 2
    assert "unrecognized arguments: --js" in capsys.readouterr().err


def docs_process(*arguments, **options):
    code = f"import sys; from qdq_workbench.cli.main import main; sys.exit(main({list(arguments)!r}))"
    return process(code, **options)


def process(code, close="", **options):
    shell = f'exec "$0" -c "$1" {close}'
    return subprocess.run(["sh", "-c", shell, sys.executable, code], check=False, text=True, **options)


def test_letters_that_the_terminal_has_not_are_escaped():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}

    done = docs_process("docs", "--search", "Zürich", capture_output=True, env=environment)

    assert (done.returncode, done.stdout, done.stderr) == (1, "No page contains 'Z\\xfcrich'\n", "")


@pytest.mark.parametrize(("page", "code"), [("targets", 0), ("nosuchpage", 2)])
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_closed_streams_change_nothing_but_the_output(page, code, closed):
    done = docs_process("docs", page, close=closed, capture_output=True)

    assert done.returncode == code
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["<&- 2>&-", "<&- >&- 2>&-", "<&- >&-", "2>&-"])
def test_keras_is_imported_whatever_streams_are_closed(closed):
    code = (
        "import sys, types\n"
        "from qdq_workbench.cli import main as entry\n"
        "from qdq_workbench.cli.outcome import Command, Outcome\n"
        "work = Command('work', 'Work.', lambda parser: None, lambda options: Outcome('done', {}), False)\n"
        "entry.COMMANDS = (work,)\n"
        "sys.modules['keras'] = types.ModuleType('keras')  # the import is instant; what is around it is real\n"
        "sys.exit(entry.main(['work']))"
    )

    done = process(code, closed, capture_output=True)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("" if ">&-" in closed.split() else "done\n")


def test_an_error_is_not_written_among_the_results_where_standard_error_is_closed():
    done = docs_process("docs", "nosuchpage", "--json", close="2>&-", capture_output=True)

    assert json.loads(done.stdout)["error"]["type"] == "FileAccessError"


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_behind_the_output_is_named():
    with pathlib.Path("/dev/full").open("w") as full:
        done = docs_process("docs", "targets", stdout=full, stderr=subprocess.PIPE)

    assert done.returncode == 2
    assert done.stderr == "OSError: The output cannot be written: No space left on device.\n"


@pytest.mark.parametrize(
    "line",
    [
        "demo --data",
        "demo --output",
        "plan m.keras --html",
        "plan m.keras --case",
        "quantize m.keras -o q.keras --calibration-data",
        "calibrate q.keras -o c.keras --data",
        "search m.keras --data",
        "finetune q.keras --data d.npz -o t.keras --checkpoint",
        "verify f.onnx --model",
        "plan m.keras --import",
        "docs --search",
    ],
)
def test_an_option_with_an_empty_value_is_an_error(line, capsys):
    with pytest.raises(SystemExit) as stop:
        entry.main([*line.split(), "", "--json"])

    assert stop.value.code == 2
    streams = capsys.readouterr()
    assert f"{line.split()[-1]}" in streams.err
    assert "its value is empty" in json.loads(streams.out)["error"]["message"]


def test_options_are_appended_to_their_defaults_and_the_last_of_others_counts():
    parser = entry.build_parser()
    line = ["plan", "m.keras", "--case", "A", "--case", "B", "--spec", "a.yaml", "--spec", "b.yaml"]

    options = parser.parse_args(line)

    assert (options.case, options.spec) == (["A", "B"], "b.yaml")
    assert parser.parse_args(["plan", "m.keras"]).case == []
