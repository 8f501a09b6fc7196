"""What `make test` leaves out: cases of tests whose other cases stay, and whose lines other tests reach."""

import pytest
from mutation.further_cases import KEPT, LIST, further_cases, stays
from named_tests import functions
from project import ROOT

LEFT_OUT = LIST.read_text(encoding="utf-8").splitlines()
FUNCTIONS = sorted({name.partition("[")[0] for name in LEFT_OUT})


def chosen(lines, *tests):
    """Return what is left out of tests, given by their ids, seconds and, where it matters, whether they passed."""
    return further_cases([(*test, True)[:3] for test in tests], {"module.py": lines}, seconds=1.0)


A, B, C = "tests/test_it.py::test[a]", "tests/test_it.py::test[b]", "tests/test_it.py::test[c]"


def test_the_longest_cases_are_left_out_first_and_one_of_them_stays():
    assert chosen({"1": [0, 1, 2, 3]}, (A, 2.0), (B, 4.0), (C, 3.0), ("tests/test_it.py::other", 9.0)) == [B, C]


def test_short_ones_failed_ones_and_tests_of_one_case_stay():
    assert chosen({"1": [0, 1, 2]}, (A, 0.9), (B, 4.0, False), ("tests/test_it.py::one[x]", 9.0)) == []


def test_every_line_is_reached_by_two_others_one_of_them_in_the_same_file():
    elsewhere = ("tests/test_more.py::test", 0.1), ("tests/test_more.py::again", 0.1)
    assert chosen({"1": [0, 1, 2]}, (A, 2.0), (B, 0.1), elsewhere[0]) == [A]
    assert chosen({"1": [0, 1]}, (A, 2.0), (B, 0.1), elsewhere[0]) == []
    assert chosen({"1": [0, 2, 3], "2": [1]}, (A, 2.0), (B, 0.1), *elsewhere) == []
    assert chosen({"1": [0, 1, 2], "2": [-1, 0]}, (A, 2.0), (B, 0.1), elsewhere[0]) == []


def test_what_is_left_out_counts_no_more():
    lines = {"1": [0, 1, 2, 3]}
    others = ("tests/test_it.py::other[x]", 3.0), ("tests/test_it.py::other[y]", 0.1)
    assert chosen(lines, (A, 2.0), (B, 0.1), *others) == [others[0][0], A]
    assert chosen({"1": [0, 1, 2]}, (A, 2.0), (B, 0.1), others[0]) == [A]
    assert chosen({"1": [0, 2, 3]}, (A, 2.0), (B, 0.1), *others) == [others[0][0]]


def test_cases_that_are_faults_or_things_to_compare_stay():
    for path in KEPT:
        assert (ROOT / path).is_file()
        assert stays(f"{path}::test_anything")
    assert stays("tests/verification/test_large_biases.py::nothing") is False
    assert stays("tests/analysis/test_search_exact.py::test_of_all_places_of_pairs_the_best_is_found")  # REGRESSIONS.md


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_list_names_tests_that_exist_and_may_be_left_out(function):
    path, _, rest = function.partition("::")
    assert rest.rpartition("::")[2] in functions(path)
    assert not stays(function)


def test_the_list_is_sorted_and_names_cases():
    assert sorted(set(LEFT_OUT)) == LEFT_OUT
    assert [name for name in LEFT_OUT if not name.endswith("]")] == []
