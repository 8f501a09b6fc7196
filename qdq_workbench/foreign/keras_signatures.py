"""The tensors of a Keras model with the signatures by which `import_qdq` matches them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from qdq_workbench.conversion.engine.quantize_model import quantize_model
from qdq_workbench.export.onnx_export import build_proto
from qdq_workbench.foreign.float_signatures import (
    ImportedQuantizer,
    ImportedTensor,
    integer_bits,
    read_float_view,
)
from qdq_workbench.graph.kinds import ACTIVATION_LAYERS, BATCH_NORMALIZATION
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.graph_builder import build_graph
from qdq_workbench.onnx_graph.qdq_graph import QUANTIZE, QDQGraph
from qdq_workbench.placement.targets import get_target
from qdq_workbench.spec.quantization_spec import QuantizationSpec
from qdq_workbench.spec.quantize_config import LayerQuantizeConfig

_SUFFIX = "/QuantizeLinear"


def keras_view(
    model: Any,
) -> tuple[dict[str, ImportedTensor], dict[str, list[tuple[int, str]]], dict[str, str]]:
    """Export a model with a pair on every float tensor, and read it back.

    Returns:
        Its tensors with signatures; tensor -> its Keras tensors in order, each with the number of ReLUs before it
        (several where a chain is looked through); and tensor -> layer, for tensors in the middle of a layer.
    """
    graph = build_graph(model)
    spec = QuantizationSpec()
    for node in graph.nodes:
        if all(graph.tensors[tensor].is_float for tensor in node.outputs):
            spec.add(node.name, quantize_input=False, quantize_weight=False, quantize_output=True)
    q_model = quantize_model(model, "partial", spec, target="tensorrt")
    for layer in q_model.activation_quantizers:
        # Any range will do: only names and structure of this file are read.
        layer.set_range(-1.0, 1.0)
    proto, _ = build_proto(q_model, get_target("tensorrt"), opset=None, dynamic_batch=True)
    view = read_float_view(proto)
    names = {}
    for tensor in view.values():
        if tensor.quantizers:
            names[tensor.name] = [(item.stage, item.node.removesuffix(_SUFFIX)) for item in tensor.quantizers]
    return view, names, _inner_layers(QDQGraph(proto), graph, [name for name in view if name not in names])


def _inner_layers(file: QDQGraph, graph: ModelGraph, inner: Iterable[str]) -> dict[str, str]:
    """Return file tensor -> layer, for tensors in the middle of a layer: the layer of the next pair after each."""
    layers = {}
    for name in inner:
        seen, waiting = {name}, [name]
        while waiting:
            # Breadth first, so that the pair found is the nearest one: that of the output of the same layer.
            nodes = file.readers(waiting.pop(0))
            pair = next((node for node in nodes if node.op_type == QUANTIZE), None)
            if pair is not None:
                layers[name] = graph.producer(pair.name.removesuffix(_SUFFIX)).layer
                break
            new = [output for node in nodes for output in node.output if output not in seen]
            seen.update(new)
            waiting.extend(new)
    return layers


def placement_spec(
    model: Any, quantized: Mapping[str, ImportedTensor], weighted: Mapping[str, ImportedTensor] | None = None
) -> QuantizationSpec:
    """Return the specification that reproduces the placement of a file, with its bit widths other than 8.

    A tensor that all operations of the file read through a pair is quantized as the output of its layer, any other as
    an input of the layers with integer weights. `quantized` maps Keras tensors to tensors of the file; `weighted` maps
    layers with integer weights that no tensor in `quantized` has.
    """
    graph = build_graph(model)
    weights = {**_integer_weights(graph, quantized), **(weighted or {})}
    wishes: dict[str, _Wish] = {}
    for tensor, item in quantized.items():
        if not item.quantizers:
            continue
        pair = item.quantizers[0]
        if item.raw_readers == 0:
            wishes.setdefault(graph.producer(tensor).name, _Wish()).output = pair
            continue
        for node, index in graph.readers(tensor):
            if node.layer in weights:
                wishes.setdefault(node.name, _Wish()).inputs[index] = pair
    spec = QuantizationSpec()
    # An entry with a layer's name applies to all its calls, so every other call gets an entry of its own after it.
    for layer in {*weights, *(graph.node(name).layer for name in wishes)}:
        for call in graph.calls(layer):
            wishes.setdefault(call.name, _Wish())
    for node in graph.nodes:
        if node.name not in wishes:
            continue
        wish = wishes[node.name]
        spec.add(
            node.name,
            quantize_input=bool(wish.inputs),
            quantization_index=sorted(wish.inputs) or None,
            quantize_weight=node.layer in weights,
            quantize_output=bool(wish.output),
            quantize_config=wish.config(weights.get(node.layer)),
        )
    return spec


@dataclasses.dataclass
class _Wish:
    """The pairs that a file has at one call: of its inputs by index, and of its output."""

    inputs: dict[int, ImportedQuantizer] = dataclasses.field(default_factory=dict)
    output: ImportedQuantizer | None = None

    def config(self, weight: ImportedTensor | None) -> LayerQuantizeConfig | None:
        """Return the settings that differ from the default; the inputs share theirs, so the widest pair counts."""
        widest = max(self.inputs.values(), key=lambda pair: pair.num_bits, default=None)
        settings = {site: _pair_settings(pair) for site, pair in (("activation", widest), ("output", self.output))}
        settings["weight"] = {} if weight is None else _weight_settings(weight)
        settings = {site: found for site, found in settings.items() if found}
        return LayerQuantizeConfig(**settings) if settings else None


def _pair_settings(pair: ImportedQuantizer | None) -> dict[str, Any]:
    if pair is None:
        return {}
    bits = {} if pair.num_bits == 8 else {"num_bits": pair.num_bits}
    return {**bits, "narrow_range": True} if pair.narrow_range else bits


def _weight_settings(weight: ImportedTensor) -> dict[str, Any]:
    bits = integer_bits(weight.weight_dtype)
    settings: dict[str, Any] = {} if bits == 8 else {"num_bits": bits}
    if weight.weight_block:
        settings["block_size"] = weight.weight_block
        if not weight.weight_is_symmetric:
            settings.update(symmetric=False, narrow_range=False)
    return settings


def _integer_weights(graph: ModelGraph, quantized: Mapping[str, ImportedTensor]) -> dict[str, ImportedTensor]:
    """Return layer -> file tensor, for the layers whose weights are integers in the file."""
    shown = {tensor: item for tensor, item in quantized.items() if item.weight_dtype}
    found = {_weighted_layer(graph, tensor): item for tensor, item in shown.items()}
    return {layer: item for layer, item in found.items() if layer is not None}


def _weighted_layer(graph: ModelGraph, tensor: str) -> str | None:
    """Return the layer with a kernel that computes a tensor, through layers that a file folds, fuses or moves."""
    node = graph.producer(tensor)
    while len(node.inputs) == 1 and (not node.weights or node.is_a(*BATCH_NORMALIZATION, *ACTIVATION_LAYERS)):
        node = graph.producer(node.inputs[0])
    has_kernel = any(weight.name.endswith("kernel") for weight in node.weights)
    return node.layer if has_kernel else None
