"""The journal of a bench: all successful calls in order, as a script that repeats them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import qdq_workbench as qdq
from qdq_widgets.code import case_code, config_code
from qdq_widgets.curves import TrainingRun
from qdq_widgets.events import Events
from qdq_widgets.fits import begun_epochs, reached, stopped_note
from qdq_widgets.literals import literal


class Call(NamedTuple):
    """One call of a method of the bench.

    Args:
        method: Its name.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        note: A comment for the script, such as where a training run was stopped.
    """

    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    note: str = ""


class Journal:
    """The calls of one bench that succeeded; a part of `Workbench`.

    Args:
        arguments: Constructor arguments of the bench by name; those that are None are left out.
        cases: The insertion cases that it started with.
        events: Get "stage" when a call is changed after it returned.

    Attributes:
        calls: The calls so far.
    """

    def __init__(self, arguments: Mapping[str, Any], cases: Sequence[Any], events: Events) -> None:
        self._arguments = {name: value for name, value in arguments.items() if value is not None}
        self._cases, self._events = tuple(cases), events
        self._folder: str | None = None
        self._loaded_with: Mapping[str, Any] = {}
        self.calls: list[Call] = []

    @contextlib.contextmanager
    def noting(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Call]:
        """Record the call that the body makes; a call that fails is removed, as it changed nothing.

        Calls are recorded in the order in which they began: a long task works on the plan that it began with.
        """
        call = Call(method, args, dict(kwargs))
        self.calls.append(call)
        try:
            yield call
        except BaseException:
            # By identity: tuples are compared by their items, and arguments may be arrays.
            self.calls = [other for other in self.calls if other is not call]
            raise

    def finish(self, call: Call, done: Any) -> None:
        """Change the record of a training run that was stopped to the number of epochs that it reached.

        `done` is the return value of the call; others than a stopped `TrainingRun` change nothing.
        """
        stopped = reached(done) if isinstance(done, TrainingRun) else None
        if stopped is None:
            return
        epochs = {**call.kwargs, "epochs": begun_epochs(stopped)}
        # Without `args`: `epochs` is the only argument of `fine_tune` that can be positional.
        noted = Call(call.method, (), epochs, stopped_note(stopped))
        self.calls = [noted if other is call else other for other in self.calls]
        self._events.tell("stage")

    def begin_from(
        self, folder: str | os.PathLike[str], cases: Sequence[Any], arguments: Mapping[str, Any] | None
    ) -> None:
        """Clear the journal after the bench was loaded from a folder, with which the script then begins.

        `cases` are those that its states could be made with; `arguments` are the data, loss, optimizer and metrics that
        were given to `load`, None for those of the bench, which it keeps.
        """
        if arguments is None:
            # Target and spec come with the loaded states.
            arguments = {name: self._arguments[name] for name in self._arguments if name not in ("target", "spec")}
        given = {name: value for name, value in arguments.items() if value is not None}
        self._loaded_with = {"cases": tuple(cases), **given} if cases else given
        self._folder, self.calls = os.fspath(folder), []

    def continue_from(self, other: Journal) -> None:
        """Take over the calls of another bench, and the folder that it was loaded from."""
        self._folder, self._loaded_with, self.calls = other._folder, other._loaded_with, list(other.calls)

    def last(self, *methods: str) -> Call | None:
        """Return the last call of any of the methods; None if there is none."""
        return next((call for call in reversed(self.calls) if call.method in methods), None)

    def to_script(self, model_name: str = "model") -> str:
        """Return all calls as Python that repeats them, undone ones too.

        Data, and objects that cannot be written as Python, are named by the arguments that they were given as.

        Args:
            model_name: Name of the variable that holds the float model.

        Returns:
            The script; at its end, the bench has the same plan as this one.
        """
        writer = _Writer()
        lines = [self._begin(model_name, writer), *(self._line(call, writer) for call in self.calls)]
        return "\n".join(["import qdq_workbench as qdq", *writer.imports, "", *writer.notes, *lines, ""])

    def _begin(self, model_name: str, writer: _Writer) -> str:
        given = [f"{name}={writer.expression(value, name)}" for name, value in self._arguments.items()]
        if self._folder is not None:
            loaded = [f"{name}={writer.expression(value, name)}" for name, value in self._loaded_with.items()]
            return f"wb = Workbench.load({', '.join([repr(self._folder), *loaded])})"
        given += [f"cases=[{', '.join(writer.expression(case, 'case') for case in self._cases)}]"] * bool(self._cases)
        return f"wb = Workbench({', '.join([model_name, *given])})"

    @staticmethod
    def _line(call: Call, writer: _Writer) -> str:
        args = [writer.expression(value, f"argument_{place}") for place, value in enumerate(call.args)]
        args += [f"{name}={writer.expression(value, name)}" for name, value in call.kwargs.items()]
        return f"wb.{call.method}({', '.join(args)})" + (f"  # {call.note}" if call.note else "")


class _Writer:
    """Writes values as Python, and collects the imports and comments for the top of the script."""

    def __init__(self) -> None:
        self._imports = ["from qdq_widgets import Workbench"]
        self._notes: list[str] = []

    @property
    def imports(self) -> list[str]:
        return list(dict.fromkeys(self._imports))

    @property
    def notes(self) -> list[str]:
        return list(dict.fromkeys(self._notes))

    def expression(self, value: Any, name: str) -> str:
        if value is None or isinstance(value, (bool, int, float, str, np.generic)):
            return literal(value)
        if isinstance(value, os.PathLike):
            return repr(os.fspath(value))
        # Data have one name as a whole: item by item, each array would get that name.
        if isinstance(value, (list, tuple)) and not name.endswith("_data"):
            inside = ", ".join(self.expression(item, name) for item in value)
            return f"[{inside}]"
        if isinstance(value, Mapping) and not name.endswith("_data"):
            pairs = ((self.expression(key, name), self.expression(item, name)) for key, item in value.items())
            return f"{{{', '.join(f'{key}: {item}' for key, item in pairs)}}}"
        return self._object(value, name)

    def _object(self, value: Any, name: str) -> str:
        if isinstance(value, qdq.QuantizationSpec):
            return f"qdq.QuantizationSpec.from_dict({literal(value.to_dict())})"
        if isinstance(value, qdq.LayerQuantizeConfig):
            return config_code(value)
        if isinstance(value, qdq.CustomQDQInsertionCase):
            statement, expression, note = case_code(value)
            self._imports += [statement] * bool(statement)
            self._notes += [note] * bool(note)
            return expression
        self._notes.append(f"# {name}: {'the data' if name.endswith('_data') else type(value).__name__} that you gave")
        return name
