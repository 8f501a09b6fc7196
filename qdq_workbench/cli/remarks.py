"""Remarks on data that a command can use, but that are hardly what the user means."""

from __future__ import annotations

import sys
from typing import Any


def scale_remarks(model: Any, data: Any, path: str, *, replaces: bool = False) -> tuple[str, ...]:
    """Tell of every input whose data are many times larger, or smaller, than what it was calibrated on.

    The remarks are printed at once, before the work begins, and not again while it goes on.

    Args:
        model: The model; one that is not quantized, or has no ranges yet, has no remark.
        data: Arrays as `load_arrays` returns them.
        path: Where they are from.
        replaces: Whether the command gives the model ranges by these data.

    Returns:
        The remarks.
    """
    import warnings

    from qdq_workbench.calibration import data_scale
    from qdq_workbench.calibration.batches import input_batches
    from qdq_workbench.errors import DataScaleWarning

    known = data_scale.input_ranges(model)
    batches = input_batches(model, data, batch_size=1024) if known else ()
    remarks = data_scale.scale_remarks(known, batches, source=f" in {path!r}", replaces=replaces)
    for remark in remarks:
        print(f"note: {remark}", file=sys.stderr)
    if remarks:
        warnings.simplefilter("ignore", DataScaleWarning)  # `main` sets the filters back
    return remarks
