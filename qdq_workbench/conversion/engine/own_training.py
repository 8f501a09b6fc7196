"""Models of a user's class: `class Distiller(keras.Model)`, built as `Distiller(inputs, outputs)`.

Such a class may override Keras's training (`train_step`, `compute_loss`...). A rebuilt model keeps the class and the
attributes that the user's code set on the model. The class's constructor is not called again, because it may build
the graph itself.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import keras

from qdq_workbench._warned_line import warn_caller
from qdq_workbench.graph_builder import FUNCTIONAL, small_model
from qdq_workbench.wrappers import BaseQuantizeWrapper

_M = TypeVar("_M", bound=Callable[..., Any])
_TRAINING = (
    "train_step", "test_step", "predict_step", "compute_loss", "compute_metrics", "metrics", "compile", "fit",
    "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch", "make_train_function",
    "make_test_function", "make_predict_function",
)  # fmt: skip
_ADDS = "_adds_to_training"
_SET_BY_FITTING = {"history", "stop_training", "stop_predicting", "stop_evaluating"}


def own_training(model: Any) -> list[str]:
    """Return the names of Keras's training methods that a model's class overrides, such as "train_step"."""
    if model is None:
        return []
    kept = inspect.getattr_static
    theirs = {name: kept(type(model), name) for name in _TRAINING}
    return [name for name, own in theirs.items() if own is not kept(keras.Model, name) and not hasattr(own, _ADDS)]


def adds_to_training(method: _M) -> _M:
    """Mark a method of a quantized model that calls and extends Keras's, so that `own_training` does not list it."""
    setattr(method, _ADDS, True)
    return method


def build_optimizer(model: Any) -> None:
    """Create the optimizer's variables before a training step is traced, which TensorFlow otherwise traces twice.

    Not for a training step of the user's own, which may train other variables than the model's.
    """
    optimizer = getattr(model, "optimizer", None)
    own_step = {"train_step", "fit", "train_on_batch", "make_train_function"}.intersection(own_training(model))
    if own_step or not isinstance(optimizer, keras.optimizers.Optimizer) or optimizer.built:
        return
    with model.distribute_strategy.scope():
        optimizer.build(model.trainable_variables)


def float_class(model: Any) -> Callable[..., Any]:
    """Return the constructor of a rebuilt float model: the source's class if that overrides training, else Keras's.

    It warns of a class that cannot be kept, because it has a constructor of its own or is not one of functional models.
    """
    if not own_training(model):
        return keras.Model
    own = getattr(model, "own_class", None) or type(model)
    if issubclass(own, FUNCTIONAL) and _arguments(own) == ["inputs", "outputs", "name"]:
        return functools.partial(_without_constructor, own)
    warn_about_training(model, "keep the steps of training in a class that has no constructor of its own")
    return keras.Model


def _arguments(own: type) -> list[str]:
    """Return the names of a constructor's arguments; Keras's own constructor is decorated up to 3.14."""
    return inspect.getfullargspec(inspect.unwrap(own.__init__)).args[1:]  # type: ignore[misc]


def _without_constructor(own: Any, inputs: Any, outputs: Any, name: str | None = None) -> Any:
    model = own.__new__(own, inputs, outputs, name=name)
    FUNCTIONAL.__init__(model, inputs, outputs, name=name)
    return model


def warn_about_training(model: Any, advice: str) -> None:
    """Warn that the new model trains as `keras.Model`, without the overrides of its class; `advice` is a clause."""
    kind = (getattr(model, "own_class", None) or type(model)).__name__
    own = ", ".join(own_training(model))
    warn_caller(
        UserWarning(
            f"The class {kind} has its own {own}; the new model is another class's and trains as keras.Model does. "
            f"To keep them, {advice}, build the graph outside of it and call {kind}(inputs, outputs)."
        )
    )


def copy_user_state(source: Any, model: Any, layers: Mapping[int, Any]) -> None:
    """Copy the attributes that a user's code set on a model to the rebuilt one; warn of those that cannot be copied.

    Numbers, strings, functions, models outside of the graph... stay the same objects; variables, metrics and optimizers
    are copied; layers of the graph are replaced by the rebuilt model's, which `layers` has by the `id` of the source's.
    """
    counterparts, lost = {**layers, id(source): model}, []
    for name, value in own_attributes(source).items():
        try:
            setattr(model, name, _copied(value, source, model, counterparts))
        except Exception:  # noqa: BLE001, PERF203 - a user's get_config or setter may raise anything
            lost.append(name)
    if lost:
        warn_caller(
            UserWarning(
                f"The new model lacks attributes of the {type(source).__name__}: {', '.join(lost)}. They are tensors, "
                "or models whose layers are parts of the graph, which is laid flat, or cannot be copied or set. Set "
                "them on the new model where training needs them; model.get_layer(name) finds its layers."
            )
        )


def _copied(value: Any, source: Any, model: Any, counterparts: Mapping[int, Any]) -> Any:
    """Return the value for the new model; raise TypeError for a part of the source's graph without counterpart."""
    if is_container(value):
        return each(value, lambda item: _copied(item, source, model, counterparts))
    inner = value.layer if isinstance(value, BaseQuantizeWrapper) else value
    if id(inner) in counterparts:
        return counterparts[id(inner)]
    if isinstance(value, keras.KerasTensor):
        raise TypeError
    if isinstance(value, keras.layers.Layer):
        if any(id(layer) in counterparts for layer in value._flatten_layers()):  # noqa: SLF001 - Keras has no other way
            raise TypeError
        return value
    # A bound method would act on the source model.
    if isinstance(value, types.MethodType) and value.__self__ is source:
        return types.MethodType(value.__func__, model)
    return _fresh(value)


def _fresh(value: Any) -> Any:
    """Return a copy of a variable, metric or optimizer, and any other value itself."""
    if isinstance(value, keras.Variable):
        return keras.Variable(value, trainable=value.trainable, dtype=value.dtype, name=value.name)
    if isinstance(value, (keras.metrics.Metric, keras.optimizers.Optimizer)):
        return type(value).from_config(value.get_config())
    return copy.deepcopy(value) if is_tf_variable(value) else value


def is_tf_variable(value: Any) -> bool:
    """Return whether a value is a `tf.Variable`, which Keras does not save."""
    return isinstance(value, getattr(sys.modules.get("tensorflow"), "Variable", ()))


def is_container(value: Any) -> bool:
    """Return whether a value is a list, a dictionary or a tuple, but not a named tuple."""
    return isinstance(value, (list, tuple, dict)) and not hasattr(value, "_fields")


def each(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return a container of the same kind, with a function applied to its items."""
    if isinstance(value, dict):
        return {key: function(item) for key, item in value.items()}
    return tuple(map(function, value)) if isinstance(value, tuple) else [function(item) for item in value]


def own_attributes(model: Any) -> dict[str, Any]:
    """Return the attributes of a functional model that neither Keras nor this library sets, by name."""
    return {name: value for name, value in vars(model).items() if name not in _known_attributes()}


@functools.cache
def _known_attributes() -> frozenset[str]:
    # Compiled, because `compile` sets attributes too.
    model = small_model()
    model.compile("sgd", "mse", metrics=["mae"])
    return frozenset(vars(model)) | _SET_BY_FITTING | {"_own_state", "_own_plan", "_memo"}
