"""What ONNX Runtime quantizes by itself when it opens a file, and how far that may move the outputs.

By default it quantizes float weights and biases of products between two pairs (its optimizer WeightBiasQuantization),
rounds the float input of a product with integer weights to 8 bits, and replaces two pairs in a row by one on the grid
of what both can represent (DoubleQDQPairsRemover). Such a difference is no fault of the file as long as rounding to
8 bits explains it. A bias beyond int32 has no such excuse: ONNX Runtime casts it without saturation, and the outputs
are anything. So the same roundings are made in a copy of the file, and the plain runs of both are compared.

The parameters are those of ONNX Runtime 1.32: of a weight the range with 0 in it and a zero point (measured, though its
source calls them symmetric), of a pair those in double_qdq_pairs_remover.cc.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from qdq_workbench.graph.operators import PROPAGATING, WEIGHTED
from qdq_workbench.onnx_graph.batches import run_session
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QUANTIZE, QDQGraph, integer_limits, name_of, type_name
from qdq_workbench.onnx_graph.sessions import make_session
from qdq_workbench.verification.differences import mean_of_numbers
from qdq_workbench.verification.sensitivity import HEADROOM

_LARGEST_BIAS = 2**31 - 1


def moved_by_own_quantization(
    proto: onnx.ModelProto, inputs: Mapping[str, np.ndarray], plain: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Return by output the mean difference that ONNX Runtime's own quantization may cause; `plain` is the plain run."""
    rounded = in_eight_bits(proto)
    if rounded is None:
        return {value.name: 0.0 for value in proto.graph.output}
    found = run_session(make_session(rounded, optimized=False), inputs)
    return {name: HEADROOM * mean_of_numbers(values, plain[name]) for name, values in found.items()}


