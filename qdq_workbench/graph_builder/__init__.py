"""Reading of a Keras model as a `ModelGraph`; the only code that uses Keras's graph internals."""

from __future__ import annotations

from qdq_workbench.graph_builder.describe import describe_layer
from qdq_workbench.graph_builder.functional_models import (
    FUNCTIONAL,
    check_model,
    function_behind,
    functional_of,
    input_structure,
    is_functional,
    output_names,
    small_model,
)
from qdq_workbench.graph_builder.keras_integers import integers_of
from qdq_workbench.graph_builder.keras_layers import keras_layers
from qdq_workbench.graph_builder.layer_parts import (
    carries_mask,
    inner_layers,
    layer_parts,
    layer_weights,
    takes_training,
)
from qdq_workbench.graph_builder.reader import BoundGraph, Call, bind_graph, build_graph
from qdq_workbench.graph_builder.references import TensorRef

__all__ = [
    "FUNCTIONAL",
    "BoundGraph",
    "Call",
    "TensorRef",
    "bind_graph",
    "build_graph",
    "carries_mask",
    "check_model",
    "describe_layer",
    "function_behind",
    "functional_of",
    "inner_layers",
    "input_structure",
    "integers_of",
    "is_functional",
    "keras_layers",
    "layer_parts",
    "layer_weights",
    "output_names",
    "small_model",
    "takes_training",
]
