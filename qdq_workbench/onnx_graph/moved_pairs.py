"""The operators behind a pair that ONNX Runtime moves it over, or removes before it moves pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from qdq_workbench.graph.operators import OPERATORS, PROPAGATING


def moved_over(
    operator: str, inputs: Sequence[str], outputs: Sequence[str], constant: Callable[[str], np.ndarray | None]
) -> str | None:
    """Return the input of an operator whose pair ONNX Runtime may move to the result; None where it moves none."""
    # It removes an Expand to the size that its input has, which is not known here where sizes are open.
    if operator in PROPAGATING or operator == "Expand" or (operator == "Split" and len(outputs) == 1):
        return inputs[0]
    neutral = OPERATORS[operator].neutral if operator in OPERATORS else None
    if neutral is None:
        return None
    places = (1,) if operator in ("Sub", "Div") else (0, 1)
    values = {place: constant(inputs[place]) for place in places}
    found = [place for place, value in values.items() if value is not None and value.size == 1 and value == neutral]
    return inputs[1 - found[0]] if found else None
