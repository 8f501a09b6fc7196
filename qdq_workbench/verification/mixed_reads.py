"""Which inputs of a layer read a pair, where the layer reads the tensor in front of the pair too.

The nodes of a file do not tell which input of an attention they belong to, and beside its pair a tensor differs by half
a step, which the next pair hides. So the parts behind such pairs are run on other integers, in the file and in the
Keras model: behind a wrong read the two differ by much more than rounding.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import onnx

from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.onnx_graph.batches import first_batch
from qdq_workbench.verification.parity import Parity
from qdq_workbench.verification.report import Check, check_of


def check_mixed_reads(
    proto: onnx.ModelProto, q_model: QuantizedModel, inputs: Mapping[str, np.ndarray], pairs: Collection[str]
) -> Check:
    """Compare a file with its model where some pairs, each read beside its tensor, have other integers."""
    parity = Parity(proto, q_model, first_batch(proto, inputs))
    codes = parity.codes()
    changed = {name: other_integers(values) if name in pairs else values for name, values in codes.items()}
    problems = Parity(proto, q_model, first_batch(proto, inputs), changed).differing()
    return check_of("mixed reads", problems, "inputs that read a pair and those that read its tensor are the plan's")


def other_integers(codes: np.ndarray) -> np.ndarray:
    """Return integers near the least one for those below the middle, and near the greatest for the others.

    These are no multiples, with which a product does not tell its inputs apart; they are within the range, so that no
    logarithm meets a negative number; they are not all equal, which a normalization would divide by 0; and their order
    tells layouts apart that have equal sizes.
    """
    if not codes.size:
        return codes
    wide = codes.astype(np.int64)
    low, high = int(wide.min()), int(wide.max())
    found = np.where(2 * wide < low + high, low + (wide - low) // 8, high - (high - wide) // 8)
    return found.astype(codes.dtype)
