"""The page's side of the widgets: every message of the kernel is applied, so that a lost or a wrong one shows."""

import contextlib
import itertools
import json
import pathlib
import subprocess
import sys
import weakref
from unittest import mock

import comm
from comm.base_comm import BaseComm

from qdq_widgets.graph_payload import plan_state

PROGRAM = pathlib.Path(__file__).with_name("shown.py")


class Page:
    """All models that a page would hold; a process of their own does.

    Attributes:
        received: How many bytes of messages came.
    """

    def __init__(self):
        self.received = 0
        self._answers = []
        self._ids = itertools.count(1)
        command = [sys.executable, str(PROGRAM)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._end = weakref.finalize(self, _end, self._process)

    @contextlib.contextmanager
    def opened(self):
        """Connect the page to all widgets that are made inside."""
        with mock.patch.object(comm, "create_comm", lambda *args, **kwargs: _PageComm(self, *args, **kwargs)):
            yield self

    @property
    def names(self):
        """The ids of all models that the page holds."""
        return set(self._ask("names"))

    @property
    def size(self):
        """The bytes of all states, as JSON."""
        return self._ask("size")

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
        """Hand a message to the page; when Python ends, widgets may be closed behind it."""
        if not self._end.alive:
            return
        self.received += self._ask("receive", comm_id, kind, data, counted=True)
        if kind == "comm_msg" and data["method"] == "custom" and data["content"].get("type") != "plan":
            self._answers.append(data["content"])

    def check_graph(self, graph, plan):
        """Raise unless the graph on the page is what a view made now would show.

        Args:
            graph: The `GraphView`.
            plan: The bench's plan.
        """
        self._ask("check_graph", graph.model_id, plan_state(plan), graph.plan_state["revision"])

    def check_traits(self, widgets):
        """Raise unless every open widget has on the page what it has in the kernel.

        Args:
            widgets: The widgets, by model.
        """
        assert set(widgets) == self.names, "widgets are open on one side alone"
        for name, widget in widgets.items():
            differing = self._ask("differing", name, widget.get_state())
            assert not differing, f"{type(widget).__name__}: {differing} of the page are of another time"

    def _ask(self, method, *arguments, counted=False):
        """Return what a method of `Shown` returns; with `counted`, the bytes of the request."""
        text = json.dumps([method, *arguments])
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return len(text) if counted else answer["result"]


def _end(process):
    process.stdin.close()
    process.wait()
    process.stdout.close()


class _PageComm(BaseComm):
    """A connection to the page; opening it needs the page at once."""

    def __init__(self, page, *args, **kwargs):
        self._page = page
        super().__init__(*args, **kwargs)

    def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
        self._page.receive(self.comm_id, msg_type, data or {})
