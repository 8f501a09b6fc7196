"""How far errors that a correct file may have move its tensors, measured in the file, every part fed its own integers.

There are two kinds. The file rounds int32 biases and Keras does not: half of a scale `s_x * s_w` is negligible with
8-bit weights, and with 2-bit ones it may exceed the steps of the next pair. And operators that compute in float have
errors, of which `float_errors` lists those that matter. What arrives at a pair depends on the functions between: SiLU
multiplies the error of its sigmoid by its input.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper

from qdq_workbench.onnx_graph.batches import first_batch
from qdq_workbench.onnx_graph.graph import node_reads
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QUANTIZE, QDQGraph, attribute
from qdq_workbench.onnx_graph.sessions import make_session, with_outputs
from qdq_workbench.quantizers.blocks import spread
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from qdq_workbench.verification.float_errors import SPACINGS, error_of, measured, with_terms
from qdq_workbench.verification.parts import Arrays, cut_behind, run_parts

Bounds = Callable[[Arrays], Arrays]  # the largest errors by tensor, from the values of tensors by name
# Fractions of the bound by which all values move together: a function may have its extremum between the bounds.
_TOGETHER = (-1.0, -0.75, -0.5, -0.25, 0.25, 0.5, 0.75, 1.0)
_APART = 4  # runs in which every value moves up or down by itself, which shows in differences and sums


class KnownError(NamedTuple):
    """The largest change of one tensor.

    Args:
        functions: By the errors of operators that compute in float.
        biases: By the rounding of int32 biases.
    """

    functions: float = 0.0
    biases: float = 0.0


class KnownErrors:
    """Runs a file with results of operators that compute in float, and with its int32 biases, moved by their errors.

    Args:
        proto: The file, in float32.
        inputs: Samples by input name; of a file with a fixed batch, the first batch is used.
    """

    def __init__(self, proto: onnx.ModelProto, inputs: Arrays) -> None:
        self._proto = proto
        self._inputs = first_batch(proto, inputs)
        self._graph = QDQGraph(proto)

    def of(self, tensor: str) -> KnownError:
        """Return the errors of a pair's source, or of an output, by its name in the file."""
        return KnownError(self._of_functions.get(tensor, 0.0), self._of_biases.get(tensor, 0.0))

    @functools.cached_property
    def _of_functions(self) -> dict[str, float]:
        found = [(node, error) for node in self._graph.nodes if (error := error_of(node)) is not None]
        named = ((name, self._graph.constant(name)) for node, _ in found for name in node_reads(node))
        constants = {name: value for name, value in named if value is not None}

        def bounds(values: Arrays) -> Arrays:
            known = {**constants, **values}
            floats = [(node, error, tensors) for node, error in found if (tensors := _float_outputs(node, values))]
            return {name: SPACINGS * error(node, known, name) for node, error, tensors in floats for name in tensors}

        asked = [name for node, _ in found for name in measured(node)]
        return self._changes(with_terms(self._proto), asked, bounds) if asked else {}

    @functools.cached_property
    def _of_biases(self) -> dict[str, float]:
        bounds = dict(_half_scales(self._graph))
        return self._changes(self._proto, list(bounds), lambda _: bounds) if bounds else {}

    def _changes(self, measuring: onnx.ModelProto, asked: list[str], bounds: Bounds) -> dict[str, float]:
        """Return the largest change of every pair's source and output when values are moved by their bounds.

        `bounds` gets the values of the tensors that are `asked` for, as `measuring` computes them beside those of the
        file, and of the inputs.
        """
        ends = [tensor for node in self._quantizers for tensor in (node.input[0], node.output[0])]
        exposed = with_outputs(self._proto, [*ends, *asked])
        names = [value.name for value in exposed.graph.output]
        session = make_session(with_outputs(measuring, [*ends, *asked]), optimized=False)
        base = run_parts(session, [value.name for value in session.get_outputs()], self._inputs, {})
        moving = bounds({**self._inputs, **base})
        codes = {node.output[0]: base[node.output[0]] for node in self._quantizers}
        parts = _with_errors(cut_behind(exposed, codes), {tensor: base[tensor] for tensor in moving})
        session = make_session(parts, optimized=False)
        moved = dict.fromkeys(names, 0.0)
        for fractions in _fractions({tensor: base[tensor].shape for tensor in moving}):
            errors = {f"{t}/error": np.asarray(fractions[t] * bound, np.float32) for t, bound in moving.items()}
            for name, values in run_parts(session, names, {**self._inputs, **errors}, codes).items():
                moved[name] = max(moved[name], _worst(base[name], values))
        return moved

    @functools.cached_property
    def _quantizers(self) -> list[onnx.NodeProto]:
        return [node for node in self._graph.nodes if node.op_type == QUANTIZE]


def _float_outputs(node: onnx.NodeProto, values: Arrays) -> list[str]:
    return [tensor for tensor in node.output if tensor and values[tensor].dtype == np.float32]


def _half_scales(graph: QDQGraph) -> Iterator[tuple[str, np.ndarray]]:
    """Yield every dequantized int32 bias of a file with half of its scale, of a shape that broadcasts to it."""
    for node in graph.nodes:
        codes = graph.constant(node.input[0]) if node.op_type == DEQUANTIZE else None
        parameters = None if codes is None or codes.dtype != np.int32 else graph.parameters(node)
        if codes is None or parameters is None:
            continue
        scale = np.asarray(parameters[0], np.float64)
        if scale.size > 1:
            scale = spread(scale, codes.shape, QuantizerSpec(axis=attribute(node, "axis", 1)))
        yield node.output[0], scale / 2.0


def _with_errors(model: onnx.ModelProto, values: Arrays) -> onnx.ModelProto:
    """Return a model that adds a new input `<tensor>/error` to each of some tensors; it is changed in place."""
    nodes = []
    for node in model.graph.node:
        nodes.append(node)
        for number, tensor in enumerate(node.output):
            if tensor in values:
                node.output[number] = f"{tensor}/exact"
                nodes.append(helper.make_node("Add", [f"{tensor}/exact", f"{tensor}/error"], [tensor]))
    nodes = [_copied(node) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    for tensor, array in values.items():
        info = helper.make_tensor_value_info(f"{tensor}/error", onnx.TensorProto.FLOAT, array.shape)
        model.graph.input.append(info)
    return model


def _copied(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def _fractions(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[dict[str, np.ndarray]]:
    for fraction in _TOGETHER:
        yield {name: np.full(shape, fraction) for name, shape in shapes.items()}
    generator = np.random.default_rng(0)
    for _ in range(_APART):
        yield {name: generator.choice((-1.0, 1.0), shape) for name, shape in shapes.items()}


def _worst(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference of two arrays; where it is no finite number, it explains nothing."""
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return float(apart[np.isfinite(apart)].max(initial=0.0))
