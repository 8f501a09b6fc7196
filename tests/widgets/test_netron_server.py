"""Netron's page and one file per token, for this machine only."""

import datetime as dt
import functools
import http.client
import http.server
import os

import pytest

from qdq_widgets.errors import BenchError
from qdq_widgets.netron_server import NetronPage, NetronServer, netron_release


@pytest.fixture
def server(monkeypatch):
    # A server looks twice a second whether it is to end, and each test ends one.
    often = functools.partialmethod(http.server.ThreadingHTTPServer.serve_forever, poll_interval=0.01)
    monkeypatch.setattr(http.server.ThreadingHTTPServer, "serve_forever", often)
    made = NetronServer()
    yield made
    made.close()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"the model")
    (tmp_path / "secret.txt").write_text("not for you")
    (tmp_path / "other.onnx").write_bytes(b"another model")
    return path


def get(server, path, host="localhost", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": host, **headers}.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body, response.headers


def test_the_page_the_assets_and_the_one_file_are_served(server, file):
    token = server.publish(file)
    status, page, _ = get(server, f"/{token}/")
    assert status == 200
    assert b'<meta name="file" content="model.onnx">' in page
    assert get(server, f"/{token}/view.js")[0] == 200
    assert get(server, f"/{token}/model.onnx")[1] == b"the model"
    file.write_bytes(b"exported anew")
    assert get(server, f"/{token}/model.onnx")[1] == b"exported anew"


def test_nothing_is_served_without_a_token(server, file):
    server.publish(file)
    for path in ("/", "/index.html", "/model.onnx", "/view.js", "//model.onnx", "/wrong/model.onnx", "/wrong/"):
        assert get(server, path)[0] == 404, path


@pytest.mark.parametrize(
    "name",
    [
        "secret.txt",
        "other.onnx",
        "../secret.txt",
        "..%2fsecret.txt",
        "%2e%2e/secret.txt",
        "..%5csecret.txt",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "__init__.py",
        "server.py",
        "__pycache__",
        "model.onnx/../secret.txt",
        "model.onnx%00.js",
    ],
)
def test_no_other_file_can_be_reached(server, file, name):
    token = server.publish(file)
    assert get(server, f"/{token}/{name}")[0] == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8888", "localhost.evil.example", "", "10.0.0.7", "[::2]"]
)
def test_other_host_names_are_turned_away(server, file, host):
    token = server.publish(file)
    status, body, _ = get(server, f"/{token}/model.onnx", host=host)
    assert status == 403
    assert b"the model" not in body


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1:1234", "LOCALHOST", "[::1]:80"])
def test_names_of_this_machine_are_accepted(server, file, host):
    assert get(server, f"/{server.publish(file)}/", host=host)[0] == 200


def test_a_proxy_is_believed_only_inside_its_hub(server, file, monkeypatch):
    path, context = f"/{server.publish(file)}/", f"/user/ada/proxy/{server.port}"
    assert get(server, path, host="hub.example", X_ProxyContextPath=context)[0] == 403
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/ada/")
    assert get(server, path, host="hub.example")[0] == 403
    assert get(server, path, host="hub.example", X_ProxyContextPath=f"/user/eve/proxy/{server.port}")[0] == 403
    assert get(server, path, host="hub.example", X_ProxyContextPath=context)[0] == 200
    assert NetronPage(server, file).src == f"{context}{path}"


def test_a_host_can_be_allowed_by_name(file):
    server = NetronServer(allowed_hosts=["Hub.example"])
    try:
        assert get(server, f"/{server.publish(file)}/", host="hub.example:443")[0] == 200
    finally:
        server.close()


def test_the_browser_is_told_to_connect_nowhere_else(server, file):
    headers = get(server, f"/{server.publish(file)}/")[2]
    policy = headers["Content-Security-Policy"]
    assert "connect-src 'self'" in policy
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in headers


def a_link_to_a_secret(file, folder):
    file.symlink_to(folder / "secret.txt")


def a_hidden_link(file, folder):
    (folder / "hidden").mkdir()
    (folder / "secret.txt").rename(folder / "hidden" / file.name)
    file.parent.rmdir()
    file.parent.symlink_to(folder / "hidden")


def a_pipe(file, folder):
    os.mkfifo(file)


def a_folder(file, folder):
    file.mkdir()


@pytest.mark.parametrize("put", [a_link_to_a_secret, a_hidden_link, a_pipe, a_folder])
def test_what_stands_in_place_of_a_published_file_is_not_served(server, file, tmp_path, put):
    (tmp_path / "models").mkdir()
    published = tmp_path / "models" / "net.onnx"
    published.write_bytes(b"the model")
    token = server.publish(published)
    assert get(server, f"/{token}/model.onnx")[1] == b"the model"
    published.unlink()

    put(published, tmp_path)

    assert get(server, f"/{token}/model.onnx")[:2] == (404, b"Not found.\n")


def test_only_reading_is_possible(server, file):
    token = server.publish(file)
    status, body, headers = get(server, f"/{token}/model.onnx", method="HEAD")
    assert (status, body, headers["Content-Length"]) == (200, b"", "9")
    assert get(server, f"/{token}/model.onnx", method="POST")[0] == 501


def test_every_file_has_its_own_unguessable_token(server, file, tmp_path):
    first, second = server.publish(file), server.publish(tmp_path / "other.onnx")
    assert first != second
    assert len(first) >= 32
    assert server.publish(file) == first
    server.withdraw(first)
    assert get(server, f"/{first}/")[0] == 404
    assert get(server, f"/{second}/model.onnx")[1] == b"another model"


def test_only_existing_onnx_files_can_be_published(server, tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    for path in (tmp_path / "missing.onnx", tmp_path / "notes.txt", tmp_path):
        with pytest.raises(BenchError, match=r"existing \.onnx file"):
            server.publish(path)


def test_a_hostile_file_name_stays_text(server, tmp_path):
    path = tmp_path / '"><script>alert(1)<.onnx'
    path.write_bytes(b"x")
    page = NetronPage(server, path)
    body = get(server, f"/{page.token}/")[1].decode()
    assert "<script>alert" not in body
    assert "<script>" not in page.frame() + page.links()


def test_the_address_says_localhost_because_consent_does_not_stick_elsewhere(server, file):
    page = NetronPage(server, file)
    assert page.url.startswith(f"http://localhost:{server.port}/{page.token}")
    assert page.proxied_path == f"/proxy/{server.port}/{page.token}/"


def test_the_release_knows_how_long_it_will_work():
    release = netron_release()
    assert release.released is not None
    late = netron_release(today=release.released + dt.timedelta(days=181))
    assert late.expired
    assert late.days_left == -1
    assert not netron_release(today=release.released + dt.timedelta(days=180)).expired
