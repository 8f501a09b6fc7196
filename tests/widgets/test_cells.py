"""A cell that runs again closes the bench that it showed before, and no bench that anything may still show."""

import gc
import sys
import threading
import time
import types
import weakref

import ipywidgets
import pytest
from IPython.core.displaypub import CapturingDisplayPublisher, DisplayPublisher
from IPython.core.events import EventManager, available_events
from ipywidgets.widgets.widget import _instances
from small_benches import tiny_data, tiny_model

from qdq_widgets import Workbench, cells
from qdq_widgets.figures.live import Host
from qdq_widgets.panes.corrections import CorrectionsPane
from qdq_widgets.panes.training import TrainingPane


class Kernel:
    """What IPython's shell in a kernel tells of a request: the message of JupyterLab, and the end of the cell."""

    def __init__(self):
        self.kernel = self
        self.events = EventManager(self, available_events)
        self.display_pub = DisplayPublisher()
        self.request, self._number = {}, 0

    def get_parent(self, channel):
        assert channel == "shell"
        return self.request

    def run(self, *shown, cell="a", session="page"):
        """Run a cell that displays benches; a function makes one, or does anything else. Return the first one."""
        self._number += 1
        outer, made = self.request, []
        header = {"msg_id": f"request-{self._number}", "session": session, "msg_type": "execute_request"}
        self.request = {"header": header, "metadata": {} if cell is None else {"cellId": cell}}
        for one in shown:
            made.append(one() if isinstance(one, types.FunctionType) else one)
            if made[-1] is not None:
                made[-1]._ipython_display_()
        self.events.trigger("post_run_cell", None)
        self.request = outer  # another thread's, where a function ran a cell
        return made[0] if made else None


@pytest.fixture
def kernel(monkeypatch):
    found = Kernel()
    monkeypatch.setattr("IPython.get_ipython", lambda: found)
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: types.SimpleNamespace(update=lambda *_, **__: None))
    monkeypatch.setattr(cells, "_cells", {})
    monkeypatch.delenv("VSCODE_PID", raising=False)
    return found


@pytest.fixture
def own():
    """A model of its own name, so that no other test's bench is its earlier one."""
    return tiny_model(name=f"own{time.monotonic_ns()}")


def new_bench(model):
    return lambda: Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")


def is_open(bench):
    return bench._view is not None and bench._view.widget.comm is not None


def see_everything(bench):
    """Open all panes, a comparison and an error, each of which makes widgets, some of them outside of the boxes."""
    for tabs in (bench.view.side, bench.view.work):
        for place in range(len(tabs.panes)):
            tabs.widget.selected_index = place
    for names in (["conv"], ["conv", "head"], ["add"], []):
        bench.select(names)
    picker = bench.view.pane(CorrectionsPane).picker
    picker.value = picker.options[-1][1]
    bench.view.pane(TrainingPane).errors.show(ValueError("none"))
    bench.view.compare("plan", "plan")


def test_widgets_do_not_grow_with_the_runs_of_a_cell_and_the_benches_go(kernel, own):
    counts, benches = [], weakref.WeakSet()
    for _ in range(10):
        bench = kernel.run(new_bench(own))
        see_everything(bench)
        benches.add(bench)
        counts.append(len(_instances))
    assert len(set(counts)) == 1
    gc.collect()
    assert list(benches) == [bench]
    kernel.run(new_bench(own))
    del bench
    gc.collect()
    assert len(benches) == 0


def test_figures_are_closed_with_the_view(kernel, own):
    counts = []
    for _ in range(3):
        bench = kernel.run(new_bench(own))
        bench.calibrate()
        bench.sensitivity()
        see_everything(bench)
        counts.append(len(_instances))
    assert counts[1] == counts[2]  # the first figure of a process makes the widget with plotly's script, for all others


