"""The panes of a bench as plain HTML in an anywidget: what the page gets, and what it does to the widgets."""

import sys
import types

import ipywidgets as widgets
import pytest
from small_benches import tiny_data, tiny_model

from qdq_widgets import Workbench, displayed
from qdq_widgets.errors import BenchError
from qdq_widgets.figures.live import Host
from qdq_widgets.mirror import Mirror, node_of
from qdq_widgets.panes.calibration import CalibrationPane
from qdq_widgets.panes.training import TrainingPane
from qdq_widgets.replacing import replace_children


class Page:
    """Stands for the page: keeps what a mirror sends, and answers as a user does."""

    def __init__(self, mirror):
        self.mirror, self.nodes, self.roots = mirror, {}, []
        mirror.send = self._take
        mirror._on_message(mirror, {"ready": True}, [])

    def _take(self, message):
        self.nodes |= {node["id"]: node for node in message["nodes"]}
        self.roots = message.get("roots", self.roots)

    def of(self, widget):
        return self.nodes[widget.model_id]

    def does(self, **content):
        self.mirror._on_message(self.mirror, content, [])


def test_every_field_is_drawn_and_takes_what_a_user_gives():
    text, area = widgets.Text(description="Rate", placeholder="0.1"), widgets.Textarea(value="a")
    number, check = widgets.BoundedIntText(value=3, min=1, max=9), widgets.Checkbox(description="all")
    one, many = widgets.Dropdown(options=[("first", 1), ("second", 2)]), widgets.SelectMultiple(options=["a", "b", "c"])
    toggle, clicked = widgets.ToggleButton(description="Values"), []
    press = widgets.Button(description="Go", tooltip="Start", button_style="primary")
    press.on_click(clicked.append)
    rows = [widgets.HBox([text, area, number]), widgets.VBox([check, one, many, toggle, press])]
    tabs = widgets.Tab(children=rows, titles=["First", "Second"])
    page = Page(Mirror([widgets.HTML("<b>note</b>"), tabs]))
    assert [page.nodes[root]["kind"] for root in page.roots] == ["text", "tabs"]
    assert page.of(tabs)["titles"] == ["First", "Second"]
    assert (page.of(rows[0])["flow"], page.of(rows[1])["flow"]) == ("row", "column")
    assert page.of(press) == {
        "id": press.model_id,
        "kind": "button",
        "text": "Go",
        "tip": "Start",
        "icon": "",
        "style": "primary",
        "disabled": False,
        "classes": [],
        "css": {},
    }
    for field, given, value in (
        (text, "0.2", "0.2"),
        (area, "b\nc", "b\nc"),
        (number, 7, 7),
        (check, True, True),
        (one, 1, 2),
        (many, [0, 2], ("a", "c")),
    ):
        page.does(set=field.model_id, value=given)
        assert field.value == value
        shown = page.of(field)
        assert shown["index" if "index" in shown else "value"] == (tuple(given) if field is many else given)
    page.does(set=tabs.model_id, value=1)
    assert (tabs.selected_index, page.of(tabs)["index"]) == (1, 1)
    page.does(click=toggle.model_id)
    assert toggle.value
    assert page.of(toggle)["pressed"]
    page.does(click=press.model_id)
    press.disabled = True
    page.does(click=press.model_id)
    assert clicked == [press]


def test_a_number_out_of_bounds_and_an_index_that_is_none_change_nothing():
    number, one = widgets.BoundedIntText(value=3, min=1, max=9), widgets.Dropdown(options=["a"])
    page = Page(Mirror([number, one]))
    page.does(set=number.model_id, value=None)
    assert number.value == page.of(number)["value"] == 3
    page.does(set=one.model_id, value=5)
    assert one.value == "a"


def test_of_tabs_of_which_none_is_chosen_the_first_is_drawn():
    tabs = widgets.Tab(children=[widgets.HTML("a"), widgets.HTML("b")], titles=["First", "Second"])
    tabs.selected_index = None
    assert node_of(tabs)["index"] == 0


def test_what_changes_later_is_drawn_and_what_is_new_is_followed():
    box, note = widgets.VBox(), widgets.HTML("before")
    page = Page(Mirror([box]))
    box.children = (note,)
    assert page.of(box)["children"] == [note.model_id]
    note.value = "after"
    note.layout.display = "none"
    note.add_class("qdq-muted")
    assert (page.of(note)["value"], page.of(note)["css"]["display"]) == ("after", "none")
    assert page.of(note)["classes"] == ["qdq-muted"]


def test_what_is_closed_is_forgotten_and_the_page_shows_what_replaced_it():
    box = widgets.VBox()
    page = Page(Mirror([box]))
    for text in ("first", "second"):
        former, note = box.children, widgets.Button(description=text)
        replace_children(box, [note])
        assert page.of(box)["children"] == [note.model_id]
        assert page.of(note)["text"] == text
        assert set(page.mirror._known) == {box.model_id, note.model_id}
    former[0].description = "closed"
    page.does(click="id of a closed one")
    page.does(set="id of a closed one", value=1)
    assert page.of(box)["children"] == [note.model_id]


def test_every_widget_of_the_panes_has_a_form():
    bench = Workbench(tiny_model(), train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    for tabs in (bench.view.side, bench.view.work):
        for place in range(len(tabs.panes)):
            tabs.widget.selected_index = place
        page = Page(Mirror([tabs.widget]))
        undrawn = {
            type(widget).__name__
            for name, widget in page.mirror._known.items()
            if page.nodes[name] == {**node_of(widgets.HTML()), "id": name, "classes": page.nodes[name]["classes"]}
            and not isinstance(widget, widgets.HTML)
        }
        assert undrawn <= {"CopyButton"}


@pytest.fixture
def marimo(monkeypatch):
    """Stands for marimo: elements are tuples."""
    made = types.SimpleNamespace(vstack=tuple, hstack=lambda items, **_: tuple(items))
    monkeypatch.setitem(sys.modules, "marimo", made)
    monkeypatch.setattr(Host, "draws_figures", True)
    return made


def test_marimo_gets_the_whole_bench(marimo):
    bench = Workbench(tiny_model(), train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    head, (graph, side), work = displayed.marimo_bench(bench)
    assert displayed.marimo_bench(bench)[0] is head  # a cell that runs again makes no other ones
    assert graph is bench.view.graph
    bench.effects.measuring = False
    page = Page(work)
    calibrate, train = (bench.view.pane(kind) for kind in (CalibrationPane, TrainingPane))
    for pane in (calibrate, calibrate, train):
        bench.view.work.open(type(pane))
        page.does(click=pane.run.model_id)
        assert bench.jobs.wait(120)
        assert pane.errors.message == ""
    assert bench.stage == "fine-tuned"
    assert any("figure is drawn in JupyterLab" in str(node.get("value")) for node in page.nodes.values())
    assert side in bench.view.mirrors
    with pytest.raises(BenchError, match="a cell of their own"):
        bench.view.compare("plan", "plan")
