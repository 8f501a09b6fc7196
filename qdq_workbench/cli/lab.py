"""`qdq-workbench lab`: JupyterLab on the quickstart notebook."""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import shutil
import signal
import subprocess
import sys
import urllib.parse

from qdq_workbench._files import write_atomically
from qdq_workbench.cli.inputs import require_file
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.errors import FileAccessError

QUICKSTART = "01_quickstart.ipynb"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "notebook", nargs="?", metavar="NOTEBOOK", help="default: the quickstart, copied into this folder if installed"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the notebook's address instead of opening a browser"
    )
    parser.add_argument("--allow-root", action="store_true", help="needed by root, in containers say")
    parser.add_argument("--port", type=int, help="default: the first free one from 8888 on")


def _run(options: argparse.Namespace) -> Outcome:
    if importlib.util.find_spec("jupyterlab") is None:
        raise FileAccessError(
            "JupyterLab is not installed. Install it with: pip install jupyterlab ipywidgets anywidget"
        )
    if options.notebook is not None:
        require_file(options.notebook)
        notebook = pathlib.Path(options.notebook)
    else:
        notebook = quickstart()
        # Never a notebook of the user's own: a signature says that its outputs may run code.
        trust(notebook)
    command = [sys.executable, "-m", "jupyterlab", str(notebook)]
    if options.no_browser:  # the printed address then leads to the notebook, not to the launcher
        # Jupyter Server's root is the folder of the notebook that it is given, so the name alone is the path.
        command += ["--no-browser", f"--LabApp.default_url=/lab/tree/{urllib.parse.quote(notebook.name)}"]
    command += ["--allow-root"] if options.allow_root else []
    command += [f"--port={options.port}"] if options.port else []
    code = _run_until_closed(command)
    return Outcome(
        f"JupyterLab was closed; the notebook is {notebook}" if code == 0 else f"JupyterLab ended with code {code}",
        {"notebook": str(notebook), "command": command, "code": code},
        passed=code == 0,
    )


def quickstart() -> pathlib.Path:
    """Return the quickstart notebook: that of the checkout, or a copy of the installed one in the current folder.

    Raises:
        FileAccessError: If the notebook is not installed.
        OutputPathError: If the copy cannot be written.
    """
    package = pathlib.Path(__file__).resolve().parent.parent
    in_checkout = package.parent / "notebooks" / QUICKSTART
    if in_checkout.is_file():
        return in_checkout
    installed, copy = package / "notebooks" / QUICKSTART, pathlib.Path(QUICKSTART)
    if not copy.exists():
        if not installed.is_file():
            raise FileAccessError(f"The quickstart notebook is not installed; name a notebook. Received: {installed}")
        write_atomically(copy, lambda temporary: shutil.copyfile(installed, temporary))
    return copy


def trust(notebook: pathlib.Path) -> None:
    """Sign a notebook of this package for JupyterLab.

    A single untrusted output, such as a picture in the file, makes JupyterLab hide all widgets of the notebook when
    the page is reloaded.
    """
    command = [sys.executable, "-m", "nbformat.sign", str(notebook)]
    # Without the signature everything works until the page is reloaded, so a failure is ignored.
    subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - this interpreter, a file of this package


def _run_until_closed(command: list[str]) -> int:
    """Run JupyterLab until it exits; this process ignores Ctrl-C, because JupyterLab handles it with a prompt."""
    with subprocess.Popen(command) as process:  # noqa: S603 - this interpreter, with what the user typed
        # After the start, because a child process inherits an ignored signal.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return process.wait()
        finally:
            signal.signal(signal.SIGINT, before)


LAB = Command(
    "lab", "Open JupyterLab on the quickstart notebook.", _configure, _run, reads_models=False, needs_keras=False
)
