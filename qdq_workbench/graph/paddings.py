"""Zero padding that its readers absorb as a setting.

A MaxPool pads with the lowest value, and the layer pads with zeros: for values that are never negative the result is
the same. ONNX allows a MaxPool to pad only with less than its window, so that no window holds only padding.
"""

from __future__ import annotations

from typing import Any

from qdq_workbench.graph.kinds import DIRECT_CONVOLUTIONS, MAXIMA
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.never_negative import is_never_negative
from qdq_workbench.graph.op_kinds import ZEROS


def takes_padding(graph: ModelGraph, padding: Node, reader: Node) -> bool:
    """Return whether a reader absorbs a zero padding: convolutions do, and some max poolings.

    A causal convolution has its own padding in between; a convolution whose own padding depends on an unknown size has
    a setting for that alone. A one-dimensional separable convolution inserts its first axis after the padding.
    """
    if reader.is_operation or not _is_spatial(zeros_added(graph, padding), reader):
        return False
    if reader.is_a(*DIRECT_CONVOLUTIONS, "SeparableConv2D"):
        own = reader.settings.get("padding")
        return own != "causal" and not (own == "same" and _pads_by_size(graph, reader))
    if not reader.is_a(*MAXIMA):
        return False
    return is_never_negative(graph, padding.inputs[0]) and _pads_less_than_window(graph, padding, reader)


def zeros_added(graph: ModelGraph, padding: Node) -> list[tuple[int, int]] | None:
    """Return how many zeros a layer or an operation adds before and after each axis; None if unknown."""
    if padding.is_operation:
        zeros = _ends(padding.settings[ZEROS])
        # `ops.pad` takes one pair for all axes, too.
        return zeros if len(zeros) > 1 else zeros * len(graph.tensors[padding.outputs[0]].shape)
    amounts = padding.settings.get("padding")
    # The one axis of a `ZeroPadding1D` has (before, after); other classes have such a pair per axis.
    spatial = _ends([amounts] if padding.is_a("ZeroPadding1D") and amounts else amounts)
    if not spatial:
        return None
    return [(0, 0), (0, 0), *spatial] if _channels(padding) == 1 else [(0, 0), *spatial, (0, 0)]


def _is_spatial(zeros: list[tuple[int, int]] | None, reader: Node) -> bool:
    """Return whether zeros are added only along the spatial axes of a reader."""
    return zeros is None or (len(zeros) > 2 and zeros[0] == zeros[_channels(reader)] == (0, 0))


def _channels(node: Node) -> int:
    return 1 if node.settings.get("data_format") == "channels_first" else -1


def _pads_by_size(graph: ModelGraph, reader: Node) -> bool:
    """Return whether the own padding of a convolution with strides depends on an unknown size."""
    shape = graph.tensors[reader.inputs[0]].shape
    sizes = shape[2:] if reader.settings.get("data_format") == "channels_first" else shape[1:-1]
    steps = reader.settings.get("strides") or 1
    strides = steps if isinstance(steps, (list, tuple)) else [steps]
    # With steps of 1 the padding is that of the window, whatever the size.
    return None in sizes and any(step != 1 for step in strides)


def _pads_less_than_window(graph: ModelGraph, padding: Node, pool: Node) -> bool:
    zeros = zeros_added(graph, padding)
    windows = _ends(pool.settings.get("pool_size"))
    if not windows or not zeros:
        return True
    own = _own_padding(graph, pool, [low for low, _ in windows])
    if own is None:
        return False
    spatial = zeros[2:] if _channels(pool) == 1 else zeros[1:-1]
    pairs = zip(spatial, own, windows, strict=False)
    return all(max(low + before, high + after) < window for (low, high), (before, after), (window, _) in pairs)


def _own_padding(graph: ModelGraph, pool: Node, windows: list[int]) -> list[tuple[int, int]] | None:
    """Return by how much a pooling layer pads at either end of each axis; None if a size is unknown."""
    if pool.settings.get("padding", "valid") == "valid":
        return [(0, 0)] * len(windows)
    shape = graph.tensors[pool.inputs[0]].shape
    sizes = shape[2:] if pool.settings.get("data_format") == "channels_first" else shape[1:-1]
    strides = [step for step, _ in _ends(pool.settings.get("strides") or windows)]
    found = []
    for size, window, step in zip(sizes, windows, strides, strict=False):
        if size is None:
            return None
        # TensorFlow's SAME: ceil(size / step) windows, and the odd element of the padding at the end.
        total = max((-(-size // step) - 1) * step + window - size, 0)
        found.append((total // 2, total - total // 2))
    return found


def _ends(setting: Any) -> list[tuple[int, int]]:
    """Return a setting with one number or two per axis as two numbers per axis."""
    pairs = [item if isinstance(item, (list, tuple)) else (item, item) for item in setting or ()]
    return [(int(low), int(high)) for low, high in pairs]
