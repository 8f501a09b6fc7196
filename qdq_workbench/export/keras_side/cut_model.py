"""A float Keras graph, cut at every Q/DQ pair.

At each pair the source becomes an extra output of the graph, and a placeholder for its quantized readers an extra
input. Both have known names in the converted graph, so that the exporter need not match ONNX tensors to Keras tensors:
it inserts the pair between these two ends.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from qdq_workbench.conversion.engine.recurrent import RecurrentCall
from qdq_workbench.errors import ExportError
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.placement.lowering import Lowering

if TYPE_CHECKING:
    import keras

    KerasTensor = Any


@dataclasses.dataclass
class CutModel:
    """A float model without quantizers, cut at its Q/DQ pairs.

    Args:
        inputs: ONNX input name -> symbolic model input; the order is the order of the file's inputs.
        outputs: ONNX output name -> symbolic model output; the order is the order of the file's outputs.
        pairs: Pair name -> (source tensor, placeholder). The placeholder is a `keras.Input` of the same shape
            and type, which the quantized readers of the source read in its place.
        weights: Weight name `<layer path>/<weight name>` -> the variable whose value becomes an integer
            initializer followed by DequantizeLinear.
        recurrent: The calls of recurrent layers that were taken out of the graph.
        constants: Name -> a variable that stays in float and is kept out of the translation, since TensorFlow's
            graphs hold 2 GB.
        lowered: The graph that was cut and its lowering, which the passes follow; None without a plan.
    """

    inputs: dict[str, KerasTensor]
    outputs: dict[str, KerasTensor]
    pairs: dict[str, tuple[KerasTensor, KerasTensor]] = dataclasses.field(default_factory=dict)
    weights: dict[str, keras.Variable] = dataclasses.field(default_factory=dict)
    recurrent: list[RecurrentCall] = dataclasses.field(default_factory=list)
    constants: dict[str, keras.Variable] = dataclasses.field(default_factory=dict)
    lowered: tuple[ModelGraph, Lowering] | None = None

    def check(self) -> None:
        """Refuse a cut model that cannot become a file.

        Raises:
            ExportError: If there are no inputs or outputs, a name is both an input and an output, the two ends of a
                pair differ in rank or type, or a pair stands on a tensor of another type than float32.
        """
        if not self.inputs or not self.outputs:
            raise ExportError(
                "A model without inputs or without outputs cannot be exported. "
                f"Received: inputs={sorted(self.inputs)}, outputs={sorted(self.outputs)}"
            )
        shared = sorted(set(self.inputs) & set(self.outputs))
        if shared:
            raise ExportError(
                "An ONNX file needs different names for its inputs and outputs; rename the layers concerned. "
                f"Received: names used for both={shared}"
            )
        for name, (source, placeholder) in self.pairs.items():
            if len(source.shape) != len(placeholder.shape) or source.dtype != placeholder.dtype:
                raise ExportError(
                    f"The two ends of the pair {name!r} must have the same rank and type. "
                    f"Received: source={tuple(source.shape)} {source.dtype}, "
                    f"placeholder={tuple(placeholder.shape)} {placeholder.dtype}"
                )
            if "float" in source.dtype and source.dtype != "float32":
                raise ExportError(
                    f"Pairs in a file stand on float32 tensors, and {name!r} is {source.dtype} under every policy. "
                    "Let the layer that makes it cast to its own type, `ops.cast(x, self.compute_dtype)`, or leave the "
                    f"tensor in float. Received: pair={name!r}, {source.dtype}"
                )
