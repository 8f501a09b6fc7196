"""Computations of a composite layer between the layers in it, as layers that Keras can copy, save and train.

A composite layer computes with tensors, with weights of its own and with sizes: causal masks, positions, one class
token per sample. Computations with tensors are operations of the graph. A weight is an `OwnWeight`; a tensor that
depends only on sizes and weights is a `SizeComputation`, a list of TensorFlow operations; a tensor whose new shape is
known only at run time goes through a `SizedReshape`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

#: TensorFlow's operations that a `SizeComputation` may hold: only pure functions, because files determine them.
PURE = frozenset(
    {
        "Abs", "Add", "AddV2", "BatchMatMulV2", "BitwiseAnd", "BroadcastTo", "Cast", "Ceil", "ConcatV2", "Const",
        "Cos", "Cumsum", "Equal", "Exp", "ExpandDims", "Fill", "Floor", "FloorDiv", "FloorMod", "GatherV2", "Greater",
        "GreaterEqual", "Identity", "Less", "LessEqual", "Log", "LogicalAnd", "LogicalNot", "LogicalOr", "MatMul",
        "MatrixBandPart", "Max", "Maximum", "Mean", "Min", "Minimum", "Mul", "Neg", "NotEqual", "OnesLike", "Pack",
        "Pad", "PadV2", "Pow", "Prod", "Range", "RealDiv", "Reshape", "ReverseV2", "Rsqrt", "SelectV2", "Shape",
        "Sigmoid", "Sign", "Sin", "Slice", "Sqrt", "Square", "SquaredDifference", "Squeeze", "StridedSlice", "Sub",
        "Sum", "Tanh", "Tile", "Transpose", "ZerosLike",
    }
)  # fmt: skip
#: Placeholder for the layer's compute dtype in the attributes of an operation.
COMPUTE = "compute"


@keras.saving.register_keras_serializable(package="qdq_workbench")
class OwnWeight(keras.layers.Layer):
    """A weight that a composite layer uses directly, as a layer that returns it.

    Args:
        weight_name: Name of the variable.
        shape: Its shape.
        weight_dtype: Its dtype.
        trained: Whether the variable can be trained.
        regularizer: Its regularizer.
        constraint: Its constraint.
        **kwargs: Those of `keras.layers.Layer`.
    """

    _qdq_transparent = True

    def __init__(
        self,
        weight_name: str,
        shape: Sequence[int],
        weight_dtype: str,
        *,
        trained: bool = True,
        regularizer: Any = None,
        constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._form: dict[str, Any] = {
            "weight_name": weight_name,
            "shape": list(shape),
            "weight_dtype": weight_dtype,
            "trained": trained,
        }
        self._regularizer = keras.regularizers.get(regularizer)
        self._constraint = keras.constraints.get(constraint)

    @classmethod
    def of(cls, variable: Any, name: str, policy: Any) -> OwnWeight:
        """Return a layer that holds an existing variable; `policy` is the dtype policy of the composite layer."""
        dtype = keras.backend.standardize_dtype(variable.dtype)
        rules = {"regularizer": variable.regularizer, "constraint": variable.constraint}
        made = cls(variable.name, variable.shape, dtype, trained=variable.trainable, name=name, dtype=policy, **rules)
        made.weight = variable
        made.built = True
        return made

    def build(self, input_shape: Any = None) -> None:  # noqa: ARG002 - Keras's signature
        """Create the variable."""
        form = self._form
        self.weight = self.add_weight(
            name=form["weight_name"],
            shape=tuple(form["shape"]),
            dtype=form["weight_dtype"],
            trainable=form["trained"],
            initializer="zeros",
            regularizer=self._regularizer,
            constraint=self._constraint,
        )

    def call(self, inputs: Any) -> Any:  # noqa: ARG002 - the input makes the layer a part of the graph
        """Return the value of the variable."""
        # Keras's function returns TensorFlow's variable, which the layers behind would take for a weight.
        return tf.convert_to_tensor(keras.ops.convert_to_tensor(self.weight))

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:  # noqa: ARG002 - as for `call`
        """Return the symbolic value."""
        dtype = self._form["weight_dtype"]
        return keras.KerasTensor(self._form["shape"], dtype=self.compute_dtype if "float" in dtype else dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        rules = {
            "regularizer": keras.regularizers.serialize(self._regularizer) if self._regularizer else None,
            "constraint": keras.constraints.serialize(self._constraint) if self._constraint else None,
        }
        return {**super().get_config(), **self._form, **rules}


@keras.saving.register_keras_serializable(package="qdq_workbench")
class SizeComputation(keras.layers.Layer):
    """A tensor that depends on the sizes of tensors and on weights, but not on values of the model's inputs.

    Args:
        steps: The operations in order. Each has an `op`, its `inputs` by argument ("size 0", "weight 0", "step 3:0")
            and its `attributes`; a constant has a `value`, a `dtype` and a `shape`.
        result: The value to return, such as "step 3:0".
        sizes: The sizes that are read, each an index among the measured tensors and an axis.
        shape: Shape of the result, None for open axes; None if nothing is known.
        result_dtype: Its dtype.
        **kwargs: Those of `keras.layers.Layer`.
    """

    _qdq_transparent = True

    def __init__(
        self,
        steps: Sequence[Mapping[str, Any]],
        result: str,
        sizes: Sequence[Sequence[int]],
        shape: Sequence[int | None] | None,
        result_dtype: str,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("autocast", False)
        super().__init__(**kwargs)
        unknown = sorted({str(step["op"]) for step in steps} - PURE)
        if unknown:
            message = f"A SizeComputation holds pure operations only. Received: {', '.join(unknown)}"
            raise ValueError(message)
        self._form: dict[str, Any] = {
            "steps": [dict(step) for step in steps],
            "result": result,
            "sizes": [list(size) for size in sizes],
            "shape": None if shape is None else list(shape),
            "result_dtype": result_dtype,
        }

    def call(self, measured: Any, weights: Any = ()) -> Any:
        """Compute the tensor from the tensors whose sizes are read and the values of weights."""
        measured, weights = keras.tree.flatten(measured), keras.tree.flatten(weights)
        values = {
            f"size {number}": tf.shape(measured[tensor])[axis]
            for number, (tensor, axis) in enumerate(self._form["sizes"])
        }
        values |= {f"weight {number}": tf.convert_to_tensor(weight) for number, weight in enumerate(weights)}
        for number, step in enumerate(self._form["steps"]):
            results = self._run(step, values)
            values |= {f"step {number}:{index}": result for index, result in enumerate(results)}
        result = values[self._form["result"]]
        if self._form["shape"] is not None:
            result.set_shape(self._form["shape"])
        return result

    def _run(self, step: Mapping[str, Any], values: Mapping[str, Any]) -> list[Any]:
        if step["op"] == "Const":
            return [tf.constant(step["value"], dtype=self._dtype(step["dtype"]), shape=step["shape"])]
        inputs = keras.tree.map_structure(lambda name: values[name], dict(step["inputs"]))
        attributes = {key: self._attribute(value) for key, value in step["attributes"].items()}
        result = getattr(tf.raw_ops, step["op"])(**inputs, **attributes)
        return list(result) if isinstance(result, (list, tuple)) else [result]

    def _attribute(self, value: Any) -> Any:
        return self._dtype(value["dtype"]) if isinstance(value, dict) else value

    def _dtype(self, name: str) -> Any:
        return tf.as_dtype(self.compute_dtype if name == COMPUTE else name)

    def compute_output_spec(self, measured: Any, weights: Any = ()) -> keras.KerasTensor:  # noqa: ARG002
        """Return the symbolic result."""
        dtype = self._form["result_dtype"]
        return keras.KerasTensor(self._form["shape"], dtype=self.compute_dtype if dtype == COMPUTE else dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), **self._form, "autocast": False}


@keras.saving.register_keras_serializable(package="qdq_workbench")
class SizedReshape(keras.layers.Reshape):
    """A reshape to sizes that are known only at run time.

    Args:
        target_shape: The whole new shape, None for the sizes that are known only then.
        **kwargs: Those of `keras.layers.Layer`.
    """

    _qdq_transparent = True

    def __init__(self, target_shape: Sequence[int | None], **kwargs: Any) -> None:
        kwargs.setdefault("autocast", False)  # the tensor keeps its dtype
        super().__init__(target_shape, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "autocast": False}

    def build(self, input_shape: Any) -> None:
        """Do nothing; there are no variables."""

    def call(self, inputs: Any, sizes: Any) -> Any:
        """Return a tensor reshaped to the whole new shape, a vector of integers."""
        result = tf.reshape(inputs, sizes)
        result.set_shape(self.target_shape)
        return result

    def compute_output_spec(self, inputs: Any, sizes: Any) -> keras.KerasTensor:  # noqa: ARG002 - Keras's signature
        """Return the symbolic result."""
        return keras.KerasTensor(self.target_shape, dtype=inputs.dtype)
