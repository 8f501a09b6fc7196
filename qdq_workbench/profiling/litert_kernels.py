"""Which operators of a `.tflite` file each kernel of LiteRT computes, and to which layers they belong.

LiteRT's own kernels are reported with the number of their operator. XNNPACK, which computes most operators on CPUs,
reports only the kind of each kernel, in computing order, so its kernels are matched with the operators in this order
by their kinds.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from qdq_workbench.profiling.kernels import Kernel

_OWN, _OF_DELEGATE, _DELEGATED = 1 << 1, 1 << 2, 1 << 3  # kinds of events: an operator, and two of delegates' kernels
_OF_PAIRS = frozenset({"DEQUANTIZE", "QUANTIZE"})
_SUFFIX = re.compile(r"_\d+$")
_PAIR = "qdq."
# How names of XNNPACK's kernels begin, by operator; kernels of other operators are named like the operator.
_TAGS = {
    "AVERAGE_POOL_2D": ("Average Pooling", "Global Average Pooling"),
    "BATCH_MATMUL": ("Batch Matrix Multiply",),
    "CONV_2D": ("Convolution",),
    "DEPTHWISE_CONV_2D": ("Convolution",),
    "DEQUANTIZE": ("Convert",),
    "FULLY_CONNECTED": ("Fully Connected", "Dynamic Fully Connected"),
    "LOGISTIC": ("Sigmoid",),
    "MAX_POOL_2D": ("Max Pooling",),
    "MEAN": ("Mean", "Global Average Pooling"),
    "MUL": ("Multiply",),
    "PAD": ("Constant Pad",),
    "QUANTIZE": ("Convert",),
    "RELU": ("Clamp",),
    "RELU6": ("Clamp",),
    "RESHAPE": ("Static Reshape", "Copy"),
    "SUB": ("Subtract",),
    "TRANSPOSE_CONV": ("Deconvolution",),
}
# Operators that always have their own kernel: matching never skips one of them.
_HEAVY = frozenset({*_TAGS, "ADD", "DIV", "SOFTMAX"}) - {*_OF_PAIRS, "PAD", "RELU", "RELU6", "RESHAPE"}


@dataclasses.dataclass(frozen=True)
class Operator:
    """One operator of a `.tflite` file.

    Args:
        kind: Its kind, such as "CONV_2D".
        layers: The layers that it computes, in computing order; its kind and number if no tensor name has a layer.
    """

    kind: str
    layers: tuple[str, ...]


#: Kind, tag, microseconds and number of the operator of an event of the profiler.
Event = tuple[int, str, int, int]


def kernel_events(events: Iterable[Event]) -> list[Event]:
    """Return the events of kernels of one run, in computing order; a delegate is replaced by its kernels."""
    found = [event for event in events if event[0] in (_OWN, _OF_DELEGATE, _DELEGATED)]
    inside = any(event[0] != _OWN for event in found)
    return [event for event in found if not (inside and "delegate" in event[1].lower())]


def match_events(operators: Sequence[Operator], events: Sequence[Event]) -> list[Kernel]:
    """Return the kernels of a run, each with the layers that it computes."""
    by_number = {number for kind, _, _, number in events if kind == _OWN}
    waiting = [place for place in range(len(operators)) if place not in by_number]
    found: list[Kernel] = []
    last: tuple[str, ...] = ()
    for position, (kind, tag, _, number) in enumerate(events):
        # A delegate's node has a number behind those of the file's operators.
        taken = [number] if kind == _OWN and number < len(operators) else _take(operators, waiting, tag)
        conversion: Literal["pair", "layout"] | None = None
        if taken:
            computed = [operators[place] for place in taken]
            # The last operator first: it gives the kernel its name, those before it are fused.
            layers = tuple(dict.fromkeys(layer for one in reversed(computed) for layer in one.layers))
            if computed[-1].kind in _OF_PAIRS:
                conversion = "pair"
            else:
                last = layers
        elif tag.startswith("Clamp") and last:
            layers = last  # the activation of the operator before it
        else:
            layers, conversion = (tag,), "pair" if tag.startswith("Convert") else "layout"
        pair = layers[0] if conversion == "pair" and taken else ""
        # Tags repeat; the position makes the name unique.
        found.append(Kernel(f"{position} {tag}", tag, layers[0], layers, 0, conversion, pair))
    return found


def _take(operators: Sequence[Operator], waiting: list[int], tag: str) -> list[int]:
    """Take the next operator that an XNNPACK kernel computes, with those in front that have no kernel of their own."""
    for count, place in enumerate(waiting):
        kind = operators[place].kind
        if tag.startswith(_TAGS.get(kind, (kind.replace("_", " ").title(),))):
            taken = waiting[: count + 1]
            del waiting[: count + 1]
            return taken
        if kind in _HEAVY:
            break
    return []


def layers_of(names: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return the layers that each operator computes, from the names of its tensors.

    The converter names a tensor after all operations that are fused into it, the last one first, each with the scopes
    of its model and layers: `net_1/relu_1/Relu;net_1/conv_1/BiasAdd`. TensorFlow appends a number to scopes that exist
    already; it is removed if every layer has one.
    """
    scopes = [list(_scopes(one)) for one in names]
    every = [scope[0] for one in scopes for scope in one]
    numbered = bool(every) and all(_SUFFIX.search(part) for part in every)
    return [
        tuple(dict.fromkeys("/".join(_SUFFIX.sub("", part) if numbered else part for part in scope) for scope in one))
        for one in scopes
    ]


def _scopes(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the scopes of the layers in some names, without the model's scope, in computing order."""
    parts = [part for name in names for part in name.split(";")]
    found = [scope for part in reversed(parts) if (scope := tuple(part.split("/")[1:-1]))]
    computing = [scope for scope in found if not any(part.startswith(_PAIR) for part in scope)]
    yield from computing or (_up_to_the_pair(scope) for scope in found)


def _up_to_the_pair(scope: tuple[str, ...]) -> tuple[str, ...]:
    place = next((place for place, part in enumerate(scope) if part.startswith(_PAIR)), len(scope))
    return scope[: place + 1]


class OperatorOwners:
    """Maps the kernels of a `.tflite` file to layers, with the interface of `KernelOwners`.

    Args:
        kernels: The kernels that the runtime executes.
    """

    def __init__(self, kernels: Iterable[Kernel]) -> None:
        self.kernels = tuple(kernels)

    def kind(self, kernel: Kernel) -> Literal["pair", "layout"] | None:
        """Return the kind of a kernel that belongs to no layer; None for all others."""
        return kernel.kind

    def layer(self, node: str) -> str:
        """Return the layer of a kernel's leader, which is the leader itself."""
        return node

    def fused(self, kernel: Kernel, layer: str) -> Iterator[str]:
        """Yield the layers that a kernel computes besides its main one, `layer`."""
        return (name for name in kernel.nodes if name != layer)
