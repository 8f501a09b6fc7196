"""Hypothesis strategies for grids, ranges and the values that lie on them, between them and far off."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qdq_workbench.numerics import qparams_from_range
from qdq_workbench.quantizers.blocks import scale_shape, spread
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

SHAPE = (3, 4, 5)


def specs(axes=(None,), blocks=(None,)):
    """Return a strategy for every kind of grid: 2 to 16 bits, signed, symmetric, narrow, per axis or in blocks."""
    return st.builds(
        lambda axis, block_size, **rest: QuantizerSpec(
            **rest, axis=axis, block_size=None if axis is None else block_size
        ),
        num_bits=st.integers(2, 16),
        signed=st.booleans(),
        symmetric=st.booleans(),
        narrow_range=st.booleans(),
        axis=st.sampled_from(axes),
        block_size=st.sampled_from(blocks),
    )


def floats32(magnitude=1e6):
    """Return a strategy for finite float32 numbers, tiny ones included."""
    limit = float(np.float32(magnitude))
    return st.one_of(
        st.floats(-limit, limit, width=32),
        st.floats(-1.0, 1.0, width=32),
        st.sampled_from([0.0, -0.0, 1e-45, -1e-40, 1e-35, 6.0, -6.0, 255.0]).map(lambda v: float(np.float32(v))),
    )


@st.composite
def ranges(draw, shape=()):
    """Draw a range: lowest and highest values of a shape, equal ones and one-sided ones included."""
    first = draw(hnp.arrays(np.float32, shape, elements=floats32()))
    second = draw(hnp.arrays(np.float32, shape, elements=floats32()))
    return np.minimum(first, second), np.maximum(first, second)


@st.composite
def qparams(draw, axes=(None, 0, 1, -1)):
    """Draw a grid with the scale and zero point of a range; per-axis ones and blocks fit tensors of `SHAPE`."""
    spec = draw(specs(axes, (None, 2, 3)))
    low, high = draw(ranges(scale_shape(SHAPE, spec)))
    return qparams_from_range(low, high, spec)


def values_for(params, seed, shape=SHAPE):
    """Return values around a grid: at random, exactly half way between levels, at the ends, outside."""
    rng = np.random.default_rng(seed)
    scale = spread(params.scale, shape, params.spec).astype(np.float64)
    zero_point = spread(params.zero_point, shape, params.spec)
    low, high = params.spec.qmin - zero_point, params.spec.qmax - zero_point
    steps = rng.uniform(1.2 * low - 2, 1.2 * high + 2, shape)
    ties = np.floor(steps) + 0.5
    ends = np.where(rng.random(shape) < 0.5, low, high) + rng.choice([-0.5, 0.0, 0.5], shape)
    kind = rng.integers(0, 3, shape)
    return (np.choose(kind, [steps, ties, ends]) * scale).astype(np.float32)
