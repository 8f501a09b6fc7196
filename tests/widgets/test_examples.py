"""Every `>>>` example of the notebook front end runs and prints what it says."""

import doctest
import importlib

import pytest
from project import ROOT

SOURCES = sorted((ROOT / "widgets" / "qdq_widgets").rglob("*.py"))
WITH_EXAMPLES = [path for path in SOURCES if ">>>" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.stem)
def test_examples(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = ".".join(path.relative_to(ROOT / "widgets").with_suffix("").parts).removesuffix(".__init__")
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0
