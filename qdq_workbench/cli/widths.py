"""Bit widths other than 8 for all weights and all activations: `--weight-bits` and `--activation-bits`."""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from typing import TYPE_CHECKING

from qdq_workbench.errors import SpecError

if TYPE_CHECKING:
    from qdq_workbench.placement.plan import PlacementPlan
    from qdq_workbench.placement.targets import Target

_WEIGHT_BITS = tuple(range(2, 9))
_WIDE = 16
#: The supported widths of activations by target; for other targets `_WEIGHT_BITS`.
_ACTIVATION_BITS = {"litert": (8, _WIDE), "onnxruntime": (*_WEIGHT_BITS, _WIDE)}
_NAMED = 5
_MATRIX, _FLOAT_BYTES = 2, 4


def add_width_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments --weight-bits and --activation-bits."""
    parser.add_argument(
        "--weight-bits",
        metavar="N",
        type=int,
        help="bits of every quantized weight, 2 to 8, convolutions too; default: 8; entries of --spec overrule it",
    )
    parser.add_argument(
        "--activation-bits",
        metavar="N",
        type=int,
        help="bits of every quantized activation: 8 or 16 for litert, 2 to 8 or 16 for onnxruntime, 2 to 8 for the "
        "others; default: 8; entries of --spec overrule it",
    )


def target_of(options: argparse.Namespace) -> str | Target:
    """Return the target of the options, which must not be None, with their bit widths.

    A width that the target does not support raises `SpecError`, and so does a width beside --weights-alone.
    """
    from qdq_workbench.placement.targets import get_target

    name = options.target
    weight, activation = options.weight_bits, options.activation_bits
    if weight is None and activation is None:
        return str(name)
    if options.weights_alone is not None:
        raise SpecError(
            "--weights-alone gives weights their bits and leaves activations in float: --weights-alone 4. "
            "--weight-bits and --activation-bits are for networks that run on integers. "
            f"Received: --weights-alone {options.weights_alone}, --weight-bits {weight}, --activation-bits {activation}"
        )
    if weight is not None and weight not in _WEIGHT_BITS:
        raise SpecError(f"--weight-bits is {_listed(_WEIGHT_BITS)}. Received: --weight-bits {weight}")
    allowed = _ACTIVATION_BITS.get(name, _WEIGHT_BITS)
    if activation is not None and activation not in allowed:
        holding = [other for other in ("litert", "onnxruntime") if activation in _ACTIVATION_BITS[other]]
        instead = f" --target {' or '.join(holding)} takes {activation}." if holding else ""
        raise SpecError(
            f"The kernels of {name} take activations of {_listed(allowed)} bits.{instead} "
            f"Received: --target {name}, --activation-bits {activation}"
        )
    target = get_target(name)
    if weight is not None:
        target = dataclasses.replace(target, weight=target.weight.replace(num_bits=weight))
    if activation is not None:
        # LiteRT's int16 activations have zero point 0, so their grid is symmetric.
        wide = {"symmetric": True} if name == "litert" and activation == _WIDE else {}
        target = dataclasses.replace(target, activation=target.activation.replace(num_bits=activation, **wide))
    return target


def remarks_on_weights(plan: PlacementPlan, options: argparse.Namespace) -> tuple[str, ...]:
    """Print and return a remark on the weights that --weights-alone leaves in float, and how to quantize them."""
    if options.weights_alone is None:
        return ()
    from qdq_workbench.graph.kinds import CONVOLUTIONS

    quantized = {placement.tensor for placement in plan.placements if placement.site == "weight"}
    layers: dict[bool, dict[str, int]] = {True: {}, False: {}}
    convolutions = False
    for node in plan.graph.nodes:
        # The calls of a shared layer have the same weights, which count once.
        for weight in node.weights if plan.graph.calls(node.layer)[0] is node else ():
            # Biases, gains and moving statistics are vectors; --weights-alone is about kernels and tables.
            if len(weight.shape) < _MATRIX or not weight.is_float:
                continue
            inside = f"{node.layer}/{weight.name}" in quantized
            size = _FLOAT_BYTES * math.prod(weight.shape)
            layers[inside][node.layer] = layers[inside].get(node.layer, 0) + size
            convolutions |= not inside and node.is_a(*CONVOLUTIONS)
    left = layers[False]
    if not left:
        return ()
    done, rest = sum(layers[True].values()), sum(left.values())
    largest = sorted(left, key=lambda layer: -left[layer])
    shown = ", ".join(repr(layer) for layer in largest[:_NAMED]) + (", ..." if len(left) > _NAMED else "")
    count = len(layers[True].keys() | left.keys())
    remark = (
        f"--weights-alone quantizes {len(layers[True])} of {count} layers with kernels or tables, "
        f"{done / 1024:.1f} of {(done + rest) / 1024:.1f} KiB in float32; {rest / 1024:.1f} KiB stay in float: {shown}."
    )
    if convolutions:
        remark += (
            " It is for matrix products and leaves convolutions in float. Their weights get few bits together with "
            f"quantized activations: --weight-bits {options.weights_alone} instead, and calibration data."
        )
    print(f"note: {remark}", file=sys.stderr)
    return (remark,)


def _listed(widths: tuple[int, ...]) -> str:
    """Return widths such as "2 to 8 or 16"."""
    narrow = [width for width in widths if width < _WIDE]
    ends = f"{narrow[0]} to {narrow[-1]}" if len(narrow) > 1 else f"{narrow[0]}"
    return f"{ends} or {_WIDE}" if _WIDE in widths else ends
