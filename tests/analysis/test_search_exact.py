"""Twelve decisions, and decisions about pairs: what a search calls exact is the optimum of all placements."""

import hashlib
import itertools
import types

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.analysis import search as searching
from qdq_workbench.analysis import search_run, search_trials
from qdq_workbench.analysis.levels import FLOAT, raise_layers
from qdq_workbench.analysis.places import pairs_of
from qdq_workbench.analysis.search_result import cost_of

QUIET = {"verbose": False}
WIDTHS = (5, 3, 9, 4, 6, 2, 8, 7, 3, 5, 4, 6)
NAMES = [f"dense_{number}" for number in range(12)]
EVERY = np.array(list(itertools.product((0, 1), repeat=12)))  # 1 for a layer in float


@pytest.fixture(scope="module")
def chain():
    """A calibrated model of twelve layers, samples, and a ranking."""
    keras.utils.set_random_seed(1)
    value = image = keras.Input((4,), name="image")
    for name, width in zip(NAMES, WIDTHS, strict=True):
        value = layers.Dense(width, name=name)(value)
    q_model = qdq.quantize_model(keras.Model(image, value), target="onnxruntime")
    x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
    qdq.calibrate(q_model, x, **QUIET)
    return q_model, x, qdq.sensitivity(q_model, x, **QUIET)


@pytest.fixture(scope="module")
def accuracies():
    """The accuracy of all 4,096 placements: what layers cost together is not the sum of what they cost alone."""
    generator = np.random.default_rng(0)
    alone, together = generator.exponential(0.02, 12), generator.normal(0.0, 0.004, (12, 12))
    quantized = 1 - EVERY
    return 1.0 - quantized @ alone - np.einsum("ni,ij,nj->n", quantized, together, quantized)


def measured_by(monkeypatch, accuracy_of_plan):
    """Let a function of the plan stand in for every measurement of accuracy; return the plans that it was asked for."""
    asked = []

    def known(plan):
        asked.append(plan)
        return accuracy_of_plan(plan)

    class Switched:
        def __init__(self, *_):
            pass

        def measure(self, plan):
            return known(plan)

    def judge_of(*_):
        return lambda model, float_model: 1.0 if model is float_model else known(model.plan)

    monkeypatch.setattr(searching, "SwitchedTrials", Switched)
    monkeypatch.setattr(searching, "judge_of", judge_of)
    return asked


def bytes_and_macs():
    """The bytes of weights and the operations in float of all placements of the chain, from its shapes alone."""
    kernels = np.array([before * after for before, after in itertools.pairwise((4, *WIDTHS))])
    return 4 * sum(WIDTHS) + (1 + 3 * EVERY) @ kernels, EVERY @ kernels


def place(levels):
    return int("".join(str(int(levels.get(name) == FLOAT)) for name in NAMES), 2)


@pytest.fixture
def find(chain, accuracies, monkeypatch):
    q_model, x, ranking = chain

    def accuracy(plan):
        floats = {name: FLOAT for name in NAMES if not plan.for_layer(name).quantize_weight}
        return float(accuracies[place(floats)])

    measured_by(monkeypatch, accuracy)
    return lambda **wanted: qdq.search(q_model, x, metric="cosine", ranking=ranking, **wanted, **QUIET)


@pytest.mark.parametrize(("objective", "share"), [("bytes", 0.6), ("macs", 0.9)])
def test_of_twelve_layers_the_cheapest_of_all_4096_placements_is_found(find, accuracies, objective, share):
    floor = float(np.quantile(accuracies, share))
    weight_bytes, macs = bytes_and_macs()

    result = find(accuracy_floor=floor, objective=objective)

    costs = (weight_bytes, macs) if objective == "bytes" else (macs, weight_bytes)
    own = (result.best.weight_bytes, result.best.float_macs)
    enough = accuracies >= floor
    least = min(zip(costs[0][enough], costs[1][enough], strict=True))
    assert (own if objective == "bytes" else own[::-1]) == least
    assert own == (weight_bytes[place(result.best.levels)], macs[place(result.best.levels)])
    assert (result.met, result.exact, result.complete) == (True, True, True)


def test_of_twelve_layers_the_most_accurate_of_all_within_a_budget_is_found(find, accuracies):
    weight_bytes, _ = bytes_and_macs()
    budget = int(np.quantile(weight_bytes, 0.2))

    result = find(max_bytes=budget, objective="accuracy")

    # More than the float model has counts as equal to it.
    assert min(result.search_accuracy, 1.0) == min(accuracies[weight_bytes <= budget].max(), 1.0)
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


