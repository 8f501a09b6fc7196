"""Snapshots of a graph, and the differences between two of them."""

from __future__ import annotations

from collections import Counter

from qdq_workbench.onnx_graph.graph import Graph

Snapshot = dict[str, tuple[object, ...]]
_SHOWN = 6


def snapshot(graph: Graph) -> Snapshot:
    """Return what a pass can change, by node name: operator, tensors, attributes, and the constants that are read."""
    found: Snapshot = {}
    for node in graph.nodes:
        attributes = tuple(sorted((key, value.SerializeToString()) for key, value in node.attributes.items()))
        constants = tuple(
            (str(value.dtype), value.shape, value.tobytes())
            for value in (graph.constant(tensor) for tensor in node.inputs)
            if value is not None
        )
        found[node.name] = (node.op, tuple(node.inputs), tuple(node.outputs), attributes, constants)
    return found


def difference(before: Snapshot, after: Snapshot) -> str:
    """Return the added and removed operators and the changed nodes as one line; "nothing" if the graph is the same."""
    count = Counter(str(node[0]) for node in after.values())
    count.subtract(str(node[0]) for node in before.values())
    parts = [f"{number:+d} {op}" for op, number in sorted(count.items()) if number]
    changed = sorted(name for name in after if before.get(name, after[name]) != after[name])
    if changed:
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        parts.append(f"changed {', '.join(changed[:_SHOWN])}{more}")
    if not parts and before != after:
        parts.append("other names")
    return "; ".join(parts) or "nothing"
