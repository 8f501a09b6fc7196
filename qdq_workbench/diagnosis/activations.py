"""Causes at the Q/DQ pairs of activations: unsuitable ranges, tensors that should stay in float, unequal channels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdq_workbench.diagnosis.evidence import Evidence
from qdq_workbench.diagnosis.finding import Finding
from qdq_workbench.diagnosis.fixes import (
    Fix,
    asymmetric_grid,
    calibrate_anew,
    corrected,
    eight_bits,
    equalized,
    keep_in_float,
    plan_as_before,
)
from qdq_workbench.graph.kinds import MERGES, NORMALIZATIONS
from qdq_workbench.post_training.shift_negative import LOWEST, shift_negative
from qdq_workbench.post_training.smooth_scales import smooth_scales

#: The least ratio of two ranges that counts as a cause.
FAR = 4.0
#: A channel this many times higher than the median channel costs three bits of all others.
OUTLIER = 8.0
_UNBALANCED = 16.0
#: A grid of which less than this share is used loses most of a bit.
_USED = 0.65
#: Fewer samples than this may miss the ends of a range.
_FEW = 32
# Methods that cut nothing off on purpose.
_SEEN_ALL = ("minmax", "moving_average")


def data_range(evidence: Evidence) -> Iterator[Finding]:
    """Find model inputs whose data are in another range than those of the calibration."""
    # Recorded for every tensor, so that inputs without a pair are compared, too.
    calibrated = evidence.q_model.recorded_ranges
    few = int(evidence.q_model.calibration.get("samples", 0)) < _FEW
    for name in evidence.graph.inputs:
        if name not in calibrated or name not in evidence.statistics:
            continue
        (low, high), seen = calibrated[name], evidence.statistics[name]
        span = max(high, 0.0) - min(low, 0.0)
        if span == seen.span == 0.0:  # the comparison of their ratio would hold for them
            continue
        # A few samples may miss the ends of a range, but not most of it.
        if seen.span < (OUTLIER if few else FAR / 2) * span and span < FAR * seen.span:
            continue
        # All activations depend on the input, so the input explains the error at every pair.
        yield Finding(
            "data_range",
            evidence.graph.producer(name).layer,
            name,
            frozenset(switch for pair in evidence.pairs for switch in pair.switches),
            f"these data reach from {seen.low:.4g} to {seen.high:.4g}, those of the calibration from {low:.4g} to "
            f"{high:.4g}",
            (
                calibrate_anew(
                    "prepare the calibration data as these data are prepared, and calibrate anew", is_about_data=True
                ),
            ),
        )


def few_samples(evidence: Evidence) -> Iterator[Finding]:
    """Find ranges that the data exceed: too few calibration samples, or a calibration method that clips."""
    cut = [pair for pair in evidence.pairs if pair.clipped > pair.rounding]
    if not cut:
        return
    calibration = evidence.q_model.calibration
    method = str(calibration.get("method", "minmax"))
    worst = max(cut, key=lambda pair: pair.clipped / max(pair.rounding, np.finfo(float).tiny))
    seen = evidence.statistics[worst.tensor]
    count = f"{len(cut)} tensors exceed" if len(cut) > 1 else "a tensor exceeds"
    where = f"{worst.tensor} reaches from {seen.low:.4g} to {seen.high:.4g}, its range from {worst.low:.4g} to "
    evidence_text = f"{count} the range by more than the grid's rounding: {where}{worst.high:.4g}"
    switches = frozenset(switch for pair in cut for switch in pair.switches)
    if method in _SEEN_ALL and not calibration.get("settings", {}).get("percentile"):
        samples = calibration.get("samples", "an unknown number of")
        yield Finding(
            "few_samples",
            worst.placements[0].layer,
            worst.tensor,
            switches,
            f"{evidence_text} (calibrated on {samples} samples)",
            (calibrate_anew("calibrate on more samples, such as these", is_about_data=True),),
        )
    else:
        yield Finding(
            "cut_off",
            worst.placements[0].layer,
            worst.tensor,
            switches,
            f"{evidence_text} (calibrated by {method})",
            (
                calibrate_anew('calibrate by method="mse", which weighs cutting against rounding', "mse"),
                calibrate_anew('calibrate by method="minmax", which cuts nothing', "minmax"),
            ),
        )


def softmax_or_logits(evidence: Evidence) -> Iterator[Finding]:
    """Find pairs on probabilities, and on the inputs of a softmax or outputs of the model, which are logits."""
    graph = evidence.graph
    for pair in evidence.pairs:
        producer = graph.producer(pair.tensor)
        readers = [node for node, _ in graph.readers(pair.tensor)]
        ends = pair.tensor in graph.outputs
        if producer.activation_name in ("softmax", "sigmoid") and (ends or producer.activation_name == "softmax"):
            kind, what = "softmax", "probabilities next to 0 fall on one code"
        elif any(node.activation_name == "softmax" and node.is_activation for node in readers):
            kind, what = "logits", "the softmax behind them turns one step into a factor of its probabilities"
        elif ends and not producer.is_activation:
            kind, what = "logits", "the model returns them, and nothing of higher precision follows"
        else:
            continue
        yield Finding(
            kind,
            producer.layer,
            pair.tensor,
            pair.switches,
            f"{pair.tensor} is on a grid of steps of {pair.step:.3g}: {what}",
            (keep_in_float(pair.switches, f"leave {pair.tensor} in float; no integer kernel needs it"),),
        )


def unfolded_normalization(evidence: Evidence) -> Iterator[Finding]:
    """Find pairs between a layer and a batch normalization that would otherwise be folded into it."""
    for fold in evidence.plan.lowering.merged.parted:
        tensor = fold.batch_norm.inputs[0]
        pairs = [pair for pair in evidence.pairs if pair.tensor == tensor]
        if pairs:
            switches = frozenset(switch for pair in pairs for switch in pair.switches)
            yield Finding(
                "unfolded_normalization",
                fold.batch_norm.layer,
                tensor,
                switches,
                f"a pair between {fold.layer.layer} and {fold.batch_norm.layer} keeps both apart: values are rounded "
                "before they are normalized, and the normalization runs in float",
                (keep_in_float(switches, f"quantize behind {fold.batch_norm.layer}, not in front of it"),),
            )


def unbalanced_inputs(evidence: Evidence) -> Iterator[Finding]:
    """Find merges with one input whose range is small against the range of another input."""
    by_tensor = {pair.tensor: pair for pair in evidence.pairs}
    for node in evidence.graph.nodes:
        present = [name for name in dict.fromkeys(node.inputs) if name in evidence.statistics]
        if not node.is_a(*MERGES) and node.class_name not in MERGES:
            continue
        if len(present) < 2 or not all(name in by_tensor for name in present):
            continue
        spans = {name: evidence.statistics[name].span for name in present}
        widest, narrowest = max(spans, key=spans.__getitem__), min(spans, key=spans.__getitem__)
        if spans[narrowest] <= 0.0 or spans[widest] < _UNBALANCED * spans[narrowest]:
            continue
        mine = frozenset({(node.layer, "input")})
        # The output of a concatenation shares the scale of its inputs; the output of a sum spans both.
        ends = [*present, *node.outputs] if node.is_a("Concatenate") else present
        pairs = [by_tensor[name] for name in ends if name in by_tensor]
        shared = frozenset(
            switch for pair in pairs for switch in pair.switches if switch[1] == "output" or pair.tensor in node.outputs
        )
        yield Finding(
            "unbalanced_inputs",
            node.layer,
            widest,
            mine | shared,
            f"{widest} spans {spans[widest]:.4g} and {narrowest} {spans[narrowest]:.4g}: one step of the wider grid is "
            f"{by_tensor[widest].step:.3g}",
            (keep_in_float(mine | shared, f"leave the inputs of {node.layer} in float"),),
        )


def negative_tail(evidence: Evidence) -> Iterator[Finding]:
    """Find activations with a short negative side on a signed symmetric grid, half of whose levels are negative."""
    for pair in evidence.pairs:
        seen, spec = evidence.statistics[pair.tensor], pair.quantizer
        if not (spec.signed and spec.symmetric and seen.low < 0.0 < seen.high) or pair.step <= 0.0:
            continue
        used = seen.span / (pair.step * (spec.qmax - spec.qmin))
        if used >= _USED or -seen.low > seen.high / FAR:
            continue
        producer = evidence.graph.producer(pair.tensor)
        fixes: list[Fix] = []
        # Only for a target with zero points: the integer kernels of others take symmetric grids alone.
        if not evidence.plan.target_object.activation.symmetric:
            fixes.append(asymmetric_grid(pair.switches, pair.tensor))
        elif producer.activation_name in LOWEST and "power_of_two" in evidence.q_model.calibration.get("settings", {}):
            # With a free scale a symmetric grid gains nothing from the shift.
            shift = "move the activations to start at 0 (correction.shift_negative)"
            fixes.append(corrected(shift, lambda model, _: shift_negative(model)))
        yield Finding(
            "negative_tail",
            producer.layer,
            pair.tensor,
            pair.switches,
            f"{pair.tensor} reaches from {seen.low:.4g} to {seen.high:.4g} on a symmetric grid, of which it uses "
            f"{used:.0%}",
            (*fixes, keep_in_float(pair.switches)),
        )


def outlier_channel(evidence: Evidence) -> Iterator[Finding]:
    """Find tensors with one channel whose values are much larger than those of the others, on one scale."""
    for pair in evidence.pairs:
        spread = spread_of(evidence.statistics[pair.tensor].peaks)
        if spread is None or len(evidence.graph.tensors[pair.tensor].shape) < 2:
            continue
        channel, peak, median = spread
        producer = evidence.graph.producer(pair.tensor)
        # A normalization has a factor per channel, which can absorb the inverse of what the weights behind it take.
        if producer.is_a(*NORMALIZATIONS):
            moved = corrected(
                "move the spread of the channels into the weights (correction.smooth_scales)",
                lambda model, data: smooth_scales(model, data, plan=plan_as_before(model, evidence.plan)),
            )
        else:
            moved = equalized()
        yield Finding(
            "outlier_channel",
            producer.layer,
            pair.tensor,
            pair.switches,
            f"channel {channel} of {pair.tensor} reaches {peak:.4g}, half of its channels stay below {median:.4g}; a "
            f"step is {pair.step:.3g}",
            (
                # Nothing in front of an input of the model could absorb its factors.
                *(() if pair.tensor in evidence.graph.inputs else (moved,)),
                calibrate_anew(f'calibrate {pair.tensor} by method="mse", which cuts the outlier', "mse", [pair.name]),
                keep_in_float(pair.switches),
            ),
        )


def wide_range(evidence: Evidence) -> Iterator[Finding]:
    """Find ranges that are several times wider than the data, for example because of outlying calibration samples."""
    for pair in evidence.pairs:
        seen = evidence.statistics[pair.tensor]
        # Inputs are judged by `data_range`.
        if pair.tensor in evidence.graph.inputs or not 0.0 < FAR * seen.span <= pair.span:
            continue
        yield Finding(
            "wide_range",
            evidence.graph.producer(pair.tensor).layer,
            pair.tensor,
            pair.switches,
            f"{pair.tensor} reaches from {seen.low:.4g} to {seen.high:.4g}, its range from {pair.low:.4g} to "
            f"{pair.high:.4g}",
            (calibrate_anew("calibrate anew; look for outlying calibration samples", is_about_data=True),),
        )


def coarse_activation(evidence: Evidence) -> Iterator[Finding]:
    """Find pairs without any other cause."""
    for pair in evidence.pairs:
        layer = pair.placements[0].layer
        more = (eight_bits(layer),) if pair.quantizer.num_bits < 8 else ()
        yield Finding(
            "coarse_grid",
            evidence.graph.producer(pair.tensor).layer,
            pair.tensor,
            pair.switches,
            f"{pair.tensor} spans {evidence.statistics[pair.tensor].span:.4g} in steps of {pair.step:.3g} "
            f"({pair.quantizer.num_bits} bits)",
            (
                *more,
                calibrate_anew(f'calibrate {pair.tensor} by method="mse"', "mse", [pair.name]),
                keep_in_float(pair.switches),
            ),
        )


def spread_of(peaks: np.ndarray) -> tuple[int, float, float] | None:
    """Return the channel with the largest peak, its peak and the median peak; None if it is not an outlier."""
    # Dead channels would lower the median, and of few channels it says little.
    alive = peaks[peaks > 0.0]
    if len(alive) < 4:
        return None
    median = float(np.median(alive))
    channel = int(np.argmax(peaks))
    return (channel, float(peaks[channel]), median) if peaks[channel] >= OUTLIER * median else None