class Clock:
    """A stopwatch that knows all times: layers gain from INT8 or lose, and every change of type between two costs."""

    def __init__(self, seed):
        generator = np.random.default_rng(seed)
        self.gains, self.change = generator.normal(0.2, 0.4, 12), 0.15
        self.told = self.gains + generator.normal(0.0, 0.05, 12)
        self.timed = []

    def __call__(self, *_):
        return self

    def of(self, floats):
        """Return the milliseconds of a run, given 1 for every layer in float."""
        changes = np.abs(np.diff(floats, axis=-1)).sum(-1)
        return 10.0 - (1 - floats) @ self.gains + self.change * changes

    def ms(self, model, **_):
        floats = np.array([not model.plan.for_layer(name).quantize_weight for name in NAMES], int)
        self.timed.append(tuple(floats))
        return float(self.of(floats))

    def profile(self, _):
        return types.SimpleNamespace(
            gains=[types.SimpleNamespace(layers=(name,), ms=float(gain), baseline_ms=0.0)
                   for name, gain in zip(NAMES, self.told, strict=True)]
        )  # fmt: skip

    def close(self):
        pass


@pytest.fixture
def timed(find, monkeypatch):
    """Search with a clock of some seed, without building a model per placement."""
    monkeypatch.setattr(search_trials, "replan", lambda q_model, plan: types.SimpleNamespace(plan=plan))

    def run(seed, **wanted):
        clock = Clock(seed)
        monkeypatch.setattr(searching, "Stopwatch", clock)
        return find(**wanted), clock

    return run


def test_of_twelve_layers_the_fastest_of_all_4096_files_is_found(timed, accuracies):
    floor = float(np.quantile(accuracies, 0.5))

    result, clock = timed(0, objective="ms", accuracy_floor=floor)

    every = clock.of(EVERY)
    assert result.best.ms == pytest.approx(every[accuracies >= floor].min(), rel=1e-12)
    assert set(clock.timed) == {tuple(floats) for floats in EVERY[accuracies >= floor]}, "others are not timed"
    assert (result.met, result.exact) == (True, True)
    assert "no other placement measured better" in result.reason


def test_of_twelve_layers_the_smallest_of_all_that_are_fast_enough_is_found(timed, accuracies):
    every, (weight_bytes, macs) = Clock(1).of(EVERY), bytes_and_macs()
    most = float(np.quantile(every, 0.1))

    result, _ = timed(1, accuracy_floor=float(np.quantile(accuracies, 0.3)), max_ms=most)

    fits = (every <= most) & (accuracies >= np.quantile(accuracies, 0.3))
    assert (result.best.weight_bytes, result.best.float_macs) == min(zip(weight_bytes[fits], macs[fits], strict=True))
    assert (result.met, result.exact) == (True, True)


def test_a_solver_of_times_finds_what_is_never_slower_than_without(timed, accuracies, monkeypatch):
    monkeypatch.setattr(search_run, "MOST_EXACT", 1)
    wanted = {"objective": "ms", "accuracy_floor": float(np.quantile(accuracies, 0.5))}
    solved = {seed: timed(seed, **wanted)[0] for seed in range(12)}
    monkeypatch.setattr(search_run, "solve_times", lambda moves: True)
    without = {seed: timed(seed, **wanted)[0] for seed in range(12)}

    gained = [without[seed].best.ms - result.best.ms for seed, result in solved.items()]
    assert min(gained) >= 0.0
    assert sum(gain > 0.0 for gain in gained) >= 3, gained
    for seed, result in solved.items():
        assert not result.exact
        assert result.best.ms == min(step.ms for step in result.history if step.meets)
        assert result.best.ms <= np.quantile(Clock(seed).of(EVERY[accuracies >= wanted["accuracy_floor"]]), 0.02)


@pytest.mark.parametrize("objective", ["bytes", "accuracy", "macs"])
def test_a_solver_of_times_keeps_a_limit_of_time(timed, accuracies, monkeypatch, objective):
    monkeypatch.setattr(search_run, "MOST_EXACT", 1)
    for seed in range(4):
        floor = float(np.quantile(accuracies, 0.3))
        most = float(np.quantile(Clock(seed).of(EVERY[accuracies >= floor]), 0.1))
        result, _ = timed(seed, objective=objective, max_ms=most, accuracy_floor=floor)
        assert result.best.ms <= most
        assert result.met
