"""The calls of layers and operations that the `call` of a composite layer makes."""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any

import keras
import tensorflow as tf
from keras import tree

from qdq_workbench.errors import first_line
from qdq_workbench.graph.contractions import product_terms
from qdq_workbench.graph_builder.inlined import inlined_where_needed
from qdq_workbench.graph_builder.layer_parts import carries_mask, inner_layers, layer_parts, takes_training
from qdq_workbench.graph_builder.products import in_parts
from qdq_workbench.graph_builder.size_steps import SizeSteps, constant_of
from qdq_workbench.graph_builder.sized_calls import sized_item
from qdq_workbench.graph_builder.steps import CannotEnterError, Step, Trace, is_made_by_a_trace, unique_tensors
from qdq_workbench.graph_builder.trace_scope import ReadsVariables, Runner, TraceScope, open_sizes
from qdq_workbench.graph_builder.training_arguments import let_training_decide

_SPEC = "compute_output_spec"
_OF_KERAS = (keras.KerasTensor, keras.Variable)


def trace_call(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: list[Any]) -> Trace:
    """Return the calls that a built layer makes when it is called with some symbolic tensors; no layer is changed.

    CannotEnterError is raised if the calls do not represent the whole computation of the layer.
    """
    tensors = unique_tensors((args, kwargs))
    if any(carries_mask(tensor) for tensor in (*tensors, *outputs)):
        raise CannotEnterError(
            "a mask is propagated with its input or output; give the mask as an argument of the call"
        )
    if layer.activity_regularizer is not None:
        raise CannotEnterError("it has an activity regularizer; give it to a layer inside")
    if not any(map(takes_training, (layer, *inner_layers(layer)))):
        found = _Tracer(layer, args, kwargs).trace()
    else:
        # `training` may decide in Python which calls are made, so the code is run for both values.
        in_training, found = (_Tracer(layer, args, kwargs, training=on).trace() for on in (True, False))
        found = let_training_decide(in_training, found)
    _check_outputs(found.outputs, outputs)
    return found


def _check_outputs(found: list[Any], outputs: list[Any]) -> None:
    if len(found) != len(outputs) or not all(isinstance(tensor, keras.KerasTensor) for tensor in found):
        raise CannotEnterError("it returns something that depends on no input")
    if any(map(carries_mask, found)):
        raise CannotEnterError("a mask is propagated with its output; give the mask as an argument of the calls")
    if any(ours.dtype != theirs.dtype for ours, theirs in zip(found, outputs, strict=True)):
        raise CannotEnterError("its results are of another dtype than it declares")


