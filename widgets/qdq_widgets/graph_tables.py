"""What follows from a model's graph alone, and every click needs: computed once per graph, where it is first asked for.

Each is for `graph.once`, as in `graph.once(tensor_numbers)`; nobody may change what it returns.
"""

from __future__ import annotations

import math

from qdq_workbench import ModelGraph


def tensor_numbers(graph: ModelGraph) -> dict[str, int]:
    """Return the number of every tensor by name."""
    numbers = {node.outputs[0]: index for index, node in enumerate(graph.nodes) if node.outputs}
    further = [name for node in graph.nodes for name in node.outputs[1:]]
    return numbers | {name: len(graph.nodes) + index for index, name in enumerate(further)}


def node_places(graph: ModelGraph) -> dict[str, int]:
    """Return the position of every node by name."""
    return {node.name: place for place, node in enumerate(graph.nodes)}


def layer_places(graph: ModelGraph) -> dict[str, int]:
    """Return the position of the first call of every layer."""
    places = graph.once(node_places)
    return {layer: places[graph.calls(layer)[0].name] for layer in graph.layers}


def weight_sizes(graph: ModelGraph) -> dict[str, list[tuple[str, int]]]:
    """Return name (`<layer>/<weight>`) and number of values of every weight, by layer."""
    first = {layer: graph.calls(layer)[0] for layer in graph.layers}
    return {
        layer: [(f"{layer}/{weight.name}", math.prod(weight.shape)) for weight in node.weights]
        for layer, node in first.items()
    }


def parameter_counts(graph: ModelGraph) -> dict[str, int]:
    """Return the number of parameters of every layer that has some."""
    counts = {layer: sum(size for _, size in sizes) for layer, sizes in graph.once(weight_sizes).items()}
    return {layer: count for layer, count in counts.items() if count}


def computing_nodes(graph: ModelGraph) -> list[tuple[str, str, bool, tuple[int, ...]]]:
    """Return name, layer, whether it has weights, and floating-point inputs of the nodes that compute.

    Computing nodes are those with a kernel or embeddings, and those with several inputs.
    """
    found = []
    for node in graph.nodes:
        # Also `depthwise_kernel`, and paths such as `cell/recurrent_kernel`.
        kernels = any(w.name.split("/")[-1].endswith(("kernel", "embeddings")) for w in node.weights)
        if kernels or len(set(node.inputs)) > 1:
            floats = (i for i, name in enumerate(node.inputs) if graph.tensors[name].is_float)
            found.append((node.name, node.layer, bool(node.weights), tuple(floats)))
    return found
