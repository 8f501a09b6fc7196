"""A loopback HTTP server for Netron: the page of its package, and exactly one ONNX file per secret token.

`netron.start` would serve every file in the model's folder to any client. Here a request is answered only if

- its Host header names this machine (so that no web site can reach the server through a rebound DNS name), or the
  request came through the jupyter-server-proxy of the JupyterHub that this kernel runs in,
- its path starts with a token that `publish` made: 192 random bits,
- and it asks for a file of Netron's package by its bare name, or for that token's one model.

Netron contacts an address service and an analytics service when it starts. The Content-Security-Policy sent here
allows connections to this server only, so the browser blocks both; Netron's own dialog about cookies still comes
up once. A Netron release stops working 180 days after it was made: `netron_release` says how long it has left.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import html
import http.server
import importlib.util
import os
import pathlib
import re
import secrets
import stat
import threading
import urllib.parse
from collections.abc import Collection

from qdq_widgets.errors import BenchError

LIFETIME_DAYS = 180
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_MODEL = "model.onnx"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".ico": "image/x-icon",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; worker-src 'self'; font-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self' http://localhost:* http://127.0.0.1:* vscode-webview:"
)


@dataclasses.dataclass(frozen=True)
class NetronRelease:
    """The installed Netron.

    Args:
        version: Its version.
        released: Its release date; None if its page has none.
        days_left: Days until it stops working, negative after that; None without a release date.
    """

    version: str
    released: dt.date | None
    days_left: int | None

    @property
    def expired(self) -> bool:
        """Whether this release refuses to work."""
        return self.days_left is not None and self.days_left < 0


def netron_release(today: dt.date | None = None) -> NetronRelease:
    """Return version, release date and days left of the installed Netron; `today` is by default that in UTC."""
    page = (_assets_folder() / "index.html").read_text(encoding="utf-8")
    version = _meta(page, "version") or "unknown"
    try:
        released = dt.date.fromisoformat(_meta(page, "date")[:10])
    except ValueError:
        return NetronRelease(version, None, None)
    age = (today or dt.datetime.now(tz=dt.timezone.utc).date()) - released
    return NetronRelease(version, released, LIFETIME_DAYS - age.days)


class NetronServer:
    """Serves ONNX files to Netron in the browser of this machine; the docstring of the module lists what is served.

    Args:
        allowed_hosts: Further host names that the Host header of a request may have, such as "hub.example.org" for a
            reverse proxy.

    Raises:
        BenchError: If Netron is not installed.
    """

    def __init__(self, allowed_hosts: Collection[str] = ()) -> None:
        folder = _assets_folder()
        self.allowed_hosts = _LOOPBACK | {host.lower() for host in allowed_hosts}
        self.assets = {entry.name: entry for entry in folder.iterdir() if entry.is_file() and entry.suffix in _TYPES}
        self.files: dict[str, pathlib.Path] = {}
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(self))
        # A request that hangs must not keep the kernel from ending.
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="qdq-netron", daemon=True)
        self._thread.start()

    def publish(self, path: str | os.PathLike[str]) -> str:
        """Publish one ONNX file, and return its token.

        Args:
            path: The file; it is read at every request, so that a reload shows a new export.

        Raises:
            BenchError: If there is no such file, or its name does not end in `.onnx`.
        """
        file = pathlib.Path(path).resolve()
        if not file.is_file() or file.suffix.lower() != ".onnx":
            raise BenchError(
                "Netron can show an existing .onnx file; export one first with wb.export('model.onnx'). "
                f"Received: path={str(path)!r}"
            )
        for token, published in self.files.items():
            if published == file:
                return token
        token = secrets.token_urlsafe(24)
        self.files[token] = file
        return token

    def withdraw(self, token: str) -> None:
        """Stop publishing a file.

        Args:
            token: The token from `publish`.
        """
        self.files.pop(token, None)

    def url(self, token: str) -> str:
        """Return the address for a browser on this machine.

        Args:
            token: The token from `publish`.
        """
        # `localhost`, not 127.0.0.1: Netron's consent cookie does not stick on an address made of numbers.
        return f"http://localhost:{self.port}/{token}/"

    def proxied_path(self, token: str) -> str:
        """Return the path for jupyter-server-proxy, which includes the prefix of the user's server under JupyterHub.

        Args:
            token: The token from `publish`.
        """
        return f"{hub_prefix() or '/'}proxy/{self.port}/{token}/"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def accepts_host(self, host: str, context: str = "") -> bool:
        """Return whether a request with this Host header may be answered.

        Args:
            host: The header, with or without a port.
            context: The header X-ProxyContextPath of jupyter-server-proxy; empty for direct requests.
        """
        name = re.sub(r":\d+$", "", host.strip().lower())
        if name in self.allowed_hosts:
            return True
        prefix = hub_prefix()
        return bool(prefix) and context.rstrip("/") == f"{prefix}proxy/{self.port}"

    def answer(self, path: str) -> tuple[str, bytes] | None:
        """Return content type and body for a request path; None for an unknown token or file.

        Args:
            path: The path of the request, still percent-encoded.
        """
        parts = urllib.parse.unquote(urllib.parse.urlsplit(path).path).split("/")
        if len(parts) != 3 or parts[0] or parts[1] not in self.files:
            return None
        file, name = self.files[parts[1]], parts[2] or "index.html"
        if name == _MODEL:
            content = _published(file)
            return None if content is None else ("application/octet-stream", content)
        asset = self.assets.get(name)
        if asset is None:
            return None
        content = asset.read_bytes()
        if name == "index.html":
            content = _with_model(content.decode("utf-8"), file.name).encode("utf-8")
        return _TYPES[asset.suffix], content


class NetronPage:
    """One published file, displayed in a notebook as a frame with a plain link above it.

    Args:
        server: The server.
        path: The ONNX file.
    """

    def __init__(self, server: NetronServer, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path)
        self._server = server
        self.token = server.publish(path)
        self.url = server.url(self.token)
        self.proxied_path = server.proxied_path(self.token)

    @property
    def src(self) -> str:
        """The address for a frame: the proxied path under JupyterHub, else the address on this machine."""
        return self.proxied_path if hub_prefix() else self.url

    def frame(self, height: int = 600) -> str:
        """Return the frame as HTML; the height is in CSS pixels."""
        src, name = html.escape(self.src, quote=True), html.escape(self.path.name)
        return (
            f'<iframe class="qdq-netron" src="{src}" title="Netron: {name}" allow="" referrerpolicy="no-referrer" '
            f'style="width:100%;height:{height}px;border:1px solid var(--jp-border-color2,#ccc)"></iframe>'
        )

    def links(self) -> str:
        """Return plain links as HTML, for pages that block frames."""
        url, proxied = html.escape(self.src, quote=True), html.escape(self.proxied_path, quote=True)
        name = html.escape(self.path.name)
        text = f'<a href="{url}" target="_blank" rel="noopener noreferrer">Open {name} in a tab</a>'
        if not hub_prefix():
            text += (
                f' · <a href="{proxied}" target="_blank" rel="noopener noreferrer">through jupyter-server-proxy</a> '
                "(where the kernel runs on another machine)"
            )
        return text

    def _repr_html_(self) -> str:
        return f"<p>{self.links()}</p>{self.frame()}"

    def __repr__(self) -> str:
        return f"NetronPage({self.path.name!r}, {self.url})"


def hub_prefix() -> str:
    """Return the address prefix of this user's server under JupyterHub; empty where there is no hub."""
    prefix = os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "")
    return prefix if not prefix or prefix.endswith("/") else f"{prefix}/"


