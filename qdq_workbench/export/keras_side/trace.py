"""Tracing of a cut Keras model as one TensorFlow function whose ends have known names.

Every call of a layer or operation is traced in a numbered scope. TensorFlow's own unique scope names do not
distinguish a layer that is called twice from a layer whose name ends in a number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from qdq_workbench._thread_patches import ThreadPatch
from qdq_workbench.conversion.engine.deep_models import functional_model
from qdq_workbench.errors import ExportError
from qdq_workbench.export.keras_side.as_graph import as_graph
from qdq_workbench.export.keras_side.automatic_names import counted_from_its_layer
from qdq_workbench.export.keras_side.broadcast_additions import BROADCAST_ADDITIONS, WEIGHT_INPUT
from qdq_workbench.export.keras_side.cut_model import CutModel
from qdq_workbench.export.keras_side.traced_layers import takes_training, traced_otherwise

_SCOPE = "qdq_op_{}"


@dataclasses.dataclass(frozen=True)
class CallEnds:
    """Identifiers for the ends of a layer call that was taken out of a cut model.

    Args:
        inputs: Names of its inputs, which are outputs of the function.
        outputs: Names of its outputs, which are inputs of the function.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class EndNames:
    """Identifiers for the ends of a cut model; layer names may have characters that TensorFlow refuses.

    Args:
        inputs: Name of an input in the cut model -> identifier.
        outputs: The same for the model outputs.
        sources: The same for the source ends of the pairs, which are outputs of the function.
        placeholders: The same for the reader ends of the pairs, which are inputs of the function.
        weights: The same for the quantized weights, and for constants kept out, which are inputs of the function.
        calls: The ends of the recurrent calls that were taken out.
    """

    inputs: dict[str, str]
    outputs: dict[str, str]
    sources: dict[str, str]
    placeholders: dict[str, str]
    weights: dict[str, str]
    calls: tuple[CallEnds, ...] = ()

    @classmethod
    def of(cls, cut: CutModel) -> EndNames:
        """Number the ends of a cut model."""
        return cls(
            inputs=_numbered("qdq_input_", cut.inputs),
            outputs=_numbered("qdq_output_", cut.outputs),
            sources=_numbered("qdq_source_", cut.pairs),
            placeholders=_numbered("qdq_placeholder_", cut.pairs),
            weights=_numbered(WEIGHT_INPUT, {**cut.weights, **cut.constants}),
            calls=tuple(
                CallEnds(
                    tuple(f"qdq_argument_{index}_{number}" for number in range(1 + len(call.states))),
                    tuple(f"qdq_result_{index}_{number}" for number in range(len(call.outputs))),
                )
                for index, call in enumerate(cut.recurrent)
            ),
        )

    def all_inputs(self) -> set[str]:
        """Return the names of all inputs of the traced function."""
        results = {name for call in self.calls for name in call.outputs}
        return {*self.inputs.values(), *self.placeholders.values(), *self.weights.values(), *results}


def _numbered(prefix: str, keys: dict[str, Any]) -> dict[str, str]:
    return {key: f"{prefix}{index}" for index, key in enumerate(keys)}


def trace(cut: CutModel, ends: EndNames, *, dynamic_batch: bool) -> tuple[Any, dict[str, str]]:
    """Trace the cut model as a function of model inputs, placeholders and weights.

    The result is the concrete function, whose structured outputs carry the names of outputs and sources, and the Keras
    operation of each numbered scope. Without `dynamic_batch`, unknown batch sizes become 1.
    """
    import keras
    import tensorflow as tf

    inputs = {ends.inputs[key]: tensor for key, tensor in cut.inputs.items()}
    inputs.update({ends.placeholders[key]: pair[1] for key, pair in cut.pairs.items()})
    outputs = {ends.outputs[key]: tensor for key, tensor in cut.outputs.items()}
    outputs.update({ends.sources[key]: pair[0] for key, pair in cut.pairs.items()})
    for call_ends, taken_out in zip(ends.calls, cut.recurrent, strict=True):
        inputs.update(zip(call_ends.outputs, taken_out.outputs, strict=True))
        outputs.update(zip(call_ends.inputs, (taken_out.sequences, *taken_out.states), strict=True))
    traced_weights = _weights_left(cut)
    model = functional_model(list(inputs.values()), list(outputs.values()))
    scopes: dict[str, str] = {}

    def call(*tensors: Any) -> dict[str, Any]:
        weights = zip(traced_weights.values(), tensors[len(inputs) :], strict=True)
        with keras.StatelessScope(state_mapping=list(weights)), _INLINED_FUNCTIONS, BROADCAST_ADDITIONS:
            results = _run(model, list(tensors[: len(inputs)]), scopes)
        named = dict(zip(outputs, results, strict=True))
        _check_shapes(cut, named, ends)
        # tf.identity: a tensor may be several outputs, and an input may be an output.
        return {name: tf.identity(result) for name, result in named.items()}

    signature = [_tensor_spec(tensor, name, dynamic_batch=dynamic_batch) for name, tensor in inputs.items()]
    signature += [
        tf.TensorSpec(variable.shape, variable.dtype, name=ends.weights[key])
        for key, variable in traced_weights.items()
    ]
    function = tf.function(call, input_signature=signature, jit_compile=False, autograph=False)
    return as_graph(function), scopes


