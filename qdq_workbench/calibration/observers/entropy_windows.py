"""The relative entropy of all windows around zero, vectorized; `entropy` defines it.

With c the counts, a window's reference P has O occupied bins of n, hence after smoothing

    P_i = c_i - s,  s = e * (n - O) / O   where occupied;   e = 1e-4 elsewhere;   sum_i P_i = all values

and likewise Q_i = q_g - t in the bins of a group g with q_g > 0, else e. As Q is constant within a group,

    KL = [sum_i P_i log P_i - sum_g (sum of P over g) log Q_g] / sum P + log(sum Q / sum P)

needs only sums over groups, which are differences of cumulative sums. Every term of the first sum depends on s,

    (c - s) log(c - s) = c log c - s (1 + log c) + sum_k s^k / (k (k - 1) c^(k - 1)),  k = 2, 3, ...

so cumulative sums of c log c, log c and powers of 1 / c give it for every s; with s <= 0.1 and eight powers it is
exact to 1e-11. With few occupied bins s is larger, and the sum is computed term by term.

ONNX Runtime sums in float32, so among windows of nearly equal divergence its rounding errors decide. The windows whose
divergence is within these errors of the least are therefore computed again in ONNX Runtime's arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_SMOOTHING = 1e-4
_LARGEST_SHARE = 0.1
_POWERS = 8
_ROUNDING_ERRORS = 1e-5  # of sums in float32, see above
_AT_ONCE = 2048  # windows; bounds the memory of the arrays (windows, groups)


def best_window(counts: Array, edges: Array, groups: int) -> tuple[float, float]:
    """Return the ends of the window around zero with the least relative entropy; the narrowest if several are equal.

    The bins around zero are even in number. Nearly equal entropies are compared as ONNX Runtime computes them, rounding
    errors included.
    """
    middle = counts.size // 2
    half = np.arange(groups // 2, middle + 1)
    # As in ONNX Runtime: `middle` is the bin above zero, so a window has one bin more above zero than below it.
    start, end = middle - half, np.minimum(middle + half + 1, counts.size)
    wide = end - start >= groups
    start, end = start[wide], end[wide]
    windows = _Windows(counts)
    parts = range(0, start.size, _AT_ONCE)
    found = [windows.divergence(start[i : i + _AT_ONCE], end[i : i + _AT_ONCE], groups) for i in parts]
    divergence = np.concatenate([*found, [np.inf]])
    least = divergence.min()
    if not np.isfinite(least):
        return float(edges[0]), float(edges[-1])
    near = np.flatnonzero(divergence <= least + _ROUNDING_ERRORS)
    best = min(near, key=lambda i: _divergence_in_float32(counts, int(start[i]), int(end[i]), groups))
    return float(edges[start[best]]), float(edges[end[best]])


class _Windows:
    """Cumulative sums over the bins."""

    def __init__(self, counts: Array) -> None:
        self._counts = counts.astype(np.int64)
        self._sums = _running(self._counts)
        self._occupied = _running(self._counts > 0)
        # 1 keeps logarithms and powers of empty bins finite; `some` then removes these bins from the sums.
        c = np.maximum(self._counts, 1).astype(np.float64)
        some = self._counts > 0
        powers = [some / c**k for k in range(1, _POWERS)]
        self._terms = np.stack([_running(term) for term in (c * np.log(c) * some, np.log(c) * some, *powers)])

    def divergence(self, start: Array, end: Array, groups: int) -> Array:
        """Return KL(P || Q) of windows; infinite if smoothing makes an occupied bin zero or negative."""
        counts, sums = self._counts, self._sums
        before, behind = sums[start], sums[-1] - sums[end]
        first_new = (counts[start] == 0) & (before > 0)
        last_new = (counts[end - 1] == 0) & (behind > 0)
        bins = end - start
        occupied = self._occupied[end] - self._occupied[start] + first_new + last_new
        share = _SMOOTHING * (bins - occupied) / occupied
        reference = self._entropy_of_reference(start, end, before, behind, share)

        size = bins // groups
        places = start[:, None] + size[:, None] * np.arange(groups + 1)
        inside = np.diff(sums[places], axis=1)
        members = np.diff(self._occupied[places], axis=1)
        tail = sums[end] - sums[places[:, -1]]
        tail_bins = bins - size * groups
        tail_members = self._occupied[end] - self._occupied[places[:, -1]]
        whole = tail_bins == 0
        members[:, 0] += first_new
        members[:, -1] += last_new & whole
        tail_members += last_new & ~whole

        of_group = inside.copy()
        of_group[:, -1] += tail
        # Integer division, because ONNX Runtime assigns the quotients to an array of integers.
        merged = of_group // np.maximum(members, 1) * (members > 0)
        kept = merged > 0
        kept_bins = size * kept.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            share_of_merged = _SMOOTHING * (bins - kept_bins) / kept_bins
            smoothed = np.where(kept, merged - share_of_merged[:, None], _SMOOTHING)
            mass = inside - share[:, None] * members + _SMOOTHING * (size[:, None] - members)
            mass[:, 0] += before
            mass[:, -1] += behind * whole
            # ONNX Runtime leaves Q empty in the bins of the remainder, although their counts are in the last group.
            mass_of_tail = tail - share * tail_members + _SMOOTHING * (tail_bins - tail_members) + behind * ~whole
            cross = (mass * np.log(smoothed)).sum(axis=1) + mass_of_tail * np.log(_SMOOTHING)
            total, total_of_merged = float(sums[-1]), (merged * size[:, None]).sum(axis=1)
            result = (reference - cross) / total + np.log(total_of_merged / total)
        possible = (kept_bins > 0) & (smoothed > 0).all(axis=1)
        return np.where(possible & np.isfinite(result), result, np.inf)

    def _entropy_of_reference(self, start: Array, end: Array, before: Array, behind: Array, share: Array) -> Array:
        """Return sum_i P_i log P_i of every window; NaN if the share exceeds the count of an occupied bin."""
        head, *powers = self._terms[:, end - 1] - self._terms[:, start + 1]  # without the first and the last bin
        inner = self._occupied[end - 1] - self._occupied[start + 1]
        logs, *powers = powers
        found = head - share * (inner + logs)
        for k, power in enumerate(powers, start=2):
            found += share**k / (k * (k - 1)) * power
        for window in np.flatnonzero(share > _LARGEST_SHARE):
            c = self._counts[start[window] + 1 : end[window] - 1]
            found[window] = _entropy(c[c > 0] - share[window]).sum()
        empty = end - start - 2 - inner
        for ends in (self._counts[start] + before, self._counts[end - 1] + behind):
            found += np.where(ends > 0, _entropy(ends - share), 0.0)
            empty += ends == 0
        return np.asarray(found + empty * _SMOOTHING * np.log(_SMOOTHING))


def _entropy(values: Array) -> Array:
    """Return x log x; NaN where x is not positive."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(values > 0, values * np.log(values), np.nan))