_shared_lock = threading.Lock()
_shared: list[NetronServer] = []


def shared_server() -> NetronServer:
    """Return the one server of this process, started on first use."""
    with _shared_lock:
        if not _shared:
            _shared.append(NetronServer())
        return _shared[0]


def _handler_for(owner: NetronServer) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        server_version, sys_version = "qdq-workbench", ""

        def do_GET(self) -> None:
            context = self.headers.get("X-ProxyContextPath", "")
            if not owner.accepts_host(self.headers.get("Host", ""), context):
                self._send(403, "text/plain", b"This server answers to this machine only.\n")
                return
            try:
                found = owner.answer(self.path)
            except OSError:  # the file went away between the click and the request
                found = None
            if found is None:
                self._send(404, "text/plain", b"Not found.\n")
            else:
                self._send(200, *found)

        do_HEAD = do_GET  # noqa: N815 (the name that the base class looks for)

        def _send(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", _POLICY)
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.send_header("Referrer-Policy", "no-referrer")
            self.send_header("X-Content-Type-Options", "nosniff")
            # The model, of type application/octet-stream, may be exported again under its token.
            self.send_header("Cache-Control", "no-store" if content_type.startswith("app") else "no-cache")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
            """Keep the notebook free of access logs."""

    return Handler


def _published(file: pathlib.Path) -> bytes | None:
    """Return the content of a published file; None if its path leads to a link or to no regular file by now.

    The path had no symbolic links when it was published. A link put there since could make this server read files that
    its author has no access to.
    """
    if file.resolve() != file:
        return None
    # Opening a pipe would wait for a writer, and a link put there meanwhile must not be followed.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(file, flags)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        return opened.read() if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def _assets_folder() -> pathlib.Path:
    found = importlib.util.find_spec("netron")
    if found is None or found.origin is None:
        raise BenchError("Netron is not installed; install it with: pip install netron")
    return pathlib.Path(found.origin).parent


def _meta(page: str, name: str) -> str:
    match = re.search(rf'<meta name="{name}" content="([^"]*)">', page)
    return match.group(1) if match else ""


def _with_model(page: str, file_name: str) -> str:
    """Insert the meta tags that make Netron's page open the model, as `netron.start` does."""
    shown = html.escape(file_name, quote=True)
    added = (
        f'<meta name="type" content="Python">\n<meta name="file" content="{_MODEL}">\n'
        f'<meta name="identifier" content="{shown}">\n'
    )
    return page.replace("</title>", f"</title>\n{added}", 1)
