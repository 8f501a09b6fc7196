"""The stages of an export that depend on the target of the file."""

from __future__ import annotations

from qdq_workbench.export.passes import order
from qdq_workbench.placement.targets import Target


def stages_for(target: Target, *, half: bool) -> tuple[order.Stage, ...]:
    """Return the stages after `JOINED` that a file for a target needs, in half precision or not, in order.

    Example:
        >>> from qdq_workbench.placement.targets import get_target
        >>> [stage.name for stage in stages_for(get_target("tensorrt"), half=True)]
        ['half']
    """
    wanted = {
        order.INT32_BIASES: target.bias == "int32",
        order.BLOCKS: target.relu_hides_blocks,
        order.HARD_SIGMOIDS: target.joins_hard_sigmoids,
        order.HALF: half,
        order.FLOAT_WEIGHTS: target.quantizes_float_weights,
        order.PAIRS: target.merges_pairs,
    }
    return tuple(stage for stage, runs in wanted.items() if runs)