def test_the_mirrors_of_marimo_are_closed_with_the_view(own, monkeypatch):
    marimo = types.SimpleNamespace(vstack=list, hstack=lambda found, **_: found)
    monkeypatch.setitem(sys.modules, "marimo", marimo)
    monkeypatch.setattr(Host, "draws_figures", True)  # put back after the test
    before = set(_instances)
    bench = new_bench(own)()
    head, _, _ = bench._display_()
    assert head.comm is not None
    cells.close_view(bench)
    assert head.comm is None
    assert set(_instances) == before


def test_two_benches_of_one_execution_both_stay_until_the_next(kernel, own):
    first, second = new_bench(own)(), new_bench(own)()
    kernel.run(first, second)
    assert is_open(first)
    assert is_open(second)
    views = first.view, second.view
    kernel.run(second, first)  # both again, in another order
    assert (first.view, second.view) == views
    third = kernel.run(new_bench(own), second)
    assert [is_open(bench) for bench in (first, second, third)] == [False, True, True]
    assert second.view is views[1]


def test_nothing_is_closed_while_the_cell_still_runs(kernel, own):
    first, second = new_bench(own)(), new_bench(own)()
    kernel.run(first, second)
    view = second.view
    kernel.run(new_bench(own), lambda: kernel.run(cell="of another thread"), second)
    assert not is_open(first)
    assert second.view is view


def test_the_same_bench_again_keeps_its_view(kernel, own):
    bench = kernel.run(new_bench(own))
    view = bench.view
    kernel.run(bench)
    assert bench._view is view
    other = kernel.run(new_bench(own))
    assert not is_open(bench)
    assert is_open(other)


def test_a_bench_that_another_cell_shows_is_closed_with_the_last_of_them(kernel, own):
    bench = kernel.run(new_bench(own))
    kernel.run(bench, cell="b")
    kernel.run(new_bench(own))
    assert is_open(bench)
    kernel.run(new_bench(own), cell="b")
    assert not is_open(bench)


def test_cells_that_show_no_bench_close_none(kernel, own):
    bench = kernel.run(new_bench(own))
    kernel.run(cell="b")
    kernel.run()  # "runs again" and fails before it shows anything, for example
    assert is_open(bench)


@pytest.mark.parametrize("place", [{"cell": None}, {"session": "page that was loaded again"}])
def test_without_a_cell_or_in_another_page_nothing_is_closed(kernel, own, place):
    first = kernel.run(new_bench(own))
    kernel.run(new_bench(own), **place)
    assert is_open(first)
    second = kernel.run(new_bench(own), **place)
    assert is_open(first)
    kernel.run(first, **place)  # shown where nobody knows, or in two pages
    kernel.run(second, cell="elsewhere")
    kernel.run(new_bench(own))
    assert is_open(first)


def test_a_display_whose_output_goes_elsewhere_counts_for_ever(kernel, own):
    out = ipywidgets.Output()
    out.msg_id = "request-1"  # as within `with out:`
    first = kernel.run(new_bench(own))
    out.msg_id = ""
    kernel.run(new_bench(own))
    assert is_open(first)
    kernel.display_pub = CapturingDisplayPublisher()  # as %%capture does
    captured = kernel.run(new_bench(own), cell="b")
    kernel.display_pub = DisplayPublisher()
    kernel.run(new_bench(own), cell="b")
    assert is_open(captured)
    out.close()


@pytest.mark.parametrize("host", ["VS Code", "Colab", "no kernel", "no IPython"])
def test_other_hosts_close_nothing(kernel, own, monkeypatch, host):
    if host == "VS Code":
        monkeypatch.setenv("VSCODE_PID", "1")
    elif host == "Colab":
        monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    elif host == "no kernel":
        monkeypatch.setattr(kernel, "kernel", None)
    else:
        monkeypatch.setattr("IPython.get_ipython", lambda: None)
    first = kernel.run(new_bench(own))
    kernel.run(new_bench(own))
    assert is_open(first)