class _Tracer:
    """Runs the code of a layer once and collects the calls that it makes."""

    def __init__(
        self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, training: bool | None = None
    ) -> None:
        self._layer = layer
        self._scope = TraceScope()
        told = training is not None and takes_training(layer)
        self._call = args, {**kwargs, "training": training} if told else kwargs
        self._training = training
        self._given = unique_tensors(self._call)
        self._inputs = [keras.KerasTensor(tensor.shape, dtype=tensor.dtype) for tensor in self._given]
        self._outputs: Any = None
        self._steps: list[Step] = []
        self._done: dict[int, Any] = {id(tensor): tensor for tensor in self._inputs}
        self._kept: list[Any] = []
        self._glue: Any = None

    def trace(self) -> Trace:
        untouched = _Untouched(self._layer)
        try:
            tf.function(self._run, autograph=False).get_concrete_function()
        except CannotEnterError:
            raise
        except Exception as error:
            raise CannotEnterError(f"its code cannot be followed without values ({_cause(error)})") from error
        finally:
            untouched.restore()
        self._name_steps()
        return Trace(self._inputs, self._steps, self._outputs, self._layer.dtype_policy)

    def _run(self) -> None:
        """Run the code and collect its steps; open sizes and variables are tensors of the graph being built."""
        with open_sizes(self._scope), ReadsVariables(self._scope) as reads, inlined_where_needed(self._layer):
            runner = Runner(self._layer, self._call_layer, self._training)
            runner(self._inputs)
        if reads.changes:
            raise CannotEnterError(reads.changes)
        with open_sizes(self._scope):
            self._glue = SizeSteps(tf.compat.v1.get_default_graph(), self._scope, self._layer.compute_dtype)
            self._outputs = [self._result(tensor) for tensor in tree.flatten(runner.result)]

    def _call_layer(self, tensors: Any) -> Any:
        inner = {id(given): tensor for given, tensor in zip(self._given, tensors, strict=True)}
        args, kwargs = tree.map_structure(lambda value: inner.get(id(value), value), self._call)
        return self._layer.call(*args, **kwargs)

    def _result(self, tensor: Any) -> Any:
        """Return the tensor of the trace that represents a result; one that depends on no input is a layer too."""
        found = self._visited(tensor) if tf.is_tensor(tensor) or isinstance(tensor, _OF_KERAS) else tensor
        if not tf.is_tensor(found):
            return found
        made = constant_of(found, self._layer.dtype_policy)
        output = keras.KerasTensor(tuple(found.shape), dtype=found.dtype.name)
        self._add(Step(made, ([self._inputs[0]],), {}, [output]))
        return output

    def _visited(self, tensor: Any) -> Any:
        """Collect the steps on which a tensor depends, and return the tensor that represents it in the trace."""
        if id(tensor) in self._done:
            return self._done[id(tensor)]
        self._kept.append(tensor)  # so that its id is not reused
        if isinstance(tensor, keras.KerasTensor):
            self._visit_node(tensor)
        elif isinstance(tensor, keras.Variable):
            self._done[id(tensor)] = self._weight(tensor)
        else:
            self._done[id(tensor)] = self._from_sizes(tensor)
        return self._done[id(tensor)]

    def _visit_node(self, tensor: Any) -> None:
        history = tensor._keras_history
        if history.operation is None:
            raise CannotEnterError("it uses a tensor of another model")
        node = history.operation._inbound_nodes[history.node_index]
        parts = in_parts(history.operation, node.arguments.args, node.arguments.kwargs)
        parts = sized_item(history.operation, node.arguments.args) if parts is None else parts
        if parts is not None:
            self._done[id(tensor)] = self._visited(parts)
            return
        args, kwargs = tree.map_structure(self._argument, (tuple(node.arguments.args), dict(node.arguments.kwargs)))
        self._add(Step(history.operation, args, kwargs, list(node.outputs)))

    def _add(self, step: Step) -> None:
        self._check(step)
        self._steps.append(step)
        self._done.update((id(tensor), tensor) for tensor in step.outputs)

    def _check(self, step: Step) -> None:
        kind = type(step.operation).__name__
        if any(inspect.isroutine(leaf) for leaf in tree.flatten((step.args, step.kwargs))):
            raise CannotEnterError(f"it calls {kind} with functions, whose inside no graph of layers shows")
        held = any(part is step.operation for part in inner_layers(self._layer))
        if isinstance(step.operation, keras.layers.Layer) and step.operation.weights and not held:
            raise CannotEnterError(f"it calls a layer that it does not hold as an attribute ({kind})")
        if not isinstance(step.operation, (keras.layers.Layer, keras.Variable)):
            held = tree.flatten(list(vars(step.operation).values()))
            if any(isinstance(value, keras.KerasTensor) for value in held):
                raise CannotEnterError(f"{kind} depends on a tensor that is no operand but a setting of it")
            if any(tf.is_tensor(value) and not hasattr(value, "numpy") for value in held):
                raise CannotEnterError(f"{kind} depends on a size that is not known")
            try:
                step.operation.get_config()
            except NotImplementedError as error:
                raise CannotEnterError(f"{kind} has settings that are no numbers of Python, such as arrays") from error

    def _argument(self, value: Any) -> Any:
        # Tensors of a graph lack `numpy`, unlike eager ones, which are constants.
        symbolic = tf.is_tensor(value) and not hasattr(value, "numpy")
        return self._visited(value) if symbolic or isinstance(value, _OF_KERAS) else value

    def _weight(self, variable: Any) -> Any:
        for step in self._steps:
            if step.operation is variable:
                return step.outputs[0]
        floats, layer = "float" in variable.dtype, self._layer
        # As Keras casts a variable that the code of a layer reads.
        dtype = layer.compute_dtype if floats and layer.autocast else variable.dtype
        made = keras.KerasTensor(tuple(variable.shape), dtype=dtype)
        # Any input will do: the layer of a weight needs one to be a part of the graph.
        self._add(Step(variable, (self._inputs[0],), {}, [made]))
        return made

    def _from_sizes(self, tensor: Any) -> Any:
        found = self._glue.found(tensor)
        if found.constant is not None:
            return found.constant
        measured = [self._visited(each) for each in found.measured] or [self._inputs[0]]
        weights = [self._weight(variable) for variable in found.variables]
        made = found.layer(self._layer.dtype_policy)
        output = keras.KerasTensor(tuple(tensor.shape), dtype=tensor.dtype.name)
        self._add(Step(made, (measured,), {"weights": weights} if weights else {}, [output]))
        return output

    def _name_steps(self) -> None:
        paths = {id(part): path for path, part in layer_parts(self._layer)}
        counts: dict[str, int] = {}
        for step in self._steps:
            if isinstance(step.operation, keras.Variable):
                step.name = step.operation.name
            elif id(step.operation) in paths:
                step.name = paths[id(step.operation)]
            elif isinstance(step.operation, keras.layers.Layer) and not is_made_by_a_trace(step.operation):
                step.name = step.operation.name
            else:
                kind = getattr(step.operation, "_qdq_part", "") or _snake_case(type(step.operation).__name__)
                counts[kind] = counts.get(kind, -1) + 1
                step.name = f"{kind}_{counts[kind]}" if counts[kind] else kind


