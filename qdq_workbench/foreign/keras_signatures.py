"""The tensors of a Keras model with the signatures that `import_qdq` recognises them by."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from qdq_workbench.conversion.engine.quantize_model import quantize_model
from qdq_workbench.export.onnx_export import build_proto
from qdq_workbench.foreign.float_signatures import ImportedTensor, read_float_view
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.graph_builder import build_graph
from qdq_workbench.onnx_graph.qdq_graph import QUANTIZE, QDQGraph, integer_limits
from qdq_workbench.placement.targets import get_target
from qdq_workbench.spec.quantization_spec import QuantizationSpec
from qdq_workbench.spec.quantize_config import LayerQuantizeConfig

_SUFFIX = "/QuantizeLinear"


def keras_view(
    model: Any,
) -> tuple[dict[str, ImportedTensor], dict[str, list[tuple[int, str]]], dict[str, str]]:
    """Export a model with a pair on every tensor of real numbers, and read it back.

    Returns:
        Its tensors with signatures, and the Keras tensors of each, in order: several where a chain is looked through,
        each with the number of ReLUs before it; and the layer of each tensor inside a layer.
    """
    graph = build_graph(model)
    spec = QuantizationSpec()
    for node in graph.nodes:
        if all("float" in graph.tensors[tensor].dtype for tensor in node.outputs):
            spec.add(node.name, quantize_input=False, quantize_weight=False, quantize_output=True)
    q_model = quantize_model(model, "partial", spec, target="tensorrt")
    for layer in q_model.activation_quantizers:
        layer.set_range(-1.0, 1.0)
    proto, _ = build_proto(q_model, get_target("tensorrt"), opset=None, dynamic_batch=True)
    view = read_float_view(proto)
    names = {}
    for tensor in view.values():
        if tensor.quantizers:
            names[tensor.name] = [(item.stage, item.node.removesuffix(_SUFFIX)) for item in tensor.quantizers]
    return view, names, _inner_layers(QDQGraph(proto), graph, [name for name in view if name not in names])


def _inner_layers(file: QDQGraph, graph: ModelGraph, inner: Iterable[str]) -> dict[str, str]:
    """Return the layer of each file tensor inside a layer: that of the first pair behind it, as every layer has one."""
    layers = {}
    for name in inner:
        seen, waiting = {name}, [name]
        while waiting:
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
    """Return the specification that places what a file holds, with its bits where they are not 8.

    A tensor that every operation of the file reads through a pair is quantized as an output of its layer, another one
    as the input of those layers that are integer operations in the file.

    Args:
        model: The Keras model.
        quantized: Keras tensor -> what the file holds for it.
        weighted: Layers with integer weights that no tensor in `quantized` shows, with what the file holds for these.
    """
    graph = build_graph(model)
    weights = {**_integer_weights(graph, quantized), **(weighted or {})}
    wishes: dict[str, _Wish] = {}
    for tensor, item in quantized.items():
        if not item.quantizers:
            continue
        dtype = item.quantizers[0].dtype
        if item.raw_readers == 0:
            wishes.setdefault(graph.producer(tensor).name, _Wish()).output = dtype
            continue
        for node, index in graph.readers(tensor):
            if node.layer in weights:
                wishes.setdefault(node.name, _Wish()).inputs[index] = dtype
    spec = QuantizationSpec()
    # An entry under a layer's name is for all its calls, so each other call gets its own, behind it.
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
    """What a file quantizes at one call: the types of its inputs by index, and that of its output."""

    inputs: dict[int, str] = dataclasses.field(default_factory=dict)
    output: str = ""

    def config(self, weight: ImportedTensor | None) -> LayerQuantizeConfig | None:
        """Return the settings apart from the default's; a layer's inputs share theirs, so the widest counts."""
        sites = {"activation": [*self.inputs.values()], "output": [self.output]}
        bits = {site: max((_bits(dtype) for dtype in types if dtype), default=8) for site, types in sites.items()}
        settings = {site: {"num_bits": count} for site, count in bits.items() if count != 8}
        settings["weight"] = {} if weight is None else _weight_settings(weight)
        settings = {site: found for site, found in settings.items() if found}
        return LayerQuantizeConfig(**settings) if settings else None


def _weight_settings(weight: ImportedTensor) -> dict[str, Any]:
    bits = _bits(weight.weight_dtype)
    settings: dict[str, Any] = {} if bits == 8 else {"num_bits": bits}
    if weight.weight_block:
        settings["block_size"] = weight.weight_block
        if not weight.weight_is_symmetric:
            settings.update(symmetric=False, narrow_range=False)
    return settings


def _bits(dtype: str) -> int:
    limits = integer_limits(dtype)
    return 8 if limits is None else (limits[1] - limits[0]).bit_length()


def _integer_weights(graph: ModelGraph, quantized: Mapping[str, ImportedTensor]) -> dict[str, ImportedTensor]:
    """Return the layers whose weights a file holds as integers, with what it holds for these."""
    shown = {tensor: item for tensor, item in quantized.items() if item.weight_dtype}
    found = {_weighted_layer(graph, tensor): item for tensor, item in shown.items()}
    return {layer: item for layer, item in found.items() if layer is not None}


def _weighted_layer(graph: ModelGraph, tensor: str) -> str | None:
    """Return the layer with a kernel that makes a tensor, through what a file folds into it, fuses or moves."""
    node = graph.producer(tensor)
    while len(node.inputs) == 1 and (not node.weights or node.is_a("BatchNormalization", "PReLU")):
        node = graph.producer(node.inputs[0])
    has_kernel = any(weight.name.endswith("kernel") for weight in node.weights)
    return node.layer if has_kernel else None
