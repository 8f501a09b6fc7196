"""Creation of quantizers from a plan's grid and method."""

from __future__ import annotations

from typing import Any

from qdq_workbench.errors import QuantizerError
from qdq_workbench.quantizers.all_values import AllValuesQuantizer
from qdq_workbench.quantizers.custom import recall
from qdq_workbench.quantizers.fixed import FixedQuantizer
from qdq_workbench.quantizers.kept import KeptQuantizer
from qdq_workbench.quantizers.last_value import LastValueQuantizer
from qdq_workbench.quantizers.lsq import LSQQuantizer
from qdq_workbench.quantizers.moving_average import MovingAverageQuantizer
from qdq_workbench.quantizers.quantizer import Quantizer
from qdq_workbench.spec.quantizer_method import CUSTOM, QuantizerMethod
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

#: The library's quantizers by the name of their method.
QUANTIZERS: dict[str, type[Quantizer]] = {
    kind.method_name: kind
    for kind in (
        AllValuesQuantizer,
        FixedQuantizer,
        KeptQuantizer,
        LastValueQuantizer,
        LSQQuantizer,
        MovingAverageQuantizer,
    )
}


def make_quantizer(spec: QuantizerSpec, method: QuantizerMethod | None, default: str) -> Quantizer:
    """Return a new quantizer for a placement's grid and method; `default` names the method to use for None.

    Example:
        >>> make_quantizer(QuantizerSpec(num_bits=4), QuantizerMethod("lsq"), "last_value").spec.num_bits
        4
    """
    if method is None or method.name != CUSTOM:
        name = method.name or default if method is not None else default
        arguments: dict[str, Any] = method.arguments if method is not None else {}
        return QUANTIZERS[name].from_spec(spec, **arguments)
    quantizer = recall(method.arguments)
    if not isinstance(quantizer, Quantizer):
        raise QuantizerError(
            "A quantizer must be of a subclass of qdq_workbench.quantizers.Quantizer. "
            f"Received: {type(quantizer).__name__}"
        )
    # The grid of the plan: signedness is the target's choice, not the class's.
    quantizer.spec = spec
    return quantizer
