"""The states that a page holds, in a process of their own: what the kernel's process holds is the kernel's alone.

A program: it reads one JSON list per line, the name of a method of `Shown` and its arguments; it answers with one line.
"""

from __future__ import annotations

import json
import sys


class Shown:
    """The models of all open widgets, changed by messages as `widgets/src/store.ts` and the widget manager do."""

    def __init__(self):
        self.models = {}

    def receive(self, comm_id, kind, data):
        """Apply a message."""
        if kind == "comm_open":
            self.models[comm_id] = data["state"]
        elif kind == "comm_close":
            del self.models[comm_id]
        elif data["method"] == "update":
            self.models[comm_id].update(data["state"])
        elif data["method"] == "custom" and data["content"].get("type") == "plan":
            _apply(self.models[comm_id]["plan_state"], data["content"])

    def names(self):
        """Return the ids of the models."""
        return list(self.models)

    def size(self):
        """Return the bytes of all states, as JSON."""
        return sum(len(json.dumps(state)) for state in self.models.values())

    def check_graph(self, name, state, revision):
        """Raise unless a graph shows the state of a plan."""
        shown = self.models[name]["plan_state"]
        assert _readable(shown) == _readable(state), "the page shows another plan"
        assert shown["revision"] == revision, "a message was lost"

    def differing(self, name, own):
        """Return what a widget has in the kernel and the page not; states of plans are `check_graph`'s."""
        shown = self.models[name]
        return [key for key in own if key != "plan_state" and own[key] != shown.get(key)]


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


def main():
    """Answer until the input ends."""
    shown = Shown()
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        try:
            answer = {"result": getattr(shown, method)(*arguments)}
        except Exception as error:  # noqa: BLE001 - whatever it is, the test fails by it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
