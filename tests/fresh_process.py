"""Fresh processes at the price of a fork: what takes seconds of every new process is to import TensorFlow and Keras.

A server imports them, does nothing with them, and forks a process per request. It knows nothing of this package.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

# Strings are hashed otherwise than in the process that asks, as they would be in any other process.
_HASH_SEED = "7"
_SEED = 7  # of what Keras draws initial weights by
_LIMIT = 600.0  # seconds


class Started:
    """A process that runs some code.

    Args:
        server: Who forked it.
        number: Its id.
        folder: Where it writes its standard output and errors.
    """

    def __init__(self, server: Server, number: int, folder: pathlib.Path) -> None:
        self._server, self._number, self._folder = server, number, folder

    def finish(self) -> subprocess.CompletedProcess[str]:
        """Wait until it ends; return its exit status and what it wrote, as `subprocess.run` does."""
        status = self._server.ask({"wait": self._number})
        out, errors = ((self._folder / name).read_text(encoding="utf-8") for name in ("out", "errors"))
        return subprocess.CompletedProcess([], status, out, errors)


class Server:
    """Forks processes in which some modules are imported already.

    Args:
        folder: For what the processes write.
        *modules: The modules.
    """

    def __init__(self, folder: pathlib.Path, *modules: str) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": _HASH_SEED},
        )

    def start(
        self,
        code: str | pathlib.Path,
        *arguments: str,
        environment: dict[str, str] | None = None,
        path: Sequence[str] = (),
    ) -> Started:
        """Run code, or a script, in a process of its own.

        Args:
            code: The code, or the script's path.
            *arguments: Its arguments.
            environment: Variables beside those of this process.
            path: Folders to import from, before all others.
        """
        folder = pathlib.Path(tempfile.mkdtemp(dir=self._folder))
        request = {
            "script" if isinstance(code, pathlib.Path) else "code": str(code),
            "arguments": arguments,
            "environment": environment or {},
            "path": [str(place) for place in path],
            "folder": str(folder),
        }
        return Started(self, self.ask(request), folder)

    def run(self, code: str, path: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """Run code in a process of its own to its end.

        Args:
            code: The code.
            path: Folders to import from, before all others.
        """
        return self.start(code, path=path).finish()

    def ask(self, request: dict[str, object]) -> int:
        """Return the server's answer: the id of a process, or the exit status of one.

        Args:
            request: What `serve` reads.
        """
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the server."""
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@contextlib.contextmanager
def server(*modules: str) -> Iterator[Server]:
    """Run a server.

    Args:
        *modules: What is imported in its processes already.
    """
    with tempfile.TemporaryDirectory(prefix="qdq-fresh-") as folder:
        running = Server(pathlib.Path(folder), *modules)
        try:
            yield running
        finally:
            running.close()


def serve() -> dict[str, object] | None:
    """Fork a process per request; return what it is to do in that process, and None here when nobody asks any more."""
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = exit_status(request["wait"])
        else:
            answer = os.fork()
            if not answer:
                return request
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    return None


def exit_status(number: int) -> int:
    """Wait for a process and return its exit status; one that takes too long is killed."""
    end = time.monotonic() + _LIMIT
    while True:
        ended, status = os.waitpid(number, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(number, signal.SIGKILL)
        time.sleep(0.02)


def become(request: dict[str, object]) -> None:
    """Turn this process into the one that was asked for, and run its code."""
    folder = pathlib.Path(request["folder"])
    for stream, name in ((sys.stdout, "out"), (sys.stderr, "errors")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), stream.fileno())
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    os.environ.update(request["environment"])
    script = request.get("script")
    sys.argv = [script or "-c", *request["arguments"]]
    sys.path[0] = str(pathlib.Path(script).parent) if script else ""
    sys.path[:0] = request["path"]
    random.seed(_SEED)
    code = pathlib.Path(script).read_text(encoding="utf-8") if script else request["code"]
    exec(compile(code, script or "<code>", "exec"), vars(sys.modules["__main__"]))


if __name__ == "__main__":
    # As in conftest.py: the collector looks through all that was imported whenever 700 more objects were made.
    gc.set_threshold(100_000, 10, 10)
    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.freeze()
    if asked := serve():
        become(asked)
