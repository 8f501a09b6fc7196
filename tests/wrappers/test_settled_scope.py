"""What a function is traced for, with stand-ins for the layers; whole models are in `test_settled_functions.py`."""

import threading
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from qdq_workbench.quantizers import FixedQuantizer, LastValueQuantizer, LSQQuantizer
from qdq_workbench.quantizers.settled import Switches
from qdq_workbench.wrappers.settled_scope import Roster, SettledScope, settled_scope


def pair(quantizer=None, low=-1.0, high=2.0, *, enabled=True, frozen=False, trainable=True, built=True):
    quantizer = quantizer or LastValueQuantizer()
    made = types.SimpleNamespace(quantizer=quantizer, trainable=trainable, built=built)
    made.enabled, made.frozen = (tf.Variable(value) for value in (enabled, frozen))
    made.range_variables = quantizer.build((None, 2), "x", keras.layers.Layer())
    quantizer.write_range(made.range_variables, np.float32(low), np.float32(high))
    return made


def wrapper(*, enabled=True):
    return types.SimpleNamespace(enabled=tf.Variable(enabled))


def state(*pairs, wrappers=(), training=False):
    roster = Roster(pairs, wrappers)
    switches, ranges = (tensor.numpy() for tensor in roster.tensors())
    return roster.state(switches, ranges, training=training)


INSIDE = Switches(active=True, learns=False, to_six=True)


class TestRoster:
    def test_pairs_of_one_grid_are_together_and_those_that_cannot_be_settled_left_out(self):
        four = LastValueQuantizer(4)
        pairs = [pair(), pair(four), pair(), pair(built=False), pair(LSQQuantizer())]
        roster = Roster(pairs, [])
        assert roster.pairs == [pairs[0], pairs[2], pairs[1], pairs[4]]
        spec = pairs[0].quantizer.spec
        assert list(roster.groups) == [(spec, False), (four.spec, False), (spec, True)]

    def test_ranges_are_in_the_order_of_the_pairs(self):
        pairs = [pair(low=-1.0, high=1.0), pair(LastValueQuantizer(4), low=-2.0, high=2.0), pair(low=-3.0, high=3.0)]
        roster = Roster(pairs, [wrapper(enabled=False)])
        switches, ranges = roster.tensors()
        np.testing.assert_array_equal(ranges, [[-1, -3, -2], [1, 3, 2]])
        assert switches.numpy().tolist() == [True] * 3 + [False] * 3 + [False]

    def test_without_pairs_there_are_wrappers(self):
        assert state(wrappers=[wrapper(), wrapper(enabled=False)]) == (True, False)


class TestState:
    @pytest.mark.parametrize(
        ("settings", "training", "expected"),
        [
            ({}, False, INSIDE),
            ({"low": 0.0}, False, Switches(active=True, learns=False, from_zero=True, to_six=True)),
            ({"high": 6.5}, False, Switches(active=True, learns=False)),
            ({"enabled": False}, False, Switches(active=False, learns=False)),
            ({"enabled": False}, True, Switches(active=False, learns=False)),
            ({"low": np.inf, "high": -np.inf}, False, Switches(active=False, learns=False)),
            ({"low": np.inf, "high": -np.inf}, True, Switches(active=True, learns=True)),
            ({}, True, Switches(active=True, learns=True)),
            ({"frozen": True}, True, INSIDE),
            ({"trainable": False}, True, INSIDE),
        ],
    )
    def test_of_one_pair(self, settings, training, expected):
        assert state(pair(**settings), training=training) == (expected,)

    def test_a_fixed_range_never_learns(self):
        fixed = FixedQuantizer(-1.0, 2.0)
        assert state(pair(fixed), training=True) == (INSIDE,)

    @pytest.mark.parametrize("low", [0.0, -1.0])
    def test_a_learned_step_keeps_its_zero_point(self, low):
        learned = pair(LSQQuantizer(symmetric=False), low=low)
        assert state(learned, training=True) == (Switches(active=True, learns=True, from_zero=low == 0.0),)
        still = Switches(active=True, learns=False, from_zero=low == 0.0, to_six=True)
        assert state(learned) == (still,)

    def test_the_general_function_initializes_a_learned_step(self):
        learned = pair(LSQQuantizer())
        learned.quantizer.forget_range(learned.range_variables)
        assert state(learned, training=True) is None
        assert state(learned) == (Switches(active=False, learns=False),)
        learned.frozen.assign(True)
        assert state(learned, training=True) == (Switches(active=False, learns=False),)

    def test_pairs_come_first(self):
        found = state(pair(), pair(enabled=False), wrappers=[wrapper(enabled=False)])
        assert found == (INSIDE, Switches(active=False, learns=False), False)


class TestScope:
    def scope(self, *pairs, wrappers=None, **more):
        wrappers = wrappers or [wrapper()]
        roster = Roster(pairs, wrappers)
        return SettledScope(roster, state(*pairs, wrappers=wrappers), **more)

    def test_it_knows_its_own_pairs_and_wrappers(self):
        mine, other, wrapped = pair(), pair(), wrapper(enabled=False)
        scope = self.scope(mine, wrappers=[wrapped])
        assert (scope.knows(mine), scope.knows(other)) == (True, False)
        assert (scope.enabled(wrapped), scope.enabled(wrapper())) == (False, None)

    def test_it_holds_in_graphs_of_its_thread_until_the_call_ends(self):
        outer, inner = self.scope(), self.scope()
        seen = []

        def look():
            seen.append(settled_scope())

        def run():
            look()
            with pytest.raises(ZeroDivisionError):
                inner.call(lambda: 1 / 0)
            inner.call(look)
            look()
            thread = threading.Thread(target=lambda: tf.function(look, autograph=False).get_concrete_function())
            thread.start()
            thread.join()

        outer.call(look)  # executing eagerly
        tf.function(lambda: outer.call(run), autograph=False).get_concrete_function()
        assert seen == [None, outer, inner, outer, None]
        assert settled_scope() is None

    def test_arguments_and_results_pass_through(self):
        assert self.scope().call(lambda a, b: a + b, 1, 2) == 3

    def test_a_pair_is_computed_as_by_its_quantizer(self):
        pairs = [pair(), pair(low=-2.0, high=2.0)]
        scope, x = self.scope(*pairs), tf.constant([-1.3, 0.31, 2.7])

        def run(x):
            return [scope.quantize(one, x, one.range_variables, training=False) for one in pairs]

        for one, found in zip(pairs, tf.function(run, autograph=False)(x), strict=True):
            np.testing.assert_array_equal(found, one.quantizer(x, False, one.range_variables))

    def test_without_stored_weights_there_are_none(self):
        assert self.scope().kept_weight(wrapper(), "kernel") is None
        asked = types.SimpleNamespace(value=lambda *arguments: arguments[:2])
        scope, wrapped = self.scope(kept=asked, depth=0), wrapper()
        assert scope.kept_weight(wrapped, "kernel") == (wrapped, "kernel")
        assert self.scope(kept=asked, depth=1).kept_weight(wrapped, "kernel") is None
