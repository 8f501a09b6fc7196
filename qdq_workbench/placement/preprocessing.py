"""Layers that compute with text or look values up in a table; no file can hold them, so users split them off."""

from __future__ import annotations

from collections.abc import Iterable

from qdq_workbench._pages import page
from qdq_workbench.errors import UnsupportedModelError
from qdq_workbench.graph.kinds import TABLES, classes_of
from qdq_workbench.graph.model_graph import ModelGraph, Node

_SHOWN = 3


def check_preprocessing(graph: ModelGraph, *, structured: bool = True) -> None:
    """Refuse a model with text or tables inside; the message shows how to split it with Keras.

    Args:
        graph: The model.
        structured: Whether the Keras model has `input` and `output`, which keep the nesting; a Sequential model has
            only `inputs` and `outputs`.

    Raises:
        UnsupportedModelError: With the lines of code that make the model to quantize.
    """
    found = graph.once(_preprocessing)
    if not found:
        return
    in_front, behind = _regions(graph, found)
    shown = ", ".join(f"{node.layer!r} ({node.class_name})" for node in found[:_SHOWN])
    recipe = _recipe(graph, in_front, behind, "" if structured else "s")
    more = ", ..." if len(found) > _SHOWN else ""
    raise UnsupportedModelError(
        "The model computes with text or looks values up in a table, which no exported file can hold and no grid can "
        f"stand for: {shown}{more}. {recipe} More on {page('layer_families.md', 'Further layers')}. "
        f"Received: model {graph.name!r}"
    )


def _preprocessing(graph: ModelGraph) -> list[Node]:
    return [node for node in graph.nodes if _is_preprocessing(graph, node)]


def _is_preprocessing(graph: ModelGraph, node: Node) -> bool:
    if node.is_model_input:
        return False
    tensors = [graph.tensors[name] for name in (*node.inputs, *node.outputs)]
    return node.is_a(*TABLES) or any(tensor.dtype == "string" for tensor in tensors)


def _regions(graph: ModelGraph, found: Iterable[Node]) -> tuple[set[str], set[str]]:
    """Return the nodes to compute before, and those to compute after the part that can be quantized.

    A table after a layer with weights converts results, for example class indices to names.
    """
    names = {node.name for node in found}
    after_weights: set[str] = set()
    for node in graph.nodes:
        sources = [graph.producer(tensor) for tensor in node.inputs]
        if any(source.name in after_weights or _computes(source, names) for source in sources):
            after_weights.add(node.name)
    late = names & after_weights
    early = names - late
    for node in graph.nodes:
        # What reads the result of a late table is late, too; what an early one reads is early.
        if any(graph.tensors[tensor].producer in late for tensor in node.inputs):
            late.add(node.name)
    for node in reversed(graph.nodes):
        if any(reader.name in early for tensor in node.outputs for reader, _ in graph.readers(tensor)):
            early.add(node.name)
    return early, late


def _computes(node: Node, tables: set[str]) -> bool:
    # The float weights of a Normalization are statistics of the data.
    learned = node.name not in tables and not node.is_a(*classes_of("preprocessing"))
    return learned and any(weight.is_float for weight in node.weights)


def _recipe(graph: ModelGraph, in_front: set[str], behind: set[str], plural: str) -> str:
    """Return the lines of Python that split the model with Keras, if its layers can be accessed by name."""
    others = in_front | behind
    starts = [name for name in graph.tensors if _made(graph, name, in_front) and _is_read(graph, name, others)]
    if in_front:
        # Inputs that the part to quantize reads directly stand beside the results of the front.
        starts += [name for name in graph.inputs if name not in starts and _is_read(graph, name, others)]
    ends = [
        name
        for name in graph.tensors
        if not _made(graph, name, others)
        and (name in graph.outputs or any(reader.name in behind for reader, _ in graph.readers(name)))
    ]
    if not ends or (in_front and not starts):
        return "Nothing is left to quantize beside that."
    lines, made = [], []
    first, last = f"model.input{plural}", f"model.output{plural}"
    before, after = first, last
    if in_front:
        before = "start"
        lines.append(f"start = {_expression(graph, starts)}")
        made.append(f"front = keras.Model({first}, start)")
    if behind:
        after = "end"
        lines.append(f"end = {_expression(graph, ends)}")
    made.append(f"core = keras.Model({before}, {after})")
    if behind:
        made.append(f"back = keras.Model(end, {last})")
    data = "front.predict(data)" if in_front else "your data"
    return f"Split it: {'; '.join([*lines, *made])}. Quantize core; calibrate, verify and run it on {data}."


def _is_read(graph: ModelGraph, tensor: str, others: set[str]) -> bool:
    """Return whether the part to quantize reads a tensor, or the model returns it."""
    return tensor in graph.outputs or any(reader.name not in others for reader, _ in graph.readers(tensor))


def _made(graph: ModelGraph, tensor: str, nodes: set[str]) -> bool:
    return graph.tensors[tensor].producer in nodes


def _expression(graph: ModelGraph, tensors: list[str]) -> str:
    found = [_tensor(graph, name) for name in tensors]
    return found[0] if len(found) == 1 else f"[{', '.join(found)}]"


def _tensor(graph: ModelGraph, tensor: str) -> str:
    """Return Python code for a tensor of the model: the output of a layer, or the input of one that reads it."""
    maker = graph.producer(tensor)
    if _is_named(graph, maker):
        index = f"[{maker.outputs.index(tensor)}]" if len(maker.outputs) > 1 else ""
        return f"model.get_layer({maker.layer!r}).output{index}"
    # The tensor of a nested model is reached through the layer that reads it.
    for reader, _ in graph.readers(tensor):
        if _is_named(graph, reader) and len(reader.inputs) == 1:
            return f"model.get_layer({reader.layer!r}).input"
    return f"<the tensor that {maker.layer!r} returns>"


def _is_named(graph: ModelGraph, node: Node) -> bool:
    # `get_layer` finds layers of the outer model only, and `output` is that of a layer's first call.
    return not node.is_operation and "/" not in node.layer and len(graph.calls(node.layer)) == 1
