"""The evidence of a diagnosis: statistics of every tensor on the data, pairs with their grids, the noise of sites."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench._progress import ProgressFunction
from qdq_workbench.analysis.metrics import Array, Metric, get_metric
from qdq_workbench.analysis.samples import Samples
from qdq_workbench.analysis.sweep import Sweep
from qdq_workbench.analysis.switches import Switch
from qdq_workbench.calibration.padding import all_rows_of
from qdq_workbench.calibration.values import tensor_values, weight_values
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.placement.plan import Placement, PlacementPlan
from qdq_workbench.quantizers import numerics
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass
class TensorStatistics:
    """The statistics of one tensor of the float model, over all samples.

    Extreme values cover the padding of sequences, as ranges do; means and variances leave it out, as training does.

    Args:
        low: Lowest value.
        high: Highest value.
        peaks: Largest absolute value of every channel.
        sums: Sum of every channel.
        squares: Sum of squares of every channel.
        count: Values of every channel that count for its sums.
    """

    low: float
    high: float
    peaks: Floats
    sums: Floats
    squares: Floats
    count: npt.NDArray[np.int64]

    @classmethod
    def of(cls, values: npt.NDArray[Any], axis: int, mask: npt.NDArray[Any] | None = None) -> TensorStatistics:
        """Return the statistics of one batch with this axis of channels, and this mask if the tensor has one."""
        rows, read, valid = all_rows_of(values, mask, axis=axis)
        return cls(
            low=float(rows.min()),
            high=float(rows.max()),
            peaks=np.abs(rows).max(axis=0),
            sums=read.sum(axis=0),
            squares=np.square(read).sum(axis=0),
            count=valid.sum(axis=0),
        )

    def add(self, other: TensorStatistics) -> None:
        """Add the statistics of another batch."""
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.peaks = np.maximum(self.peaks, other.peaks)
        self.sums, self.squares = self.sums + other.sums, self.squares + other.squares
        self.count = self.count + other.count

    @property
    def means(self) -> Floats:
        """Mean of every channel."""
        return np.asarray(self.sums / np.maximum(self.count, 1))

    @property
    def variances(self) -> Floats:
        """Variance of every channel."""
        # E[x^2] - E[x]^2, which rounding may make negative.
        return np.maximum(self.squares / np.maximum(self.count, 1) - np.square(self.means), 0.0)

    @property
    def span(self) -> float:
        """Width of the range that holds all values and zero, as every grid does."""
        return max(self.high, 0.0) - min(self.low, 0.0)


@dataclasses.dataclass(frozen=True)
class Pair:
    """A Q/DQ pair of an activation.

    Args:
        name: Its name in the plan.
        tensor: The tensor that it quantizes.
        quantizer: Its grid.
        low: Lower end of its range.
        high: Upper end of its range.
        placements: The placements that it serves.
        clipped: Mean square of the clipping error on the data.
    """

    name: str
    tensor: str
    quantizer: QuantizerSpec
    low: float
    high: float
    placements: tuple[Placement, ...]
    clipped: float

    @property
    def switches(self) -> frozenset[Switch]:
        """The sites that it serves."""
        return frozenset((placement.layer, placement.site) for placement in self.placements)

    @functools.cached_property
    def step(self) -> float:
        """Its scale."""
        return float(np.max(numerics.qparams_from_range(self.low, self.high, self.quantizer).scale))

    @property
    def rounding(self) -> float:
        """Mean square of its rounding error, s^2 / 12: that of values distributed uniformly over a step."""
        return self.step**2 / 12.0

    @property
    def span(self) -> float:
        """Width of its range, extended to contain zero."""
        return max(self.high, 0.0) - min(self.low, 0.0)


class Noise:
    """The error of the model's outputs by quantized sites, as a share of the power of the float outputs.

    Args:
        q_model: A calibrated model made by `quantize_model`; it is only read.
        samples: The data.
    """

    def __init__(self, q_model: QuantizedModel, samples: Samples) -> None:
        self._sweep = Sweep(q_model, samples)
        self._labels = samples.labels
        self.reference: list[Array] = self._sweep.keep(frozenset())
        self.switches = list(self._sweep.switches)
        self.of: dict[Switch, float] = {}
        self.total = self.measured(self.switches)

    def measured(self, switches: Iterable[Switch]) -> float:
        """Return the error with only these sites quantized."""
        return noise_of(self.reference, self._sweep.outputs(frozenset(switches)))

    def value(self, metric: Metric, switches: Collection[Switch]) -> float:
        """Return a metric with only these sites quantized."""
        outputs = self._sweep.outputs(frozenset(switches)) if switches else self.reference
        return metric.measure(self.reference, outputs, self._labels)

    def measure_each(self, show: ProgressFunction, stopped: Any) -> bool:
        """Measure every site alone; return whether all were measured before `stopped` returned True."""
        for switch in self.switches:
            if stopped():
                return False
            self.of[switch] = self.measured([switch])
            show(len(self.of), len(self.switches), switch[0])
        return True

    def share(self, switches: Iterable[Switch]) -> float:
        """Return the share of these sites in the sum of the errors of all sites, 0 to 1.

        An infinite error outweighs all finite ones; several infinite ones have equal shares.
        """
        infinite = {switch for switch, error in self.of.items() if math.isinf(error)}
        if infinite:
            return len(infinite.intersection(switches)) / len(infinite)
        total = sum(self.of.values())
        return sum(self.of.get(switch, 0.0) for switch in set(switches)) / total if total else 0.0


def noise_of(reference: list[Array], outputs: list[Array]) -> float:
    """Return the power of the error of outputs divided by that of the reference; of several outputs the worst.

    Infinite for outputs with NaN or infinity, so that no comparison of errors meets a NaN.
    """
    if not all(np.isfinite(array).all() for array in outputs):
        return math.inf
    # SQNR = -10 log10(noise / signal), solved for the ratio; equal outputs have an SQNR of infinity and a ratio of 0.
    return float(10.0 ** (-get_metric("sqnr").measure(reference, outputs) / 10.0))


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The input of detectors.

    Args:
        q_model: The quantized model.
        statistics: Statistics of every tensor of the float model, by name.
        pairs: The Q/DQ pairs of activations.
        noise: The error of every site.
        weights: Float values of all weights, by `<layer>/<weight>`.
    """

    q_model: QuantizedModel
    statistics: Mapping[str, TensorStatistics]
    pairs: tuple[Pair, ...]
    noise: Noise
    weights: Mapping[str, npt.NDArray[Any]]

    @property
    def plan(self) -> PlacementPlan:
        """The model's plan."""
        return self.q_model.plan

    @property
    def graph(self) -> ModelGraph:
        """The model's graph."""
        return self.plan.graph

    def weight_placements(self) -> list[Placement]:
        """Return the placements of weights."""
        return [placement for placement in self.plan.placements if placement.site == "weight"]


