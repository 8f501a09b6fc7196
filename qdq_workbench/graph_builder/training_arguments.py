"""The `training` arguments inside a composite layer: a graph of layers has one mode for all of them."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import keras
import numpy as np
from keras import tree

from qdq_workbench.graph.kinds import (
    BATCH_NORMALIZATION,
    DROPOUTS,
    MATRIX_PRODUCTS,
    MULTI_HEAD_ATTENTION,
    RECURRENT,
    VANISHING,
)
from qdq_workbench.graph_builder.contents import content
from qdq_workbench.graph_builder.functional_models import is_functional
from qdq_workbench.graph_builder.layer_parts import inner_layers, takes_training
from qdq_workbench.graph_builder.steps import CannotEnterError, Trace, is_made_by_a_trace, unique_tensors


def let_training_decide(in_training: Trace, found: Trace) -> Trace:
    """Merge two traces, if they differ only in `training` arguments and dropouts, into one that follows the model."""
    their_form, our_form = _form_without_dropouts(in_training), _form_without_dropouts(found)
    # What a layer computes in training although the model does not train belongs to the function of the whole, which
    # no graph of layers has: Keras lets the mode of a model decide for all of them.
    always = next((step for step in found.steps if _is_on(step.kwargs.get("training"))), None)
    if always is not None:
        raise CannotEnterError(
            f"it calls {always.name!r} ({type(always.operation).__name__}) with training=True at inference too; leave "
            "that argument out, or hand on the `training` of its own call"
        )
    if their_form != our_form:
        raise CannotEnterError(
            "it computes something else in training than `training` arguments of the layers inside decide; let layers "
            "such as Dropout decide"
        )
    # The trace in training is returned, because code such as `if training:` calls dropouts in that one alone.
    for step in in_training.steps:
        if _is_on(step.kwargs.get("training")):
            del step.kwargs["training"]
    return _without_what_is_off(in_training)


def _without_what_is_off(in_training: Trace) -> Trace:
    """Leave out what a layer calls with `training=False` in training too, if that does nothing; else it stays whole."""
    same: dict[int, Any] = {}
    kept = []
    for step in in_training.steps:
        step.args, step.kwargs = tree.map_structure(lambda value: same.get(id(value), value), (step.args, step.kwargs))
        if not _is_number(step.kwargs.get("training")):
            kept.append(step)
        elif _is_a(step.operation, VANISHING):
            same[id(step.outputs[0])] = unique_tensors((step.args, step.kwargs))[0]
        elif any(map(_has_a_mode, (step.operation, *inner_layers(step.operation)))):
            raise CannotEnterError(
                f"it calls {step.name!r} ({type(step.operation).__name__}) with training=False in training too, where "
                "the mode of a model decides for all layers; freeze it (trainable=False), and leave that argument out"
            )
        else:
            kept.append(step)
    outputs = [same.get(id(tensor), tensor) for tensor in in_training.outputs]
    return dataclasses.replace(in_training, steps=kept, outputs=outputs)


def _has_a_mode(layer: Any) -> bool:
    """Return whether a layer, apart from those inside it, may compute something else in training."""
    if not takes_training(layer) or isinstance(layer, keras.Sequential) or is_functional(layer):
        return False  # of a model, the layers decide
    if _is_a(layer, BATCH_NORMALIZATION):
        return bool(layer.trainable)
    if _is_a(layer, (*RECURRENT, *MULTI_HEAD_ATTENTION)):
        return any(getattr(layer, rate, 0.0) for rate in ("dropout", "recurrent_dropout", "_dropout"))
    return not _is_a(layer, MATRIX_PRODUCTS)


def _is_on(training: Any) -> bool:
    """Return whether a `training` argument is true, as a bool or as another number."""
    return _is_number(training) and bool(training)


def _is_number(training: Any) -> bool:
    return isinstance(training, (bool, int, float, np.generic))


def _is_a(operation: Any, classes: tuple[str, ...]) -> bool:
    kind = type(operation)
    return kind.__module__.startswith("keras.") and kind.__name__ in classes


def _form_without_dropouts(trace: Trace) -> Any:
    """Return a form of the steps of a trace to compare, without dropouts and `training` arguments."""
    numbers = {id(tensor): number for number, tensor in enumerate(trace.inputs)}

    def plain(value: Any) -> Any:
        if isinstance(value, keras.KerasTensor):
            return ("tensor", numbers.get(id(value)))
        return content(value, others=str)

    forms, made = [], itertools.count(len(numbers))
    for step in trace.steps:
        if _is_a(step.operation, DROPOUTS):
            numbers[id(step.outputs[0])] = numbers[id(unique_tensors((step.args, step.kwargs))[0])]
            continue
        kwargs = {key: value for key, value in step.kwargs.items() if key != "training"}
        operation = step.operation
        known = isinstance(operation, (keras.layers.Layer, keras.Variable)) and not _is_made_anew(operation)
        config = None if known or not isinstance(operation, keras.Operation) else _settings(operation)
        called = tree.map_structure(plain, (step.args, kwargs))
        forms.append((id(operation) if known else type(operation), content(config, others=str), called))
        for tensor in step.outputs:
            numbers[id(tensor)] = next(made)
    return forms, [numbers.get(id(tensor)) for tensor in trace.outputs]


def _is_made_anew(operation: Any) -> bool:
    """Return whether an operation may be another object in each trace: a layer without weights that `call` makes."""
    of_keras = isinstance(operation, keras.layers.Layer) and type(operation).__module__.startswith("keras.")
    return is_made_by_a_trace(operation) or (of_keras and not operation.variables and not inner_layers(operation))


def _settings(operation: Any) -> dict[str, Any]:
    try:
        config = operation.get_config()
    except NotImplementedError:  # Keras writes none where an argument is an object, so only itself is known to be equal
        return {"same": id(operation)}
    return {key: value for key, value in config.items() if key != "name"}
