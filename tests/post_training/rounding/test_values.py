"""What lies between units: in memory, or in files that go with the arrays."""

import numpy as np

from qdq_workbench.post_training.rounding.values import Values


def test_beyond_the_bound_they_lie_in_files():
    first, second, third = (np.full((4, 8), value, np.float32) for value in (1, 2, 3))
    values = Values({"input": first}, in_memory=2 * first.nbytes)
    values.add({"second": second})
    values.add({"third": third})
    held = values.read(["input", "second", "third"])
    assert [isinstance(array, np.memmap) for array in held.values()] == [False, False, True]
    assert all((array == value).all() for array, value in zip(held.values(), (1, 2, 3), strict=True))


def test_what_nobody_reads_is_forgotten():
    values = Values({"input": np.zeros(3)}, in_memory=100)
    values.add({"other": np.ones(3)})
    values.keep({"other"})
    values.add({"later": np.ones(8)})
    assert set(values.read(["other", "later"])) == {"other", "later"}
