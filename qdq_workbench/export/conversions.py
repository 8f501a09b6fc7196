"""The float graphs that tf2onnx made of a model for one export.

A file in half precision and its float32 form, with which verification compares it, start from the same float graph.
Quantized weights are inputs of that graph, so that it holds no more than what a model has in float.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import onnx

from qdq_workbench._fingerprints import fingerprint_of, text_of
from qdq_workbench.export.keras_side.cut_model import CutModel
from qdq_workbench.export.keras_side.float_graph import FloatGraph, convert_float
from qdq_workbench.placement.plan import PlacementPlan

#: Bytes of the graphs that are kept of one model; a larger one is converted again where it is needed.
KEPT_BYTES = 1 << 26

_Key = tuple[str, int, bool]  # the hash of the plan, the opset, and whether the batch size is open


class Conversions:
    """The conversions of one model, which must not change while this is used.

    Its graphs are kept as bytes: the passes change parts of a graph that they share with the model it was read from.
    """

    def __init__(self) -> None:
        self._kept: dict[_Key, tuple[bytes, FloatGraph]] = {}

    def under(self, plan: PlacementPlan) -> Callable[..., FloatGraph]:
        """Return `convert_float` for the model planned like this, which converts only what was not converted before."""
        return functools.partial(self._convert, fingerprint_of(text_of(plan.to_dict())))

    def update(self, other: Conversions) -> None:
        """Add the conversions of the same model for other files; the older ones go first where all are too large."""
        for key, kept in other._kept.items():
            self._keep(key, *kept)

    def _convert(self, plan: str, cut: CutModel, *, opset: int, dynamic_batch: bool) -> FloatGraph:
        key = plan, opset, dynamic_batch
        if key in self._kept:
            content, names = self._kept[key]
            return dataclasses.replace(names, model=onnx.ModelProto.FromString(content))
        made = convert_float(cut, opset=opset, dynamic_batch=dynamic_batch)
        # Not without a look at the size: serializing takes as much memory again.
        if made.model.ByteSize() <= KEPT_BYTES:
            self._keep(key, made.model.SerializeToString(), dataclasses.replace(made, model=onnx.ModelProto()))
        return made

    def _keep(self, key: _Key, content: bytes, names: FloatGraph) -> None:
        self._kept[key] = content, names
        while sum(len(kept) for kept, _ in list(self._kept.values())) > KEPT_BYTES:
            self._kept.pop(next(iter(self._kept)))
