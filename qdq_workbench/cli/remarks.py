"""Remarks on data that are valid but probably not intended."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any


def scale_remarks(model: Any, data: Any, path: str, *, replaces: bool = False) -> tuple[str, ...]:
    """Print and return a remark for every input whose data are many times larger or smaller than its range.

    The corresponding `DataScaleWarning` is then suppressed, until `main` restores the warning filters. A model that is
    not quantized or has no ranges gets no remarks; `replaces` says that the data are to calibrate it.
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


def ranges_of_inputs(q_model: Any) -> dict[str, tuple[float, float]]:
    """Return the calibrated range of every input of floats, by name."""
    from qdq_workbench.calibration import data_scale

    return {name: ends for name, ends in data_scale.input_ranges(q_model).items() if ends != (0.0, 0.0)}


def inputs_text(ranges: Mapping[str, tuple[float, float]]) -> str:
    """Return a line with the ranges of a model's inputs; empty without any.

    Data that were not prepared as for training show here first: nothing else can tell 0 to 255 from 0 to 1.
    """
    shown = ", ".join(f"{name} {low:.4g} to {high:.4g}" for name, (low, high) in ranges.items())
    return f"\nInputs were calibrated on {shown}; is that how the model was trained?" if shown else ""
