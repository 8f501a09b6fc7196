"""Remarks on data that are valid but probably not intended."""

from __future__ import annotations

import sys
from typing import Any


def scale_remarks(model: Any, data: Any, path: str, *, replaces: bool = False) -> tuple[str, ...]:
    """Print and return a remark for every input whose data are many times larger or smaller than its range.

    The corresponding `DataScaleWarning` is then suppressed, until `main` restores the warning filters.

    Args:
        model: The model; there are no remarks for one that is not quantized or has no ranges.
        data: Arrays as returned by `load_arrays`.
        path: The file of the data.
        replaces: Whether the command calibrates the model on these data.
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
        warnings.simplefilter("ignore", DataScaleWarning)  # `main` restores the filters
    return remarks
