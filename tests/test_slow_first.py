"""Every worker begins with its share of the slow rooms."""

import pytest
from slow_first import slow_first


def order(counts, workers):
    """Rooms `a` to `c` of some slow tests each, among quick ones."""
    names = [f"{room}{index}" for room, count in counts.items() for index in range(count)]
    return slow_first(names, lambda name: name[0] in "abc", lambda name: name[0], workers)


def runs(names, workers):
    """What `--dist worksteal` gives each worker at the start."""
    found = []
    for number in range(workers):
        size = len(names) // (workers - number)
        found.append(names[:size])
        names = names[size:]
    return found


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_no_test_is_lost_or_run_twice(workers):
    names = order({"a": 5, "q": 20, "b": 2, "c": 1}, workers)
    assert sorted(names) == sorted(set(names))
    assert len(names) == 28


def test_every_worker_begins_with_whole_rooms():
    first, second, third = runs(order({"q": 20, "a": 4, "b": 2, "c": 1}, 3), 3)
    assert [name for name in first if name[0] != "q"] == first[:4] == ["a0", "a1", "a2", "a3"]
    assert [name for name in second if name[0] != "q"] == second[:2] == ["b0", "b1"]
    assert [name for name in third if name[0] != "q"] == third[:1] == ["c0"]


def test_one_worker_runs_the_slow_ones_first():
    assert [name[0] for name in order({"q": 3, "b": 1, "a": 2}, 1)] == ["a", "a", "b", "q", "q", "q"]


def test_more_slow_tests_than_a_run_holds():
    names = order({"a": 9, "b": 1, "q": 2}, 3)
    assert sorted(names) == sorted(set(names))
    assert names[:9] == [f"a{index}" for index in range(9)]
