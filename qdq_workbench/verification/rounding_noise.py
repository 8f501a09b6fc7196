"""Worst-case rounding noise of half precision: copies of a model in which each result is moved by the rounding bound.

A correctly rounded result `x` of a type with unit roundoff `u` and smallest number `t` lies within

    |fl(x) - x| <= u * |x| + t / 2

so a float32 model in which every value that the file holds in half precision is moved by this bound, up or down, shows
the effect of rounding on the network's tensors. Several such copies are run; a correct program differs from the model
without noise by no more than a fixed multiple (`HEADROOM`) of their largest difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from qdq_workbench.graph.half_precision import HalfType
from qdq_workbench.onnx_graph.element_types import typed_inputs
from qdq_workbench.onnx_graph.graph import Graph, Node
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, PAIR_OPERATORS, QDQGraph
from qdq_workbench.verification.rounded_form import half_tensors
from qdq_workbench.verification.sensitivity import PERTURBATIONS

#: The random parameters of every tensor of a copy, with their ranges.
# The sign turns whenever a bounded value grows by pi / frequency, so even close values move in different directions.
_RANGES = {"frequency": (1e4, 3e4), "phase": (0.0, 2 * np.pi)}
# A placeholder operator of `_noise_nodes`: `copy` replaces each one by a random constant.
_CHOSEN = "Chosen"
_NUMBERS = frozenset({"u", "half_tiny", "one", "lowest", "highest"})


class RoundingNoise:
    """Makes noisy copies of a float32 model.

    Args:
        twin: The model in float32.
        proto: The file in half precision; its nodes have the names of the twin's.
        kind: The half type.
    """

    def __init__(self, twin: onnx.ModelProto, proto: onnx.ModelProto, kind: HalfType) -> None:
        self._twin, self._kind = twin, kind
        self._noisy, self._constants = _rounded_in(twin, proto)

    @property
    def seeds(self) -> range:
        """The seeds of the copies to make; empty if the file holds nothing in half precision."""
        return range(1, PERTURBATIONS + 1) if self._noisy or self._constants else range(0)

    def copy(self, model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
        """Return a noisy copy of the twin, or of a model derived from it by `with_outputs` and `cut_behind`."""
        noisy = onnx.ModelProto()
        noisy.CopyFrom(model)
        generator = np.random.default_rng(seed)
        for tensor in noisy.graph.initializer:
            if tensor.name in self._constants:
                values = numpy_helper.to_array(tensor)
                tensor.CopyFrom(numpy_helper.from_array(self._with_noise(values, generator), tensor.name))
        inputs = {value.name for value in model.graph.input} & self._noisy
        nodes = [node for name in sorted(inputs) for node in _noise_nodes(name, f"{name}/noisy")]
        for node in model.graph.node:
            copied = onnx.NodeProto()
            copied.CopyFrom(node)
            nodes.append(copied)
            copied.input[:] = [f"{name}/noisy" if name in inputs else name for name in node.input]
            for index, tensor in enumerate(node.output):
                if tensor in self._noisy:
                    copied.output[index] = f"{tensor}/exact"
                    nodes += _noise_nodes(f"{tensor}/exact", tensor)
        highest = float(np.finfo(np.float32).max)
        numbers = {"u": self._kind.roundoff, "half_tiny": self._kind.tiny / 2, "one": 1.0}
        numbers |= {"lowest": -highest, "highest": highest}
        chosen = [node.output[0] for node in nodes if node.op_type == _CHOSEN]
        numbers |= {name: generator.uniform(*_RANGES[name.rpartition("/")[2]]) for name in chosen}
        noisy.graph.initializer.extend(
            numpy_helper.from_array(np.array(value, np.float32), f"noise/{name}" if name in _NUMBERS else name)
            for name, value in numbers.items()
        )
        nodes = [node for node in nodes if node.op_type != _CHOSEN]
        del noisy.graph.node[:]
        noisy.graph.node.extend(nodes)
        return noisy

    def _with_noise(self, values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        signs = generator.choice((-1.0, 1.0), values.shape)
        error = self._kind.roundoff * np.abs(values) + self._kind.tiny / 2
        noisy = values + signs * np.minimum(error, 0.5 * np.abs(values))  # a scale stays positive
        highest = float(np.finfo(np.float32).max)
        return np.asarray(np.clip(noisy, -highest, highest), np.float32)  # as the Clip of `_noise_nodes`


def _noise_nodes(exact: str, noisy: str) -> list[onnx.NodeProto]:
    """Return the nodes that move each value of a tensor by the bound, up or down.

    The direction depends on the value, as in rounding; frequency and phase make it different for every tensor.
    """
    steps = (
        ("Softsign", [exact], "bounded"),
        ("Mul", [f"{noisy}/bounded", f"{noisy}/frequency"], "angle"),
        ("Add", [f"{noisy}/angle", f"{noisy}/phase"], "turned"),
        ("Sin", [f"{noisy}/turned"], "wave"),
        ("Sign", [f"{noisy}/wave"], "sign"),
        ("Mul", [f"{noisy}/sign", "noise/u"], "relative"),
        ("Add", [f"{noisy}/relative", "noise/one"], "factor"),
        ("Mul", [exact, f"{noisy}/factor"], "scaled"),
        ("Mul", [f"{noisy}/sign", "noise/half_tiny"], "smallest"),
        ("Add", [f"{noisy}/scaled", f"{noisy}/smallest"], "moved"),
    )
    nodes = [helper.make_node(op, inputs, [f"{noisy}/{end}"]) for op, inputs, end in steps]
    chosen = [helper.make_node(_CHOSEN, [], [f"{noisy}/{name}"]) for name in _RANGES]  # become constants
    # The Clip keeps the large negative numbers of attention masks finite.
    return [*chosen, *nodes, helper.make_node("Clip", [f"{noisy}/moved", "noise/lowest", "noise/highest"], [noisy])]


def _rounded_in(twin: onnx.ModelProto, proto: onnx.ModelProto) -> tuple[set[str], set[str]]:
    """Return the tensors and the constants of the twin that have half precision, or a rounded value, in the file."""
    half = half_tensors(proto)
    ours = {node.name: node for node in twin.graph.node}
    producers = QDQGraph(proto).producers
    values = {tensor.name: tensor for tensor in twin.graph.initializer}
    theirs = {tensor.name: tensor for tensor in proto.graph.initializer}
    opset = Graph(twin).opset
    tensors: set[str] = set()
    constants: set[str] = set()
    for node in proto.graph.node:
        same = ours.get(node.name)
        rounded = {number for number, tensor in enumerate(node.output) if tensor in half}
        if same is None:
            tensors.update(_source(node, ours, producers) if rounded else ())
            continue
        if node.op_type in PAIR_OPERATORS and not _one_scale(theirs[node.input[1]], values[same.input[1]]):
            constants.add(same.input[1])
        tensors.update(same.output[number] for number in rounded)
        if rounded and node.op_type not in PAIR_OPERATORS:
            constants.update(_float_constants(same, values, opset))
    return tensors, constants


def _source(
    node: onnx.NodeProto, ours: Mapping[str, onnx.NodeProto], producers: Mapping[str, onnx.NodeProto | None]
) -> Iterator[str]:
    """Yield the twin's tensor that corresponds to the output of a node that only the half-precision file has."""
    first = ours.get(f"{node.name.rsplit('/', 2)[0]}/{DEQUANTIZE}") if node.op_type == DEQUANTIZE else None
    base, _, own = node.name.rpartition("/")
    if node.op_type == "Cast" and not own.startswith("to_"):
        first = ours.get(base)
    if first is not None:  # a second DequantizeLinear of a pair, or a second cast from integers
        yield from first.output
        return
    source = producers.get(node.input[0])
    if source is None:
        yield node.input[0]
    elif source.name in ours:
        yield ours[source.name].output[list(source.output).index(node.input[0])]


def _one_scale(one: onnx.TensorProto, other: onnx.TensorProto) -> bool:
    """Return whether two scales have the same type and values."""
    same = one.data_type == other.data_type
    return same and np.array_equal(numpy_helper.to_array(one), numpy_helper.to_array(other))


def _float_constants(node: onnx.NodeProto, values: Mapping[str, onnx.TensorProto], opset: int) -> list[str]:
    typed = typed_inputs(Node(node.op_type, list(node.input), list(node.output), domain=node.domain), opset)
    read = [node.input[index] for index in typed]
    return [name for name in read if name in values and values[name].data_type == onnx.TensorProto.FLOAT]
