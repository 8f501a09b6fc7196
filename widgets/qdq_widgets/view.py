"""The widgets of the bench: top bar, graph, inspector and panes, progress. They hold no state of their own."""

from __future__ import annotations

import html
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets

import qdq_workbench as qdq
from qdq_widgets import panes
from qdq_widgets.callback_errors import ErrorBox, shows_errors
from qdq_widgets.earlier import work_text
from qdq_widgets.errors import BenchError
from qdq_widgets.graph_area import GraphArea
from qdq_widgets.graph_view import GraphView
from qdq_widgets.grid_values import known_ranges
from qdq_widgets.header import effect_html, summary_html
from qdq_widgets.kernel_watch import KernelWatch
from qdq_widgets.keys import KeepKeys
from qdq_widgets.metrics import PARAMETERS, WEIGHT_BYTES
from qdq_widgets.pane import Pane, button, duration, row, set_options, text_html
from qdq_widgets.panes.files import FilesPane
from qdq_widgets.panes.inspector import InspectorPane
from qdq_widgets.panes.netron import NetronPane
from qdq_widgets.replacing import close_all
from qdq_widgets.room import Room
from qdq_widgets.rules_row import RulesRow
from qdq_widgets.state import BenchState
from qdq_widgets.style import style_sheet
from qdq_widgets.targets import execution_values, statuses, target_options, verdicts

_COLORS = {
    "precision on the target": "precision",
    "what the plan quantizes": "plan",
    "my own rules": "rules",
}


class PaneTabs:
    """Panes in tabs; a pane is built when its tab is first opened, and a stale one refreshed when it is opened.

    Args:
        panes: The panes, in the order of the tabs.
        lock: Held while a pane draws, since clicks and long tasks come in different threads.
    """

    def __init__(self, panes: Sequence[Pane], lock: Any) -> None:
        self.panes = list(panes)
        self._lock = lock
        self._stale = set(range(len(self.panes)))
        self.widget = widgets.Tab(children=[pane.widget for pane in self.panes])
        self.widget.titles = [pane.title for pane in self.panes]
        self.widget.observe(lambda _: self.refresh(), "selected_index")

    def tell(self, event: str) -> None:
        """Mark the panes that an event concerns as stale, and refresh the visible one if it is stale."""
        # "panes" concerns every pane that remembers values.
        concerned = (pane.remembers if event == "panes" else event in pane.events for pane in self.panes)
        self._stale |= {index for index, concerns in enumerate(concerned) if concerns}
        self.refresh()

    def open(self, kind: type[Pane]) -> None:
        """Open the tab of the pane of a class."""
        self.widget.selected_index = next(i for i, pane in enumerate(self.panes) if isinstance(pane, kind))

    def refresh(self) -> None:
        """Refresh the visible pane if it is stale."""
        with self._lock:
            index = self.widget.selected_index or 0
            if index in self._stale:
                # Before it draws: an event meanwhile makes it stale again.
                self._stale.discard(index)
                pane = self.panes[index]
                try:
                    pane.ensure_built()
                    if pane.is_built:
                        pane.refresh()
                except Exception as error:  # noqa: BLE001 - an error of a pane must not fail the step of the bench
                    pane.errors.show(error)

    def close(self) -> None:
        """Close the widgets of all panes."""
        with self._lock:
            self._stale.clear()
            for pane in self.panes:
                pane.close()


