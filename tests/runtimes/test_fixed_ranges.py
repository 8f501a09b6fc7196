"""The zero points that a plan knows, those of fixed ranges, are the ones that the quantizers make."""

import pytest

from qdq_workbench.quantizers.numerics import qparams_from_range
from qdq_workbench.runtimes.fixed_ranges import fixed_ends, steps_below_zero
from qdq_workbench.spec.quantizer_method import QuantizerMethod
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

GRIDS = {
    "uint8": {"signed": False},
    "int8": {},
    "narrow": {"narrow_range": True},
    "uint4": {"signed": False, "num_bits": 4},
    "int16": {"num_bits": 16},
}
#: Ranges, with the ends that contain 0.
ENDS = {
    (-1.0, 3.0): (-1.0, 3.0),
    (0.0, 6.0): (0.0, 6.0),
    (0.5, 1.5): (0.0, 1.5),
    (-1.5, -0.5): (-1.5, 0.0),
    (-0.002, 1.5): (-0.002, 1.5),
    (-0.004, 1.5): (-0.004, 1.5),
    (0.0, 0.0): (0.0, 0.0),
}


def fixed(low, high):
    return QuantizerMethod.make("fixed", {"init_min": low, "init_max": high})


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("ends", ENDS)
def test_the_zero_point_is_that_of_the_quantizer(ends, grid):
    spec = QuantizerSpec(symmetric=False, **GRIDS[grid])
    found = fixed_ends(fixed(*ends))
    assert found == ENDS[ends]
    assert spec.qmin + steps_below_zero(spec, found) == int(qparams_from_range(*ends, spec).zero_point)


@pytest.mark.parametrize("method", [None, QuantizerMethod.make("moving_average", {"momentum": 0.9})])
def test_an_observed_range_has_no_ends_before_it_is_observed(method):
    assert fixed_ends(method) is None
