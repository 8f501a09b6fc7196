"""One place where a value is quantized."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from qdq_workbench.spec.quantizer_method import QuantizerMethod
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

Site = Literal["input", "weight", "output"]


@dataclasses.dataclass(frozen=True)
class Placement:
    """One place where a value is quantized.

    Args:
        site: "input" (a node reads the quantized tensor), "weight", or "output" (all readers of the tensor do).
        layer: Path of the layer.
        node: Name of the call; for weights the layer's first call.
        tensor: Name of the quantized value: an activation tensor, or `<layer>/<weight>`.
        quantizer: The grid.
        reason: The reason, in one sentence.
        author: "default", "spec[2]", a case's class name, or "target".
        input_index: Which input of the call, for site "input".
        weight: Which weight of the layer, for site "weight".
        scale_group: Tensors of one group share one range; the name of the group's first tensor.
        replaced: The authors that were overruled, such as "default" or "spec[0]".
        method: The method that finds the range; None for the default (of a weight its own range, of an activation the
            moving average).
    """

    site: Site
    layer: str
    node: str
    tensor: str
    quantizer: QuantizerSpec
    reason: str
    author: str
    input_index: int | None = None
    weight: str | None = None
    scale_group: str | None = None
    replaced: tuple[str, ...] = ()
    method: QuantizerMethod | None = None

    @property
    def key(self) -> tuple[str, str, int | str | None]:
        """Identifies the place: site, node, and which input or weight."""
        return (self.site, self.node, self.weight if self.site == "weight" else self.input_index)

    @property
    def pair_key(self) -> tuple[Any, ...]:
        """Identifies the Q/DQ pair of the placement: the value, its grid and its method."""
        return (self.site == "weight", self.tensor, self.quantizer, self.method)

    def to_dict(self) -> dict[str, Any]:
        """Return the placement as a JSON-compatible dictionary, without fields that are None or empty."""
        fields = dict(vars(self))
        fields["quantizer"] = self.quantizer.to_dict()
        if self.method is not None:
            fields["method"] = self.method.to_dict()
        return {key: value for key, value in fields.items() if value is not None and value != ()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Placement:
        """Rebuild a placement from `to_dict`, also after a round trip through JSON."""
        fields = {**data, "quantizer": QuantizerSpec.from_dict(data["quantizer"])}
        if "method" in fields:
            fields["method"] = QuantizerMethod.from_dict(fields["method"])
        return cls(**{**fields, "replaced": tuple(fields.get("replaced", ()))})
