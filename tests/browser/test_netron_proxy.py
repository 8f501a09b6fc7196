"""Netron's page behind a real jupyter-server-proxy."""

import urllib.request

import pytest
from browser.jupyter import PATIENCE

from qdq_widgets.netron_server import NetronPage, NetronServer

pytestmark = pytest.mark.slow


def test_page_and_file_come_through_the_proxy(lab, tmp_path):
    pytest.importorskip("jupyter_server_proxy", reason="needs jupyter-server-proxy: pip install jupyter-server-proxy")
    _, address, token = lab
    model = tmp_path / "model.onnx"
    model.write_bytes(b"the model")
    server = NetronServer()
    try:
        page = NetronPage(server, model)

        def get(name):
            url = f"{address}{page.proxied_path}{name}?token={token}"
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310 - our own server
                return answer.status, answer.read(), answer.headers

        status, body, headers = get("index.html")
        assert status == 200
        assert b'<meta name="file" content="model.onnx">' in body
        assert "connect-src 'self'" in headers["Content-Security-Policy"]
        assert get("view.js")[0] == 200
        assert get("model.onnx")[1] == b"the model"
    finally:
        server.close()
