"""Hashes of values and of code: equal in every run for what computes the same, different for what does not."""

import abc
import dataclasses
import enum
import functools
import math
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from qdq_workbench.analysis.identity import config_of, identity_of


def metric(factor, added=0.0):
    def scaled(reference, outputs):
        return factor * float(np.mean(outputs[0])) + added

    return scaled


class Judge:
    def __init__(self, floor):
        self.floor = floor
        self.calls = 0

    def __call__(self, reference, outputs):
        self.calls += 1
        return max(self.floor, float(np.mean(outputs)))

    def method(self, reference, outputs):
        return self(reference, outputs)


def default(reference, outputs, factor=2.0, *, power=1):
    return factor * np.mean(outputs) ** power


def made(source, **names):
    exec(source, names)
    return names["judge"]


CALLS = "def judge(r, q):\n    return helper(r, q)"
ANY = "def judge(r, q):\n    return sum('a' in name for name in q)"
NESTED = "def judge(r, q):\n    def inner():\n        'says'\n        return 'b'\n    return inner()"
SETS = "def judge(r, q):\n    return {'a', 'b', 'c'} & set(q)"
EQUAL = [
    (lambda: lambda r, q: np.mean(q), lambda: lambda r, q: np.sum(q)),
    (lambda: Judge(0.0), lambda: Judge(0.5)),
    (lambda: Judge(0.0).method, lambda: Judge(0.5).method),
    (lambda: functools.partial(default, factor=1.0), lambda: functools.partial(default, factor=3.0)),
    (lambda: default, lambda: functools.partial(default)),
    (lambda: made(CALLS, helper=metric(1.0)), lambda: made(CALLS, helper=metric(2.0))),
    (lambda: made(ANY), lambda: made(ANY.replace("'a'", "'b'"))),
    (lambda: made(NESTED), lambda: made(NESTED.replace("'b'", "'c'"))),
    (lambda: made(SETS), lambda: made(SETS.replace("'c'", "'d'"))),
    (lambda: made(CALLS.replace("helper", "weight *"), weight=2), lambda: made(CALLS.replace("helper", "weight *"))),
    (lambda: metric(np.arange(3)), lambda: metric(np.arange(4))),
    (lambda: metric({"a": [1, 2]}), lambda: metric({"a": [1, 3]})),
    (lambda: np.mean, lambda: np.sum),
    (lambda: keras.losses.Huber(1.0), lambda: keras.losses.Huber(2.0)),
]


@pytest.mark.parametrize(("make", "other"), EQUAL)
def test_functions_are_known_by_what_they_compute(make, other):
    assert identity_of(make()) == identity_of(make())
    assert identity_of(make()) != identity_of(other())


def test_docstrings_do_not_count():
    assert identity_of(made(NESTED)) == identity_of(made(NESTED.replace("says", "tells")))


def test_what_a_call_changes_does_not_count():
    judge = Judge(0.0)
    before = identity_of(judge)
    judge(None, np.ones(2))
    assert identity_of(judge) == before
    count = 0

    def counting(reference, outputs):
        nonlocal count
        count += 1
        return 1.0

    before = identity_of(counting)
    counting(None, None)
    assert identity_of(counting) == before


