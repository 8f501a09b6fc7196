"""The float model of a quantized one, cut open at every Q/DQ pair.

The exporter joins the ends again with QuantizeLinear and DequantizeLinear; the verifier feeds the values of one side
into the other. Neither has to search for the ONNX tensor of a Keras tensor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras

from qdq_workbench._interrupts import interrupts_held
from qdq_workbench.conversion.engine.deep_models import functional_model
from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.folding import FoldingRebuilder
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.rebuild import keras_name, unique_names
from qdq_workbench.conversion.engine.recurrent import RecurrentCall, read_recurrent
from qdq_workbench.conversion.engine.strip import bake
from qdq_workbench.graph.folds import Fold
from qdq_workbench.graph_builder import Call, carries_mask, layer_weights
from qdq_workbench.placement.plan import Placement, PlacementPlan


@dataclasses.dataclass
class Cut:
    """A float model with open ends in place of its Q/DQ pairs.

    Args:
        inputs: The model's symbolic inputs by name.
        outputs: Its symbolic outputs by name.
        pairs: By pair name: the tensor that the pair quantizes, and the placeholder that its readers read instead.
        weights: The variables of quantized weights, by `<layer>/<weight>`.
        biases: The bias variables of the layers of these weights, by the weight's name.
        folds: The batch normalizations that were folded.
        recurrent: The calls of recurrent layers that were taken out.
        layers: The layers by path.
    """

    inputs: dict[str, Any]
    outputs: dict[str, Any]
    pairs: dict[str, tuple[Any, Any]]
    weights: dict[str, Any]
    biases: dict[str, Any]
    folds: list[Fold]
    recurrent: list[RecurrentCall]
    layers: dict[str, Any]

    def function(self) -> Callable[[list[Any], list[Any]], tuple[list[Any], list[Any]]]:
        """Return a function from inputs and placeholder values to the values in front of the pairs, and the outputs."""
        sources, placeholders = zip(*self.pairs.values(), strict=True) if self.pairs else ((), ())
        ends = [*sources, *self.outputs.values()]
        model = functional_model([*self.inputs.values(), *placeholders], ends, name="cut")

        def run(inputs: list[Any], values: list[Any]) -> tuple[list[Any], list[Any]]:
            found = keras.tree.flatten(model([*inputs, *values], training=False))
            return found[: len(sources)], found[len(sources) :]

        return run


@interrupts_held()
def cut_model(q_model: QuantizedModel, *, fold: bool, bake_weights: bool, take_out_recurrent: bool = False) -> Cut:
    """Build the cut float model of a quantized one, which is only read.

    `fold` folds the batch normalizations whose input is not quantized, `bake_weights` assigns fake-quantized values to
    the quantized weights (not together with `fold`), and `take_out_recurrent` replaces the recurrent layers that ONNX
    has operators for by placeholders.
    """
    builder = _CutBuilder(q_model, fold=fold, take_out_recurrent=take_out_recurrent)
    builder.run()
    view = builder.bound
    output_tensors = [ref.name for ref in keras.tree.flatten(view.output_structure)]
    input_names = list(view.input_tensors)
    # Inputs come first, so that they keep their names where an output is called the same.
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
        recurrent=[],
        layers=builder.clones,
    )
    # Values first: biases of recurrent layers are read as arrays, and `bake` rounds what the layers hold.
    builder.copy_weights()
    cut.recurrent.extend(builder.recurrent_calls())
    if bake_weights:
        bake(q_model, builder.clones)
    for placement in q_model.plan.placements:
        if placement.weight is not None:
            layer = builder.clones[placement.layer]
            cut.weights[placement.tensor] = dict(layer_weights(layer))[placement.weight]
    cut.biases.update(biases_behind(q_model.plan, builder.clones))
    return cut


def biases_behind(plan: PlacementPlan, layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bias variables of the float layers with a quantized kernel, by the kernel's name."""
    found = {}
    for placement in plan.placements:
        # `layer/kernel` is the kernel of the layer inside TimeDistributed or SpectralNormalization.
        if placement.weight in ("kernel", "layer/kernel"):
            layer = layers[placement.layer]
            holds_bias = layer.layer if placement.weight == "layer/kernel" else layer
            if getattr(holds_bias, "bias", None) is not None:
                found[placement.tensor] = holds_bias.bias
    return found


