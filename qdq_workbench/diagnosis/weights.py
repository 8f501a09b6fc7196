"""Causes at weights: channels of unequal range on one scale, outliers, dead channels that set the scale."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdq_workbench.diagnosis.activations import spread_of
from qdq_workbench.diagnosis.evidence import Evidence
from qdq_workbench.diagnosis.finding import Finding
from qdq_workbench.diagnosis.fixes import (
    corrected,
    eight_bits,
    equalized,
    layer_in_float,
    plan_as_before,
    scales_per_channel,
    weights_to_zero,
)
from qdq_workbench.graph.input_axes import input_axis
from qdq_workbench.graph.kinds import DEPTHWISE
from qdq_workbench.graph.output_axes import output_axes
from qdq_workbench.placement.plan import Placement
from qdq_workbench.post_training.clip_weights import clip_weights

#: Outliers have this many times the root mean square of the weights on their scale: one in 10^15 of a normal
#: distribution.
_OUTLYING = 8.0
#: Weights of dead channels that reach this many times as far as those of live ones cost a bit.
_WIDER = 2.0
#: Up to this number of bits, learned rounding gains much over nearest rounding.
_FEW_BITS = 4


def dead_channels(evidence: Evidence) -> Iterator[Finding]:
    """Find input channels that are 0 on all data and whose weights nevertheless set the scale."""
    for placement in evidence.weight_placements():
        node = evidence.graph.calls(placement.layer)[0]
        kernel = evidence.weights.get(placement.tensor)
        seen = evidence.statistics.get(node.inputs[0]) if node.inputs else None
        if kernel is None or kernel.ndim < 2 or seen is None or not (placement.weight or "").endswith("kernel"):
            continue
        axis = input_axis(node, placement.weight or "")
        # Only the input of the first call was looked at; another call may use these channels.
        if axis is None or len(evidence.graph.calls(placement.layer)) > 1 or kernel.shape[axis] != len(seen.peaks):
            continue
        dead = np.flatnonzero(seen.peaks == 0.0)
        if not len(dead) or len(dead) == len(seen.peaks) or "/" in (placement.weight or ""):
            continue
        moved = np.abs(np.moveaxis(kernel, axis, 0))
        widest, live = float(moved[dead].max()), float(np.delete(moved, dead, axis=0).max())
        if widest < _WIDER * live:
            continue
        yield Finding(
            "dead_channels",
            placement.layer,
            placement.tensor,
            frozenset({(placement.layer, "weight")}),
            f"{len(dead)} of {len(seen.peaks)} input channels are 0 on all data, and their weights reach {widest:.4g} "
            f"where those of the others stay below {live:.4g}",
            (weights_to_zero(placement.layer, placement.weight or "", dead.tolist(), axis),),
        )


def unequal_channels(evidence: Evidence) -> Iterator[Finding]:
    """Find kernels whose channels have very different ranges and share one scale."""
    for placement in evidence.weight_placements():
        node = evidence.graph.calls(placement.layer)[0]
        kernel = evidence.weights.get(placement.tensor)
        axes = output_axes(node, placement.weight or "")
        if kernel is None or not axes or placement.quantizer.axis is not None:
            continue
        others = tuple(axis for axis in range(kernel.ndim) if axis not in axes)
        spread = spread_of(np.abs(kernel).max(axis=others).reshape(-1))
        if spread is None:
            continue
        channel, peak, median = spread
        yield Finding(
            "depthwise_channels" if node.is_a(*DEPTHWISE) else "outlier_channel",
            placement.layer,
            placement.tensor,
            frozenset({(placement.layer, "weight")}),
            f"channel {channel} of {placement.tensor} reaches {peak:.4g}, half of its channels stay below "
            f"{median:.4g}, and all share one scale",
            (
                scales_per_channel(placement.layer),
                equalized(),
            ),
        )


def outlying_weights(evidence: Evidence) -> Iterator[Finding]:
    """Find single weights that set the scale of all others."""
    for placement in evidence.weight_placements():
        kernel = evidence.weights.get(placement.tensor)
        found = None if kernel is None else _outlying(kernel, placement)
        if found is None:
            continue
        peak, typical, count = found
        more = (eight_bits(placement.layer),) if placement.quantizer.num_bits < 8 else ()
        yield Finding(
            "outlier_weights",
            placement.layer,
            placement.tensor,
            frozenset({(placement.layer, "weight")}),
            f"{count} scales of {placement.tensor} are set by single weights: one reaches {peak:.4g} where the root "
            f"mean square is {typical:.3g}",
            (
                corrected(
                    "cut outlying weights where the error falls (correction.clip_weights)",
                    lambda model, _: clip_weights(model, plan=plan_as_before(model, evidence.plan)),
                ),
                *more,
                layer_in_float(placement.layer),
            ),
        )


def coarse_weights(evidence: Evidence) -> Iterator[Finding]:
    """Find weights without any other cause."""
    for placement in evidence.weight_placements():
        spec = placement.quantizer
        more = (eight_bits(placement.layer),) if spec.num_bits < 8 else ()
        finer = (scales_per_channel(placement.layer),) if spec.axis is None else ()
        hint = "; learn_rounding may recover much of that and keep the bits" if spec.num_bits <= _FEW_BITS else ""
        scales = "one scale" if spec.axis is None else "a scale per channel"
        scales = scales if spec.block_size is None else f"a scale per {spec.block_size} values"
        yield Finding(
            "coarse_grid",
            placement.layer,
            placement.tensor,
            frozenset({(placement.layer, "weight")}),
            f"{placement.tensor} has {spec.num_bits} bits and {scales}{hint}",
            (*finer, *more, layer_in_float(placement.layer)),
        )


def _outlying(kernel: np.ndarray, placement: Placement) -> tuple[float, float, int] | None:
    """Return the worst outlier, the root mean square of its scale's other weights, and how many scales have one."""
    axis = placement.quantizer.axis
    if placement.quantizer.block_size is not None:  # an outlier spoils one block, not a channel
        return None
    rows = kernel.reshape(1, -1) if axis is None else np.moveaxis(kernel, axis, 0).reshape(kernel.shape[axis], -1)
    if rows.shape[1] < 16:  # the outlier itself would make up the root mean square
        return None
    peaks = np.abs(rows).max(axis=1)
    typical = np.sqrt((np.square(rows).sum(axis=1) - np.square(peaks)) / (rows.shape[1] - 1))
    outliers = np.flatnonzero(peaks > _OUTLYING * np.maximum(typical, np.finfo(np.float32).tiny))
    if not len(outliers):
        return None
    worst = outliers[int(np.argmax(peaks[outliers] / np.maximum(typical[outliers], np.finfo(np.float32).tiny)))]
    return float(peaks[worst]), float(typical[worst]), len(outliers)
