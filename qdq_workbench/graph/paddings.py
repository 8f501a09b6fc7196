"""Which zero padding becomes a setting of what reads it.

A MaxPool pads with what never wins, and the layer pads with zeros: for values that are never negative that is the same.
ONNX allows it to pad with less than its window only, so that no window holds nothing but padding.
"""

from __future__ import annotations

from typing import Any

from qdq_workbench.graph.kinds import DIRECT_CONVOLUTIONS, MAXIMA
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.never_negative import is_never_negative
from qdq_workbench.graph.op_kinds import ZEROS


def takes_padding(graph: ModelGraph, padding: Node, reader: Node) -> bool:
    """Return whether zero padding becomes a setting of what reads it: of convolutions, and of some maxima.

    A causal convolution has padding of its own, which stands between; one whose own padding depends on an open size has
    a setting for that alone. The first axis of a one-dimensional separable convolution is inserted behind the padding.
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
    """Return how many zeros a layer or an operation adds before and behind each axis; None where it does not say."""
    if padding.is_operation:
        zeros = _ends(padding.settings[ZEROS])
        return zeros if len(zeros) > 1 else zeros * len(graph.tensors[padding.outputs[0]].shape)
    amounts = padding.settings.get("padding")
    spatial = _ends([amounts] if padding.is_a("ZeroPadding1D") and amounts else amounts)
    if not spatial:
        return None
    return [(0, 0), (0, 0), *spatial] if _channels(padding) == 1 else [(0, 0), *spatial, (0, 0)]


def _is_spatial(zeros: list[tuple[int, int]] | None, reader: Node) -> bool:
    """Return whether zeros are added only along the axes that a reader's window moves along."""
    return zeros is None or (len(zeros) > 2 and zeros[0] == zeros[_channels(reader)] == (0, 0))


def _channels(node: Node) -> int:
    return 1 if node.settings.get("data_format") == "channels_first" else -1


def _pads_by_size(graph: ModelGraph, reader: Node) -> bool:
    """Return whether the own padding of a convolution with strides depends on a size that is not known."""
    shape = graph.tensors[reader.inputs[0]].shape
    sizes = shape[2:] if reader.settings.get("data_format") == "channels_first" else shape[1:-1]
    steps = reader.settings.get("strides") or 1
    strides = steps if isinstance(steps, (list, tuple)) else [steps]
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
    """Return by how much a pooling layer pads at either end of each axis; None where a size is not known."""
    if pool.settings.get("padding", "valid") == "valid":
        return [(0, 0)] * len(windows)
    shape = graph.tensors[pool.inputs[0]].shape
    sizes = shape[2:] if pool.settings.get("data_format") == "channels_first" else shape[1:-1]
    strides = [step for step, _ in _ends(pool.settings.get("strides") or windows)]
    found = []
    for size, window, step in zip(sizes, windows, strides, strict=False):
        if size is None:
            return None
        total = max((-(-size // step) - 1) * step + window - size, 0)
        found.append((total // 2, total - total // 2))
    return found


def _ends(setting: Any) -> list[tuple[int, int]]:
    """Return a setting of one number or two per axis as two per axis."""
    pairs = [item if isinstance(item, (list, tuple)) else (item, item) for item in setting or ()]
    return [(int(low), int(high)) for low, high in pairs]
