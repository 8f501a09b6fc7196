"""Keras models whose graph can be read: the functional model inside and its calls in order; all others are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from qdq_workbench._pages import page
from qdq_workbench.errors import UnbuiltModelError, UnsupportedModelError
from qdq_workbench.graph_builder.steps import Step, unique_tensors


def small_model() -> Any:
    """Return a functional model of one layer."""
    scalar = keras.Input((1,), name="scalar")
    return keras.Model(scalar, keras.layers.Identity(name="identity_of_scalar")(scalar), name="probe")


#: The class of `keras.Model(inputs, outputs)`, which Keras does not export.
FUNCTIONAL: Any = type(small_model())


def check_model(model: Any) -> None:
    """Raise an error unless the graph of `model` can be read; see `build_graph`."""
    functional_of(model)


def functional_of(model: Any) -> Any:
    """Return the functional model inside `model`; raise an error if there is none."""
    if keras.config.backend() != "tensorflow":
        raise UnsupportedModelError(
            "The model runs on another Keras backend than TensorFlow; quantization and export need TensorFlow. "
            'Set the environment variable KERAS_BACKEND="tensorflow" before Keras is imported and load the model '
            f"again. Received: backend={keras.config.backend()!r}"
        )
    if not isinstance(model, keras.Model):
        raise UnsupportedModelError(_foreign_model_text(model))
    inner = getattr(model, "_functional", None) if isinstance(model, keras.Sequential) else model
    if inner is None:
        raise UnbuiltModelError(
            "The Sequential model is not built: its input shape is unknown, so it has no graph. Start it with "
            "keras.Input(shape), or call model.build((None, ...)) with the input shape, batch first. "
            f"Received: model={model.name!r} with {len(model.layers)} layers"
        )
    if not is_functional(inner):
        raise UnsupportedModelError(
            "The model is subclassed: its call() method is Python code, so there is no graph of layers to quantize. "
            "Express it as a functional model, keras.Model(inputs, outputs); parts of it that are functional or "
            f"sequential can be quantized by themselves: {page('importing.md')}. "
            f"Received: model of class {type(model).__name__}"
        )
    return inner


def _foreign_model_text(model: Any) -> str:
    module = type(model).__module__
    if module.split(".")[0] in ("tf_keras", "tensorflow") or ".legacy_tf_keras" in module:
        return (
            "The model belongs to Keras 2 (tf_keras); a Keras 3 model was expected. Save it as HDF5 or .keras and "
            "load the file with keras.models.load_model of Keras 3, or rebuild it with keras 3 layers and copy the "
            f"weights: {page('importing.md')}. Received: {module}.{type(model).__name__}"
        )
    return (
        "A Keras 3 model (keras.Model) was expected; load one with keras.models.load_model or build one with "
        f"keras.Model(inputs, outputs). Received: {module}.{type(model).__name__}"
    )


def is_functional(layer: Any) -> bool:
    """Return whether `layer` is a model whose graph can be read: its `call` must be Keras's own."""
    return isinstance(layer, FUNCTIONAL) and type(layer).call is FUNCTIONAL.call


def model_inside(operation: Any) -> Any:
    """Return the model with a graph that a wrapper such as TimeDistributed holds; None for other layers."""
    layer = getattr(operation, "layer", None) if isinstance(operation, keras.layers.Wrapper) else None
    inner = getattr(layer, "_functional", None) if isinstance(layer, keras.Sequential) else layer
    return layer if inner is not None and is_functional(inner) else None


def calls_of(functional: Any) -> Iterator[Step]:
    """Yield the calls of a functional model in an order in which they can be computed."""
    for node in _ordered_nodes(functional):
        operation, arguments = node.operation, node.arguments
        position = operation._inbound_nodes.index(node)
        outputs = list(node.outputs)
        yield Step(operation, tuple(arguments.args), dict(arguments.kwargs), outputs, operation.name, position)


def _ordered_nodes(functional: Any) -> Iterator[Any]:
    """Yield the nodes of a functional model in an order in which they can be computed."""
    for depth in sorted(functional._nodes_by_depth, reverse=True):
        calls = [n for n in functional._nodes_by_depth[depth] if n.operation is not None and not n.is_input]
        # Keras does not define the order of the calls at one depth; here those of one layer are in creation order.
        ids = {id(call) for call in calls}
        made: dict[int, Iterator[Any]] = {
            id(n.operation): iter([call for call in n.operation._inbound_nodes if id(call) in ids]) for n in calls
        }
        for keras_node in calls:
            yield next(made[id(keras_node.operation)])


def input_structure(model: Any) -> Any:
    """Return the symbolic inputs of a functional model, nested as it takes them."""
    return model._inputs_struct


def output_names(model: Any) -> list[str]:
    """Return the names of a model's outputs; a sequential model keeps them in the functional model inside it."""
    return list(functional_of(model).output_names)


def function_behind(model: Any, starts: Sequence[Any], ends: Sequence[Any]) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function from values of `starts`, tensors anywhere in a functional model, to the values of `ends`.

    It calls the layers as they are: a `keras.Model` from tensors inside of another model would add calls to them. A
    `keras.Function` cannot start at one of several results of a call: it refuses it, or computes it all the same. With
    Keras before 3.15 it can start only behind calls that are computed from other starts, and not at an end.
    """
    given = set(map(id, starts))
    needed, steps = set(map(id, ends)), []
    for step in reversed(list(calls_of(functional_of(model)))):
        if not needed.isdisjoint({id(tensor) for tensor in step.outputs} - given):
            needed.update(map(id, unique_tensors((step.args, step.kwargs))))
            steps.append(step)

    def run(arrays: Sequence[Any]) -> list[Any]:
        values = dict(zip(map(id, starts), arrays, strict=True))

        def value_of(leaf: Any) -> Any:
            return values[id(leaf)] if isinstance(leaf, keras.KerasTensor) else leaf

        for step in reversed(steps):
            args, kwargs = keras.tree.map_structure(value_of, (step.args, step.kwargs))
            for tensor, value in zip(step.outputs, keras.tree.flatten(step.operation(*args, **kwargs)), strict=True):
                values.setdefault(id(tensor), value)  # a start keeps the value that it was given
        return [values[id(tensor)] for tensor in ends]

    return run
