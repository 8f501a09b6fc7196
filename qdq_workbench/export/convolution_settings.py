"""Settings of convolutions that tf2onnx gets wrong.

* Where the stride of a transposed convolution is larger than its kernel, it writes negative paddings. ONNX has an
  attribute of its own for what is added behind the result: `pads = [0, -1]` means `output_padding = 1`.
* Where sizes are open it leaves padding to the runtime (`auto_pad`), which ONNX Runtime refuses for dilated
  convolutions. With strides of one the padding of TensorFlow's SAME does not depend on the size.
* It forgets the groups of three-dimensional convolutions. The shapes still tell their number.
"""

from __future__ import annotations

from qdq_workbench.export.graph import Graph, Node


def restore_convolution_settings(graph: Graph) -> None:
    """Repair the settings of all convolutions.

    Args:
        graph: The float graph to change.
    """
    for node in graph.nodes:
        if node.op == "ConvTranspose":
            _restore_output_padding(node)
        elif node.op == "Conv":
            _restore_groups(graph, node)
            _write_padding(graph, node)


def _restore_output_padding(node: Node) -> None:
    pads = node.get("pads")
    if pads is None or min(pads) >= 0:
        return
    half = len(pads) // 2
    added = node.get("output_padding") or [0] * half
    node.set("output_padding", [more - min(end, 0) for more, end in zip(added, pads[half:], strict=True)])
    node.set("pads", [*pads[:half], *(max(end, 0) for end in pads[half:])])


def _restore_groups(graph: Graph, node: Node) -> None:
    source, kernel = graph.shape(node.inputs[0]), graph.shape(node.inputs[1])
    if source is None or kernel is None or len(source) < 3 or source[1] is None or not kernel[1]:
        return
    groups = source[1] // kernel[1]
    if groups > 1 and node.get("group", 1) == 1:
        node.set("group", groups)


def _write_padding(graph: Graph, node: Node) -> None:
    kernel = graph.shape(node.inputs[1])
    if node.get("auto_pad", b"NOTSET") != b"SAME_UPPER" or kernel is None or max(node.get("strides") or [1]) > 1:
        return
    dilations = node.get("dilations") or [1] * (len(kernel) - 2)
    totals = [((size or 1) - 1) * dilation for size, dilation in zip(kernel[2:], dilations, strict=True)]
    del node.attributes["auto_pad"]
    node.set("pads", [*(total // 2 for total in totals), *(total - total // 2 for total in totals)])