class _CutBuilder(FoldingRebuilder):
    plan: PlacementPlan

    def __init__(self, q_model: QuantizedModel, *, fold: bool, take_out_recurrent: bool) -> None:
        self.plan = q_model.plan
        super().__init__(float_view(q_model), self.plan.lowering.folds if fold else ())
        self.pairs: dict[str, tuple[Any, Any]] = {}
        self._dequantized: dict[str, Any] = {}
        self._take_out_recurrent = take_out_recurrent
        self._taken_out: list[tuple[str, tuple[Any, ...], tuple[Any, ...]]] = []

    def compute(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outputs = super().compute(call, args, kwargs)
        if not self._take_out_recurrent or not _can_take_out(self.clones.get(call.node.layer), args, kwargs):
            return outputs
        computed = zip(call.node.outputs, keras.tree.flatten(outputs), strict=True)
        placeholders = tuple(self._placeholder(name, output, "result") for name, output in computed)
        self._taken_out.append((call.node.layer, _tensors((args, kwargs)), placeholders))
        return placeholders

    def recurrent_calls(self) -> list[RecurrentCall]:
        """Return the calls that were taken out, with the values of their weights; call it after `copy_weights`."""
        calls = []
        for layer, inputs, outputs in self._taken_out:
            recurrent = read_recurrent(self.clones[layer])
            if recurrent is not None:
                calls.append(RecurrentCall(layer, recurrent, inputs[0], inputs[1:], outputs))
        return calls

    def _placeholder(self, name: str, tensor: Any, name_of_input: str) -> Any:
        """Return an input in place of a tensor of the plan, with the batch that it has in truth."""
        shape = (*self.plan.graph.tensors[name].shape[:1], *tensor.shape[1:])
        return keras.Input(batch_shape=shape, dtype=tensor.dtype, name=self.free_name(name_of_input))

    def pair(self, placement: Placement) -> Any:
        """Return the placeholder for the output of a pair."""
        name = self.plan.pair_of(placement).name
        if name not in self.pairs:
            value = self.values[placement.tensor]
            # Some layers declare a float output and return integers.
            source = self.named(keras.ops.cast(value, value.dtype), "cast_of_source")
            placeholder = self._placeholder(placement.tensor, source, f"dequantized.{keras_name(name)}")
            self.pairs[name] = (source, placeholder)
            masked = carries_mask(value)
            self._dequantized[name] = _KeepMask()([placeholder, value]) if masked else placeholder
        return self._dequantized[name]


class _KeepMask(keras.layers.Layer):
    """Gives its first input the mask of its second: a placeholder has no mask, while a Q/DQ pair propagates masks."""

    def __init__(self) -> None:
        super().__init__(autocast=False)
        self.supports_masking = True

    def call(self, inputs: list[Any]) -> Any:
        return inputs[0]

    def compute_mask(self, inputs: list[Any], previous_mask: list[Any]) -> Any:  # noqa: ARG002 - Keras's signature
        return previous_mask[1]

    def compute_output_spec(self, inputs: list[Any]) -> keras.KerasTensor:
        return keras.KerasTensor(inputs[0].shape, dtype=inputs[0].dtype)


def _tensors(arguments: Any) -> tuple[Any, ...]:
    return tuple(leaf for leaf in keras.tree.flatten(arguments) if isinstance(leaf, keras.KerasTensor))


def _can_take_out(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether ONNX's recurrent operators can compute a call; they cannot skip masked steps."""
    # The third positional argument of a recurrent layer is its mask.
    if layer is None or kwargs.get("mask") is not None or len(args) > 2 or carries_mask(args[0]):
        return False
    # A constant is no tensor of the graph: the file would start from zeros instead.
    states = [state for state in keras.tree.flatten((args[1:], kwargs.get("initial_state"))) if state is not None]
    return len(_tensors(states)) == len(states) and read_recurrent(layer) is not None
