"""Time of planning: EfficientNetB7, a toggle, and how it grows with the number of layers.

python benchmarks/planning.py
"""

import functools
import sys

from networks import application, chain
from rounds import interleaved, record

import qdq_workbench as qdq

LENGTHS = (50, 200, 800, 3000, 10000)


def main() -> None:
    """Print the times."""
    sys.setrecursionlimit(100_000)  # Keras itself walks a deep model by recursion
    graph = qdq.build_graph(application("EfficientNetB7"))
    spec = qdq.QuantizationSpec()
    spec.add(graph.nodes[-1].layer, quantize_weight=False)
    candidates = {
        f"{target}, {what}": functools.partial(qdq.plan_placement, graph, "full", given, target=target)
        for target in ("tensorrt", "onnxruntime")
        for what, given in (("the whole plan", None), ("after a toggle", spec))
    }
    for name, seconds in interleaved(candidates, rounds=15).items():
        print(f"EfficientNetB7 ({len(graph.nodes)} nodes), {name}: {1e3 * seconds:.1f} ms", flush=True)
    graphs = {length: qdq.build_graph(chain(length)) for length in LENGTHS}
    growth = interleaved(
        {str(length): (lambda graph=graph: qdq.plan_placement(graph)) for length, graph in graphs.items()}, rounds=5
    )
    per_node: list[float] = []
    for length, graph in graphs.items():
        seconds = growth[str(length)]
        microseconds = 1e6 * seconds / len(graph.nodes)
        print(f"{len(graph.nodes)} nodes: {1e3 * seconds:.1f} ms, {microseconds:.1f} us per node", flush=True)
        per_node.append(microseconds)
        record({f"planning, per node: {length} layers / {LENGTHS[0]}": per_node[-1] / per_node[0]})


if __name__ == "__main__":
    main()
