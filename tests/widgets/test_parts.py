"""Methods that the bench has from its parts: each leads to the part it names, with its signature and its docstring."""

import ast
import inspect

import pytest
from project import ROOT

from qdq_widgets import Workbench


def methods_of_parts():
    """Return, by name, the attribute that holds the part and what is called of it, as workbench.py says."""
    tree = ast.parse((ROOT / "widgets" / "qdq_widgets" / "workbench.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    return {
        node.targets[0].id: [ast.literal_eval(node.value.args[0]), ast.unparse(node.value.args[1])]
        for node in calls
        if ast.unparse(node.value.func) in ("of_part", "step_of")
    }


METHODS = methods_of_parts()


@pytest.mark.parametrize("name", METHODS)
def test_a_method_leads_to_the_part_that_it_names(calibrated, name):
    attribute, called = METHODS[name]
    part = getattr(calibrated, attribute)
    assert called == f"{type(part).__name__}.{name}"
    assert inspect.signature(getattr(calibrated, name)) == inspect.signature(getattr(part, name))
    assert inspect.getdoc(getattr(Workbench, name)) == inspect.getdoc(getattr(type(part), name)) is not None


def test_it_takes_arguments_and_returns_what_the_part_returns(bench):
    step = bench.toggle("conv", site="input", on=False)
    assert step is bench.history.present
    assert Workbench.undo(bench).label == "start"
    assert len(METHODS) > 30