def _check_shapes(cut: CutModel, results: dict[str, Any], ends: EndNames) -> None:
    """Refuse a model with a wrong symbolic shape at a pair: the readers of the pair are traced with that shape.

    Raises:
        ExportError: If the source of a pair has another shape than its symbolic tensor.
    """
    for key, (source, _) in cut.pairs.items():
        computed = results[ends.sources[key]].shape
        if not computed.is_compatible_with(source.shape):
            raise ExportError(
                f"The tensor {key!r} has another shape than Keras says, so that no graph can be made of what "
                "reads it. Where a layer of your own makes it, correct its compute_output_shape; otherwise leave the "
                f"tensor in float. Received: shape {tuple(computed)}, by Keras {tuple(source.shape)}"
            )


def _weights_left(cut: CutModel) -> dict[str, Any]:
    """Return the weights and constants that the traced function reads: none of layers that were taken out."""
    cells = [cell for call in cut.recurrent for cells in call.recurrent.directions for cell in cells]
    # Nothing in the traced function reads them; `insert_recurrent` adds them to the graph.
    gone = {id(variable) for cell in cells for variable in (cell.kernel, cell.recurrent_kernel)}
    fed = {**cut.weights, **cut.constants}
    return {key: variable for key, variable in fed.items() if id(variable) not in gone}


def _run(model: Any, tensors: list[Any], scopes: dict[str, str]) -> list[Any]:
    """Run a functional model's operations, each in a numbered scope, for inference.

    Keras offers no public way to enter a scope around each operation; `_run_through_graph` has had these arguments
    in every Keras 3 so far (3.0 to 3.15).
    """
    import keras
    import tensorflow as tf

    def in_scope(operation: Any) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            scope = _SCOPE.format(len(scopes))
            scopes[scope] = operation.name
            if takes_training(operation):
                kwargs["training"] = False
            with tf.name_scope(scope), counted_from_its_layer(operation):
                otherwise = traced_otherwise(operation, args, kwargs)
                return operation(*args, **kwargs) if otherwise is None else otherwise()

        return call

    return list(keras.tree.flatten(model._run_through_graph(tensors, operation_fn=in_scope)))  # noqa: SLF001 - see above


def _class_of_functions() -> Any:
    import tensorflow as tf

    return type(tf.function(len))


def _inlined(usual: Callable[..., Any], function: Any, *args: Any, **kwargs: Any) -> Any:
    # Not of a subclass: of what was loaded from a file there is no function in Python.
    if type(function) is _class_of_functions():
        return function.python_function(*args, **kwargs)
    return usual(function, *args, **kwargs)


# Keras compiles grouped convolutions with XLA, in inner `tf.function`s that no converter reads; this scope traces
# through them. TensorFlow's own switch, `run_functions_eagerly`, is one of the whole process, in which another thread
# may train meanwhile: a bench measures its plans beside the user's cells.
_INLINED_FUNCTIONS = ThreadPatch(_class_of_functions, "__call__", _inlined)


def _tensor_spec(tensor: Any, name: str, *, dynamic_batch: bool) -> Any:
    import tensorflow as tf

    shape = list(tensor.shape)
    # The first axis alone: other open sizes, such as a number of steps, stay open.
    if shape and shape[0] is None and not dynamic_batch:
        shape[0] = 1
    return tf.TensorSpec(shape, tensor.dtype, name=name)
