"""Undo and redo: the states that the bench went through, each with its plan and what it changed."""

from __future__ import annotations

import dataclasses
from typing import Any

from qdq_widgets.errors import BenchError
from qdq_widgets.state import BenchState, describe_diff


@dataclasses.dataclass
class Aside:
    """What the models of a bench were on the other side of a step; walking over the step exchanges them.

    Args:
        contents: What the bench put aside.
    """

    contents: Any


@dataclasses.dataclass(frozen=True, repr=False)
class Step:
    """One state of the bench.

    Args:
        label: What was done, in a few words.
        state: The state after it.
        plan: Its plan.
        diff: What changed in the plan; None for the first step.
        aside: Of a step that exchanged the models: those on its other side.
    """

    label: str
    state: BenchState
    plan: Any
    diff: Any = None
    aside: Aside | None = dataclasses.field(default=None, compare=False)

    @property
    def change(self) -> str:
        """The plan diff in a few words."""
        return "start" if self.diff is None else describe_diff(self.diff)

    def __repr__(self) -> str:
        return f"Step({self.label!r}, {self.change})"


class History:
    """The steps of a bench and which of them is the present one.

    Args:
        first: The step to start from.
    """

    def __init__(self, first: Step) -> None:
        self._steps = [first]
        self._position = 0

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
        step = Step(label, state, plan, self.present.plan.diff(plan), aside)
        self._steps[self._position + 1 :] = [step]
        self._position += 1
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
