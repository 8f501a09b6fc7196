"""The page's side of the widgets: every message of the kernel is applied, so that a lost or a wrong one shows."""

import contextlib
import itertools
import json
from unittest import mock

import comm
from comm.base_comm import BaseComm

from qdq_widgets.graph_payload import plan_state


class Page:
    """All models that a page would hold.

    Attributes:
        models: Their states, by model.
        received: How many bytes of messages came.
    """

    def __init__(self):
        self.models = {}
        self.received = 0
        self._answers = []
        self._ids = itertools.count(1)

    @contextlib.contextmanager
    def opened(self):
        """Connect the page to all widgets that are made inside."""
        with mock.patch.object(comm, "create_comm", lambda *args, **kwargs: _PageComm(self, *args, **kwargs)):
            yield self

    @property
    def size(self):
        """The bytes of all states, as JSON."""
        return sum(len(json.dumps(state)) for state in self.models.values())

    def act(self, graph, **action):
        """Do what a click or key in a graph does; return the error that is shown, or None.

        Args:
            graph: The `GraphView`.
            **action: The action, as `Action` in `widgets/src/traits.ts` has it.
        """
        number = next(self._ids)
        self._answers.clear()
        content = {"type": "action", "id": number, **action}
        graph.comm.handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})
        assert {"type": "done", "id": number} in self._answers, f"no answer to {action}"
        return next((answer["text"] for answer in self._answers if answer["type"] == "error"), None)

    def receive(self, comm_id, kind, data):
        """Apply a message, as `widgets/src/store.ts` and the widget manager do."""
        text = json.dumps(data)
        self.received += len(text)
        data = json.loads(text)  # nothing is shared with the kernel
        if kind == "comm_open":
            self.models[comm_id] = data["state"]
        elif kind == "comm_close":
            del self.models[comm_id]
        elif data["method"] == "update":
            self.models[comm_id].update(data["state"])
        elif data["method"] == "custom":
            self._custom(self.models[comm_id], data["content"])

    def _custom(self, state, content):
        self._answers.append(content)
        if content.get("type") == "plan":
            _apply(state["plan_state"], content)

    def check_graph(self, graph, plan):
        """Raise unless the graph on the page is what a view made now would show.

        Args:
            graph: The `GraphView`.
            plan: The bench's plan.
        """
        shown = self.models[graph.model_id]
        assert _readable(shown["plan_state"]) == _readable(plan_state(plan)), "the page shows another plan"
        assert shown["plan_state"]["revision"] == graph.plan_state["revision"], "a message was lost"

    def check_traits(self, widgets):
        """Raise unless every open widget has on the page what it has in the kernel.

        Args:
            widgets: The widgets, by model.
        """
        assert set(widgets) == set(self.models), "widgets are open on one side alone"
        for name, widget in widgets.items():
            own, shown = json.loads(json.dumps(widget.get_state(), default=_nothing)), self.models[name]
            if "plan_state" in own:
                own["plan_state"], shown = None, {**shown, "plan_state": None}  # `check_graph` compares it
            differing = [key for key in own if own[key] != shown.get(key)]
            assert not differing, f"{type(widget).__name__}: {differing} of the page are of another time"


class _PageComm(BaseComm):
    """A connection to the page; opening it needs the page at once."""

    def __init__(self, page, *args, **kwargs):
        self._page = page
        super().__init__(*args, **kwargs)

    def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
        self._page.receive(self.comm_id, msg_type, data or {})


def _apply(state, changes):
    """Change a plan's state as `Store.apply` does."""
    assert changes["revision"] == state["revision"] + 1, "a message of the plan was lost"
    for key in ("revision", "target", "mode"):
        state[key] = changes[key]
    for node, text in changes["states"].items():
        state["states"][int(node)] = text
    for node, reason in changes["why"].items():
        if reason not in state["reasons"]:
            state["reasons"].append(reason)
        state["why"][int(node)] = state["reasons"].index(reason)
    for tensor, grids in changes["pairs"].items():
        if grids:
            state["pairs"][tensor] = grids
        else:
            del state["pairs"][tensor]


def _readable(state):
    """Return a plan's state with reasons as texts: their numbers depend on the way to it."""
    reasons = [state["reasons"][number] for number in state["why"]]
    return {key: state[key] for key in ("target", "mode", "states", "pairs")} | {"reasons": reasons}


def _nothing(value):
    raise TypeError(f"not of JSON: {type(value).__name__}")
