"""The multiply-accumulate operations of an einsum, from its equation and the shapes of its operands."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qdq_workbench.graph.model_graph import Shape

_ELLIPSIS = "..."


def count_products(equation: str, shapes: Sequence[Shape], batched: int = 0) -> int:
    """Return the multiply-accumulate operations of an einsum for one sample; 0 for a single operand.

    Operands are joined one by one, from the left, as ONNX Runtime does. An axis that only one of the two has and that
    no later operand or result needs is summed before. The equation may have `...` and no result; unknown sizes count as
    1, and so does the first axis of operand `batched`, the batch axis.

    Example:
        >>> count_products("abde,dec->abc", [(None, 10, 4, 8), (4, 8, 32)])
        10240
    """
    operands, result = _letters(equation, shapes)
    sizes: dict[str, int] = {}
    for letters, shape in zip(operands, shapes, strict=False):
        for letter, size in zip(letters, shape, strict=False):
            # The largest, because a size that is unknown in one operand may be known in another.
            sizes[letter] = max(sizes.get(letter, 1), size or 1)
    sizes.update(dict.fromkeys(operands[batched][:1], 1))
    total, left = 0, set(operands[0])
    for index, letters in enumerate(operands[1:], start=2):
        needed = set(result).union(*operands[index:])
        right = set(letters)
        joined = (left & (right | needed)) | (right & (left | needed))
        total += math.prod(sizes.get(letter, 1) for letter in joined)
        left = joined & needed
    return total


def equation_terms(equation: str) -> tuple[list[str], str | None]:
    """Return the letters of every operand of an einsum, and those of its result; None for an equation without one.

    Example:
        >>> equation_terms("ab, bc -> ac")
        (['ab', 'bc'], 'ac')
    """
    sources, arrow, result = equation.replace(" ", "").partition("->")
    return sources.split(","), result if arrow else None


def product_terms(equation: str) -> tuple[str, str, str]:
    """Return the letters of both operands of an einsum, and those of its result; empty for what the equation lacks.

    Example:
        >>> product_terms("abc,cd->abd")
        ('abc', 'cd', 'abd')
    """
    (left, *others), result = equation_terms(equation)
    return left, ",".join(others), result or ""


def _letters(equation: str, shapes: Sequence[Shape]) -> tuple[list[list[str]], list[str]]:
    """Return the names of the axes of every operand and of the result; those of an ellipsis count from the right."""
    terms, result = equation_terms(equation)
    ranks = [len(shape) - len(term.replace(_ELLIPSIS, "")) for term, shape in zip(terms, shapes, strict=False)]
    operands = [_expanded(term, rank) for term, rank in zip(terms, ranks, strict=False)]
    hidden = max([0, *(rank for term, rank in zip(terms, ranks, strict=False) if _ELLIPSIS in term)])
    if result is not None:
        return operands, _expanded(result, hidden)
    # Without a result in the equation, einsum sums over the letters that occur more than once.
    every = [letter for letters in operands for letter in letters]
    return operands, [letter for letter in every if letter.startswith("-") or every.count(letter) == 1]


def _expanded(term: str, hidden: int) -> list[str]:
    before, dots, behind = term.partition(_ELLIPSIS)
    return [*before, *([f"-{place}" for place in range(hidden, 0, -1)] if dots else ()), *behind]
