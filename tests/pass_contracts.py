"""Watching the passes of an export keep their contracts."""

import contextlib
import dataclasses

from qdq_workbench.export.passes.order import passes_observed
from qdq_workbench.onnx_graph.snapshot import difference, snapshot

#: The stages behind which no pass reads shapes.
LAST = ("int32 biases", "blocks", "half")


@dataclasses.dataclass
class Watched:
    """What was seen: the passes that changed something, and breaches of contracts."""

    working: set = dataclasses.field(default_factory=set)
    breaches: list = dataclasses.field(default_factory=list)


def index_errors(graph):
    """Return where a graph's indexes disagree with its nodes."""
    nodes = graph.nodes
    written = {tensor: node for node in nodes for tensor in node.outputs if tensor}
    read = {(tensor, node.name) for node in nodes for tensor in graph.reads(node)}
    indexed = {(tensor, node.name) for tensor in {name for name, _ in read} for node in graph.readers(tensor)}
    names = [node.name for node in nodes]
    errors = [
        f"{tensor} is written by another node" for tensor, n in written.items() if graph.producer(tensor) is not n
    ]
    errors += [f"the readers of {tensor} are wrong" for tensor, _ in read ^ indexed]
    if len(set(names)) != len(names):
        errors.append("two nodes have one name")
    known = written.keys() | graph.inputs.keys() | graph.constants.keys()
    return errors + [f"{name} reads {tensor}, which nothing writes" for tensor, name in read if tensor not in known]


def without_shape(graph, known):
    """Return the tensors of unknown rank that are not among those known before a pass."""
    # A value that a loop only hands on has no reader behind it.
    written = [tensor for node in graph.nodes if node.op != "Loop" for tensor in node.outputs]
    return [tensor for tensor in written if tensor and tensor not in known and graph.rank(tensor) is None]


@contextlib.contextmanager
def contracts_watched():
    """Check every pass that runs inside the block; raises AssertionError at its end where a contract was broken."""
    seen = Watched()

    @contextlib.contextmanager
    def watch(stage, graph_pass, graph):
        before = snapshot(graph)
        known = {tensor for node in graph.nodes for tensor in node.outputs}
        yield
        after = snapshot(graph)
        if before != after:
            seen.working.add(graph_pass.name)
        place = f"{stage.name}: {graph_pass.name}"
        if stage.name not in LAST:
            seen.breaches += [f"{place}: {tensor} has no shape" for tensor in without_shape(graph, known)]
        seen.breaches += [f"{place}: {error}" for error in index_errors(graph)]
        seen.breaches += [
            f"{place}: {node.op} {node.name} denies {graph_pass.holds!r}" for node in graph_pass.denied_by(graph)
        ]
        again = graph.copy()
        graph_pass.run(again)
        if snapshot(again) != after:
            seen.breaches.append(f"{place}: a second run changes {difference(after, snapshot(again))}")

    with passes_observed(watch):
        yield seen
    assert not seen.breaches, "\n".join(seen.breaches)