class BenchView:
    """All widgets of one `Workbench`."""

    def __init__(self, bench: Any) -> None:
        self.bench = bench
        self.errors = ErrorBox()
        self._lock = threading.RLock()
        self._showing = False
        self._statuses: dict[str, str] = {}
        self._history = bench.history
        self._offered: Any = None
        self._is_closed = False
        self.picture: Any = None  # the `DisplayHandle` of the last displayed picture
        self.mirrors: Any = None  # of the panes, once marimo shows the bench
        whole = uuid.uuid4().hex  # id of the outer widget, whose content the graph's script keeps up to date
        self.graph = GraphView(bench.plan, height=bench.height, whole=whole)
        self.side = PaneTabs([kind(bench) for kind in panes.SIDE], self._lock)
        self.work = PaneTabs([kind(bench) for kind in panes.WORK], self._lock)
        self.graph.on_action(self._on_action)
        self.area = GraphArea(bench, self.graph, self._on_selection)
        self.foot = self._make_foot()
        foot = widgets.VBox([self.foot, KeepKeys()])
        self.watch = KernelWatch()
        self.room, self.rules = Room(), RulesRow(bench)
        self.style, main = widgets.HTML(style_sheet(bench.height)), self._make_main()
        bar, rules, notice = self.head = self._make_bar(), self.rules.widget, self._make_notice()
        self.widget = widgets.VBox(
            [self.style, self.watch, bar, rules, notice, main, self.work.widget, foot], model_id=whole
        )
        self.widget.add_class("qdq-bench")
        # First, because a user who clicked waits for the graph, and not for the estimate of the effect.
        self.ends: list[Callable[[], None]] = [bench.subscribe(self.on_event, first=True)]
        for event in ("plan", "job", "metrics"):
            self.on_event(event)
        if bench.saved_to is not None:
            self.on_event("saved")
        # The first figure needs seconds of imports: do them while the user looks at the graph.
        threading.Thread(target=_import_plotly, name="qdq-import", daemon=True).start()

    def close(self) -> None:
        """Close all widgets, and follow the bench no longer."""
        for end in self.ends:
            end()
        with self._lock:
            self._is_closed = True  # for an event that another thread is telling
            self.side.close()
            self.work.close()
            for widget in (self.widget, *(self.mirrors or ())):
                close_all(widget)

    def pane(self, kind: type[Pane]) -> Any:
        """Return the pane of a class, built."""
        found = next(pane for pane in (*self.side.panes, *self.work.panes) if isinstance(pane, kind))
        found.ensure_built()
        return found

    def preview(self, state: BenchState) -> None:
        """Draw the changes that another state would make in the graph; nothing is applied."""
        plan, _ = self.bench.preview(state)
        _, unknown = verdicts(self.bench)
        after = {} if unknown else statuses(qdq.explain(plan, target=plan.target))
        self.graph.preview(plan, (self._statuses, after))

    def compare(self, left: Any, right: Any) -> None:
        """Show two graphs, as for `Workbench.compare_graphs`, in the place of the graph, until the user goes back."""
        if self.mirrors is not None:
            raise BenchError(
                "In marimo two graphs need a cell of their own, such as wb.compare_graphs('plan', 'file')."
            )
        self.area.compare(left, right)

    def on_event(self, event: str) -> None:
        """Update the widgets after an event; see `Workbench.subscribe`."""
        with self._lock:
            if not self._is_closed:
                self._show(event)

    def _show(self, event: str) -> None:
        if event == "plan":
            self._show_plan()
            self._show_notice()
        elif event == "job":
            self._show_job()
        elif event == "selection":
            self._show_selection()
        elif event == "saved":
            self.watch.saved = repr(str(self.bench.saved_to))
        elif event == "netron":
            self.work.open(NetronPane)
        if event in FilesPane.events:
            self.pane(FilesPane).refresh()  # also while hidden: without a kernel, its code rebuilds the plan
        if event in ("plan", "calibration", "stage", "curves", "speed", "variants"):
            self.summary.value = summary_html(self.bench)
            self.graph.set_ranges(known_ranges(self.bench))
        elif event == "effect":
            self.effect.value = effect_html(self.bench.effects.present)
            self.measuring.value = self.bench.effects.measuring
            return  # no pane shows it
        self.area.on_event(event)
        self.side.tell(event)
        self.work.tell(event)
        # Last: the page paints the new badge before it gets these, the largest message of a click.
        if event in ("metrics", "colors") or (event == "plan" and self.bench.coloring != "plan"):
            self._show_colors()

    def _make_bar(self) -> Any:
        self.target = widgets.Dropdown(options=target_options(), layout={"width": "290px"})
        self.target.tooltip = "The inference runtime that the plan is for"
        self.target.observe(lambda change: self._set_target(change["new"]), "value")
        self.colors = widgets.Dropdown(options=list(_COLORS.items()), layout={"width": "200px"})
        self.colors.tooltip = "What the colours of the graph mean"
        self.colors.observe(lambda change: self._set_colors(change["new"]), "value")
        self.undo = button("", self._undo, icon="undo", tooltip="Undo (Ctrl-Z in the graph)")
        self.redo = button("", self._redo, icon="repeat", tooltip="Redo (Shift-Ctrl-Z in the graph)")
        self.measuring = widgets.ToggleButton(
            value=self.bench.effects.measuring, description="Measure changes", icon="bolt", layout={"width": "auto"}
        )
        self.measuring.tooltip = (
            "After every change of the plan, when you pause: measure score, size and time, in the background"
        )
        self.measuring.observe(lambda change: self._set_measuring(change["new"]), "value")
        self.summary = widgets.HTML()
        self.effect = widgets.HTML(effect_html(self.bench.effects.present))
        for texts in (self.summary, self.effect):
            texts.add_class("qdq-flows")  # wraps figure by figure, since a laptop has little height
        brand = widgets.HTML(f'<span class="qdq-brand">QDQ Workbench</span> {html.escape(self.bench.graph.name)}')
        tools = (self.target, self.colors, self.undo, self.redo, self.measuring, self.room)
        bar = row(brand, *tools, self.summary, self.effect)
        bar.add_class("qdq-bar")
        return bar

    def _make_notice(self) -> Any:
        """Return the row below the bar that is shown while an earlier bench of this model holds work."""
        self.go_on = button(
            "Go on with it",
            self._continue,
            icon="history",
            tooltip="Take over its history, variants, ranges and trained weights",
        )
        dismiss = button("", self._dismiss, icon="times", tooltip="Start anew")
        self._notice_text = widgets.HTML()
        self.notice = row(self._notice_text, self.go_on, dismiss)
        self.notice.add_class("qdq-notice")
        self._show_notice()
        return self.notice

    def _show_notice(self) -> None:
        # Held while it is offered: the bench refers to it weakly, and its own widgets may be closed.
        self._offered = earlier = self.bench.earlier
        self.notice.layout.display = "none" if earlier is None else ""
        if earlier is not None:
            text = f"An earlier bench of this model holds {work_text(earlier)}, for {earlier.plan.target}."
            self._notice_text.value = text_html(text)

    def _make_main(self) -> Any:
        self.side.widget.add_class("qdq-side")
        self.work.widget.add_class("qdq-work")
        main = widgets.HBox(
            [self.area.widget, self.side.widget], layout={"flex_flow": "row wrap", "align_items": "stretch"}
        )
        main.add_class("qdq-main")
        return main

    def _make_foot(self) -> Any:
        self.progress = widgets.FloatProgress(min=0.0, max=1.0, layout={"width": "200px", "display": "none"})
        self.stop = button("Stop", self.bench.jobs.stop, icon="stop", style="danger", tooltip="Stop after this step")
        self.status = widgets.HTML()
        foot = widgets.VBox([row(self.progress, self.stop, self.status), self.errors.widget])
        foot.add_class("qdq-foot")
        return foot

    def _show_plan(self) -> None:
        history = self.bench.history
        before, self._statuses = self._statuses, statuses(verdicts(self.bench)[0])
        is_step = history is self._history  # else it was loaded, or taken over from another bench
        self._history = history
        self.graph.set_plan(self.bench.plan, (before, self._statuses), compared=is_step)
        self.graph.can_undo, self.graph.can_redo = history.can_undo, history.can_redo
        self.undo.disabled, self.redo.disabled = not history.can_undo, not history.can_redo
        self._showing = True
        try:
            self.target.value = self.bench.state.target
        finally:
            self._showing = False
        step = history.present
        change = step.change if history.position else ""
        said = ". ".join(text for text in (change, self.bench.stage_note) if text)
        self.status.value = f"{html.escape(step.label)} <span class='qdq-muted'>{html.escape(said)}</span>"

    def _show_colors(self) -> None:
        """Offer all metrics, and colour the graph by the chosen colouring under the present plan."""
        metrics, chosen = self.bench.metrics, self.bench.coloring
        self._showing = True
        try:
            set_options(self.colors, [*_COLORS.items(), *((_sentence(name), name) for name in metrics)], chosen)
        finally:
            self._showing = False
        self.rules.refresh()
        if chosen == "plan":
            self.graph.set_colors("plan")
        elif chosen == "rules":
            self.graph.set_colors("rules", self.bench.rule_values())
        elif chosen == "precision":
            explanation, unknown = verdicts(self.bench)
            self.graph.set_colors("plan" if unknown else "precision", execution_values(explanation))
        else:
            metric = metrics[chosen]
            self.graph.set_colors(chosen, metric.values, metric.legend(stale=self.bench.is_stale(metric)))

    def _show_job(self) -> None:
        job = self.bench.jobs.current
        self.stop.disabled = job is None
        self.stop.layout.display = "none" if job is None else ""
        self.progress.layout.display = "none" if job is None else ""
        if job is None:
            last = self.bench.jobs.last
            text = "Ready" if last is None or not last.stop_requested else f"Stopped: {last.label}"
            self.status.value = text_html(text, "qdq-muted")
            return
        self.progress.bar_style = "info" if job.fraction is None else ""
        self.progress.value = 1.0 if job.fraction is None else job.fraction
        left = job.seconds_left
        rest = "" if left is None or job.stop_requested else f" <span class='qdq-muted'>{duration(left)} left</span>"
        self.status.value = f"<b>{html.escape(job.label)}</b> {html.escape(job.text)}{rest}"

    def _on_selection(self, names: Sequence[str]) -> None:
        self.bench.select(names)

    def _show_selection(self) -> None:
        names = self.bench.selection
        if tuple(self.graph.selection) != names:
            self.graph.select(names)
        self.pane(InspectorPane).show(names)

    def _on_action(self, action: dict[str, Any]) -> None:
        kind = action["action"]
        if kind == "toggle":
            self.bench.toggle(action["layers"], action["site"], action["index"], on=action["on"])
        elif kind == "apply_like":
            self.bench.apply_like(action["source"], action["layers"])
        elif kind == "undo":
            self.bench.undo()
        elif kind == "redo":
            self.bench.redo()

    @shows_errors
    def _set_target(self, name: str) -> None:
        if not self._showing:
            self.bench.set_target(name)

    @shows_errors
    def _set_colors(self, what: str) -> None:
        if not self._showing:
            self.bench.color_by(what)

    @shows_errors
    def _set_measuring(self, on: bool) -> None:
        if on != self.bench.effects.measuring:
            self.bench.effects.measuring = on

    @shows_errors
    def _continue(self) -> None:
        taken = self.bench.continue_from(self.bench.earlier)
        self.status.value = text_html(taken, "qdq-muted")

    def _dismiss(self) -> None:
        self.bench.earlier = None
        self._show_notice()

    @shows_errors
    def _undo(self) -> None:
        self.bench.undo()

    @shows_errors
    def _redo(self) -> None:
        self.bench.redo()


def _sentence(name: str) -> str:
    return f"{name} per layer" if name in (PARAMETERS, WEIGHT_BYTES) else name


def _import_plotly() -> None:
    import plotly.graph_objects as go
    import plotly.subplots

    _ = (go.FigureWidget, go.Scatter, go.Bar, plotly.subplots.make_subplots)
