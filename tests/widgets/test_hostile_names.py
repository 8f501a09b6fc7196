"""Layer names are untrusted text: they never become markup, in no pane and in no report."""

import html
import re

import keras
import pytest
from small_benches import tiny_data, tiny_model

from qdq_widgets import Workbench
from qdq_widgets.panes.inspector import InspectorPane

NAMES = [
    "<img src=x onerror=alert(1)>",
    '"><script>alert(1)<',
    "'onmouseover='alert(1)",
    "n" * 300,
    "été 🦊 ️",
    "a.b:c#1 & co",
]


def hostile_bench(name):
    bench = Workbench(tiny_model(conv=name), train_data=tiny_data(), validation_data=tiny_data(32))
    bench.toggle(name, "weight")
    bench.keep_variant(name)
    return bench


def markup(bench):
    """Return all HTML that the bench shows."""
    import ipywidgets as widgets

    found, todo = [], [bench.view.widget]
    while todo:
        widget = todo.pop()
        if isinstance(widget, (widgets.HTML, widgets.HTMLMath)):
            found.append(widget.value)
        todo.extend(getattr(widget, "children", ()))
    return "".join(found)


@pytest.mark.parametrize("name", NAMES)
def test_no_pane_takes_a_name_for_markup(name):
    bench = hostile_bench(name)
    bench.view.graph.select(name)
    for tabs in (bench.view.side, bench.view.work):
        for index in range(len(tabs.panes)):
            tabs.widget.selected_index = index
    text = markup(bench)
    if re.search(r"[<>&\"']", name):
        assert name not in text
    assert html.escape(name) in text
    assert "<img" not in text
    assert "<script" not in text
    bench.view.pane(InspectorPane).errors.show(ValueError(name))
    assert "<img" not in markup(bench)


@pytest.mark.parametrize("name", NAMES[:3])
def test_no_report_takes_a_name_for_markup(name, tmp_path):
    bench = hostile_bench(name)
    page = bench.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert name not in page
    assert html.escape(name) in page


def test_a_hostile_model_name_stays_text():
    bench = Workbench(tiny_model(name="m_<script>alert(1)<_m"))
    assert "<script" not in markup(bench)


def test_paths_of_nested_models_work_like_names():
    inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="<b>dense<b>")], name="inner")
    outside = keras.Input((4,))
    bench = Workbench(keras.Model(outside, inner(outside)))
    path = next(layer for layer in bench.graph.layers if "dense" in layer)
    bench.toggle(path, "weight")
    bench.view.graph.select(path)
    assert "<b>dense" not in markup(bench)
