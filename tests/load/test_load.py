"""A session of some dozens of actions in one bench; `make load` takes a thousand on 3,000 layers."""

import pytest
from load.networks import chain
from load.page import Page
from load.session import Session, digest

from qdq_widgets import Workbench

ACTIONS = 60


@pytest.fixture(scope="module")
def session():
    """A bench in which sixty actions were taken, each with all checks."""
    made = Session(chain(40), 1, target="onnxruntime")
    for _ in range(ACTIONS):
        made.act()
    return made


def test_most_actions_were_not_refused(session):
    assert len(session.taken) == 20
    assert sum(session.refused.values()) < ACTIONS / 2
    assert len(session.bench.history) > 10


def test_undo_to_the_start_and_redo_to_the_end(session):
    session.to_the_start_and_back()


def test_no_widget_is_left_open_by_what_replaces_it(session):
    bench, counts = session.bench, []
    with session.page.opened():
        bench.view.side.widget.selected_index = bench.view.work.widget.selected_index = 0
        for names in (["b0_conv1"], [], ["b1_add"], ["b0_conv1", "b1_conv1"], []) * 3:
            bench.select(names)
            counts.append(len(session.page.names))
    # The first round makes the switches of every kind of selection, which the inspector keeps and shows again.
    assert counts[5:10] == counts[10:]


def test_every_open_widget_belongs_to_the_view_or_waits_in_its_pane(session):
    session.see_every_pane()
    waiting = session.beside_the_view()
    for _ in range(10):
        session.act()
    session.see_every_pane()
    assert session.beside_the_view() <= waiting


def test_the_journal_leads_to_the_same_plan(session):
    script = session.bench.to_script()
    names = {"model": session.bench.model}
    exec(script, names)
    assert digest(names["wb"].plan) == digest(session.bench.plan)
    assert isinstance(names["wb"], Workbench)


def test_what_the_page_lacks_or_has_otherwise_fails_the_session():
    page = Page()
    state = {"revision": 1, "states": ["0::0"], "why": [0], "reasons": ["off"], "pairs": {}, "target": "a", "mode": ""}
    page.receive("graph", "comm_open", {"state": {"plan_state": state, "title": "old"}})
    changes = {**state, "type": "plan", "states": {"0": "1::0"}, "why": {"0": "on"}}
    with pytest.raises(AssertionError, match="a message of the plan was lost"):
        page.receive("graph", "comm_msg", {"method": "custom", "content": {**changes, "revision": 3}})
    page.receive("graph", "comm_msg", {"method": "custom", "content": {**changes, "revision": 2}})
    page._ask("check_graph", "graph", {**state, "states": ["1::0"], "reasons": ["on"]}, 2)
    with pytest.raises(AssertionError, match="the page shows another plan"):
        page._ask("check_graph", "graph", state, 2)
    assert page._ask("differing", "graph", {"plan_state": None, "title": "new"}) == ["title"]
    with pytest.raises(AssertionError, match="on one side alone"):
        page.check_traits({})
