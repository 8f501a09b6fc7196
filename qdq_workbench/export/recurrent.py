"""Writing recurrent layers as ONNX LSTM, GRU and RNN.

The layouts of ONNX, from those of Keras with inputs of shape (batch, time, inputs):

    W = kernel^T, R = recurrent_kernel^T, gates reordered, with a leading axis of directions
    LSTM gates      Keras i f c o    ONNX i o f c
    GRU gates       z r h in both; `reset_after` is `linear_before_reset`
    time first      ONNX reads (time, batch, inputs) and writes (time, directions, batch, units)

A quantized kernel is brought to the layout of W by Transpose, Gather and Unsqueeze, which `QDQWriter.write_weight`
applies to the integers: the node reads W directly from its DequantizeLinear, with one scale per gate and unit. Two
directions become two nodes, because a tensor has scales along one axis only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper

from qdq_workbench.conversion.engine.recurrent import Recurrent, RecurrentCall, RecurrentCell
from qdq_workbench.export.keras_side.cut_model import CutModel
from qdq_workbench.export.keras_side.trace import EndNames
from qdq_workbench.export.passes.drop_identities import drop_identities
from qdq_workbench.onnx_graph.graph import Graph, Node

_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (0, 1, 2), "RNN": (0,)}
_STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}
_TIME_FIRST = [1, 0, 2]


def insert_recurrent(graph: Graph, cut: CutModel, ends: EndNames) -> None:
    """Write the recurrent layers that were taken out of a cut model into its float graph."""
    for index, call in enumerate(cut.recurrent):
        sequences, *states = ends.calls[index].inputs
        writer = _LayerWriter(graph, call, _weight_inputs(graph, cut, ends, call.recurrent))
        # Keras multiplies integers with the kernel as they are; ONNX's operators read floats only.
        is_float = graph.outputs[sequences].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        results = writer.write(sequences if is_float else writer.as_float(sequences), states)
        for placeholder in ends.calls[index].outputs[len(results) :]:
            del graph.inputs[placeholder]  # Keras declares more states than it returns if the directions differ
        for placeholder, result in zip(ends.calls[index].outputs, results, strict=False):
            graph.shapes[result] = graph.shapes.get(placeholder, ())
            graph.replace_reads(placeholder, result)
            del graph.inputs[placeholder]
        for tensor in (sequences, *states):
            del graph.outputs[tensor]
    # An Identity between a placeholder and an end had to stay while both were ends of the graph.
    drop_identities(graph)


def _weight_inputs(graph: Graph, cut: CutModel, ends: EndNames, recurrent: Recurrent) -> dict[int, str]:
    """Add the quantized kernels of a layer to the graph's inputs, which `write_weight` replaces by integers."""
    names = {id(variable): ends.weights[name] for name, variable in cut.weights.items()}
    found = {}
    for cells in recurrent.directions:
        for cell in cells:
            for variable in (cell.kernel, cell.recurrent_kernel):
                if id(variable) in names:
                    name, shape = names[id(variable)], tuple(variable.shape)
                    graph.inputs[name] = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
                    graph.shapes[name] = shape
                    found[id(variable)] = name
    return found


