"""A bench on a page, a user who acts in it by seed, and what holds after every action."""

import collections
import gc
import hashlib
import json
import os
import pathlib
import sys

from ipywidgets.widgets.widget import Widget, _instances
from load.actions import User
from load.page import Page

import qdq_workbench as qdq
from qdq_widgets import Workbench

FIGURES = "LiveFigure"  # plotly sends arrays beside the text of its messages


class Session:
    """One bench, used.

    Args:
        model: The float model.
        seed: Another one gives other actions.
        **arguments: Of `Workbench` and `User`.
    """

    def __init__(self, model, seed, *, own_cases=True, **arguments):
        self.page, self.seed = Page(), seed
        before = set(_instances)
        with self.page.opened():
            self.bench = Workbench(model, **arguments)
            assert self.bench.view is not None
        self._others = before
        self.user = User(self.bench, self.page, seed, own_cases=own_cases)
        self.taken, self.refused = collections.Counter(), collections.Counter()
        self._steps = 1
        self._digests = {id(self.bench.history.present): (self.bench.history.present, digest(self.bench.plan))}
        self._kept = {}

    @property
    def first_digest(self):
        """The digest of the plan that the bench started with."""
        return self._digests[id(self.bench.history.steps[0])][1]

    def act(self):
        """Take an action, and check."""
        bench = self.bench
        before = (bench.history.position, len(bench.history), len(bench.journal.calls), bench.history.present)
        with self.page.opened():
            name, refusal = self.user.act()
        self.taken[name] += 1
        if refusal:
            self.refused[name] += 1
            left = (bench.history.position, len(bench.history), len(bench.journal.calls), bench.history.present)
            assert left == before, f"{name} was refused and left a trace: {refusal}"
        self._check_history()
        self.check(whole=name != "select" or self.taken[name] % 8 == 0)

    def _check_history(self):
        """The present step has the plan that it had before, however often it was left."""
        step, plan = self.bench.history.present, self.bench.plan
        assert step.plan is plan
        found = digest(plan)
        _, known = self._digests.setdefault(id(step), (step, found))
        assert known == found, f"{step.label} leads to another plan than before"
        assert 0 <= self.bench.history.position < len(self.bench.history)

    def check(self, *, whole=True):
        """Raise unless plan, page and variants are what follows from the state.

        Args:
            whole: Whether to compare every widget, too.
        """
        bench, state = self.bench, self.bench.state
        made = qdq.plan_placement(bench.model, state.mode, state.spec, state.cases, target=state.target)
        assert made.placements == bench.plan.placements, "the plan does not follow from the state"
        assert made.decisions == bench.plan.decisions, "the plan does not follow from the state"
        self.page.check_graph(bench.view.graph, bench.plan)
        for variant in bench.variants:
            known = self._kept.setdefault(variant.name, variant)
            assert known.state is not variant.state or known.pairs == variant.pairs
            self._kept[variant.name] = variant
        if whole:
            own = {name: widget for name, widget in _instances.items() if name not in self._others}
            assert set(own) == self.page.names, "widgets are open on one side alone"
            self.page.check_traits({k: w for k, w in own.items() if type(w).__name__ != FIGURES})

    def to_the_start_and_back(self):
        """Undo everything, then redo it; raise unless both ends have the plans that they had."""
        bench, history, last = self.bench, self.bench.history, digest(self.bench.plan)
        place = history.position
        with self.page.opened():
            while history.can_undo:
                bench.undo()
                self._check_history()
            assert digest(bench.plan) == self.first_digest
            self.check()
            while history.position < place:
                bench.redo()
                self._check_history()
        assert digest(bench.plan) == last
        self.check()

    def memory(self):
        """Return what kernel and page hold now."""
        gc.collect()
        statm = pathlib.Path("/proc/self/statm")
        pages = int(statm.read_text().split()[1]) if statm.exists() else 0
        return {
            "kernel MB": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
            "objects of Python": sys.getallocatedblocks(),
            "placements": sum(type(each).__name__ == "Placement" for each in gc.get_objects()),
            "widgets": len(self.page.names),
            "widgets beside the view": len(self.beside_the_view()),
            "page MB": self.page.size / 1e6,
        }

    def beside_the_view(self):
        """Return the open widgets that the view does not hold: fields that a pane keeps for later, else a leak."""
        held, waiting = set(), [self.bench.view.widget]
        while waiting:
            widget = waiting.pop()
            if widget.model_id in held:
                continue
            held.add(widget.model_id)
            for value in widget.trait_values(sync=True).values():
                parts = value if isinstance(value, (tuple, list)) else (value,)
                waiting += [part for part in parts if isinstance(part, Widget)]
        return self.page.names - held

    def see_every_pane(self):
        """Open every tab once: a pane is built when it is first opened; from then on only its rows follow the spec."""
        with self.page.opened():
            for tabs in (self.bench.view.side, self.bench.view.work):
                for place in range(len(tabs.panes)):
                    tabs.widget.selected_index = place

    def drop_steps(self):
        """Forget every step but the present one, as no user can, and return how many there were."""
        history = self.bench.history
        count = len(history)
        history._steps, history._position = [history.present], 0
        self.forget()
        return count

    def forget(self):
        """Drop what only the checks hold, before memory is read."""
        steps = {id(step) for step in self.bench.history.steps}
        self._digests = {key: known for key, known in self._digests.items() if key in steps}


def digest(plan):
    """Return what tells two plans apart."""
    placements = [placement.to_dict() for placement in plan.placements]
    decisions = {name: decision.to_dict() for name, decision in plan.decisions.items()}
    text = json.dumps([plan.mode, plan.target, placements, decisions], sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()
