"""Settings of convolutions that tf2onnx gets wrong.

* For open sizes it leaves the padding to the runtime (`auto_pad`), which ONNX Runtime refuses for dilated
  convolutions. With strides of one, the padding of TensorFlow's SAME does not depend on the size.
* It leaves out the groups of three-dimensional convolutions; their number follows from the shapes.
"""

from __future__ import annotations

from collections.abc import Iterator

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.onnx_graph.graph import Graph, Node


def restore_convolution_settings(graph: Graph) -> None:
    """Repair the settings of all convolutions."""
    for node in graph.nodes:
        if node.op == "Conv":
            _restore_groups(graph, node)
            _write_padding(graph, node)


def _restore_groups(graph: Graph, node: Node) -> None:
    groups = _forgotten_groups(graph, node)
    if groups > 1:
        node.set("group", groups)


def _write_padding(graph: Graph, node: Node) -> None:
    kernel = graph.shape(node.inputs[1])
    if kernel is None or not _leaves_padding_open(graph, node):
        return
    dilations = node.get("dilations") or [1] * (len(kernel) - 2)
    totals = [((size or 1) - 1) * dilation for size, dilation in zip(kernel[2:], dilations, strict=True)]
    del node.attributes["auto_pad"]
    # SAME_UPPER: of an odd number the larger half is at the end.
    node.set("pads", [*(total // 2 for total in totals), *(total - total // 2 for total in totals)])


def _forgotten_groups(graph: Graph, node: Node) -> int:
    """Return the number of groups that follows from the shapes, if the attribute has 1; otherwise 1."""
    source, kernel = graph.shape(node.inputs[0]), graph.shape(node.inputs[1])
    if source is None or kernel is None or len(source) < 3 or source[1] is None or not kernel[1]:
        return 1
    return source[1] // kernel[1] if node.get("group", 1) == 1 else 1


def _leaves_padding_open(graph: Graph, node: Node) -> bool:
    """Return whether a padding that does not depend on the sizes is left to the runtime."""
    is_open = node.get("auto_pad", b"NOTSET") == b"SAME_UPPER" and graph.shape(node.inputs[1]) is not None
    return is_open and max(node.get("strides") or [1]) == 1


def _wrong(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        if node.op == "Conv" and (_forgotten_groups(graph, node) > 1 or _leaves_padding_open(graph, node)):
            yield node


PASS = GraphPass(
    restore_convolution_settings,
    needs="Weights still as graph inputs, of known shape.",
    holds="No stride-one convolution leaves its padding to the runtime, groups agree with the shapes.",
    refuses="`auto_pad` of larger strides: the padding depends on the size.",
    denied_by=_wrong,
)
