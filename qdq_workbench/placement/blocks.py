"""Weights in blocks: which layers can have them, and which targets support them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from qdq_workbench.errors import SpecError
from qdq_workbench.graph.block_axes import block_axes
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.placement.placement import Placement
from qdq_workbench.placement.targets import Target, get_target, target_names
from qdq_workbench.spec.quantizer_method import KEPT
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_FEW_BITS = 4


def axes_for_blocks(node: Node, weight: str, site: Mapping[str, Any] | None, author: str) -> tuple[int, ...]:
    """Return the axes that blocks of a weight may lie along; empty if its settings have no block size."""
    if site is None or site.get("block_size") is None:
        return ()
    axes = block_axes(node, weight)
    rank = next((len(item.shape) for item in node.weights if item.name == weight), 0)
    if not axes:
        raise SpecError(
            f"{author}: the weight {weight!r} of layer {node.layer!r} ({node.class_name}) cannot be quantized in "
            "blocks: "
            "they are for the kernels of matrix products (Dense, EinsumDense, the projections of attention) and the "
            "tables of Embedding. Leave block_size out for this layer, or name other layers. "
            f"Received: block_size={site['block_size']}"
        )
    if "axis" in site and site["axis"] % rank not in axes:
        raise SpecError(
            f"{author}: blocks of the weight {weight!r} of layer {node.layer!r} lie along an axis that its products "
            "are "
            f"summed up over, one of {list(axes)}; leave axis out. Received: axis={site['axis']}"
        )
    return axes


def check_blocks(
    graph: ModelGraph, placements: Iterable[Placement], target: Target, reads: Mapping[tuple[str, int], Placement]
) -> None:
    """Raise SpecError for weights in blocks that the target does not support, or 8-bit ones beside a quantized input.

    `reads` has the placement of a quantized input by node name and input index.
    """
    for placement in placements:
        if placement.quantizer.block_size is None:
            continue
        _check_target(placement, target)
        if is_one_block(graph.node(placement.node), placement):
            continue  # a file has one scale per output instead
        _check_grid(placement, placement.quantizer, target)
        _check_size(graph.node(placement.node), placement, target)
        # Behind a quantized input ONNX Runtime dequantizes 4-bit blocks and computes in float; with 8 bits it fails.
        if placement.quantizer.num_bits <= _FEW_BITS:
            continue
        for call in graph.calls(placement.layer):
            found = next((reads[call.name, i] for i in range(len(call.inputs)) if (call.name, i) in reads), None)
            if found is not None:
                raise SpecError(
                    f"Layer {placement.layer!r} has 8-bit weights in blocks and reads the quantized tensor "
                    f"{found.tensor!r} (author: {found.author}): ONNX Runtime takes the two for an integer product, "
                    "which "
                    "knows no blocks, and fails. Leave the tensor in float (quantize_input=False; "
                    "quantize_output=False "
                    'for the layer that makes it; quantization_mode="partial" for all others), give the weights one '
                    f"scale per channel, or 4 bits. Received: {placement.quantizer.label}"
                )


def is_one_block(node: Node, placement: Placement) -> bool:
    """Return whether one block covers all values that an output sums over, so that there is one scale per output."""
    grid = placement.quantizer
    shape = next(weight.shape for weight in node.weights if weight.name == placement.weight)
    others = [shape[axis] for axis in block_axes(node, placement.weight or "") if axis != grid.axis]
    return (grid.block_size or 0) >= shape[grid.axis or 0] and all(size == 1 for size in others)


def _check_target(placement: Placement, target: Target) -> None:
    """Raise an error unless the target supports weights in blocks."""
    if target.block_sizes:
        return
    others = [name for name in target_names() if get_target(name).block_sizes]
    raise SpecError(
        f"Target {target.name!r} takes no weights in blocks: {target.title} has one scale per channel. Leave "
        "block_size "
        f"out of the settings of {placement.tensor!r}, or choose another target ({', '.join(others)}). "
        f"Received: block_size={placement.quantizer.block_size}"
    )


def _check_size(node: Node, placement: Placement, target: Target) -> None:
    """Raise an error if the target needs whole blocks and the axis is no multiple of their size."""
    grid = placement.quantizer
    shape = next(weight.shape for weight in node.weights if weight.name == placement.weight)
    size = shape[grid.axis or 0]
    if target.whole_blocks and size % (grid.block_size or 1):
        fitting = [str(block) for block in sorted(target.block_sizes) if size % block == 0]
        raise SpecError(
            f"{target.title} takes whole blocks only, and axis {grid.axis} of {placement.tensor!r} has {size} values. "
            f"{'Give it blocks of ' + ' or '.join(fitting) if fitting else 'Leave block_size out for this layer'}. "
            f"Received: block_size={grid.block_size}"
        )


def _check_grid(placement: Placement, grid: QuantizerSpec, target: Target) -> None:
    """Raise an error unless the target supports the grid of a weight in blocks."""
    shown = ", ".join(map(str, sorted(target.block_sizes)))
    # Integers that Keras quantized keep the size of their groups.
    given = placement.method is not None and placement.method.name == KEPT
    if grid.block_size not in target.block_sizes and not (given and target.other_blocks):
        raise SpecError(
            f"{target.title} takes weights in blocks of {shown}. Give {placement.tensor!r} one of these sizes. "
            f"Received: block_size={grid.block_size}"
        )
    if grid.num_bits > target.block_bits:
        raise SpecError(
            f"{target.title} takes weights in blocks of at most {target.block_bits} bits. Leave block_size out of the "
            f"settings of {placement.tensor!r}, or lower num_bits. Received: num_bits={grid.num_bits}"
        )
    if not (target.block_zero_points or (grid.symmetric and grid.signed)):
        raise SpecError(
            f"{target.title} takes weights in blocks without zero points only: give {placement.tensor!r} "
            "symmetric=True "
            f"and signed=True. Received: symmetric={grid.symmetric}, signed={grid.signed}"
        )