def test_functions_that_refer_to_themselves_and_each_other():
    names = {}
    exec("def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)", names)
    holds = Judge(0.0)
    holds.itself = [holds]
    assert len({identity_of(names["even"]), identity_of(names["odd"]), identity_of(holds)}) == 3


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Other(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Data:
    low: float
    high: float = 1.0


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


def of_class(**names):
    """An object of a class made anew, with these methods and attributes."""
    return type("Made", (), names)()


VALUES = [
    None, True, 1, 1.0, "1", b"1", 1j, ..., -0.0, 0.0, math.nan, Level.LOW, Level.HIGH, Other.LOW,
    [], [1], [1, 2], [2, 1], [[1], 2], {}, {1: 2}, {2: 1}, {"1": 2}, set(), {1, 2}, {1},
    pathlib.PurePosixPath("a"), pathlib.PurePosixPath("b"), np.random.default_rng(0),
    np.zeros(2), np.zeros((2, 1)), np.zeros(2, "float32"), np.zeros(2, int), np.array([0.0, -0.0]), np.array(["a"]),
    np.array([1, "a"], object), np.array([1, "b"], object), np.array([[1, "a"]], object), np.float32(0), np.float64(0),
    Data(1.0), Data(2.0), Data(1.0, 2.0), Slotted(1), Slotted(2), int, float, Level, Slotted,
    layers.ReLU(2.0), layers.ReLU(3.0), layers.LeakyReLU(0.5), functools.partial(max, 1), functools.partial(max, key=1),
    functools.partial(min, 1), keras.Input((2,), name="a"), math.sin, math.cos,
]  # fmt: skip


def test_different_values_have_different_hashes():
    marks = [identity_of(value) for value in VALUES]

    assert [(a, b) for i, a in enumerate(marks) for b in marks[:i] if a == b] == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1, 2], (1, 2)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"x", "y", "z"}, frozenset(["z", "x", "y"])),
        (np.zeros((3, 2)), np.zeros((2, 3)).T),
        (np.arange(6)[::2], np.array([0, 2, 4])),
        (np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(6).reshape(2, 3)),
        (np.random.default_rng(0), np.random.default_rng(1)),
        (tf.constant([1.0, 2.0]), np.float32([1.0, 2.0])),
        (keras.Variable([1.0, 2.0]), np.float32([1.0, 2.0])),
        (np.array([1, [2]], object), np.array([1, [2]], object)),
        (layers.ReLU(2.0, name="a"), layers.ReLU(2.0, name="b")),
        (Data(1.0), Data(1.0)),
    ],
)
def test_what_is_equal_in_meaning_has_one_hash(one, other):
    assert identity_of(one) == identity_of(other)


def test_a_collection_that_occurs_twice_is_described_as_two_equal_ones():
    shared = [1, 2]

    assert identity_of([shared, shared]) == identity_of([[1, 2], [1, 2]])
    array = np.ones(2)
    assert identity_of({"a": array, "b": array}) == identity_of({"a": np.ones(2), "b": np.ones(2)})


def test_collections_inside_themselves_end():
    def nested(count):
        items = list(range(count))
        items.append({"self": items})
        return items

    assert identity_of(nested(1)) == identity_of(nested(1))
    assert identity_of(nested(1)) != identity_of(nested(2))


def test_weights_of_a_layer_count():
    def dense(value, **arguments):
        layer = layers.Dense(2, kernel_initializer=keras.initializers.Constant(value), **arguments)
        layer.build((None, 3))
        return layer

    assert identity_of(dense(1.0, name="a")) == identity_of(dense(1.0, name="b"))
    assert identity_of(dense(1.0)) != identity_of(dense(2.0))
    assert identity_of(dense(1.0)) != identity_of(dense(1.0, activation="relu"))
    assert identity_of(dense(1.0)) == identity_of(dense(1.0, kernel_regularizer="l2", trainable=False))


def test_attributes_that_no_configuration_holds_count():
    class Own(layers.Layer):
        def __init__(self, power):
            super().__init__(name="own")
            self.power = power

        def get_config(self):
            return {"name": self.name}

    assert identity_of(Own(2)) == identity_of(Own(2))
    assert identity_of(Own(2)) != identity_of(Own(3))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"f": lambda self: 1}, {"f": lambda self: 2}),
        ({"f": staticmethod(lambda: 1)}, {"f": staticmethod(lambda: 2)}),
        ({"f": classmethod(lambda cls: 1)}, {"f": classmethod(lambda cls: 2)}),
        ({"f": property(lambda self: 1)}, {"f": property(lambda self: 2)}),
        ({"f": property(lambda self: 1)}, {"f": property(lambda self: 1, lambda self, value: None)}),
        ({"f": staticmethod(len)}, {"f": len}),
        ({"f": 1}, {"f": 2}),
        ({"f": 1}, {"g": 1}),
        ({"f": (1,)}, {"f": (2,)}),
        ({"__call__": lambda self: 1}, {"__call__": lambda self: 2}),
    ],
)
def test_what_the_author_of_a_class_writes_counts(one, other):
    assert identity_of(of_class(**one)) == identity_of(of_class(**one))
    assert identity_of(of_class(**one)) != identity_of(of_class(**other))


