"""A real JupyterLab with Notebook 7 for tests: a server with private folders, and one notebook driven in it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import requests

_OPEN = """async ([path, isLab]) => {
  const app = window.jupyterapp;
  await app.started;
  await app.restored;
  let widget = null;
  if (isLab) widget = await app.commands.execute('docmanager:open', {path, factory: 'Notebook'});
  // Notebook 7 has one page per notebook and opens it by itself.
  for (let tries = 0; !widget?.sessionContext && tries < 3000; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    widget = app.shell.currentWidget;
  }
  await widget.context.ready;
  await widget.sessionContext.ready;
  // "idle" alone lost a cell: the kernel must have answered once.
  await widget.sessionContext.session.kernel.requestExecute({code: '0'}).done;
  window.testNotebook = widget;
  return widget.content.widgets.map((cell) => cell.model.type);
}"""
_RUN = """async (index) => {
  const notebook = window.testNotebook.content;
  notebook.activeCellIndex = index;
  notebook.deselectAll();
  await window.jupyterapp.commands.execute('notebook:run-cell');
  return notebook.widgets[index].model.outputs.toJSON();
}"""
_ASK = """async (code) => {
  const outputs = [];
  const future = window.testNotebook.sessionContext.session.kernel.requestExecute({code, store_history: false});
  future.onIOPub = (message) => {
    const type = message.header.msg_type;
    if (['stream', 'error', 'execute_result'].includes(type)) outputs.push({output_type: type, ...message.content});
  };
  await future.done;
  return outputs;
}"""
_SAVE = "async () => window.jupyterapp.commands.execute('docmanager:save')"
_CLOSE_FILES = "async () => window.jupyterapp.commands.execute('application:toggle-left-area').catch(() => 0)"
_SET_SOURCE = """([index, source]) =>
  window.testNotebook.content.widgets[index].model.sharedModel.setSource(source)"""
_SOURCES = "() => window.testNotebook.content.widgets.map((cell) => cell.model.sharedModel.getSource())"
_SCROLL = """async (index) => {
  const notebook = window.testNotebook.content;
  await notebook.scrollToItem(index, 'start');
}"""


# Seconds to wait for anything. Only what is broken waits so long: a machine with other work to do is slow, not wrong.
PATIENCE = 300
# anywidget (0.11) gives the script of a widget two seconds to load. The bench gets over that (widgets/src/late.ts), and
# test_late_scripts.py shows it. The other tests do without the limit: on a busy machine they would hit it now and then,
# each time with an error in the page, which no test may overlook, and with megabytes of plotly loaded once more.
_NO_LIMITS = f"""
const timeout = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (milliseconds) => timeout(Math.max(milliseconds, {1000 * PATIENCE}));
"""
_SETTINGS = {
    # The question about news would lie over the notebook.
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # A save while JupyterLab saves by itself ends in its question whether to overwrite the file, for ever.
    "docmanager-extension/plugin": {"autosave": False},
}


# Playwright has no limit of its own for what a script of ours awaits, such as an answer of a kernel.
# The timer ends with the answer, which it would keep in the page's memory for as long as it runs.
_LIMITED = f"""(argument) => {{{{
  let timer;
  const late = new Promise((_, reject) => {{{{
    timer = setTimeout(() => reject(new Error('the page did not answer in {PATIENCE} s')), {1000 * PATIENCE});
  }}}});
  return Promise.race([({{script}})(argument), late]).finally(() => clearTimeout(timer));
}}}}"""


def answer_of(page: Any, script: str, argument: Any = None) -> Any:
    """Return what a function in the page returns, or resolves to.

    Args:
        page: The Playwright page.
        script: The function in JavaScript.
        argument: Its argument.
    """
    return page.evaluate(_LIMITED.format(script=script), argument)


def chromium() -> str | None:
    """Return the path of an installed Chromium or Chrome, or None for Playwright's own."""
    for name in ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    return None


def patient_page(browser: Any, **settings: Any) -> Any:
    """Open a page that waits as long as the tests do, however much else the machine does.

    Args:
        browser: The Playwright browser.
        **settings: As for its `new_page`.
    """
    page = browser.new_page(**settings)
    page.set_default_timeout(PATIENCE * 1000)
    page.add_init_script(_NO_LIMITS)
    return page


