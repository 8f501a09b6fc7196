"""Queries for layers, in the syntax of the graph's search: names, classes, patterns, precision, bits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.errors import BenchError

PRECISIONS = {"int8": "int8", "quantized": "int8", "float": "float", "mixed": "partial", "partial": "partial"}
_LETTERS = {"i": "input", "w": "weight", "o": "output"}
_BITS = re.compile(r"([iwo])=(\d+|float)")


def find_layers(
    plan: qdq.PlacementPlan, possible: qdq.PlacementPlan, query: str, statuses: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the calls that match a query, in computing order; `search` in `widgets/src/search.ts` finds the same.

    `possible` is the plan of `Planner.possible`, which quantizes every site that can be quantized; `statuses` are those
    on the target, "int8", "partial", "float" or "vanishes" by layer, empty to use the plan.
    """
    if not isinstance(query, str):
        raise BenchError(f"A query is a text, such as 'conv not int8'. Received: {type(query).__name__}")
    terms = _terms(query)
    if not terms:
        return ()
    reader = _PlanReader(plan, possible, statuses)
    return tuple(
        node.name
        for node in plan.graph.nodes
        if all(reader.fits(node, word, negated=negated) for word, negated in terms)
    )


def _terms(query: str) -> list[tuple[str, bool]]:
    """Return the words, each with whether "not" or a minus negates it."""
    terms, negated = [], False
    for word in query.lower().split():
        if word == "not":
            negated = True
            continue
        minus = len(word) > 1 and word.startswith("-")
        terms.append((word[1:] if minus else word, negated != minus))
        negated = False
    return terms


class _PlanReader:
    """Matches the words of a query against a plan."""

    def __init__(self, plan: qdq.PlacementPlan, possible: qdq.PlacementPlan, statuses: Mapping[str, str]) -> None:
        self._plan, self._statuses = plan, statuses
        self._weights = {p.layer: p.quantizer.num_bits for p in plan.placements if p.site == "weight"}
        self._able = {(p.node if p.site != "weight" else p.layer, p.site) for p in possible.placements}

    def fits(self, node: Any, word: str, *, negated: bool) -> bool:
        bits = _BITS.fullmatch(word)
        if bits is not None:
            return self._has_bits(node, _LETTERS[bits[1]], bits[2]) != negated
        # Other layers are asked by name: one may be called "shared".
        if word == "shared" and node.weights and len(self._plan.graph.calls(node.layer)) > 1:
            return not negated
        if word not in PRECISIONS:
            return _matches(node, word) != negated
        own = self._precision(node)
        # A node without a precision matches neither the word nor its negation.
        return own is not None and (own == PRECISIONS[word]) != negated

    def _has_bits(self, node: Any, site: str, wanted: str) -> bool:
        if not self._is_able(node, site):
            return False
        if site == "weight":
            found = [self._weights.get(node.layer)]
        elif site == "input":
            found = self._inputs(node)
        else:
            placed = (self._plan.output_placement(name) for name in node.outputs)
            found = [next((self._bits(one) for one in placed if one is not None), None)]
        return any((str(one) if one else "float") == wanted for one in found)

    def _precision(self, node: Any) -> str | None:
        """Return the status on the target if it is known, else one by the quantized sites; None for no precision."""
        if self._statuses:
            status = self._statuses.get(node.layer)
            return None if status in (None, "unknown", "vanishes") else status
        sites = []
        if self._is_able(node, "input"):
            inputs = self._inputs(node)
            sites.append("all" if all(inputs) else "some" if any(inputs) else "none")
        if self._is_able(node, "weight"):
            sites.append("all" if node.layer in self._weights else "none")
        if all(site == "none" for site in sites):
            return "float" if self._is_able(node, "weight") else None
        return "int8" if all(site == "all" for site in sites) else "partial"

    def _inputs(self, node: Any) -> list[int | None]:
        """Return the bits of every input that can be quantized, which masks cannot; None for float."""
        real = [k for k, name in enumerate(node.inputs) if self._plan.graph.tensors[name].is_float]
        return [self._bits(self._plan.input_placement(node.name, index)) for index in real]

    def _is_able(self, node: Any, site: str) -> bool:
        return (node.layer if site == "weight" else node.name, site) in self._able

    @staticmethod
    def _bits(placement: Any) -> int | None:
        return None if placement is None else int(placement.quantizer.num_bits)


def _matches(node: Any, word: str) -> bool:
    name, class_name = node.name.lower(), node.class_name.lower()
    if word.startswith("class:"):
        return _fits_text(class_name, word[6:])
    if word.startswith("name:"):
        return _fits_text(name, word[5:])
    return _fits_text(name, word) or _fits_text(class_name, word)


def _fits_text(text: str, word: str) -> bool:
    """Return whether a word is a part of the text, or, with `*` or `?`, a pattern of the whole text."""
    if not {"*", "?"} & set(word):
        return word in text
    # Stars in a row become one: `.*.*.*` backtracks very long in a name that does not match.
    pattern = re.sub(r"(?:\\\*)+", ".*", re.escape(word)).replace(r"\?", ".")
    return re.fullmatch(pattern, text, re.DOTALL) is not None
