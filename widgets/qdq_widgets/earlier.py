"""Taking over the work of an earlier bench of the same model, such as after its cell ran again."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable
from typing import Any

from qdq_widgets.curves import Curves, Scores
from qdq_widgets.errors import BenchError
from qdq_widgets.history import Aside, History
from qdq_widgets.models import ModelStore
from qdq_widgets.snapshots import CALIBRATED, Snapshot

# The widgets of a displayed bench keep it alive after its variable is assigned anew.
_latest: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def find_earlier(bench: Any) -> Any:
    """Return the latest bench with work on a model of the same name and nodes, or None; register the new bench."""
    name = bench.graph.name
    found = _latest.get(name)
    if found is not None and not found.has_work:  # the cell ran a third time before anything was done
        found = found.earlier
    _latest[name] = bench
    return found if found is not None and _fits(bench, found) else None


def same_objects(data: Any, other: Any) -> bool:
    """Return whether data are the same objects, also in new containers: a cell that runs again makes a new tuple."""
    if data is other:
        return True
    if type(data) is not type(other):
        return False
    if isinstance(data, dict):
        return data.keys() == other.keys() and all(same_objects(data[key], other[key]) for key in data)
    if isinstance(data, (list, tuple)):
        return len(data) == len(other) and all(map(same_objects, data, other))
    return False


def continue_bench(self: Any, other: Any) -> str:
    """Take over the work of another bench of the same model: for new data, or after the cell ran again.

    If the model was built anew or its weights have changed since, only the history and the variants are taken over,
    without calibration and models. Scores are taken over if the validation data are the same objects. It is the method
    `continue_from` of `Workbench`.

    Args:
        self: The `Workbench` that continues.
        other: The other bench; it stays as it is.

    Returns:
        A sentence that names what was taken over.

    Raises:
        BenchError: If the layers of the models differ.
    """
    theirs = other._work  # noqa: SLF001 - this is a method of the class
    same_data = same_objects(self._work.data.validation, theirs.data.validation)
    same_weights = self.model is other.model and not theirs.models.weights_changed
    taken = take_work(self, other, same_data=same_data, same_weights=same_weights)
    self.journal.continue_from(other.journal)
    if same_weights:
        # After `take_work`, which leaves an empty store.
        self._work.models.adopt(theirs.models, with_scores=same_data)
        self._exports.continue_from(other._exports)  # noqa: SLF001 - as above
        self._events.tell("calibration", "stage")
    return taken


def take_over_work(
    self: Any,
    history: History,
    variants: dict[str, Any],
    curves: Curves,
    work: Snapshot,
    ptq: Iterable[tuple[Any, Scores]] = (),
) -> None:
    """Replace history, variants, curves and models, as `Workbench.take_over`, for `load` and `continue_from`."""
    # As a job: another one that runs would go on with the models that are replaced here.
    with self.jobs.run("loading"), self._plans.lock:
        self._plans.history, self._variants.by_name, self._training.curves = history, variants, curves
        self._work.models = ModelStore.restored(self.model, self.plan, work)
        for plan, scores in ptq:
            self._work.models.remember_scores(plan, CALIBRATED, scores)
    # Before the events, at which the view hides its offer.
    self.earlier = None
    self._events.tell("plan", "calibration", "curves", "variants")


def take_work(bench: Any, other: Any, *, same_data: bool, same_weights: bool) -> str:
    """Take over history, variants, pane values and colours of another bench; return a sentence that names them.

    With `same_weights` (the same model, with the weights that the other one worked with) metrics are taken over too,
    and with `same_data` as well, scores. A bench of other layers raises `BenchError`.
    """
    if not _fits(bench, other):
        raise BenchError(
            "Only a bench of the same layers can be continued. "
            f"Received: a bench of {other.graph.name!r}, to continue as {bench.graph.name!r}"
        )
    same_data = same_data and same_weights
    variants = {variant.name: variant for variant in other.variants}
    if not same_data:
        variants = {name: _unscored(variant) for name, variant in variants.items()}
    if not same_weights:
        variants = {
            name: dataclasses.replace(variant, size=None, stage="planned", work=Snapshot())
            for name, variant in variants.items()
        }
    curves = other.curves if same_data else Curves()
    text = work_text(other) if same_weights else _plan_text(other)
    # Before `take_over`, which replaces the plan.
    target = bench.plan.target
    bench.take_over(
        _replanned(bench, other.history, same_weights=same_weights, same_data=same_data), variants, curves, Snapshot()
    )
    bench.pane_states.take_over(other.pane_states.to_dict())
    if same_weights:
        bench.take_over_metrics(other.own_metrics, other.sensitivity_report)
    bench.take_over_colors(other.rules, other.coloring)
    if same_weights:
        left = "" if same_data or other.curves == Curves() else "; not the scores, which are of other data"
    else:
        changed = other.model is bench.model
        left = "; the weights of the model have changed since" if changed else "; the model was built anew"
    if bench.plan.target != target:
        left += f"; the target is {bench.plan.target!r} now, not {target!r}"
    return f"Taken over: {text}{left}."


def _unscored(variant: Any) -> Any:
    return dataclasses.replace(variant, accuracy=None, work=variant.work.replace(scores={}))


def work_text(bench: Any) -> str:
    """Return a summary of the work in a bench, in a few words."""
    parts = [_plan_text(bench)]
    parts += ["a calibration"] if bench.calibration is not None else []
    runs = len(bench.curves.runs)
    parts += [f"{runs} fine-tuning run{'s' * (runs > 1)}"] if runs else []
    return ", ".join(parts)


def _plan_text(bench: Any) -> str:
    steps, variants = len(bench.history) - 1, len(bench.variants)
    text = f"{steps} step{'s' * (steps != 1)}"
    return f"{text}, {variants} variant{'s' * (variants > 1)}" if variants else text


def _fits(bench: Any, other: Any) -> bool:
    def nodes(of: Any) -> list[tuple[Any, ...]]:
        return [(node.name, node.class_name, node.inputs) for node in of.graph.nodes]

    return nodes(bench) == nodes(other)


def _replanned(bench: Any, history: Any, *, same_weights: bool, same_data: bool) -> History:
    first, *others = history.steps
    made = History(first.label, first.state, bench.planner)
    for step in others:
        aside = None
        if step.aside is not None and same_weights:
            aside = Aside(step.aside.contents.copy())  # undo and redo in one bench must not change the other
            aside.contents.scores = aside.contents.scores if same_data else {}
        # Planned anew: the plans of a history share the graph of its planner, and the other bench has one of its own.
        made.push(step.label, step.state, bench.planner.plan(step.state), aside)
    made.go_to(history.position)
    return made