def forget_settings(folder: pathlib.Path) -> None:
    """Give the JupyterLab that serves a folder the settings of the tests, and no others."""
    place = _private(folder) / "config" / "lab" / "user-settings"
    shutil.rmtree(place, ignore_errors=True)
    for name, values in _SETTINGS.items():
        path = place / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values), encoding="utf-8")


def _private(folder: pathlib.Path) -> pathlib.Path:
    return folder.parent / "private"


@contextlib.contextmanager
def running_lab(folder: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Run JupyterLab, and Notebook 7 where it is installed, on a folder; yields the address and token of the server.

    Args:
        folder: The notebooks, which are trusted; private settings go beside it.
    """
    private = _private(folder)
    forget_settings(folder)
    token = secrets.token_hex(16)
    environment = {
        **os.environ,
        "HOME": str(private),
        "IPYTHONDIR": str(private / "ipython"),
        "JUPYTER_CONFIG_DIR": str(private / "config"),
        "JUPYTERLAB_SETTINGS_DIR": str(private / "config" / "lab" / "user-settings"),
        "JUPYTER_DATA_DIR": str(private / "data"),
        "JUPYTER_RUNTIME_DIR": str(private / "runtime"),
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={free_port()}",
        f"--IdentityProvider.token={token}",
        "--LabApp.expose_app_in_browser=True",
        "--JupyterNotebookApp.expose_app_in_browser=True",
        f"--ServerApp.root_dir={folder}",
        "--ServerApp.terminals_enabled=False",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    # As `qdq-workbench lab` does: the pictures in the notebooks would make JupyterLab hide the bench after a reload.
    notebooks = sorted(folder.glob("*.ipynb"))
    if notebooks:
        subprocess.run([sys.executable, "-m", "nbformat.sign", *notebooks], env=environment, check=True)
    with (private / "lab.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
        try:
            port = _answering_port(private / "runtime", process, private / "lab.log", token)
            yield f"http://localhost:{port}", token
        finally:
            _end(process)


def end_kernels(address: str, token: str) -> None:
    """End the kernels of all notebooks of a server."""
    ours = {"headers": {"Authorization": f"token {token}"}}
    sessions = requests.get(f"{address}/api/sessions", timeout=PATIENCE, **ours).json()
    for session in sessions:
        requests.delete(f"{address}/api/sessions/{session['id']}", timeout=PATIENCE, **ours).raise_for_status()


class Notebook:
    """One notebook in one page.

    Args:
        page: A Playwright page.
        address: Address of the server.
        token: Its token.
        path: The notebook's path on the server.
        app: "jupyterlab" or "notebook".
        workspace: A window of JupyterLab of its own, in which no other notebook is open.
    """

    def __init__(
        self, page: Any, address: str, token: str, path: str, app: str = "jupyterlab", workspace: str = "default"
    ) -> None:
        self.page = page
        is_lab = app == "jupyterlab"
        self._opens = [path, is_lab]
        page.goto(f"{address}/{f'lab/workspaces/{workspace}' if is_lab else f'notebooks/{path}'}?token={token}")
        self.kinds = self._opened()
        if is_lab:
            answer_of(page, _CLOSE_FILES)

    def _opened(self) -> list[str]:
        self.page.wait_for_function("() => window.jupyterapp !== undefined", timeout=PATIENCE * 1000)
        kinds: list[str] = answer_of(self.page, _OPEN, self._opens)
        return kinds

    def save_and_reload(self) -> None:
        """Save the notebook and load the page again, as F5 does, until the bench is there; the kernel goes on."""
        self.save()
        for _ in range(3):
            self.load_again()
            # JupyterLab waits two seconds for a widget and then says "model not found", if the others are restored by
            # then: so it does on a loaded machine, until the page is loaded again, and always where this takes longer.
            if self._shows_a_bench():
                return
        shown = [text[:200] for text in self.page.locator(".jp-OutputArea-output").all_inner_texts()]
        raise AssertionError(f"JupyterLab found no bench in the page that was loaded again, three times: {shown}")

    def save(self) -> None:
        """Save the notebook."""
        answer_of(self.page, _SAVE)

    def load_again(self) -> None:
        """Load the page again, whatever it then shows."""
        self.page.reload()
        self._opened()

    def _shows_a_bench(self) -> bool:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.page.locator(".qdq-bench").count():
                return True
            # JupyterLab may say so for a moment, and then show the widget all the same.
            if self.page.get_by_text("model not found").count():
                end = min(end, time.monotonic() + 30)
            self.page.wait_for_timeout(500)
        return False

    def kill_kernel(self) -> None:
        """End the kernel's process, as a crash does; JupyterLab says so in a dialog."""
        os.kill(int(text_of(self.ask("import os; print(os.getpid())"))), signal.SIGKILL)

    def close_dialog(self) -> None:
        """Accept what JupyterLab says in a dialog."""
        self.page.locator(".jp-Dialog button.jp-mod-accept").click()

    def run(self, index: int) -> list[dict[str, Any]]:
        """Run a cell and return its outputs.

        Args:
            index: Its place in the notebook.

        Raises:
            AssertionError: If the cell raised an error.
        """
        outputs: list[dict[str, Any]] = answer_of(self.page, _RUN, index)
        errors = [output for output in outputs if output["output_type"] == "error"]
        if errors:
            raise AssertionError(f"Cell {index} failed: {errors[0]['ename']}: {errors[0]['evalue']}")
        return outputs

    def replace_and_run(self, index: int, source: str) -> list[dict[str, Any]]:
        """Write code into a cell, run it and return its outputs."""
        answer_of(self.page, _SET_SOURCE, [index, source])
        return self.run(index)

    def index_of(self, text: str) -> int:
        """Return the place of the first code cell whose source holds some text."""
        sources = answer_of(self.page, _SOURCES)
        return next(i for i, source in enumerate(sources) if text in source and self.kinds[i] == "code")

    def ask(self, code: str) -> list[dict[str, Any]]:
        """Run code in the kernel beside the notebook, and return what it printed."""
        outputs: list[dict[str, Any]] = answer_of(self.page, _ASK, code)
        errors = [output for output in outputs if output["output_type"] == "error"]
        if errors:
            raise AssertionError(f"{code!r} failed: {errors[0]['ename']}: {errors[0]['evalue']}")
        return outputs

    def scroll_to(self, index: int) -> None:
        """Bring a cell to the top of the page."""
        answer_of(self.page, _SCROLL, index)


@contextlib.contextmanager
def notebook_alone(source: pathlib.Path, viewport: dict[str, int]) -> Iterator[tuple[Notebook, pathlib.Path]]:
    """Open a copy of a notebook in a JupyterLab and a browser of its own; yield it and the folder of the copy."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as private, sync_playwright() as playwright:
        folder = pathlib.Path(private) / "notebooks"
        folder.mkdir()
        shutil.copy(source, folder)
        browser = playwright.chromium.launch(executable_path=chromium())
        with running_lab(folder) as (address, token):
            yield Notebook(patient_page(browser, viewport=viewport), address, token, source.name), folder
        browser.close()


def text_of(outputs: list[dict[str, Any]]) -> str:
    """Return what a cell printed, and the text of its last value."""
    parts = []
    for output in outputs:
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        parts.append("".join(text))
    return "".join(parts)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answering_port(runtime: pathlib.Path, process: subprocess.Popen[bytes], log: pathlib.Path, token: str) -> int:
    """Wait until the server answers; its own file says where, as the free port may be taken by then."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        for file in runtime.glob("jpserver-*.json"):
            try:
                port: int = json.loads(file.read_text(encoding="utf-8"))["port"]
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token={token}", timeout=PATIENCE):
                    return port
            except (OSError, ValueError):  # noqa: PERF203 - not written whole, or not listening yet
                continue
        time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text(errors='replace')[-3000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM would leave kernels behind; an interrupt, twice, is JupyterLab's own way out."""
    for _ in range(2):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
