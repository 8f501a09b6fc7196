"""The view of a bench: which panes draw after an event, what the foot says of a job, and clicks that are refused."""

import threading
from types import SimpleNamespace

import ipywidgets as widgets
import keras
import pytest

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.background import Job
from qdq_widgets.pane import Pane
from qdq_widgets.view import PaneTabs, _sentence


def counting(name, /, *names, remembers=(), fails=""):
    """Return a class of panes that count how often they draw."""

    class Counting(Pane):
        title = name
        events = names
        drawn = 0

        def build(self):
            if fails == "build":
                raise RuntimeError("cannot build")
            return []

        def refresh(self):
            self.drawn += 1
            if fails == "refresh":
                raise RuntimeError("cannot draw")

    Counting.remembers = dict.fromkeys(remembers)
    return Counting


def tabs_of(*kinds):
    return PaneTabs([kind(SimpleNamespace()) for kind in kinds], threading.RLock())


def drawn(tabs):
    return [pane.drawn for pane in tabs.panes]


# ---------------------------------------------------------------------- tabs


def test_a_pane_draws_when_it_is_in_sight_and_only_after_what_concerns_it():
    tabs = tabs_of(counting("one", "plan"), counting("two", "job"))
    assert tabs.widget.titles == ("one", "two")
    tabs.refresh()
    tabs.refresh()
    assert (drawn(tabs), tabs.panes[1].is_built) == ([1, 0], False)
    tabs.tell("job")
    assert drawn(tabs) == [1, 0]
    tabs.tell("plan")
    assert drawn(tabs) == [2, 0]
    tabs.widget.selected_index = 1
    assert drawn(tabs) == [2, 1]
    tabs.tell("plan")
    tabs.tell("plan")
    assert drawn(tabs) == [2, 1]
    tabs.widget.selected_index = 0
    assert drawn(tabs) == [3, 1]  # once for both events
    tabs.widget.selected_index = None  # as the page says it while it is built
    tabs.tell("plan")
    assert drawn(tabs) == [4, 1]


def test_remembered_values_concern_the_panes_that_remember_any():
    tabs = tabs_of(counting("one", "plan", remembers=["text"]))
    tabs.tell("panes")
    tabs.tell("panes")
    assert drawn(tabs) == [2]
    other = tabs_of(counting("two", "plan"))
    other.refresh()
    other.tell("panes")
    assert drawn(other) == [1]


def test_a_tab_is_opened_by_the_class_of_its_pane():
    first, second = counting("one"), counting("two")
    tabs = tabs_of(first, second, second)
    tabs.open(second)
    assert tabs.widget.selected_index == 1
    with pytest.raises(StopIteration):
        tabs.open(counting("three"))


@pytest.mark.parametrize(("fails", "count"), [("build", 0), ("refresh", 1)])
def test_an_error_of_a_pane_stays_in_the_pane(fails, count):
    tabs = tabs_of(counting("one", "plan", fails=fails))
    tabs.refresh()
    assert tabs.panes[0].errors.message.startswith("cannot ")
    assert drawn(tabs) == [count]
    tabs.tell("plan")
    assert drawn(tabs) == [2 * count]


def test_a_pane_that_changes_something_while_it_draws_draws_again():
    class Remarking(Pane):
        events = ("plan",)
        drawn = 0

        def build(self):
            return [widgets.HTML()]

        def refresh(self):
            self.drawn += 1
            if self.drawn == 1:
                tabs.tell("plan")

    tabs = tabs_of(Remarking)
    tabs.refresh()
    assert drawn(tabs) == [2]


# ---------------------------------------------------------------------- bar and foot


@pytest.fixture(scope="module")
def shared(model):
    return Workbench(model)


@pytest.fixture
def bench(shared):
    """A bench with its view; every test leaves its plan as it was."""
    yield shared
    while shared.history.can_undo:
        shared.undo()
    shared.color_by("precision")


def test_the_foot_follows_a_job_and_says_how_it_ended(bench):
    view = bench.view
    assert (view.stop.disabled, view.stop.layout.display, view.progress.layout.display) == (True, "none", "none")
    with bench.jobs.run("<sweep>") as job:
        assert (view.stop.disabled, view.stop.layout.display, view.progress.layout.display) == (False, "", "")
        job.report(None, "reading <data>")
        assert (view.progress.bar_style, view.progress.value) == ("info", 1.0)
        assert view.status.value == "<b>&lt;sweep&gt;</b> reading &lt;data&gt;"
        job.report(0.25, "half")
        assert (view.progress.bar_style, view.progress.value) == ("", 0.25)
    assert "Ready" in view.status.value
    assert view.stop.disabled
    with bench.jobs.run("<sweep>"):
        view.stop.click()
        assert "stopping after this step" in view.status.value
    assert "Stopped: &lt;sweep&gt;" in view.status.value


def test_the_time_left_is_told_until_a_stop(bench, monkeypatch):
    monkeypatch.setattr(Job, "seconds_left", 100.0)
    with bench.jobs.run("sweep") as job:
        job.report(0.5, "half")
        assert bench.view.status.value.endswith(" <span class='qdq-muted'>2 min left</span>")
        job.stop()
        assert "left" not in bench.view.status.value