def in_eight_bits(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a copy with the roundings that ONNX Runtime makes by itself; None if it makes none."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    rounding = _Rounding(copy)
    for graph in QDQGraph(copy).all_graphs():
        for node in graph.nodes:
            if node.op_type in WEIGHTED:
                rounding.round_product(graph, node)
            elif node.op_type == QUANTIZE:
                rounding.merge_pairs(graph, node)
    rounding.insert_pairs()
    return copy if rounding.changed else None


class _Rounding:
    """Changes nodes of a model, whose new constants and pairs stand in front of all others."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._proto = proto
        self._dynamic: dict[str, str] = {}
        self.changed = False

    def round_product(self, graph: QDQGraph, node: onnx.NodeProto) -> None:
        """Round the float weight and bias of a product of integers, or its float input if the weight is integers."""
        weight = graph.producer(node.input[1])
        of_integers = weight is not None and weight.op_type == DEQUANTIZE and graph.stored(weight) is not None
        source = graph.producer(graph.origin(node.input[0], PROPAGATING))
        if source is None or source.op_type != DEQUANTIZE:
            if of_integers:
                self._round_input(graph, node)
            return
        parameters = graph.parameters(source)
        if parameters is None or parameters[0].size != 1:
            return
        if of_integers:
            found = graph.parameters(weight)
            step = None if found is None else found[0]
        else:
            step = self._round_weight(graph, node)
        if step is not None:
            self._round_bias(graph, node, parameters[0].reshape(()) * step)

    def merge_pairs(self, graph: QDQGraph, first: onnx.NodeProto) -> None:
        """Give two pairs in a row the grid of the values that both can represent."""
        row = [first]
        for wanted in (DEQUANTIZE, QUANTIZE, DEQUANTIZE):
            readers = graph.readers(row[-1].output[0])
            if len(readers) != 1 or readers[0].op_type != wanted or row[-1].output[0] in graph.outputs:
                return
            row += readers
        grids = [graph.parameters(node) for node in (first, row[2])]
        if any(grid is None or grid[0].size != 1 for grid in grids):
            return
        (one, zero), (other, second_zero) = ((grid[0].item(), grid[1]) for grid in grids if grid is not None)
        limits = integer_limits(type_name(zero.dtype))
        if limits is None or zero.dtype != second_zero.dtype or (one, zero.item()) == (other, second_zero.item()):
            return
        low = max((limits[0] - zero.item()) * one, (limits[0] - second_zero.item()) * other)
        high = min((limits[1] - zero.item()) * one, (limits[1] - second_zero.item()) * other)
        scale = np.float32((high - low) / (limits[1] - limits[0]))
        place = np.array(np.clip(round(limits[0] - low / float(scale)), *limits), zero.dtype)
        for node in (first, row[3]):
            node.input[1:] = [self._constant(node, "scale", scale), self._constant(node, "zero_point", place)]
        row[3].input[0] = first.output[0]
        self.changed = True

    def insert_pairs(self) -> None:
        """Put the pairs of float inputs behind what writes these."""
        if not self._dynamic:
            return
        nodes = []
        for node in [None, *self._proto.graph.node]:
            written = self._given if node is None else list(node.output)
            if node is not None:
                nodes.append(node)
            for tensor in written:
                if tensor in self._dynamic:
                    new = self._dynamic[tensor]
                    parts = [f"{new}/{part}" for part in ("codes", "scale", "zero_point")]
                    nodes += [
                        helper.make_node("DynamicQuantizeLinear", [tensor], parts, name=f"{new}/{QUANTIZE}"),
                        helper.make_node(DEQUANTIZE, parts, [new], name=f"{new}/{DEQUANTIZE}"),
                    ]
        kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del self._proto.graph.node[:]
        self._proto.graph.node.extend(kept)

    @property
    def _given(self) -> list[str]:
        return [value.name for value in self._proto.graph.input]

    def _round_input(self, graph: QDQGraph, node: onnx.NodeProto) -> None:
        # One scale in all where ONNX Runtime has one per 32 values, and the main graph alone: neither matters to a
        # bound of what 8 bits may move.
        if graph.is_inner or graph.is_constant(node.input[0]):
            return
        self._dynamic[node.input[0]] = f"{node.input[0]}/in_eight_bits"
        node.input[0] = self._dynamic[node.input[0]]
        self.changed = True

    def _round_weight(self, graph: QDQGraph, node: onnx.NodeProto) -> np.ndarray | None:
        """Round a constant weight to int8 with one scale and zero point; return the scale, None for other weights."""
        weight = graph.constant(node.input[1])
        if weight is None or weight.dtype != np.float32:
            return None
        low, high = weight.min(initial=0.0), weight.max(initial=0.0)
        step = (high - low) / np.float32(255) or np.float32(1.0)
        zero = np.clip(np.rint(-128 - low / step), -128, 127)
        codes = np.clip(np.rint(weight / step) + zero, -128, 127)
        node.input[1] = self._constant(node, "weight", ((codes - zero) * step).astype(np.float32))
        self.changed = True
        return np.asarray(step)

    def _round_bias(self, graph: QDQGraph, node: onnx.NodeProto, step: np.ndarray) -> None:
        """Round the constant bias of a product, or of the Add behind it, to multiples of `step`, without overflow."""
        behind = [each for each in graph.readers(node.output[0]) if each.op_type == "Add"]
        places = [(node, 2)] if len(node.input) > 2 else [(each, k) for each in behind for k in (0, 1)]
        for reader, place in places:
            bias = graph.constant(reader.input[place])
            if bias is None or bias.dtype != np.float32 or bias.ndim != 1 or step.size not in (1, bias.size):
                continue
            codes = np.rint(bias / step.reshape(-1))
            rounded = np.where(np.abs(codes) <= _LARGEST_BIAS, codes * step.reshape(-1), bias)
            reader.input[place] = self._constant(reader, "bias", rounded.astype(np.float32))
            self.changed = True

    def _constant(self, node: onnx.NodeProto, part: str, value: np.ndarray | np.float32) -> str:
        name = f"{name_of(node)}/in_eight_bits/{part}"
        self._proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name
