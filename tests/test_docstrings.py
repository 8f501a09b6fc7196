"""Every `>>>` example in the library runs and prints what it says."""

import doctest
import importlib
import inspect

import pytest
from project import ROOT

import qdq_workbench as qdq


def modules_with_examples():
    """Return the dotted names of the modules that hold an example."""
    sources = sorted((ROOT / "qdq_workbench").rglob("*.py"))
    with_examples = [path for path in sources if ">>>" in path.read_text(encoding="utf-8")]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in with_examples]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an example may write a file

    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)

    assert result.attempted > 0
    assert result.failed == 0


def test_every_function_and_class_at_the_root_has_an_example():
    public = {name: getattr(qdq, name) for name in qdq.__all__}
    described = {name: value for name, value in public.items() if inspect.isfunction(value) or inspect.isclass(value)}

    assert len(described) > 30
    assert [name for name, value in described.items() if ">>>" not in (value.__doc__ or "")] == []
