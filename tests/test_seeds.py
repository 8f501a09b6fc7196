"""Another seed gives the tests of a file another order, and loses none."""

import types

from seeds import another_order


def order(seed):
    items = [types.SimpleNamespace(path=file, name=f"{file}{index}") for file in "ab" for index in range(6)]
    return [item.name for item in another_order(items, seed)]


def test_without_a_seed_the_order_stays():
    assert order(0) == [f"{file}{index}" for file in "ab" for index in range(6)]


def test_the_first_seed_turns_each_file_round():
    assert order(1) == [f"{file}{index}" for file in "ab" for index in (5, 4, 3, 2, 1, 0)]


def test_other_seeds_shuffle_within_files_alike_on_all_workers():
    assert order(7) == order(7) != order(0)
    assert order(7) != order(8)
    assert [name[0] for name in order(7)] == list("aaaaaabbbbbb")
    assert sorted(order(7)) == sorted(order(0))