def _running(values: Array) -> Array:
    """Return the cumulative sums, starting with 0."""
    return np.concatenate([[0], np.cumsum(values)])


def _divergence_in_float32(counts: Array, start: int, end: int, groups: int) -> float:
    """Return KL(P || Q) of one window, in the order of operations and the precision of ONNX Runtime."""
    window = counts[start:end]
    reference = window.copy()
    reference[0] += counts[:start].sum()
    reference[-1] += counts[end:].sum()
    return _relative_entropy(_smooth(reference), _smooth(_merge(window, reference != 0, groups)))


def _merge(window: Array, occupied: Array, groups: int) -> Array:
    """Merge a window into groups and divide each group's count among its occupied bins."""
    size = window.size // groups
    regular = groups * size
    sums = window[:regular].reshape(groups, size).sum(axis=1)
    sums[-1] += window[regular:].sum()
    members = occupied[:regular].reshape(groups, size).sum(axis=1)
    merged = np.zeros(window.size, np.int64)
    merged[:regular] = np.repeat(np.where(members > 0, sums // np.maximum(members, 1), 0), size)
    return merged


def _smooth(counts: Array) -> Array | None:
    """Raise empty bins to a small value and subtract their sum evenly from the others; None if all are empty."""
    empty = counts == 0
    zeros = int(empty.sum())
    if zeros == counts.size:
        return None
    share = _SMOOTHING * zeros / (counts.size - zeros)
    return np.where(empty, np.float32(_SMOOTHING), counts.astype(np.float32) - np.float32(share))


def _relative_entropy(p: Array | None, q: Array | None) -> float:
    if p is None or q is None or (p <= 0).any() or (q <= 0).any():
        return float("inf")
    p, q = p / p.sum(dtype=np.float32), q / q.sum(dtype=np.float32)
    return float(np.sum(p * np.log(p / q), dtype=np.float32))
