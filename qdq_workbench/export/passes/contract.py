"""The contract of a pass over the ONNX graph, in words for readers and in code for tests."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator

from qdq_workbench.onnx_graph.graph import Graph, Node


@dataclasses.dataclass(frozen=True)
class GraphPass:
    """One pass with its contract.

    Whatever the pass, the values that the graph computes stay the same, the graph's indexes stay consistent, and a
    second run changes nothing.

    Args:
        run: The function that changes the graph.
        needs: The precondition, as a sentence.
        holds: The postcondition, as a sentence.
        refuses: What the pass leaves unchanged, and why, as a sentence.
        denied_by: Returns the nodes that violate `holds`; none once the pass has run.
    """

    run: Callable[[Graph], None]
    needs: str
    holds: str
    refuses: str
    denied_by: Callable[[Graph], Iterable[Node]]

    @property
    def name(self) -> str:
        """The name of the function, which is that of its module."""
        return self.run.__name__

    @property
    def summary(self) -> str:
        """What the pass does: the first line of its module's docstring."""
        return (inspect.getdoc(inspect.getmodule(self.run)) or "").partition("\n")[0]


def nodes_where(finds: Callable[[Graph, Node], object]) -> Callable[[Graph], Iterator[Node]]:
    """Return a function that yields the nodes of a graph for which `finds` does not return None."""
    return lambda graph: (node for node in graph.nodes if finds(graph, node) is not None)
