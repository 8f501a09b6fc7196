"""Learning all units of a model, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from qdq_workbench._progress import ProgressFunction
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import DataError
from qdq_workbench.graph_builder import bind_graph
from qdq_workbench.post_training.rounding.checkpoint import Checkpoint, FinishedUnit
from qdq_workbench.post_training.rounding.compute import compute, compute_float
from qdq_workbench.post_training.rounding.learners import Learner, find_learners, reference_weights
from qdq_workbench.post_training.rounding.reconstruct import (
    Evaluation,
    Reconstruction,
    Settings,
    error_of,
    probabilities_of,
)
from qdq_workbench.post_training.rounding.report import RoundedUnit
from qdq_workbench.post_training.rounding.units import Unit, find_units
from qdq_workbench.post_training.rounding.values import Values, copy_of

Array = npt.NDArray[Any]


class Run:
    """The units of a quantized model, and the samples they learn from.

    Args:
        q_model: A calibrated model.
        reference: The float model to match; None for that of `q_model`.
        granularity: "layer", "block" or "model".
        settings: The settings of learning.
        inputs: All samples, one array per input of the model.
        held_back: How many of the last samples are held out, to evaluate the result.
    """

    def __init__(
        self,
        q_model: QuantizedModel,
        reference: keras.Model | None,
        granularity: str,
        settings: Settings,
        inputs: Sequence[Array],
        held_back: int,
    ) -> None:
        self._q_model, self._settings, self._held_back = q_model, settings, held_back
        self.learned = 0
        self._bound = bind_graph(q_model)
        learners, self.left_out = find_learners(q_model, biases=settings.biases)
        self._learners = {learner.wrapper.name: learner for learner in learners}
        self._units = find_units(self._bound, lambda call: call.node.layer in self._learners, granularity)
        self._reference = {} if reference is None else reference_weights(q_model, reference)
        named = dict(zip(self._bound.input_tensors, inputs, strict=True))
        self._floats, self._quantized = Values(named), Values(named)

    def learn(self, done: Checkpoint, show: ProgressFunction, stopped: Callable[[], bool]) -> bool:
        """Learn all units and return whether all were learned; on an error or an interrupt restore every weight.

        Units in `done` were learned before, and new ones are added to it. `show` gets the number of units done, their
        total and the names of the layers; `stopped` is called before every unit, and True ends the run.
        """
        before: list[tuple[Any, Array]] = []
        total = sum(bool(unit.learned) for unit in self._units)
        try:
            for index, unit in enumerate(self._units):
                if unit.learned:
                    show(self.learned, total, ", ".join(self._paths(unit)[:3]))
                    if stopped():
                        return False
                self._take(index, unit, done, before)
            show(total, total, "")
        except BaseException:
            for variable, values in before:
                variable.assign(values)
            raise
        return True

    def _take(self, index: int, unit: Unit, done: Checkpoint, before: list[tuple[Any, Array]]) -> None:
        """Learn a unit, if it has learned layers, and compute its outputs on all samples."""
        began = time.monotonic()
        read, floats = self._quantized.read(unit.inputs), self._floats.read(unit.inputs)
        names = dict.fromkeys([*unit.outputs, *unit.compared])
        targets = Evaluation(lambda values: compute_float(unit.calls, values, self._reference), names)(floats)
        _check_finite(targets)
        # One trace serves all evaluations of the unit: it reads the variables anew each time.
        run = Evaluation(lambda values: compute(unit.calls, values), names)
        if unit.learned:
            learners = [self._learners[key] for key in dict.fromkeys(call.node.layer for call in unit.learned)]
            known = self.learned < len(done.units)
            reconstruction = Reconstruction(unit, learners, self._settings, index)
            before += [(variable, copy_of(variable)) for variable in reconstruction.variables]
            if known:
                finished = done.units[self.learned]
                _assign(reconstruction.variables, finished.values)
            else:
                finished = self._learned(unit, reconstruction, (read, floats, targets), run, began)
                done.add(finished)
            self.learned += 1
        later = {name for each in self._units[index + 1 :] for name in each.inputs}
        if later:
            self._floats.add({name: targets[name] for name in unit.outputs})
            self._quantized.add(run(read))
        self._floats.keep(later)
        self._quantized.keep(later)

    def _learned(
        self,
        unit: Unit,
        reconstruction: Reconstruction,
        samples: tuple[dict[str, Array], ...],
        run: Evaluation,
        began: float,
    ) -> FinishedUnit:
        """Learn one unit and give its variables the better of the two roundings."""
        count = len(next(iter(samples[0].values())))
        kept = count - self._held_back
        training = [{name: array[:kept] for name, array in part.items()} for part in samples]
        judged = [
            {name: array[kept:] if self._held_back else array for name, array in part.items()} for part in samples
        ]
        probabilities = probabilities_of(unit)

        def error() -> float:
            return float(error_of(unit, probabilities, judged[2], run(judged[0])))

        old = [copy_of(variable) for variable in reconstruction.variables]
        nearest = error()
        read, floats, targets = training
        reconstruction.learn(read, floats, targets, nearest)
        weights, new_biases = reconstruction.result()
        _assign(reconstruction.variables, [*weights, *new_biases])
        learned = error()
        better = learned < nearest
        if not better:
            _assign(reconstruction.variables, old)
        changed = sum(w.changed(values) for w, values in zip(reconstruction.weights, weights, strict=True))
        told = RoundedUnit(
            layers=tuple(self._paths(unit)),
            nearest_error=nearest,
            learned_error=learned,
            kept=better,
            changed=changed if better else 0,
            values=sum(values.size for values in weights),
            seconds=time.monotonic() - began,
            biases=tuple(self._bias_names(unit)) if better else (),
        )
        return FinishedUnit(told, tuple(copy_of(variable) for variable in reconstruction.variables))

    def _of(self, unit: Unit) -> list[tuple[str, Learner]]:
        """Return the learned layers of a unit with their paths."""
        paths = self._q_model.layer_paths
        learners = [self._learners[key] for key in dict.fromkeys(call.node.layer for call in unit.learned)]
        return [(paths[learner.wrapper.layer.name], learner) for learner in learners]

    def _paths(self, unit: Unit) -> list[str]:
        return [path for path, _ in self._of(unit)]

    def _bias_names(self, unit: Unit) -> list[str]:
        return [f"{path}/bias" for path, learner in self._of(unit) if learner.bias is not None]


def _check_finite(targets: dict[str, Array]) -> None:
    for name, values in targets.items():
        if not np.isfinite(values).all():  # also of bfloat16, which is no floating type of NumPy
            raise DataError(
                f"The float model computes NaN or infinity on these data, so there is nothing to match; drop such "
                f"samples, or look for the layer that makes it. Received: tensor {name!r}"
            )


def _assign(variables: Sequence[Any], values: Sequence[Array]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