def _cause(error: BaseException) -> str:
    """Return the cause of an error, without the text that Keras wraps around it for every layer."""
    text = str(error)
    # Keras sets the message that it wraps in bold.
    while "\x1b[1m" in text:
        text = text.partition("\x1b[1m")[2].rpartition("\x1b[0m")[0]
    return f"{type(error).__name__}: {first_line(ValueError(text))[:200]}"


class _Untouched:
    """Restores the layers inside a layer to their state before a trace.

    During the trace, a subclass with its own `call` (attention with a cache, for example) determines its output spec
    by that, because the `compute_output_spec` of its parent class may lack arguments; and EinsumDense layers keep
    sizes that Keras drops.
    """

    def __init__(self, layer: Any) -> None:
        parts = inner_layers(layer)
        self._calls = [
            (calls, len(calls)) for part in (layer, *parts) for calls in (part._inbound_nodes, part._outbound_nodes)
        ]
        own = [part for part in parts if _has_own_call(type(part))]
        products = [part for part in parts if isinstance(part, keras.layers.EinsumDense) and part not in own]
        self._told = [*own, *products]
        for part in own:
            vars(part)[_SPEC] = functools.partial(keras.Operation.compute_output_spec, part)
        for part in products:
            vars(part)[_SPEC] = functools.partial(_einsum_spec, part)

    def restore(self) -> None:
        for part in self._told:
            del vars(part)[_SPEC]
        for calls, count in self._calls:
            del calls[count:]


def _einsum_spec(layer: Any, inputs: Any, **kwargs: Any) -> Any:
    """Return the output spec of an EinsumDense, with the sizes of its input that its `output_shape` leaves open."""
    found = type(layer).compute_output_spec(layer, inputs, **kwargs)
    left, _, result = product_terms(layer.equation)
    sizes = dict(zip(left, inputs.shape, strict=False))
    if "..." in layer.equation or len(result) != len(found.shape):
        return found
    shape = tuple(sizes.get(axis) if size is None else size for axis, size in zip(result, found.shape, strict=True))
    return keras.KerasTensor(shape, dtype=found.dtype)


def _has_own_call(kind: type) -> bool:
    """Return whether a class has its own `call`, but inherits `compute_output_spec`, and not from `Layer`."""
    classes = kind.__mro__
    calls, specs = (next(cls for cls in classes if name in vars(cls)) for name in ("call", _SPEC))
    return issubclass(calls, specs) and calls is not specs and specs is not keras.layers.Layer


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
