"""Conversion of a tensor of a trace's TensorFlow graph to the layer that computes it from sizes and weights."""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from qdq_workbench.graph_builder.between_layers import COMPUTE, PURE, SizeComputation
from qdq_workbench.graph_builder.trace_scope import TraceScope

_LARGEST = 2**20  # elements of a constant that a configuration, which is text, may hold


@dataclasses.dataclass
class Found:
    """The dependencies of a tensor.

    Args:
        constant: Its value, if it has no dependencies.
        measured: The tensors on whose sizes it depends.
        variables: The variables on which it depends.
        form: The arguments of its `SizeComputation`.
    """

    constant: Any = None
    measured: list[Any] = dataclasses.field(default_factory=list)
    variables: list[Any] = dataclasses.field(default_factory=list)
    form: dict[str, Any] = dataclasses.field(default_factory=dict)

    def layer(self, policy: Any) -> SizeComputation:
        """Return the layer that computes the tensor; `policy` is the dtype policy of the composite layer."""
        return SizeComputation(**self.form, dtype=policy)


class SizeSteps:
    """Finds the dependencies of tensors in the graph of a trace.

    Args:
        graph: The graph.
        scope: The tensors that represent sizes and variables in the graph.
        compute_dtype: The compute dtype of the layer.
    """

    def __init__(self, graph: Any, scope: TraceScope, compute_dtype: str) -> None:
        self._scope = scope
        # Half precision is recorded as `COMPUTE`, so that a copy with another policy computes in its own precision.
        self._compute = compute_dtype if compute_dtype not in ("float32", "float64") else ""
        self._captured = {id(inside): outside for outside, inside in getattr(graph, "captures", ())}

    def found(self, tensor: Any) -> Found:
        """Return the dependencies of a tensor.

        Raises:
            ValueError: If it depends on anything but sizes and variables.
        """
        walk = _Walk(self._scope, self._captured, self._compute)
        result = walk.name(tensor)
        if not walk.sizes and not walk.variables:
            return Found(constant=_constant(walk.steps, result))
        largest = max((math.prod(step["shape"]) for step in walk.steps if step["op"] == "Const"), default=0)
        if largest > _LARGEST:
            raise ValueError(f"a constant of {largest} elements is cut to an open size; fix the sizes of the inputs")
        measured: list[Any] = []
        sizes = []
        for each, axis in walk.sizes:
            index = next((i for i, known in enumerate(measured) if known is each), len(measured))
            measured += [each] if index == len(measured) else []
            sizes.append([index, axis])
        form = {
            "steps": walk.steps,
            "result": result,
            "sizes": sizes,
            "shape": tuple(tensor.shape),
            "result_dtype": _dtype_name(tensor.dtype, self._compute),
        }
        return Found(measured=measured, variables=walk.variables, form=form)


class _Walk:
    """Collects the operations on which one tensor depends."""

    def __init__(self, scope: TraceScope, captured: dict[int, Any], compute: str) -> None:
        self._scope = scope
        self._captured = captured
        self._compute = compute
        self._names: dict[str, str] = {}
        self.steps: list[dict[str, Any]] = []
        self.sizes: list[tuple[Any, int]] = []
        self.variables: list[Any] = []

    def name(self, tensor: Any) -> str:
        """Return the name of a tensor among the steps."""
        if tensor.name in self._names:
            return self._names[tensor.name]
        given = self._given(tensor)
        if given:
            self._names[tensor.name] = given
            return given
        op = tensor.op
        if op.type == "Const":
            self.steps.append(self._constant(tf.make_ndarray(op.get_attr("value"))))
        else:
            if op.type not in PURE:
                raise ValueError(f"{op.type} is computed outside of layers")
            self.steps.append(self._step(op))
        number = len(self.steps) - 1
        for index, output in enumerate(op.outputs):
            self._names[output.name] = f"step {number}:{index}"
        return self._names[tensor.name]

    def _given(self, tensor: Any) -> str:
        for measured, axis, scalar in self._scope.sizes:
            if scalar is tensor:
                self.sizes.append((measured, axis))
                return f"size {len(self.sizes) - 1}"
        for variable, value in self._scope.variables:
            if value is tensor:
                self.variables.append(variable)
                return f"weight {len(self.variables) - 1}"
        if id(tensor) in self._captured:
            outside = self._captured[id(tensor)]
            if outside.dtype == tf.resource:
                raise ValueError("a variable of TensorFlow's own is read")
            self.steps.append(self._constant(keras.ops.convert_to_numpy(outside)))
            return f"step {len(self.steps) - 1}:0"
        return ""

    def _constant(self, value: Any) -> dict[str, Any]:
        array = np.asarray(value)
        dtype = _dtype_name(tf.as_dtype(array.dtype), self._compute)
        return {"op": "Const", "value": array.tolist(), "dtype": dtype, "shape": list(array.shape)}

    def _step(self, op: Any) -> dict[str, Any]:
        # `op.inputs` is flat: an argument that takes a list, as of ConcatV2 and Pack, covers several of its tensors.
        rest = [self.name(tensor) for tensor in op.inputs]
        parameters = list(inspect.signature(getattr(tf.raw_ops, op.type)).parameters)[:-1]  # the last is `name`
        inputs: dict[str, Any] = {}
        for argument, name in zip(op.op_def.input_arg, parameters, strict=False):
            count = op.get_attr(argument.number_attr) if argument.number_attr else 1
            inputs[name], rest = (rest[:count] if argument.number_attr else rest[0]), rest[count:]
        attributes = {name: self._attribute(op, name) for name in parameters[len(inputs) :]}
        return {"op": op.type, "inputs": inputs, "attributes": attributes}

    def _attribute(self, op: Any, name: str) -> Any:
        value = op.get_attr(name)
        if isinstance(value, tf.DType):
            return {"dtype": _dtype_name(value, self._compute)}
        return value.decode() if isinstance(value, bytes) else value


def constant_of(tensor: Any, policy: Any) -> SizeComputation:
    """Return the layer that returns an eager tensor, whatever it is called with; raise ValueError if it is large."""
    value = np.asarray(tensor)
    if value.size > _LARGEST:
        raise ValueError(f"a result is a constant of {value.size} elements; let it depend on the input")
    step = {"op": "Const", "value": value.tolist(), "dtype": tensor.dtype.name, "shape": list(value.shape)}
    return SizeComputation([step], "step 0:0", [], list(value.shape), tensor.dtype.name, dtype=policy)


def _dtype_name(dtype: Any, compute: str) -> str:
    name = str(tf.as_dtype(dtype).name)
    return COMPUTE if name == compute else name


def _constant(steps: list[dict[str, Any]], result: str) -> Any:
    """Return the value of a tensor without dependencies, as an eager tensor."""
    form: dict[str, Any] = {"steps": steps, "result": result, "sizes": [], "shape": None, "result_dtype": "float32"}
    # Outside of the graph of the trace, so that the result is an eager tensor.
    with tf.init_scope():
        return SizeComputation(**form).call(())