class _LayerWriter:
    """Writes one recurrent layer."""

    def __init__(self, graph: Graph, call: RecurrentCall, weights: dict[int, str]) -> None:
        self._graph = graph
        self._recurrent = call.recurrent
        self._name = call.layer
        self._weights = weights

    def write(self, sequences: str, states: list[str]) -> list[str]:
        """Write the nodes of the layer; return its outputs, followed by its last states if it returns them."""
        recurrent = self._recurrent
        entry = self._add("Transpose", [sequences], "to_time_first", perm=_TIME_FIRST)
        # Keras leaves the steps of `go_backwards` in the order of computation; ONNX's "reverse" would restore their
        # order in time. So the input is reversed instead.
        if recurrent.reversed_input:
            entry = self._from_the_end(entry)
        per_direction = [states[: len(states) // 2], states[len(states) // 2 :]]
        if len(recurrent.directions) == 1:
            output, last = self._chain(entry, recurrent.directions[0], states, "forward")
            return [output, *last] if recurrent.return_state else [output]
        # One cell each: `read_recurrent` takes no stacked cells in two directions.
        (cell,), (back,) = recurrent.directions
        first, first_states = self._chain(entry, (cell,), per_direction[0], "forward")
        second, second_states = self._chain(entry, (back,), per_direction[1], "reverse")
        outputs = self._merged(first, second)
        return [*outputs, *first_states, *second_states] if recurrent.return_state else outputs

    def as_float(self, tensor: str) -> str:
        """Return a tensor as float32."""
        return self._add("Cast", [tensor], "as_float", to=onnx.TensorProto.FLOAT)

    def _from_the_end(self, tensor: str) -> str:
        # INT64_MIN: an end of -1 would be the last element, not the place in front of the first.
        values = {"starts": [-1], "ends": [np.iinfo(np.int64).min], "axes": [0], "steps": [-1]}
        rest = [self._constant(key, np.array(value, np.int64)) for key, value in values.items()]
        return self._add("Slice", [tensor, *rest], "from_the_end")

    def _chain(
        self, entry: str, cells: tuple[RecurrentCell, ...], states: list[str], direction: str
    ) -> tuple[str, list[str]]:
        """Return the output of stacked cells, batch first, and the last states of the last one."""
        last: list[str] = []
        left = iter(states)
        for cell in cells:
            own = list(itertools.islice(left, _STATES[cell.op]))
            node = self._cell(entry, cell, own, direction)
            # Y is (time, directions, batch, units); Y_h and Y_c are (directions, batch, units).
            axis = self._constant("axes", np.array([1], np.int64))
            entry = self._add("Squeeze", [node.output, axis], "outputs")
            last = [self._add("Squeeze", [tensor, self._zero], "last") for tensor in node.outputs[1:]]
        if self._recurrent.return_sequences:
            return self._add("Transpose", [entry], "to_batch_first", perm=_TIME_FIRST), last
        return last[0], last

    def _cell(self, entry: str, cell: RecurrentCell, states: list[str], direction: str) -> Node:
        graph, name = self._graph, f"{self._name}/{cell.op}"
        inputs = [entry, self._matrix(cell, cell.kernel, "W"), self._matrix(cell, cell.recurrent_kernel, "R")]
        # The order of ONNX: X, W, R, B, sequence_lens, initial_h, initial_c; an empty name leaves an input out.
        if cell.bias is not None or states:
            bias = "" if cell.bias is None else self._constant("B", self._reordered(cell, cell.bias).reshape(1, -1))
            inputs += [bias, ""]
        inputs += [self._add("Unsqueeze", [state, self._zero], "initial_state") for state in states]
        outputs = [f"{name}/{what}" for what in (["Y", "Y_h", "Y_c"] if cell.op == "LSTM" else ["Y", "Y_h"])]
        node = graph.add(
            cell.op,
            inputs[: _used(inputs)],
            name,
            output=outputs[0],
            more_outputs=outputs[1:],
            hidden_size=cell.units,
            direction=None if direction == "forward" else direction,
            linear_before_reset=int(cell.reset_after) if cell.op == "GRU" else None,
            **_activation_attributes(cell),
        )
        graph.shapes[node.output] = (None, 1, None, cell.units)
        for tensor in node.outputs[1:]:
            graph.shapes[tensor] = (1, None, cell.units)
        return node

    def _matrix(self, cell: RecurrentCell, variable: Any, name: str) -> str:
        """Return W or R: from a quantized kernel by movements, from another one as a constant."""
        source = self._weights.get(id(variable))
        if source is None:
            kernel = np.asarray(variable, np.float32)
            return self._constant(name, self._reordered(cell, kernel).T[None].copy())
        moved = self._add("Transpose", [source], f"{name}/Transpose", perm=[1, 0])
        order = _order(cell)
        if not np.array_equal(order, np.arange(order.size)):
            moved = self._add("Gather", [moved, self._constant("gates", order)], f"{name}/Gather", axis=0)
        return self._add("Unsqueeze", [moved, self._zero], f"{name}/Unsqueeze")

    @staticmethod
    def _reordered(cell: RecurrentCell, values: np.ndarray) -> np.ndarray:
        return np.take(values, _order(cell), axis=-1)

    def _merged(self, first: str, second: str) -> list[str]:
        mode = self._recurrent.merge_mode
        if mode is None:
            return [first, second]
        if mode == "concat":
            return [self._add("Concat", [first, second], "merged", axis=-1)]
        if mode == "mul":
            return [self._add("Mul", [first, second], "merged")]
        total = self._add("Add", [first, second], "merged")
        if mode == "sum":
            return [total]
        return [self._add("Div", [total, self._constant("two", np.array(2.0, np.float32))], "average")]

    @property
    def _zero(self) -> str:
        return self._constant("axes", np.array([0], np.int64))

    def _constant(self, name: str, value: np.ndarray) -> str:
        return self._graph.add_constant(f"{self._name}/{name}", value)

    def _add(self, op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        return self._graph.add(op, inputs, f"{self._name}/{name}", **attributes).output


def _used(inputs: list[str]) -> int:
    """Return the number of inputs without the empty ones at the end."""
    return max(index + 1 for index, tensor in enumerate(inputs) if tensor)


def _order(cell: RecurrentCell) -> np.ndarray:
    """Return the index of the Keras column for every ONNX row."""
    gates = (np.arange(cell.units, dtype=np.int64) + gate * cell.units for gate in _GATES[cell.op])
    return np.concatenate(list(gates))


def _activation_attributes(cell: RecurrentCell) -> dict[str, Any]:
    names = [name for name, _, _ in cell.activations]
    # The defaults of LSTM, GRU and RNN in ONNX.
    if names in (["Sigmoid", "Tanh", "Tanh"], ["Sigmoid", "Tanh"], ["Tanh"]):
        return {}
    return {
        "activations": names,
        # ONNX hands these values out in order, to the functions that take one.
        "activation_alpha": list(_given(alpha for _, alpha, _ in cell.activations)) or None,
        "activation_beta": list(_given(beta for _, _, beta in cell.activations)) or None,
    }


def _given(values: Iterator[float | None]) -> Iterator[float]:
    return (value for value in values if value is not None)
