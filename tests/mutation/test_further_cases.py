"""What `make test` leaves out: cases of tests whose other cases stay, and whose lines other tests reach."""

import pytest
from left_out import LIST, choices, left_out
from mutation.further_cases import KEPT, further_cases, stays
from named_tests import OF_REGRESSIONS, functions
from project import ROOT

LEFT_OUT = LIST.read_text(encoding="utf-8").splitlines()
FUNCTIONS = sorted({name.partition("[")[0] for name in LEFT_OUT})


def chosen(lines, *tests, gone=()):
    """Return what is left out of tests, given by their ids, seconds and, where it matters, whether they passed."""
    return further_cases([(*test, True)[:3] for test in tests], {"module.py": lines}, seconds=1.0, gone=gone)


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


def test_what_is_left_out_by_reading_reaches_no_line():
    tests = (A, 2.0), (B, 4.0), (C, 3.0)
    assert chosen({"1": [0, 1, 2]}, *tests) == [B]
    assert chosen({"1": [0, 1, 2]}, *tests, gone={A}) == []
    assert chosen({"1": [0, 1, 2]}, (A, 9.0), (B, 0.1), (C, 0.1), gone={A}) == []


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


@pytest.mark.parametrize("choice", choices(), ids=lambda choice: choice.left_out[0])
def test_what_is_left_out_by_reading_is_held_by_tests_that_stay(choice):
    assert len(choice.because) > 20
    assert not left_out() & set(choice.held_by)
    for name in (*choice.left_out, *choice.held_by):
        path, _, rest = name.partition("[")[0].partition("::")
        assert rest.rpartition("::")[2] in functions(path), name
    for name in choice.left_out:
        function = name.partition("[")[0]
        path, _, rest = function.partition("::")
        is_of_a_regression = (path, rest.rpartition("::")[2]) in OF_REGRESSIONS
        assert not is_of_a_regression or any(each.startswith(f"{function}[") for each in choice.held_by)


def test_nothing_is_left_out_twice():
    read = [name for choice in choices() for name in choice.left_out]
    assert len(set(read)) == len(read)
    assert not set(read) & set(LEFT_OUT)
