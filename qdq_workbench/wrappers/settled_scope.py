"""The scope in which a function of a model is traced for known switches.

A graph with a condition per pair and weight costs more than the arithmetic. The functions with which a model trains,
evaluates and predicts are traced for the current switches of the layers, which are read again before every call
(`qdq_workbench.conversion.engine.settled_functions`). All other functions are traced with conditions, because the
switches are not read before they are called.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from qdq_workbench.quantizers import replicas
from qdq_workbench.quantizers.settled import Grids, Switches, can_be_settled, known_ends, quantize_settled
from qdq_workbench.wrappers.graph_so_far import GraphSoFar, depth

_here = threading.local()


class Roster:
    """The layers of a model for whose switches a function can be traced, and the functions to read them.

    Args:
        pairs: Q/DQ layers of activations.
        wrappers: Wrappers of layers.
    """

    def __init__(self, pairs: Iterable[Any], wrappers: Iterable[Any]) -> None:
        self.groups: dict[Any, list[Any]] = {}
        for pair in pairs:
            if pair.built and can_be_settled(pair.quantizer):
                # Pairs of one group have equal grids and variables of equal kinds.
                self.groups.setdefault((pair.quantizer.spec, pair.quantizer.is_learned), []).append(pair)
        self.pairs = [pair for group in self.groups.values() for pair in group]
        self.wrappers = list(wrappers)

    def tensors(self) -> tuple[Any, Any]:
        """Return the switches of the pairs, "enabled" and then "frozen", and of the wrappers; the pairs' ranges."""
        switches = [pair.enabled for pair in self.pairs] + [pair.frozen for pair in self.pairs]
        switches += [wrapper.enabled for wrapper in self.wrappers]
        lows, highs = [], []
        for group in self.groups.values():
            columns = _columns(group)
            # With `when` None nothing is updated: the quantizer returns the ranges of the group's grids as vectors.
            low, high = group[0].quantizer.update(None, None, columns)
            lows.append(low)
            highs.append(high)
        ranges = [tf.concat(lows, 0), tf.concat(highs, 0)] if lows else tf.zeros((2, 0))
        return tf.stack([tf.convert_to_tensor(switch) for switch in switches]), tf.stack(ranges)

    def state(self, switches: Any, ranges: Any, *, training: bool) -> tuple[Any, ...] | None:
        """Return the state for which a function is traced: `Switches` of the pairs and "enabled" of the wrappers.

        `switches` and `ranges` are the two arrays of `tensors`. The function computes the same for equal states. None
        if this batch initializes a learned step, which only the general function does.
        """
        count = len(self.pairs)
        (lows, highs), enabled, frozen = ranges, switches[:count], switches[count : 2 * count]
        moves = np.asarray([pair.trainable and pair.quantizer.updates_range for pair in self.pairs], bool)
        moves &= enabled & ~frozen & training
        learned = np.asarray([pair.quantizer.is_learned for pair in self.pairs], bool)
        if (moves & learned & ~(lows <= highs)).any():
            return None
        # An uncalibrated range is empty, low > high; a pair that learns gets one from this batch.
        active = enabled & ((lows <= highs) | moves)
        # What is known of the ends of a range would not hold after an update. A learned step is updated after the
        # batch, and keeps its sign and zero point; no function for training reads whether its range is within 6.
        from_zero, to_six = known_ends(lows, highs)
        from_zero &= active & (learned | ~moves)
        to_six &= active & ~moves & ~(learned & training)
        rows = zip(active, moves, from_zero, to_six, strict=True)
        known = (Switches(*map(bool, row)) for row in rows)
        return (*known, *map(bool, switches[2 * count :]))


class SettledScope:
    """Lets layers compute for known switches, in functions that this thread traces inside.

    Args:
        roster: The model's layers.
        state: The result of `Roster.state`.
        kept: The stored quantized weights, refreshed before the function is called; None for none.
        depth: The nesting depth of the traced function that contains a step of the model.
    """

    def __init__(self, roster: Roster, state: tuple[Any, ...], kept: Any = None, depth: int = 1) -> None:
        count = len(roster.pairs)
        self._kept, self._depth = kept, depth
        self._roster = roster
        self._switches = {id(pair): known for pair, known in zip(roster.pairs, state[:count], strict=True)}
        self._enabled = {id(one): on for one, on in zip(roster.wrappers, state[count:], strict=True)}
        self._places = {id(p): (key, i) for key, group in roster.groups.items() for i, p in enumerate(group)}
        self._grids: dict[Any, Grids] = {}
        self._graphs: dict[Any, GraphSoFar] = {}

    def call(self, function: Any, *args: Any) -> Any:
        """Call a function in the scope."""
        before = getattr(_here, "scope", None)
        try:  # the scope ends also on Ctrl-C
            _here.scope = self
            return function(*args)
        finally:
            _here.scope = before

    def knows(self, pair: Any) -> bool:
        """Return whether the switches of a pair are known here."""
        return id(pair) in self._switches

    def quantize(self, pair: Any, x: Any, variables: Mapping[str, Any], *, training: bool) -> Any:
        """Compute a pair that the scope `knows`, with the variables of its range."""
        switches = self._switches[id(pair)]
        return quantize_settled(x, pair.quantizer, switches, self._numbers(pair), variables, training=training)

    def enabled(self, wrapper: Any) -> bool | None:
        """Return whether a wrapper quantizes; None if that is unknown here."""
        return self._enabled.get(id(wrapper))

    def kept_weight(self, wrapper: Any, name: str) -> Any:
        """Return a stored quantized weight; None if it is not stored or may have changed here.

        None also inside a function that is traced within a step, because the operations around it and between its calls
        are unknown.
        """
        if self._kept is None or depth() != self._depth:
            return None
        graph = tf.compat.v1.get_default_graph()
        return self._kept.value(wrapper, name, self._graphs.setdefault(graph, GraphSoFar(graph)))

    def _numbers(self, pair: Any) -> Any:
        """Return the function that returns the numbers of a pair's grid, in the current graph."""
        key, index = self._places[id(pair)]

        def number(name: str) -> Any:
            # Tensors belong to one graph: a function that is traced inside a step computes its own.
            home = (tf.compat.v1.get_default_graph(), key)
            if home not in self._grids:
                group = self._roster.groups[key]
                self._grids[home] = Grids(group[0].quantizer, _columns(group))
            return self._grids[home].number(index, name)

        return number


def settled_scope() -> SettledScope | None:
    """Return the scope of this thread, if a graph of a single device is being traced; else None."""
    scope = getattr(_here, "scope", None)
    return None if scope is None or tf.executing_eagerly() or replicas.count() != 1 else scope


def _columns(group: list[Any]) -> dict[str, Any]:
    """Return the range variables of several pairs, each kind as a vector."""
    held = [pair.range_variables for pair in group]
    return {key: tf.stack([tf.convert_to_tensor(variables[key]) for variables in held]) for key in held[0]}