def test_the_bar_follows_the_history(bench):
    view = bench.view
    bench.toggle("conv", "weight")
    assert (view.undo.disabled, view.redo.disabled) == (False, True)
    assert (view.graph.can_undo, view.graph.can_redo) == (True, False)
    assert view.status.value == f"toggle conv: weight <span class='qdq-muted'>{bench.history.present.change}</span>"
    view.undo.click()
    assert (bench.history.position, view.undo.disabled, view.redo.disabled) == (0, True, False)
    assert (view.graph.can_undo, view.graph.can_redo) == (False, True)
    assert view.status.value == "start <span class='qdq-muted'></span>"
    view.redo.click()
    assert bench.history.position == 1
    assert view.errors.message == ""


def test_a_click_that_is_refused_says_why_in_the_foot(bench):
    view = bench.view
    view._undo()
    assert "nothing to undo" in view.errors.message
    bench.toggle("conv", "weight")
    view._redo()
    assert "nothing to redo" in view.errors.message
    view._set_target("nowhere")
    assert "nowhere" in view.errors.message
    view._set_colors("nothing")
    assert "can be coloured by" in view.errors.message
    view.undo.click()
    assert view.errors.message == ""


def test_the_pickers_of_the_bar_are_those_of_the_bench(bench):
    view = bench.view
    view.target.value = "onnxruntime"
    assert (bench.state.target, len(bench.history)) == ("onnxruntime", 2)
    view.colors.value = "plan"
    assert bench.coloring == "plan"
    bench.undo()
    assert view.target.value == "tensorrt"
    assert bench.history.position == 0  # the picker that followed is no click
    bench.set_metric("mine", {"conv": 1.0})
    bench.color_by("mine")
    assert view.colors.value == "mine"
    texts = [text for text, _ in view.colors.options]
    assert texts[:3] == ["precision on the target", "what the plan quantizes", "my own rules"]
    assert texts[3:] == ["parameters per layer", "weight bytes per layer", "mine"]
    assert _sentence("mine") == "mine"


def test_the_colours_of_a_metric_of_another_plan_say_so(bench):
    from qdq_widgets.metrics import Metric
    from qdq_widgets.state import plan_key

    bench.take_over_metrics([Metric("mine", {"conv": 1.0}, about=plan_key(bench.plan))], None)
    bench.color_by("mine")
    assert bench.view.graph.colors["legend"]["title"] == "mine"
    bench.toggle("conv", "weight")
    assert bench.view.graph.colors["legend"]["title"] == "mine, of an earlier plan"
    bench.take_over_metrics([], None)
    assert bench.view.graph.colors["mode"] == "precision"


def test_a_preview_is_drawn_and_nothing_is_applied(bench):
    shown = []
    bench.view.graph.preview = lambda plan, statuses: shown.append((plan, statuses))
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_input=False, quantize_weight=False)
    try:
        bench.view.preview(bench.state.replace(spec=spec))
    finally:
        del bench.view.graph.preview
    ((plan, (before, after)),) = shown
    assert not plan.for_layer("conv").quantize_weight
    assert (before["conv"], after["conv"]) == ("int8", "float")
    assert bench.history.position == 0


def test_an_earlier_bench_is_offered_until_it_is_dismissed(model):
    bench = Workbench(model)
    view, bench.earlier = bench.view, None
    view.on_event("plan")
    assert view.notice.layout.display == "none"
    earlier = Workbench(model, target="onnxruntime")
    earlier.toggle("conv", "weight")
    bench.earlier = earlier
    view.on_event("plan")
    assert view.notice.layout.display == ""
    assert "for onnxruntime." in view._notice_text.value
    view.go_on.click()
    assert bench.history.present.label == "toggle conv: weight"
    bench.earlier = earlier
    view._show_notice()
    view._dismiss()
    assert (bench.earlier, view.notice.layout.display) == (None, "none")


def test_the_banner_knows_a_folder_from_before_the_display(model, tmp_path):
    bench = Workbench(model)
    saved = bench.save(tmp_path / "bench")
    assert bench.view.watch.saved == repr(str(saved))


def test_an_action_that_nobody_knows_does_nothing(bench):
    events = []
    forget = bench.subscribe(events.append)
    bench.view._on_action({"action": "format"})
    forget()
    assert events == []


def test_a_recurrent_network_on_tensorrt_is_not_green():
    """Its cards were coloured by the plan, while the target runs the LSTM in float."""
    steps = keras.Input((5, 3), name="steps")
    head = keras.layers.Dense(2, name="head")(keras.layers.LSTM(4, name="lstm")(steps))
    bench = Workbench(keras.Model(steps, head, name="recurrent"), target="tensorrt")
    colors = bench.view.graph.colors
    place = [node.name for node in bench.graph.nodes].index("lstm")
    assert bench.coloring == "precision"
    assert bench.explanation.for_layer("lstm").status == "float"
    assert colors["statuses"][colors["status_of"][place]] == "float"
    assert colors["why"][place]
