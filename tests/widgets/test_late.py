"""A page that missed messages asks for the state of a widget: it gets all of it but the scripts, which it has."""

import keras
import plotly.graph_objects as go
import pytest

import qdq_workbench as qdq
from qdq_widgets.figures.live import live_figure
from qdq_widgets.graph_comparison import GraphComparison
from qdq_widgets.graph_view import GraphView
from qdq_widgets.kernel_watch import KernelWatch


@pytest.fixture(scope="module")
def plan():
    image = keras.Input((8, 8, 3), name="image")
    return qdq.plan_placement(keras.Model(image, keras.layers.Conv2D(4, 3, name="conv")(image)))


def told(monkeypatch, widget):
    """The keys that a widget sends from now on, and its messages."""
    sent = []
    monkeypatch.setattr(widget, "send_state", lambda key=None: sent.append(key))
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: sent.append(content))
    return sent


def late(widget):
    return {"type": "late", "model": f"IPY_MODEL_{widget.model_id}"}


def test_a_graph_tells_all_it_knows_and_that_no_click_is_unanswered(monkeypatch, plan):
    view = GraphView(plan)
    sent = told(monkeypatch, view)
    view._handle_custom_msg(late(view), [])
    [keys, message] = sent
    assert {"graph", "plan_state", "colors", "selection", "can_undo", "layout"} <= keys
    assert not keys & {"_esm", "_css"}
    assert message == {"type": "done", "id": None}


@pytest.mark.parametrize("other", [KernelWatch, lambda: live_figure(go.Figure(go.Bar(x=[1])))])
def test_a_graph_asks_for_other_widgets_of_its_bench(monkeypatch, plan, other):
    view, widget = GraphView(plan), other()
    sent, others = told(monkeypatch, view), told(monkeypatch, widget)
    view._handle_custom_msg(late(widget), [])
    assert sent == []
    assert others == [set(widget.keys) - {"_esm", "_css"}]


def test_two_graphs_tell_all_they_know(monkeypatch, plan):
    both = GraphComparison(plan, plan)
    sent = told(monkeypatch, both)
    both._handle_custom_msg(late(both), [])
    assert [{"left", "right", "difference"} <= keys for keys in sent] == [True]


def test_what_is_no_widget_or_closed_is_passed_over(monkeypatch, plan):
    view = GraphView(plan)
    closed = KernelWatch()
    asked = late(closed)
    closed.close()
    sent = told(monkeypatch, view)
    for content in (asked, {"type": "late"}, {"type": "late", "model": 3}, {"type": "late", "model": "IPY_MODEL_?"}):
        view._handle_custom_msg(content, [])
    assert sent == []


def test_a_graph_alone_looks_after_itself_and_in_a_bench_after_the_bench(plan, bench):
    view, both = GraphView(plan), GraphComparison(plan, plan)
    assert view.whole == view.model_id
    assert both.whole == both.model_id
    assert bench.view.graph.whole == bench.view.widget.model_id
