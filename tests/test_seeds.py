"""Another seed gives the tests of a file another order, and loses none; nothing draws beside the seeds."""

import itertools
import re
import types

import keras
import numpy as np
from project import ROOT
from seeds import Seeds, another_order

#: How TensorFlow's kernels draw from a state of their own, which `seeds.kernels_kept` leaves as it is.
DRAWING = re.compile(r"\btf\.random\.(?!stateless_|Generator|set_seed)\w+|\braw_ops\.Random")
X = np.ones((1, 2), "float32")


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


def test_nothing_draws_from_the_state_of_a_kernel():
    folders = (ROOT / name for name in ("tests", "qdq_workbench", "widgets/qdq_widgets"))
    sources = itertools.chain(*(folder.rglob("*.py") for folder in folders))
    found = {path.name for path in sources if DRAWING.search(path.read_text(encoding="utf-8"))}
    assert found == {"test_size_steps.py"}, "in a graph that is read and not run; others: set a seed in the test itself"


def test_the_same_name_gives_the_same_numbers():
    test, drawn = types.SimpleNamespace(nodeid="a test"), []
    for _ in range(2):
        Seeds(0).pytest_runtest_call(test)
        drawn.append((np.random.random(), float(keras.random.uniform(())), float(keras.layers.Dense(1)(X)[0, 0])))
    assert drawn[0] == drawn[1]
    Seeds(1).pytest_runtest_call(test)
    assert np.random.random() != drawn[0][0]