def test_a_replaced_bench_is_displayed_again_as_it_is(kernel, own, tmp_path):
    bench = kernel.run(new_bench(own))
    bench.toggle("conv", "weight")
    bench.calibrate()
    bench.select("conv")
    bench.save(tmp_path / "bench")
    former, listeners = bench.view, len(bench._events.listeners)
    kernel.run(new_bench(own))
    assert len(bench._events.listeners) == listeners - 2  # the view, and its picture in the notebook
    bench.toggle("head", "weight")
    bench.calibrate()
    assert bench._view is None  # nobody saw that
    assert former.graph.plan is not bench.plan
    kernel.run(bench, cell="b")
    view = bench.view
    assert view is not former
    assert is_open(bench)
    assert view.graph.plan is bench.plan
    assert tuple(view.graph.selection) == ("conv",)
    assert "bench" in view.watch.saved
    assert "calibrated" in view.summary.value
    bench.undo()
    assert view.graph.plan is bench.plan
    kernel.run(bench)
    assert bench.view is view


def test_the_work_of_a_replaced_bench_is_kept_while_it_is_offered(kernel, own):
    first = kernel.run(new_bench(own))
    first.toggle("conv", "weight")
    first.calibrate()
    label, found = first.history.present.label, weakref.ref(first)
    kernel.run(new_bench(own))
    second = kernel.run(new_bench(own))
    del first
    gc.collect()
    assert second.earlier is found()
    assert not is_open(second.earlier)
    second.view.go_on.click()
    assert second.view.errors.message == ""
    assert second.history.present.label == label
    assert second.stage == "calibrated"
    gc.collect()
    assert found() is None
    assert is_open(second)


def test_a_bench_that_works_is_closed_when_it_is_done(kernel, own):
    bench = kernel.run(new_bench(own))
    begun, go_on, errors = threading.Event(), threading.Event(), []

    def work():
        with bench.jobs.run("calibration") as job:
            job.report(0.5, "half")
            begun.set()
            assert go_on.wait(60)
            job.raise_if_stopped()

    thread = bench.jobs.start(work, errors.append)
    assert begun.wait(60)
    kernel.run(new_bench(own))
    assert is_open(bench)
    kernel.run(cell="b")
    assert is_open(bench)
    assert bench.jobs.current.text == "half"
    bench.jobs.stop()
    go_on.set()
    thread.join()
    assert [type(error).__name__ for error in errors] == ["BenchStoppedError"]
    assert is_open(bench)  # until a cell ends: widgets are closed by nothing that runs beside the cells
    kernel.run(cell="b")
    assert not is_open(bench)
    before = set(_instances)
    bench.calibrate()
    assert bench._view is None
    assert set(_instances) == before


def test_a_measurement_ends_with_the_view_and_goes_on_with_the_next(kernel, own, monkeypatch):
    bench = kernel.run(new_bench(own))
    bench.calibrate()
    bench.effects.pause = 0.0
    assert bench.effects.measuring
    begun, go_on = threading.Event(), threading.Event()
    measure = type(bench.effects)._pieces

    def pieces(self, *arguments):
        begun.set()
        assert go_on.wait(60)
        yield from measure(self, *arguments)

    monkeypatch.setattr(type(bench.effects), "_pieces", pieces)
    bench.toggle("conv", "weight")
    assert begun.wait(60)
    timer = bench.effects._timer
    kernel.run(new_bench(own))
    assert not is_open(bench)
    assert bench.effects.present.state == "estimated"
    go_on.set()
    timer.join()
    assert bench.effects.present.state == "estimated"
    kernel.run(bench, cell="b")
    assert bench.effects.wait(60)
    assert bench.effects.present.state == "measured"
    assert bench.effects.present.size.measured


def test_an_event_that_is_told_while_the_view_is_closed_draws_nothing(kernel, own):
    bench = kernel.run(new_bench(own))
    view = bench.view
    cells.close_view(bench)
    bench.calibrate()
    before = set(_instances)
    view.on_event("plan")
    view.on_event("calibration")  # a figure, in the pane that was visible
    assert set(_instances) == before
    assert bench._view is None
