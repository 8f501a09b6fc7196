"""Undo and redo: the states that the bench went through, each with its plan and what it changed."""

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
    """What the models of a bench were on the other side of a step; walking over the step exchanges them.

    Args:
        contents: What the bench put aside.
    """

    contents: Any


class KeptPlans:
    """The plans of the steps that were used last; others are made anew from their states when they are asked for.

    A plan of 3,000 layers takes some 10 MB, and a session has hundreds of steps. Where a plan does not follow from its
    state alone it is kept for good, and shares with the one before it what the two have in common.

    Args:
        planner: Makes plans.
    """

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._recent: dict[int, tuple[BenchState, Any]] = {}
        self._lock = threading.RLock()

    def hold(self, state: BenchState, plan: Any, before: Any = None) -> PlanOf:
        """Return what gives the plan of a state at any time.

        Args:
            state: The state.
            plan: Its plan.
            before: The plan of the step before.
        """
        lean = None if is_all_there_is(state) else sharing(plan, plan if before is None else before)
        # What is handed out collects what is derived from it; what is kept for good does not.
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
            self._recent.pop(id(state), None)
            self._recent[id(state)] = (state, plan)
            while len(self._recent) > KEPT_PLANS:
                del self._recent[next(iter(self._recent))]


@dataclasses.dataclass(frozen=True, repr=False)
class Step:
    """One state of the bench.

    Args:
        label: What was done, in a few words.
        state: The state after it.
        change: What it changed in the plan, in a few words.
        plan_of: Gives its plan.
        plan_before: Gives the plan of the step before; None for the first step.
        aside: Of a step that exchanged the models: those on its other side.
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
        """What changed in the plan; None for the first step."""
        return None if self.plan_before is None else self.plan_before().diff(self.plan)

    def __repr__(self) -> str:
        return f"Step({self.label!r}, {self.change})"


class History:
    """The steps of a bench and which of them is the present one.

    Args:
        label: What the first step is called.
        state: Its state.
        planner: Makes the plans of states.
    """

    def __init__(self, label: str, state: BenchState, planner: Planner) -> None:
        self._plans = KeptPlans(planner)
        self._plan = planner.plan(state)
        self._steps = [Step(label, state, "start", self._plans.hold(state, self._plan))]
        self._position = 0

    @property
    def plan(self) -> Any:
        """The plan of the present step: always the same object until another step is the present one."""
        return self._plan

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, also those that redo would reach."""
        return tuple(self._steps)

    @property
    def position(self) -> int:
        """Place of the present step in `steps`."""
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
        """Add a step behind the present one; steps that were undone are dropped.

        Args:
            label: What was done.
            state: The state after it.
            plan: Its plan.
            aside: The models before it, where the step exchanges them.
        """
        before = self.present
        plan_of = self._plans.hold(state, plan, self._plan)
        change = self._plan.diff(plan).counts
        step = Step(label, state, change, plan_of, before.plan_of, aside)
        self._steps[self._position + 1 :] = [step]
        self._position += 1
        self._plan = plan_of()
        return step

    def between(self, start: int, end: int) -> list[Step]:
        """Return the steps that are walked over from one place to another, in the order of the walk.

        Args:
            start: The place from which.
            end: The place to which.
        """
        if end >= start:
            return self._steps[start + 1 : end + 1]
        return self._steps[start:end:-1]

    def go_to(self, position: int) -> Step:
        """Make another step the present one.

        Args:
            position: Its place in `steps`.

        Raises:
            BenchError: If there is no such step.
        """
        if not 0 <= position < len(self._steps):
            raise BenchError(
                f"The history has {len(self._steps)} steps, counted from 0. Received: position={position!r}"
            )
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