def read_evidence(q_model: QuantizedModel, samples: Samples, noise: Noise) -> Evidence:
    """Run the float model over the data and return the evidence; the calibrated model is only read."""
    graph, ranges = q_model.plan.graph, q_model.activation_ranges()
    served: dict[str, list[Placement]] = {}
    for placement in q_model.plan.placements:
        pair = q_model.plan.pair_of(placement)
        if placement.site != "weight" and pair.name in ranges:
            served.setdefault(pair.name, []).append(placement)
    clipped: dict[str, float] = dict.fromkeys(served, 0.0)
    statistics: dict[str, TensorStatistics] = {}
    for batch in tensor_values(q_model, samples.batches):
        for name, values in batch.float.items():
            if not values.ndim or not values.size:
                continue
            found = TensorStatistics.of(values, channel_axis(graph, name, values.ndim), batch.masks.get(name))
            if name in statistics and len(statistics[name].peaks) == len(found.peaks):
                statistics[name].add(found)
            else:  # batches of sequences with different lengths, whose channel axis is not the last one
                statistics[name] = found
        for pair_name, placements in served.items():
            values, (low, high) = batch.float[placements[0].tensor], ranges[pair_name]
            # Every grid holds 0, so that a range on one side of 0 is extended to it.
            cut = values.astype(np.float64) - np.clip(values, min(low, 0.0), max(high, 0.0))
            # Weighted by samples: the last batch may be smaller.
            clipped[pair_name] += float(np.square(cut).mean()) * len(values) / max(samples.count, 1)
    pairs = tuple(
        Pair(name, placed[0].tensor, placed[0].quantizer, *ranges[name], tuple(placed), clipped[name])
        for name, placed in served.items()
    )
    return Evidence(q_model, statistics, pairs, noise, weight_values(q_model))


def channel_axis(graph: ModelGraph, tensor: str, rank: int) -> int:
    """Return the channel axis of a tensor: the last, or the second if its producer or a reader is channels-first."""
    beside: list[Node] = [graph.producer(tensor), *(node for node, _ in graph.readers(tensor))]
    first = any(node.settings.get("data_format") == "channels_first" for node in beside)
    return 1 if first and rank > 2 else rank - 1
