"""Undo and redo: the states of the bench in order, each with its plan and its changes."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

from qdq_widgets.errors import BenchError
from qdq_widgets.state import BenchState, Planner, is_all_there_is, sharing

KEPT_PLANS = 12

PlanOf = Callable[[], Any]


@dataclasses.dataclass
class Aside:
    """The models of a bench on the other side of a step; undo and redo of the step swap them with the present ones.

    Args:
        contents: The `StoreContents` of the model store.
    """

    contents: Any


class KeptPlans:
    """A cache of the plans that were used last; others are planned again from their states on demand.

    A plan of 3,000 layers takes some 10 MB, and a session has hundreds of steps. A plan that does not follow from its
    state alone is kept permanently, and shares equal parts with the plan before it.
    """

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._recent: dict[int, tuple[BenchState, Any]] = {}
        self._lock = threading.RLock()

    def hold(self, state: BenchState, plan: Any, before: Any = None) -> PlanOf:
        """Return a function that returns the plan of a state at any time.

        `before` is the plan of the step before, with which a permanently kept plan shares parts.
        """
        lean = None if is_all_there_is(state) else sharing(plan, plan if before is None else before)
        # A copy: a plan in use caches derived values in itself, which the permanent one must not hold.
        self._use(state, plan if lean is None else dataclasses.replace(lean))
        return lambda: self._plan(state, lean)

    def _plan(self, state: BenchState, lean: Any) -> Any:
        with self._lock:
            known = self._recent.get(id(state))
            if known is not None and known[0] is state:  # another state may have had this address
                plan = known[1]
            else:
                plan = self._planner.plan(state) if lean is None else dataclasses.replace(lean)
            self._use(state, plan)
            return plan

    def _use(self, state: BenchState, plan: Any) -> None:
        with self._lock:
            # Popped first, so that the state moves to the end, from where it is dropped last.
            self._recent.pop(id(state), None)
            self._recent[id(state)] = (state, plan)
            while len(self._recent) > KEPT_PLANS:
                del self._recent[next(iter(self._recent))]


@dataclasses.dataclass(frozen=True, repr=False)
class Step:
    """One state of the bench.

    Args:
        label: The action, in a few words.
        state: The state after it.
        change: The changes of the plan, in a few words.
        plan_of: Returns its plan.
        plan_before: Returns the plan of the step before; None for the first step.
        aside: For a step that swaps the models: those on its other side.
    """

    label: str
    state: BenchState
    change: str
    plan_of: PlanOf = dataclasses.field(compare=False)
    plan_before: PlanOf | None = dataclasses.field(default=None, compare=False)
    aside: Aside | None = dataclasses.field(default=None, compare=False)

    @property
    def plan(self) -> Any:
        """The plan of the state."""
        return self.plan_of()

    @property
    def diff(self) -> Any:
        """The `PlanDiff` of the step; None for the first step."""
        return None if self.plan_before is None else self.plan_before().diff(self.plan)

    def __repr__(self) -> str:
        return f"Step({self.label!r}, {self.change})"


class History:
    """The steps of a bench, one of which is the present one; it begins with the step of a label and a state."""

    def __init__(self, label: str, state: BenchState, planner: Planner) -> None:
        self._plans = KeptPlans(planner)
        self._plan = planner.plan(state)
        self._steps = [Step(label, state, "start", self._plans.hold(state, self._plan))]
        self._position = 0

    @property
    def plan(self) -> Any:
        """The plan of the present step, the same object until another step becomes the present one."""
        return self._plan

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, also those that redo would reach."""
        return tuple(self._steps)

    @property
    def position(self) -> int:
        """Index of the present step in `steps`."""
        return self._position

    @property
    def present(self) -> Step:
        """The present step."""
        return self._steps[self._position]

    @property
    def can_undo(self) -> bool:
        """Whether there is a step before the present one."""
        return self._position > 0

    @property
    def can_redo(self) -> bool:
        """Whether there is a step after the present one."""
        return self._position < len(self._steps) - 1

    def push(self, label: str, state: BenchState, plan: Any, aside: Aside | None = None) -> Step:
        """Add a step after the present one; steps that were undone are dropped."""
        before = self.present
        plan_of = self._plans.hold(state, plan, self._plan)
        change = self._plan.diff(plan).counts
        step = Step(label, state, change, plan_of, before.plan_of, aside)
        self._steps[self._position + 1 :] = [step]
        self._position += 1
        # Not `plan`, of which a copy may be kept: undo and redo must return to the same object.
        self._plan = plan_of()
        return step

    def between(self, start: int, end: int) -> list[Step]:
        """Return the steps that are redone or undone between two positions, in that order."""
        if end >= start:
            return self._steps[start + 1 : end + 1]
        return self._steps[start:end:-1]

    def go_to(self, position: int) -> Step:
        """Make the step at this index of `steps` the present one; raise `BenchError` if there is none."""
        if not 0 <= position < len(self._steps):
            raise BenchError(
                f"The history has {len(self._steps)} steps, counted from 0. Received: position={position!r}"
            )
        # First, because planning may fail; the position then stays.
        self._plan = self._steps[position].plan
        self._position = position
        return self.present

    def undo(self) -> Step:
        """Go one step back.

        Raises:
            BenchError: If the present step is the first.
        """
        if not self.can_undo:
            raise BenchError("There is nothing to undo: this is the state that the bench started from.")
        return self.go_to(self._position - 1)

    def redo(self) -> Step:
        """Go one step forward again.

        Raises:
            BenchError: If nothing was undone.
        """
        if not self.can_redo:
            raise BenchError("There is nothing to redo: no step was undone, or another one was made since.")
        return self.go_to(self._position + 1)

    def __len__(self) -> int:
        return len(self._steps)

    def __repr__(self) -> str:
        lines = [
            f"{'→' if index == self._position else ' '} {index}  {step.label}  ({step.change})"
            for index, step in enumerate(self._steps)
        ]
        return "\n".join(lines)
