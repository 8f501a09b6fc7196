"""A warning if the magnitude of samples does not fit the ranges that a file's inputs were calibrated to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from qdq_workbench.calibration.data_scale import input_ranges, warn_of_scale
from qdq_workbench.verification.structure_reader import read_structure


def warn_of_file_scale(proto: onnx.ModelProto, q_model: Any, samples: Mapping[str, np.ndarray]) -> None:
    """Warn if the samples of an input are many times larger or smaller than its calibrated range.

    The ranges of the file's input pairs are used if the model is None or has no ranges.
    """
    known = input_ranges(q_model)
    if known:
        warn_of_scale(known, [[samples[name] for name in known]])
        return
    pairs = read_structure(proto).pairs
    known = {name: pairs[name].ends for name in samples if name in pairs}
    warn_of_scale(known, [[samples[name] for name in known]], covered="the integers of it in the file stand for")
