"""Pairs that TensorFlow's converter has dropped: no tensor of its file has their grid.

The converter moves a pair over a Reshape in front of it, and then drops it if nothing there computes on integers: where
a layer ends with a Reshape (a GroupNormalization), and the one behind it begins with the opposite Reshape (a Conv1D).
A barrier in front of the pair keeps it in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from qdq_workbench.export.litert.supported_grids import INT16_BITS, NARROWEST_SCALE
from qdq_workbench.export.litert.tflite_file import INT8, INT16, TFLiteFile, scales_of
from qdq_workbench.placement.plan import PlacementPlan

_BITS = {INT8: 8, INT16: INT16_BITS}
_WIDENED = NARROWEST_SCALE * (1 + 1e-5)  # as the converter computes it from ranges in float32


def lost_pairs(
    file: TFLiteFile, plan: PlacementPlan, grids: Mapping[str, tuple[float, int]], *, within: float = 0.0
) -> Iterator[tuple[str, tuple[int, float, int]]]:
    """Yield the names of pairs, given by their scales in float32 and zero points, that a file lacks, with their grids.

    A grid is number of bits, scale and zero point, and `within` the share of a scale by which it may differ. Pairs that
    the converter may merge with others are left out.
    """
    held = set(_held_grids(file))

    def is_held(grid: tuple[int, float, int]) -> bool:
        bits, scale, zero = grid
        near = (found for found in held if (found[0], found[2]) == (bits, zero))
        return grid in held or any(abs(found[1] - scale) <= within * scale for found in near)

    for pair in plan.tensors:
        if pair.kind == "activation" and pair.name in grids:
            grid = (INT16_BITS if pair.quantizer.num_bits == INT16_BITS else 8, *grids[pair.name])
            if not is_held(grid) and grid[1] > _WIDENED and not _may_be_merged(plan, pair.tensor):
                yield pair.name, grid


def _may_be_merged(plan: PlacementPlan, tensor: str) -> bool:
    """Return whether the converter may give a tensor the grid of another pair, or none, because of what reads it.

    It fuses activations, and gives the inputs of a concatenation, for one, the scale of its result.
    """
    target, readers = plan.target_object, [node for node, _ in plan.graph.readers(tensor)]
    return bool(readers) and all(
        node.activation_name in target.fused_activations if node.is_activation else node.is_a(*target.same_scale_kinds)
        for node in readers
    )


def _held_grids(file: TFLiteFile) -> Iterator[tuple[int, float, int]]:
    for graph in file.graphs:
        for tensor in graph.tensors:
            scales = scales_of(tensor)
            if scales is not None and scales.size == 1 and tensor.type in _BITS and not file.data(tensor):
                yield _BITS[tensor.type], float(scales[0]), int(tensor.quantization.zeroPoint[0])
