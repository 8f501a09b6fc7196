"""The nodes that an entry of a specification selects."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable

from qdq_workbench.errors import SpecError, nearest_names
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.placement.defaults import class_name_of, find_default
from qdq_workbench.spec.name_patterns import name_matcher
from qdq_workbench.spec.quantization_spec import LayerConfig


def select(graph: ModelGraph, entry: LayerConfig, source: str) -> list[Node]:
    """Return the nodes that an entry names, in graph order; raise SpecError, with the position `source`, for none.

    A name selects all calls of that layer, or one call if it is written with its number (`conv#1`). A class selects the
    layers of that class and of its subclasses, and the `keras.ops` function of that name. A composite layer that was
    entered, by its name or class, selects the nodes inside that are quantized by default, or all of them if the entry
    switches quantization off.
    """
    matches = _matcher(entry, source)
    if entry.is_keras_class:
        found = [node for node in graph.nodes if any(matches(name) for name in node.classes)]
    elif entry.match == "exact":
        found = _by_name(graph, entry.name)
    else:
        found = [node for node in graph.nodes if matches(node.layer) or matches(node.name)]
    # A composite layer that was entered has no node of its own.
    found = found or _inside_blocks(graph, entry, matches)
    if not found:
        raise SpecError(_nothing_found(graph, entry, source))
    return found


def _inside_blocks(graph: ModelGraph, entry: LayerConfig, matches: Callable[[str], bool]) -> list[Node]:
    """Return the nodes inside the composite layers that an entry names."""
    if entry.is_keras_class:
        paths = [path for path, classes in graph.blocks.items() if any(matches(name) for name in classes)]
    elif entry.match == "exact":
        paths = [path for path in graph.blocks if path == entry.name]
    else:
        paths = [path for path in graph.blocks if matches(path)]
    inside = [node for node in graph.nodes if node.layer.startswith(tuple(f"{path}/" for path in paths))]
    if not (entry.quantize_input or entry.quantize_weight or entry.quantize_output):
        return inside
    defaults = {node.name: find_default(node) for node in inside}
    return [node for node in inside if (row := defaults[node.name]) and (row.quantize_input or row.quantize_weight)]


def _by_name(graph: ModelGraph, name: str) -> list[Node]:
    try:
        return graph.calls(name)
    except SpecError:
        return []


def _matcher(entry: LayerConfig, source: str) -> Callable[[str], bool]:
    if entry.match == "glob":
        # Not `fnmatch`, which ignores upper and lower case on Windows.
        return lambda name: fnmatch.fnmatchcase(name, entry.name)
    if entry.match == "regex":
        try:
            return name_matcher(entry.name)
        except SpecError as error:
            raise SpecError(f"{source}: {error}") from error
    wanted = class_name_of(entry.name)
    return lambda name: name == wanted


def _nothing_found(graph: ModelGraph, entry: LayerConfig, source: str) -> str:
    if entry.is_keras_class:
        entered = {classes[0] for classes in graph.blocks.values()}
        known = sorted({node.class_name for node in graph.nodes if not node.is_model_input} | entered)
        what = "layer or operation of that class"
    else:
        known = [*graph.layers, *graph.blocks]
        what = "layer of that name"
    swapped = ""
    classes = [*(node.classes for node in graph.nodes), *graph.blocks.values()]
    if not entry.is_keras_class and any(entry.name in names for names in classes):
        swapped = " To name a class, pass is_keras_class=True."
    hint = nearest_names(entry.name, known)
    return (
        f"{source}: the model has no {what}, so the entry would have no effect. {hint}{swapped} Received: {entry.label}"
    )
