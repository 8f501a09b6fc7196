"""Every `>>>` example in the library runs and prints what it says; public docstrings have what their code has."""

import ast
import doctest
import functools
import importlib
import inspect
import itertools
import re
import textwrap
import types

import pytest
from named_modules import MODULES
from project import ROOT

import qdq_workbench as qdq

INITIALIZERS = ("__init__", "__post_init__")


def modules_with_examples():
    """Return the dotted names of the modules that hold an example."""
    sources = sorted((ROOT / "qdq_workbench").rglob("*.py"))
    with_examples = [path for path in sources if ">>>" in path.read_text(encoding="utf-8")]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in with_examples]


def public_objects():
    """Return the functions and classes at the root and in the named modules, by name."""
    found = {name: getattr(qdq, name) for name in (*qdq.__all__, *itertools.chain(*MODULES.values()))}
    found.update({f"numerics.{name}": getattr(qdq.numerics, name) for name in qdq.numerics.__all__})
    return {name: value for name, value in found.items() if inspect.isfunction(value) or inspect.isclass(value)}


def plain(member):
    """Return the function behind a method of any kind, or behind a property; None for other members."""
    for kind, inner in ((classmethod, "__func__"), (staticmethod, "__func__"), (property, "fget")):
        if isinstance(member, kind):
            return getattr(member, inner)
    if isinstance(member, functools.cached_property):
        return member.func
    return member if isinstance(member, types.FunctionType) else None


def documented_code():
    """Yield every public function, method and constructor: its name, its functions, and the docstring about them."""
    for name, value in public_objects().items():
        if inspect.isfunction(value):
            yield name, [value], inspect.getdoc(value)
            continue
        members = {key: function for key, member in vars(value).items() if (function := plain(member))}
        if name != "QuantizedModel":  # Keras and `quantize_model` make it, in the signature that Keras knows
            yield name, [members[key] for key in INITIALIZERS if key in members], inspect.getdoc(value)
        for key, function in members.items():
            if not key.startswith("_"):
                yield f"{name}.{key}", [function], inspect.getdoc(function)


def section(text, title):
    """Return one section of a Google docstring; empty where it has none."""
    found = re.search(rf"^{title}:\n((?:[ ]+.*\n|\n)*)", f"{text}\n", re.MULTILINE)
    return found.group(1) if found else ""


def parameters_of(function):
    """Return the parameters of a function but self, as docstrings write them."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    found = inspect.signature(function).parameters.values()
    return [stars.get(each.kind, "") + each.name for each in found if each.name not in ("self", "cls")]


def errors_of(function):
    """Return the names of the errors that the function's own lines raise; those of what it calls are not seen."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except OSError:  # written by dataclasses
        return set()
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None]
    names = {ast.unparse(error.func if isinstance(error, ast.Call) else error).rpartition(".")[2] for error in raised}
    return {name for name in names if re.fullmatch(r"[A-Z]\w*Error", name)} - {"NotImplementedError"}


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


def test_every_parameter_of_a_public_name_is_described():
    asked = 0
    missing = []
    for name, functions, text in documented_code():
        described = re.findall(r"^ +(\*{0,2}\w+):", section(text, "Args"), re.MULTILINE)
        for parameter in [parameter for function in functions for parameter in parameters_of(function)]:
            asked += 1
            missing += [(name, parameter)] if parameter not in described else []

    assert asked > 500
    assert missing == []


def test_every_error_that_a_public_name_raises_itself_is_described():
    asked = 0
    missing = []
    for name, functions, text in documented_code():
        described = section(text, "Raises")
        for error in sorted({error for function in functions for error in errors_of(function)}):
            asked += 1
            missing += [(name, error)] if error not in described else []

    assert asked > 50
    assert missing == []


def test_gaps_are_found():
    def documented(first, *others):
        if others:
            raise qdq.errors.SpecError("others")

    assert parameters_of(documented) == ["first", "*others"]
    assert errors_of(documented) == {"SpecError"}
    assert "number" in section("Text.\n\nArgs:\n    first: A number.\n\nRaises:\n    E: If.", "Args")
    assert section("Text.\n\nArgs:\n    first: A number.", "Raises") == ""
