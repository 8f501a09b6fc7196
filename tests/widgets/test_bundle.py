"""The built front end: small, offline, safe with untrusted names, and what the sources build to."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest

_WIDGETS = pathlib.Path(__file__).parents[2] / "widgets"
_BUNDLE = _WIDGETS / "qdq_widgets" / "static" / "graph_view.js"


def test_the_bundle_is_one_small_file():
    assert [path.name for path in _BUNDLE.parent.iterdir() if path.is_file()] == ["graph_view.js"]
    assert _BUNDLE.stat().st_size < 96 * 1024


def test_the_bundle_fetches_nothing():
    text = _BUNDLE.read_text(encoding="utf-8")
    # The names of the SVG namespace are identifiers, not addresses.
    assert set(re.findall(r"https?://[\w.-]+", text)) <= {"http://www.w3.org"}
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|importScripts|Worker)\s*\(|\bimport\s*\(|@import", text)


def test_the_bundle_never_parses_text_as_markup():
    text = _BUNDLE.read_text(encoding="utf-8")
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser"
    assert not re.search(forbidden, text)


def test_every_source_has_a_cap_of_300_lines():
    too_long = {path.name for path in (_WIDGETS / "src").glob("*.ts") if len(path.read_text().splitlines()) > 300}
    assert not too_long


def test_the_lock_file_names_no_registry():
    packages = json.loads((_WIDGETS / "package-lock.json").read_text())["packages"]
    assert packages
    assert not [name for name, package in packages.items() if "resolved" in package]
    assert all("integrity" in package for name, package in packages.items() if name)


def test_the_bundle_is_what_the_sources_build_to():
    if shutil.which("node") is None:
        pytest.skip("needs Node")
    if not (_WIDGETS / "node_modules" / "esbuild").is_dir():
        pytest.skip("needs `npm ci` in widgets/")
    done = subprocess.run(["node", "build.mjs", "--check"], cwd=_WIDGETS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
