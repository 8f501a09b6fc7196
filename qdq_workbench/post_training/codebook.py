"""Weights with a few levels found by clustering: k-means, and lookup tables on an integer grid.

One-dimensional k-means by Lloyd's iteration from quantiles, with 2^n clusters per scale:

    "kmeans"   the levels are the centres themselves: any float values. No QDQ file holds such weights as integers
               (that would need an index tensor and a Gather from a table, which no runtime fuses with a convolution),
               so they are float weights: leave them in float with `quantize_weight=False`, or the quantizer rounds
               them to its own grid
    "lut"      the centres are rounded to the grid that they span, s = max|centre| / (2^(m-1) - 1) on a symmetric grid
               with the plan's m bits (8 by default). The quantized model and the file use the same grid, so the
               weights are stored as integers of which at most 2^n occur per scale

Source: `KMEANS` and `LUT_QUANTIZER` of Sony's MCT (common/quantization/quantizers).
"""

from __future__ import annotations

import keras
import numpy as np

from qdq_workbench._numbers import whole
from qdq_workbench.errors import QuantizerError
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.targets import Target
from qdq_workbench.post_training.clip_weights import per_slice
from qdq_workbench.post_training.weight_grids import bind_float, copy_of, variable_of, weight_placements
from qdq_workbench.quantizers import numerics
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_ITERATIONS = 50


def codebook_weights(
    model: keras.Model,
    num_bits: int = 4,
    method: str = "lut",
    *,
    plan: PlacementPlan | None = None,
    target: str | Target = "tensorrt",
) -> keras.Model:
    """Return a copy of a float model whose weights take at most `2 ** num_bits` values per scale.

    Args:
        model: A built functional or sequential Keras model; it is only read.
        num_bits: Number of bits of the codes, 1 to 8.
        method: "lut" (levels on the weight's integer grid) or "kmeans" (any levels); see the module docstring for how
            each is stored.
        plan: A plan of this model, which decides the quantized weights and their grids; None for the default plan.
        target: The target of the default plan. A plan has its own.

    Returns:
        The model with clustered weights, not compiled.

    Raises:
        QuantizerError: If the method is unknown, or `num_bits` out of bounds.
        SpecError: If the plan is of another model, or for another target than the given one.
        TargetError: If the target is unknown.
        UnsupportedModelError: If the model's graph cannot be read.
        UnbuiltModelError: If the model does not know its input shape.

    Example:
        >>> image = keras.Input((50,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(2, name="head")(image))
        >>> clustered = codebook_weights(model, num_bits=2).get_layer("head").kernel.numpy()
        >>> [len(np.unique(column)) for column in clustered.T]
        [4, 4]
    """
    if method not in ("lut", "kmeans"):
        raise QuantizerError(f'method must be "lut" or "kmeans". Received: method={method!r}')
    num_bits = whole(num_bits)
    if isinstance(num_bits, bool) or not isinstance(num_bits, int) or not 1 <= num_bits <= 8:
        raise QuantizerError(f"num_bits must be an integer from 1 to 8. Received: num_bits={num_bits!r}")
    placements = weight_placements(model, bind_float(model), plan, target)
    copy, layers = copy_of(model)
    for placement in placements:
        variable = variable_of(layers[placement.layer], placement.weight or "")
        variable.assign(clustered(np.asarray(variable, np.float32), num_bits, method, placement.quantizer))
    return copy


def clustered(values: np.ndarray, num_bits: int, method: str, spec: QuantizerSpec) -> np.ndarray:
    """Return an array whose values are levels of codebooks, one codebook for each set of values that share a scale."""
    grid = spec.replace(axis=None, block_size=None)

    def cluster(piece: np.ndarray) -> np.ndarray:
        centres = cluster_centres(piece, 2**num_bits)
        return _nearest(piece, _on_their_grid(centres, grid) if method == "lut" else centres)

    return per_slice(values, spec, cluster)


def cluster_centres(values: np.ndarray, count: int) -> np.ndarray:
    """Return the centres of at most `count` clusters of values, increasing.

    Example:
        >>> cluster_centres(np.array([0.0, 0.2, 5.0, 5.2]), 2).round(3).tolist()
        [0.1, 5.1]
    """
    ordered = np.sort(values.reshape(-1).astype(np.float64))
    distinct = np.unique(ordered)
    if distinct.size <= count:
        return distinct
    # Quantiles of distinct values: a frequent value such as 0 would else take several centres.
    centres = np.quantile(distinct, (np.arange(count) + 0.5) / count)
    # A cluster is a section of the ordered values, so its mean is a difference of cumulative sums.
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    for _ in range(_ITERATIONS):
        borders = np.searchsorted(ordered, (centres[:-1] + centres[1:]) / 2)
        ends = np.concatenate([[0], borders, [ordered.size]])
        sizes = np.diff(ends)
        moved = np.where(sizes > 0, np.diff(sums[ends]) / np.maximum(sizes, 1), centres)
        if np.allclose(moved, centres, rtol=1e-9, atol=0.0):
            break
        centres = np.sort(moved)
    return centres


def _on_their_grid(centres: np.ndarray, spec: QuantizerSpec) -> np.ndarray:
    """Return the centres rounded to the integer grid that they span."""
    qparams = numerics.qparams_from_range(centres.min(), centres.max(), spec)
    return numerics.fake_quantize(centres, qparams).astype(np.float64)


def _nearest(values: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return for every value the nearest of some increasing centres, as float32."""
    places = np.searchsorted((centres[:-1] + centres[1:]) / 2, values)
    return np.asarray(centres[places], np.float32)
