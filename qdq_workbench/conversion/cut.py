"""The float model of a quantized one, cut open at every Q/DQ pair.

The exporter joins the ends again with QuantizeLinear and DequantizeLinear; the verifier feeds one side's values
into the other. Neither has to guess which ONNX tensor is which Keras tensor.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import keras

from qdq_workbench.conversion.float_view import float_view
from qdq_workbench.conversion.folding import FoldingRebuilder
from qdq_workbench.conversion.quantized_model import QuantizedModel
from qdq_workbench.conversion.rebuild import keras_name, unique_names
from qdq_workbench.conversion.strip import bake
from qdq_workbench.graph.folds import Fold
from qdq_workbench.graph_builder import Call, layer_weights
from qdq_workbench.placement.plan import Placement, PlacementPlan


@dataclasses.dataclass
class Cut:
    """A float model with open ends where its Q/DQ pairs belong.

    Args:
        inputs: The model's symbolic inputs by name.
        outputs: Its symbolic outputs by name.
        pairs: Per quantized tensor its source, and the placeholder that its quantized readers read instead.
        weights: The variables of quantized weights, by `<layer>/<weight>`.
        biases: The bias of the layer of each of these weights that is added behind it, by the weight's name.
        folds: The batch normalizations that were folded.
    """

    inputs: dict[str, Any]
    outputs: dict[str, Any]
    pairs: dict[str, tuple[Any, Any]]
    weights: dict[str, Any]
    biases: dict[str, Any]
    folds: list[Fold]


def cut_model(q_model: QuantizedModel, *, fold: bool, bake_weights: bool) -> Cut:
    """Build the cut float model of a quantized one.

    Args:
        q_model: A quantized model; it is only read.
        fold: Fold batch normalizations whose input is not quantized.
        bake_weights: Give quantized weights their values on the grid (not together with `fold`).
    """
    builder = _CutBuilder(q_model, fold=fold)
    builder.run()
    view = builder.bound
    output_tensors = [ref.name for ref in keras.tree.flatten(view.output_structure)]
    input_names = list(view.input_tensors)
    names = unique_names(dict(enumerate([*input_names, *q_model.source_output_names])))
    cut = Cut(
        inputs={name: builder.values[name] for name in input_names},
        outputs={
            names[len(input_names) + position]: builder.output(tensor) for position, tensor in enumerate(output_tensors)
        },
        pairs=builder.pairs,
        weights={},
        biases={},
        folds=builder.folds,
    )
    builder.copy_weights()
    if bake_weights:
        bake(q_model, builder.clones)
    for placement in q_model.plan.placements:
        if placement.weight is not None:
            layer = builder.clones[placement.layer]
            cut.weights[placement.tensor] = dict(layer_weights(layer))[placement.weight]
            if placement.weight == "kernel" and getattr(layer, "bias", None) is not None:
                cut.biases[placement.tensor] = layer.bias
    return cut


class _CutBuilder(FoldingRebuilder):
    def __init__(self, q_model: QuantizedModel, *, fold: bool) -> None:
        self._plan: PlacementPlan = q_model.plan
        names = {
            kind: {tensor.name for tensor in self._plan.tensors if tensor.kind == kind}
            for kind in ("activation", "weight")
        }
        super().__init__(float_view(q_model), names["activation"], names["weight"], fold=fold)
        self.pairs: dict[str, tuple[Any, Any]] = {}

    def read(self, call: Call, index: int, tensor: str) -> Any:
        placement = self._plan.input_placement(call.node.name, index)
        return self.values[tensor] if placement is None else self._placeholder(placement)

    def output(self, tensor: str) -> Any:
        placement = self._plan.output_placement(tensor)
        return self.values[tensor] if placement is None else self._placeholder(placement)

    def _placeholder(self, placement: Placement) -> Any:
        name = placement.tensor
        if name not in self.pairs:
            source = self.values[name]
            source = keras.ops.cast(source, source.dtype)  # some layers declare real numbers and pass on integers
            name_of_input = self.free_name(f"dequantized.{keras_name(name)}")
            placeholder = keras.Input(batch_shape=source.shape, dtype=source.dtype, name=name_of_input)
            for kind, end in (("source", source), ("placeholder", placeholder)):
                # Keras before 3.13 refuses a model with an input that no operation reads.
                keras.layers.Identity(name=f"end_of_{kind}")(end)
            self.pairs[name] = (source, placeholder)
        return self.pairs[name][1]
