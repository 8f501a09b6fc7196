"""Ten decisions, and decisions about pairs: what a search calls exact is the optimum of all placements.

Ten layers have as many placements as the search is allowed here, a quarter of what it is allowed otherwise.
"""

import hashlib
import itertools

import keras
import numpy as np
import pytest
from keras import layers
from searched_nets import Chain, Clock, measured_by

import qdq_workbench as qdq
from qdq_workbench.analysis import search_run
from qdq_workbench.analysis.levels import FLOAT, raise_layers
from qdq_workbench.analysis.places import pairs_of
from qdq_workbench.analysis.search_result import cost_of
from qdq_workbench.analysis.search_strategies import MOST_EXACT

QUIET = {"verbose": False}


@pytest.fixture(scope="module")
def chain():
    return Chain(10)


@pytest.fixture
def find(chain, monkeypatch):
    monkeypatch.setattr(search_run, "MOST_EXACT", len(chain.every))
    return lambda **wanted: chain.find(monkeypatch, **wanted)


@pytest.fixture
def timed(chain, monkeypatch):
    monkeypatch.setattr(search_run, "MOST_EXACT", len(chain.every))
    return lambda seed, **wanted: chain.timed(monkeypatch, seed, **wanted)


def test_the_search_is_allowed_what_its_documentation_says():
    assert f"up to {MOST_EXACT:,} placements" in qdq.search.__doc__
    assert MOST_EXACT == 2**12, "twelve layers"


@pytest.mark.parametrize(("objective", "share"), [("bytes", 0.6), ("macs", 0.9)])
def test_of_ten_layers_the_cheapest_of_all_1024_placements_is_found(find, chain, objective, share):
    floor = float(np.quantile(chain.accuracies, share))
    weight_bytes, macs = chain.bytes_and_macs()

    result = find(accuracy_floor=floor, objective=objective)

    costs = (weight_bytes, macs) if objective == "bytes" else (macs, weight_bytes)
    own = (result.best.weight_bytes, result.best.float_macs)
    enough = chain.accuracies >= floor
    least = min(zip(costs[0][enough], costs[1][enough], strict=True))
    assert (own if objective == "bytes" else own[::-1]) == least
    assert own == (weight_bytes[chain.place(result.best.levels)], macs[chain.place(result.best.levels)])
    assert (result.met, result.exact, result.complete) == (True, True, True)


def test_of_ten_layers_the_most_accurate_of_all_within_a_budget_is_found(find, chain):
    weight_bytes, _ = chain.bytes_and_macs()
    budget = int(np.quantile(weight_bytes, 0.2))

    result = find(max_bytes=budget, objective="accuracy")

    # More than the float model has counts as equal to it.
    assert min(result.search_accuracy, 1.0) == min(chain.accuracies[weight_bytes <= budget].max(), 1.0)
    assert result.best.weight_bytes <= budget
    assert result.exact


def places_of_pairs(count):
    """All places of the pairs of a layer with some inputs: which inputs have one, and whether the output has."""
    some = [set(chosen) for size in range(count + 1) for chosen in itertools.combinations(range(count), size)]
    return [(sorted(inputs), output) for inputs in some for output in (False, True)]


def level(inputs, output):
    if not inputs and not output:
        return FLOAT
    named = f"inputs {', '.join(map(str, inputs))}" if inputs else "no inputs"
    return f"{named} {'with' if output else 'without'} output"


def random_share(*of):
    """A number from 0 to 1 that is the same for the same arguments."""
    return int(hashlib.sha256(repr(of).encode()).hexdigest()[:8], 16) / 16**8


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("objective", ["macs", "accuracy"])
def test_of_all_places_of_pairs_the_best_is_found(monkeypatch, seed, objective):
    keras.utils.set_random_seed(0)
    image = keras.Input((6, 6, 2), name="image")
    stem = layers.Conv2D(2, 3, padding="same", name="stem")(image)
    joined = layers.Add(name="join")([stem, layers.Conv2D(2, 3, padding="same", name="side")(stem)])
    head = layers.Conv2D(3, 1, name="head")(layers.MaxPooling2D(name="pool")(joined))
    q_model = qdq.quantize_model(keras.Model(image, head), target="onnxruntime")
    x = np.random.default_rng(0).normal(size=(16, 6, 6, 2)).astype("float32")
    qdq.calibrate(q_model, x, **QUIET)

    def accuracy(plan):
        pairs = sorted(map(repr, pairs_of(plan)))
        return 1.0 - sum(0.1 * random_share(seed, pair) for pair in pairs) - 0.05 * random_share(seed, pairs)

    every = []
    products = [[(None, name), (FLOAT, name)] for name in ("stem", "side", "head")]
    moved = [[(None, name), *((level(*each), name) for each in places_of_pairs(count))]
             for name, count in (("join", 2), ("pool", 1))]  # fmt: skip
    for chosen in itertools.product(*products, *moved):
        plan = raise_layers(q_model.plan, {name: wanted for wanted, name in chosen if wanted is not None})
        every.append((accuracy(plan), *cost_of(plan)))
    measured_by(monkeypatch, accuracy)
    floor = sorted(every)[len(every) // 2][0]
    budget = sorted(size for _, size, _ in every)[len(every) // 2]
    wanted = {"accuracy_floor": floor} if objective == "macs" else {"max_bytes": budget}

    result = qdq.search(q_model, x, metric="cosine", objective=objective, pairs=True, **wanted, **QUIET)

    if objective == "macs":
        least = min((macs, size) for share, size, macs in every if share >= floor)
        assert (result.best.float_macs, result.best.weight_bytes) == least
    else:
        assert result.search_accuracy == max(share for share, size, _ in every if size <= budget)
    assert result.exact


def test_of_ten_layers_the_fastest_of_all_1024_files_is_found(timed, chain):
    floor = float(np.quantile(chain.accuracies, 0.5))

    result, clock = timed(0, objective="ms", accuracy_floor=floor)

    every = clock.of(chain.every)
    assert result.best.ms == pytest.approx(every[chain.accuracies >= floor].min(), rel=1e-12)
    assert set(clock.timed) == {tuple(floats) for floats in chain.every[chain.accuracies >= floor]}, (
        "others are not timed"
    )
    assert (result.met, result.exact) == (True, True)
    assert "no other placement measured better" in result.reason


def test_of_ten_layers_the_smallest_of_all_that_are_fast_enough_is_found(timed, chain):
    every, (weight_bytes, macs) = Clock(1, chain.names).of(chain.every), chain.bytes_and_macs()
    most = float(np.quantile(every, 0.1))

    result, _ = timed(1, accuracy_floor=float(np.quantile(chain.accuracies, 0.3)), max_ms=most)

    fits = (every <= most) & (chain.accuracies >= np.quantile(chain.accuracies, 0.3))
    assert (result.best.weight_bytes, result.best.float_macs) == min(zip(weight_bytes[fits], macs[fits], strict=True))
    assert (result.met, result.exact) == (True, True)
