"""Python and the page find the same; see `graph_twins.py`."""

import json

import pytest
from graph_twins import CASES, FILE, recorded

import qdq_workbench as qdq
from qdq_widgets.layer_query import find_layers
from qdq_widgets.quantized_after import quantized_after


@pytest.fixture(params=CASES)
def case(request):
    """A plan with its queries and answers."""
    make, queries, after = CASES[request.param]
    return make(), queries, after


def possible(plan):
    """The plan that quantizes every site that can be quantized, as `Planner.possible`."""
    everything = qdq.QuantizationSpec()
    everything.add("*", match="glob", quantize_output=True)
    return qdq.plan_placement(plan.graph, "full", everything, target=plan.target)


def test_queries(case):
    plan, queries, _ = case
    found = [(query, list(find_layers(plan, possible(plan), query, {}))) for query, _ in queries]
    assert found == queries


def test_where_outputs_are_quantized(case):
    plan, _, after = case
    found = {node.name: quantized_after(plan, node) for node in plan.graph.nodes}
    assert {name: other for name, other in found.items() if other is not None} == after


@pytest.mark.parametrize("name", CASES)
def test_the_page_is_tested_with_the_same(name):
    known = {case["name"]: case for case in json.loads(FILE.read_text(encoding="utf-8"))}
    assert known[name] == json.loads(json.dumps(recorded(name))), "run: PYTHONPATH=widgets python tests/graph_twins.py"
