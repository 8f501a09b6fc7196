"""The nodes that a model's outputs depend on: a nested model may compute outputs that nothing reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qdq_workbench.graph.model_graph import Node


def needed_nodes(nodes: Sequence[Node], outputs: Iterable[str]) -> set[str]:
    """Return the names of the nodes, given in computing order, that some tensors depend on.

    Example:
        >>> x = Node("x", "x", "InputLayer", outputs=("x",))
        >>> used, unused = (Node(name, name, "Dense", inputs=("x",), outputs=(name,)) for name in ("a", "b"))
        >>> sorted(needed_nodes([x, used, unused], ["a"]))
        ['a', 'x']
    """
    wanted = set(outputs)
    needed = set()
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs):
            needed.add(node.name)
            wanted.update(node.inputs)
    return needed
