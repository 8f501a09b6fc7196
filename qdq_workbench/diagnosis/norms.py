"""Batch normalizations whose moving statistics are not those of the data."""

from __future__ import annotations

from collections.abc import Iterator

import keras
import numpy as np

from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.folding import read_batch_norm
from qdq_workbench.diagnosis.evidence import Evidence, channel_axis
from qdq_workbench.diagnosis.finding import Finding
from qdq_workbench.diagnosis.fixes import statistics_taken

#: Error of the normalized values, as a share of their power: a mean that is off by 0.3 standard deviations, or a
#: standard deviation that is off by a third. Other data of the same kind stay below a tenth of it.
_OFF = 0.1


def stale_statistics(evidence: Evidence) -> Iterator[Finding]:
    """Find the normalization whose statistics fit the data least.

    With mean m and variance v of the data and moving statistics m', v', the error of the normalized values is
    (sqrt(v / v') - 1)^2 + (m - m')^2 / v' of their power, averaged over the channels.
    """
    worst: tuple[float, str, str, str] | None = None
    count = 0
    for call in float_view(evidence.q_model).calls:
        layer, tensor = call.operation, call.node.inputs[0] if call.node.inputs else ""
        if not isinstance(layer, keras.layers.BatchNormalization) or tensor not in evidence.statistics:
            continue
        seen = evidence.statistics[tensor]
        norm = read_batch_norm(layer)
        mean, variance = norm.mean, norm.variance
        rank = len(evidence.graph.tensors[tensor].shape)
        if norm.axis % rank != channel_axis(evidence.graph, tensor, rank) or len(mean) != len(seen.means):
            continue
        room = np.maximum(variance, 0.0) + norm.epsilon
        scale = np.sqrt((seen.variances + norm.epsilon) / room)
        errors = np.square(scale - 1.0) + np.square(seen.means - mean) / room
        # For normally distributed values: 1 / n of the mean and 1 / (2 n) of the standard deviation.
        sampling = 1.5 / max(seen.count.max(), 1)  # the expected error from estimating mean and variance on finite data
        off = float(errors.mean()) - sampling
        if not off > _OFF:  # also NaN: infinite values have no variance
            continue
        count += 1
        channel = int(np.argmax(errors))
        text = (
            f"channel {channel} has mean {seen.means[channel]:.3g} and variance {seen.variances[channel]:.3g} on these "
            f"data, and moving statistics of {mean[channel]:.3g} and {variance[channel]:.3g}"
        )
        if worst is None or off > worst[0]:
            worst = (off, call.node.layer, tensor, text)
    if worst is not None:
        off, name, tensor, text = worst
        others = f"{count - 1} more normalizations are" if count > 2 else "one more normalization is"
        more = f"; {others} off" if count > 1 else ""
        fix = statistics_taken("take the statistics of the normalizations from data like these, and calibrate anew")
        # No site has this error, which is there without quantization; it is weighed against the error of quantization.
        share = off / (off + evidence.noise.total)
        yield Finding(
            "stale_statistics", name, tensor, frozenset(), text + more, (fix,), share=share, changes_function=True
        )
