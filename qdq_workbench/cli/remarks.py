"""Remarks on data that a command can use, but that are hardly what the user means."""

from __future__ import annotations

import sys
from typing import Any

_FAR = 20.0


def scale_remarks(model: Any, data: Any, path: str) -> tuple[str, ...]:
    """Tell of every input whose data are many times larger, or smaller, than what it was calibrated on.

    Images of 0 to 255 given to a model for 0 to 1 saturate everywhere, and nothing fails. So the remarks are printed at
    once, before the work begins.

    Args:
        model: The model; one that is not quantized, or has no ranges yet, has no remark.
        data: Arrays as `load_arrays` returns them.
        path: Where they are from.

    Returns:
        The remarks.
    """
    import numpy as np

    from qdq_workbench.calibration.batches import input_batches
    from qdq_workbench.conversion.engine.quantized_model import QuantizedModel

    if not isinstance(model, QuantizedModel) or not model.has_plan or not model.recorded_ranges:
        return ()
    names = list(model.plan.graph.inputs)
    found: dict[str, tuple[float, float, str]] = {}
    for batch in input_batches(model, data, batch_size=1024):
        for name, array in zip(names, map(np.asarray, batch), strict=True):
            low, high, _ = found.get(name, (0.0, 0.0, ""))
            found[name] = (min(low, float(array.min())), max(high, float(array.max())), str(array.dtype))
    remarks = []
    for name, (low, high, dtype) in found.items():
        calibrated = model.recorded_ranges.get(name, (0.0, 0.0))
        known, given = (max(map(abs, ends)) for ends in (calibrated, (low, high)))
        if known > 0 and given > 0 and not 1 / _FAR < given / known < _FAR:
            effect = "nearly all of them saturate" if given > known else "nearly all of them fall on a few steps"
            remarks.append(
                f"the data of input {name!r} in {path!r} go from {low:g} to {high:g} ({dtype}), but the model was "
                f"calibrated on {calibrated[0]:g} to {calibrated[1]:g}, so {effect}. Scale them as the "
                "calibration data were."
            )
    for remark in remarks:
        print(f"note: {remark}", file=sys.stderr)
    return tuple(remarks)
