"""The quantizers of a file as plain, frozen data."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from qdq_workbench.quantizers.blocks import spread
from qdq_workbench.spec.quantizer_spec import QuantizerSpec


@dataclasses.dataclass(frozen=True)
class QDQPair:
    """One Q/DQ pair on an activation.

    Args:
        name: Name of the pair.
        scale: Its scale.
        zero_point: Its zero point.
        dtype: Integer type, such as "uint8".
        bounds: The bounds of the Clip before the pair, as floats; None without a Clip.
        source: The tensor that is quantized; None if unknown.
        readers: The nodes that read the dequantized tensor, sorted; None if unknown.
    """

    name: str
    scale: float
    zero_point: int
    dtype: str
    bounds: tuple[float, float] | None = None
    source: str | None = None
    readers: tuple[str, ...] | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and highest value that the pair represents; with less than 8 bits those of its Clip."""
        if self.bounds is not None:
            return self.bounds
        info = np.iinfo(self.dtype)
        return ((int(info.min) - self.zero_point) * self.scale, (int(info.max) - self.zero_point) * self.scale)


@dataclasses.dataclass(frozen=True)
class DequantizedConstant:
    """One weight or bias stored as integers.

    Args:
        name: Name of the weight or bias.
        scale: Its scales: one value without an axis; in row-major order with blocks.
        zero_point: Its zero points, one per scale.
        dtype: Integer type, such as "int8".
        digest: Hash of how often each integer occurs under each scale and zero point; independent of the layout.
        axis: Axis of the scales or of the blocks in the file; None for a per-tensor scale.
        shape: Shape in the file; None if only the Keras layout is known.
        codes_sha256: Hash of the integers in the file's layout; None if only the Keras layout is known.
        is_zero: Whether all values are zero; TensorFlow omits the addition of such a bias.
        block_size: The number of values along the axis that share a scale; None without blocks.
    """

    name: str
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    dtype: str
    digest: str
    axis: int | None = None
    shape: tuple[int, ...] | None = None
    codes_sha256: str | None = None
    is_zero: bool = False
    block_size: int | None = None


@dataclasses.dataclass(frozen=True)
class FileStructure:
    """All quantizers of a file.

    Args:
        pairs: Pair name -> pair.
        weights: Weight name -> weight.
        biases: Bias name -> int32 bias; None excludes biases from the comparison.
        constants: Name -> hash of every other constant; None excludes them from the comparison.
        strays: The Q and DQ nodes that form neither a valid pair nor a dequantized constant, each with the reason.
    """

    pairs: dict[str, QDQPair]
    weights: dict[str, DequantizedConstant]
    biases: dict[str, DequantizedConstant] | None = None
    constants: dict[str, str] | None = None
    strays: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the structure as a JSON-compatible dictionary."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FileStructure:
        """Rebuild a structure from the dictionary of `to_dict`, also after a round trip through JSON."""

        def restore(kind: type, items: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Any] | None:
            if items is None:
                return None
            tuples = {
                name: {key: tuple(value) if isinstance(value, list) else value for key, value in item.items()}
                for name, item in items.items()
            }
            return {name: kind(**item) for name, item in tuples.items()}

        return cls(
            pairs=restore(QDQPair, data["pairs"]) or {},
            weights=restore(DequantizedConstant, data["weights"]) or {},
            biases=restore(DequantizedConstant, data.get("biases")),
            constants=data.get("constants"),
            strays=tuple(data.get("strays", ())),
        )


def layout_free_digest(
    codes: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int | None, block_size: int | None = None
) -> str:
    """Hash the counts of each integer under each (scale, zero point), which do not depend on the layout.

    The scales, or the blocks of `block_size` values that have one each, lie along `axis` of the codes; None per tensor.
    """
    rows = _rows(codes, np.shape(scale), axis, block_size)
    scales, zeros = np.asarray(scale, np.float32).reshape(-1), np.asarray(zero).reshape(-1)
    groups: dict[tuple[bytes, int], list[np.ndarray]] = {}
    for row, one_scale, one_zero in zip(rows, scales, zeros, strict=True):
        # Channels with equal parameters are pooled, because another layout may have them in another order.
        groups.setdefault((one_scale.tobytes(), int(one_zero)), []).append(row)
    digest = hashlib.sha256()
    for key in sorted(groups):
        # Sorted integers depend on the counts alone, not on the order of the elements.
        digest.update(repr(key).encode() + np.sort(np.concatenate(groups[key]), kind="stable").tobytes())
    return digest.hexdigest()


def _rows(codes: np.ndarray, scales: tuple[int, ...], axis: int | None, block_size: int | None) -> Sequence[np.ndarray]:
    """Return the integers of each scale, in the order of the scales."""
    if axis is None:
        return [codes.reshape(-1)]
    if block_size is None:
        return list(np.moveaxis(codes, axis, 0).reshape(codes.shape[axis], -1))
    # The elements of a block need not be contiguous, so they are grouped by the number of their scale.
    number = spread(
        np.arange(math.prod(scales)).reshape(scales), codes.shape, QuantizerSpec(axis=axis, block_size=block_size)
    )
    order = np.argsort(number, axis=None, kind="stable")
    counts = np.bincount(number.reshape(-1), minlength=math.prod(scales))
    return np.split(codes.reshape(-1)[order], np.cumsum(counts)[:-1])
