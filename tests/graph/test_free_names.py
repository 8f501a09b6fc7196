"""Names that nothing else has: one way to number them, whatever stands between name and number."""

import pytest

from qdq_workbench.graph.free_names import free_name, take_name


@pytest.mark.parametrize(("separator", "expected"), [("_", "conv_3"), ("~", "conv~2"), ("__", "conv__2")])
def test_the_first_number_that_is_free(separator, expected):
    taken = {"conv", "conv_2"}
    assert free_name("dense", taken, separator) == "dense"
    assert free_name("conv", taken, separator) == expected
    assert taken == {"conv", "conv_2"}


def test_a_name_that_is_taken_is_not_given_again():
    taken = set()
    assert [take_name("conv", taken) for _ in range(3)] == ["conv", "conv_2", "conv_3"]
    assert take_name("conv_2", taken) == "conv_2_2"
    assert taken == {"conv", "conv_2", "conv_3", "conv_2_2"}