def test_what_a_class_collects_does_not_count():
    for first, second in (([1], [2]), ({"a": 1}, {"a": 2}), ({1}, {2})):
        assert identity_of(of_class(seen=first)) == identity_of(of_class(seen=second))
    assert identity_of(of_class(__doc__="one")) == identity_of(of_class(__doc__="two"))

    class Abstract(abc.ABC):  # noqa: B024 - its registry is what this is about
        pass

    before = identity_of(Abstract)
    Abstract.register(int)
    assert issubclass(int, Abstract)
    assert identity_of(Abstract) == before


def test_base_classes_count():
    def below(value):
        base = type("Base", (), {"f": lambda self: value, "value": value})
        return type("Made", (base,), {})

    assert identity_of(below(1)) == identity_of(below(1))
    assert identity_of(below(1)) != identity_of(below(2))


def test_functions_of_other_defaults_and_arguments_are_others():
    names = {}
    exec(
        "def a(x, y=1): return x\ndef b(x, y=2): return x\ndef c(x, *, y=1): return x\ndef d(x, *, y=2): return x\n"
        "def e(x, y): return x\ndef f(x, *y): return x\ndef g(x, y): return y\n"
        "def h(x, *, y): return x\ndef i(x, **y): return x",
        names,
    )
    marks = {name: identity_of(names[name]) for name in "abcdefghi"}

    assert len(set(marks.values())) == 9


def test_globals_count_unless_the_function_changes_them():
    def of(code, **names):
        return identity_of(made(f"def judge(r, q):\n    {code}", **names))

    assert of("return a", a=1) != of("return a", a=2)
    assert of("return a", a=[1]) != of("return a", a=[2])
    assert of("return a.b", a=math) == of("return a.b", a=np), "modules are known by name"
    for code in ("global a; a = 3; return a", "global a; del a"):
        assert of(code, a=1) == of(code, a=2)
    for code in ("a.append(q)", "a[0] = q", "del a[0]", "a.update(q)"):
        assert of(code, a=[1]) == of(code, a=[2])
        assert of(code, a=(1,)) != of(code, a=(2,)), "what is no collection cannot be filled"
    assert of("return lambda: a", a=1) != of("return lambda: a", a=2)


def test_a_traced_function_is_the_one_that_was_traced():
    def traced(value):
        return tf.function(lambda x: x * value)

    assert identity_of(traced(2.0)) == identity_of(traced(2.0))
    assert identity_of(traced(2.0)) != identity_of(traced(3.0))


def test_a_variable_of_a_closure_that_has_no_value_yet_is_left_out():
    def outer():
        def judge():
            return later

        mark = identity_of(judge)
        later = 1
        return mark, identity_of(judge)

    before, after = outer()
    assert before != after


def test_attributes_that_methods_change_do_not_count_but_those_of_the_constructor_do():
    class Counter:
        def __init__(self, start):
            self.start, self.count = start, start

        def step(self):
            self.count += 1

    counter = Counter(1)
    before = identity_of(counter)
    counter.step()
    assert identity_of(counter) == before
    assert identity_of(Counter(2)) != before


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (layers.Dense(2, kernel_initializer="ones"), layers.Dense(2, kernel_initializer="zeros"), True),
        (layers.Dense(2, bias_constraint="non_neg"), layers.Dense(2), True),
        (layers.Dense(2, dtype="float16"), layers.Dense(2), False),
        (layers.Dense(2), layers.Dense(3), False),
        (layers.Dropout(0.5, seed=1), layers.Dropout(0.5, seed=2), True),
        (layers.TimeDistributed(layers.Dense(2, name="a")), layers.TimeDistributed(layers.Dense(2, name="b")), True),
        (layers.TimeDistributed(layers.Dense(2)), layers.TimeDistributed(layers.Dense(3)), False),
        (layers.Lambda(metric(1.0)), layers.Lambda(metric(2.0)), False),
        (layers.Lambda(metric(1.0), output_shape=(1,)), layers.Lambda(metric(1.0)), True),
    ],
)
def test_a_configuration_is_what_affects_the_computation(one, other, equal):
    assert "name" not in config_of(one)
    assert (identity_of(config_of(one)) == identity_of(config_of(other))) == equal


def test_an_object_whose_configuration_fails_is_known_by_its_attributes():
    class Broken(layers.Layer):
        def __init__(self, power):
            super().__init__()
            self.power, self.function = power, len

        def get_config(self):
            raise RuntimeError

    found = config_of(Broken(3))
    assert found["power"] == 3
    assert found.keys().isdisjoint({"function", "name", "_name", "built", "trainable", "seed"})
