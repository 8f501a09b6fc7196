"""The tensors of a Keras model with the signatures that `import_qdq` recognises them by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from qdq_workbench.conversion.quantize_model import quantize_model
from qdq_workbench.export.onnx_export import build_proto
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.graph.op_kinds import is_activation
from qdq_workbench.graph_builder import build_graph
from qdq_workbench.placement.targets import get_target
from qdq_workbench.spec.quantization_spec import QuantizationSpec
from qdq_workbench.verification.import_qdq import ImportedTensor, read_float_view
from qdq_workbench.verification.qdq_graph import QUANTIZE, QDQGraph

_SUFFIX = "/QuantizeLinear"


def keras_view(
    model: Any,
) -> tuple[dict[str, ImportedTensor], dict[str, list[tuple[int, str]]], dict[str, str]]:
    """Export a model with a pair on every tensor of real numbers, and read it back.

    Args:
        model: A float Keras model.

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
    model: Any, quantized: Mapping[str, ImportedTensor], weighted: Iterable[str] = ()
) -> QuantizationSpec:
    """Return the specification that places what a file holds.

    A tensor that every operation of the file reads through a pair is quantized as an output of its layer, another one
    as the input of those layers that are integer operations in the file.

    Args:
        model: The Keras model.
        quantized: Keras tensor -> what the file holds for it.
        weighted: Layers with integer weights that no tensor in `quantized` shows.
    """
    graph = build_graph(model)
    weights = {_weighted_layer(graph, tensor) for tensor, item in quantized.items() if item.weight_dtype}
    weights |= set(weighted)
    wishes: dict[str, dict[str, Any]] = {}
    for tensor, item in quantized.items():
        if not item.quantizers:
            continue
        if item.raw_readers == 0:
            _wish(wishes, graph.producer(tensor).name)["quantize_output"] = True
            continue
        for node, index in graph.readers(tensor):
            if node.layer in weights:
                _wish(wishes, node.name)["indices"].add(index)
    spec = QuantizationSpec()
    # An entry under a layer's name is for all its calls, so each other call gets its own, behind it.
    for layer in {*weights, *(graph.node(name).layer for name in wishes)} - {None}:
        for call in graph.calls(str(layer)):
            _wish(wishes, call.name)
    for name in [node.name for node in graph.nodes if node.name in wishes]:
        wish = wishes[name]
        indices = sorted(wish["indices"])
        spec.add(
            name,
            quantize_input=bool(indices),
            quantization_index=indices or None,
            quantize_weight=graph.node(name).layer in weights,
            quantize_output=wish["quantize_output"],
        )
    return spec


def _wish(wishes: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    return wishes.setdefault(name, {"indices": set(), "quantize_output": False})


def _weighted_layer(graph: ModelGraph, tensor: str) -> str | None:
    """Return the layer with a kernel that makes a tensor, through what a file folds into it or fuses with it."""
    node = graph.producer(tensor)
    while (node.is_a("BatchNormalization") and not node.is_operation) or (is_activation(node) and node.inputs):
        node = graph.producer(node.inputs[0])
    has_kernel = any(weight.name.endswith("kernel") for weight in node.weights)
    return node.layer if has_kernel else None
