"""Recurrent layers as data: which ONNX operators compute them, with which weights.

TensorFlow computes a recurrent layer as a loop, and a converter that finds a loop writes a loop. ONNX has LSTM, GRU
and RNN, so the exporter takes recurrent layers out of the graph before the converter sees it, as it does with Q/DQ
pairs, and writes the operators itself.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import layers

from qdq_workbench.graph.kinds import RECURRENT
from qdq_workbench.graph_builder import keras_layers

# Keras function -> ONNX activation with its alpha and beta, where it has any.
_ACTIVATIONS: dict[Any, tuple[str, float | None, float | None]] = {
    keras.activations.tanh: ("Tanh", None, None),
    keras.activations.sigmoid: ("Sigmoid", None, None),
    keras.activations.relu: ("Relu", None, None),
    keras.activations.softsign: ("Softsign", None, None),
    # relu6(x + 3) / 6 in Keras 3; the default slope of ONNX is 0.2.
    keras.activations.hard_sigmoid: ("HardSigmoid", 1 / 6, 0.5),
    keras.activations.linear: ("Affine", 1.0, 0.0),
}


@dataclasses.dataclass(frozen=True)
class RecurrentCell:
    """One cell that is run along a sequence.

    Args:
        op: ONNX operator: "LSTM", "GRU" or "RNN".
        units: Size of the state.
        kernel: Variable of shape (inputs, gates * units).
        recurrent_kernel: Variable of shape (units, gates * units).
        bias: Input and recurrent bias, shape (2, gates * units), gates in Keras's order; None without bias.
        activations: ONNX activation, alpha and beta, in ONNX's order.
        reset_after: Whether a GRU applies its reset gate after the matrix product.
    """

    op: str
    units: int
    kernel: Any
    recurrent_kernel: Any
    bias: np.ndarray | None
    activations: tuple[tuple[str, float | None, float | None], ...]
    reset_after: bool = True


@dataclasses.dataclass(frozen=True)
class Recurrent:
    """A recurrent layer.

    Args:
        directions: The stacked cells of each direction, first to last; the second direction runs backwards.
        reversed_input: Whether a layer with one direction reads its input from the end, and writes in that order.
        return_sequences: Whether the output of every step is returned, or only the last one.
        return_state: Whether the last states are returned too.
        merge_mode: How two directions are joined: "concat", "sum", "ave", "mul", or None for two outputs.
    """

    directions: tuple[tuple[RecurrentCell, ...], ...]
    reversed_input: bool = False
    return_sequences: bool = False
    return_state: bool = False
    merge_mode: str | None = None


@dataclasses.dataclass(frozen=True)
class RecurrentCall:
    """A call of a recurrent layer that was taken out of a graph.

    Args:
        layer: Path of the layer.
        recurrent: The layer as data.
        sequences: The symbolic tensor that it reads.
        states: Its initial states, empty for zeros.
        outputs: Placeholders for its outputs, which the readers read instead.
    """

    layer: str
    recurrent: Recurrent
    sequences: Any
    states: tuple[Any, ...]
    outputs: tuple[Any, ...]


def read_recurrent(layer: Any) -> Recurrent | None:
    """Return a Keras layer as data, or None if ONNX's recurrent operators cannot compute it."""
    if type(layer) is not layers.Bidirectional:
        return _read_rnn(layer)
    forward, backward = _read_rnn(layer.forward_layer), _read_rnn(layer.backward_layer)
    # ONNX fixes the directions of a bidirectional operator: first forwards, second backwards.
    if forward is None or backward is None or forward.reversed_input or not backward.reversed_input:
        return None
    if len(forward.directions[0]) > 1 or len(backward.directions[0]) > 1:
        return None
    return dataclasses.replace(
        forward,
        directions=(*forward.directions, *backward.directions),
        return_state=layer.return_state,
        merge_mode=layer.merge_mode,
    )


def _read_rnn(layer: Any) -> Recurrent | None:
    # Exact classes, because a subclass may compute something else; a stateful layer goes on where the last batch ended.
    if type(layer) not in keras_layers(RECURRENT) or layer.stateful:
        return None
    stacked = type(layer.cell) is layers.StackedRNNCells
    cells = [_read_cell(cell) for cell in (layer.cell.cells if stacked else [layer.cell])]
    known = tuple(cell for cell in cells if cell is not None)
    # A stack returns the states of all of its cells; the writer has those of the last one.
    if len(known) < len(cells) or (stacked and layer.return_state):
        return None
    return Recurrent((known,), layer.go_backwards, layer.return_sequences, layer.return_state)


def _read_cell(cell: Any) -> RecurrentCell | None:
    act, gate = _ACTIVATIONS.get(cell.activation) if hasattr(cell, "activation") else None, None
    if hasattr(cell, "recurrent_activation"):
        gate = _ACTIVATIONS.get(cell.recurrent_activation)
    if act is None:
        return None
    if type(cell) is layers.SimpleRNNCell:
        return _cell("RNN", cell, (act,))
    if type(cell) is layers.LSTMCell and gate is not None:
        # f, g and h of ONNX: Keras applies `activation` to the candidate and to the output.
        return _cell("LSTM", cell, (gate, act, act))
    if type(cell) is layers.GRUCell and gate is not None:
        return dataclasses.replace(_cell("GRU", cell, (gate, act)), reset_after=bool(cell.reset_after))
    return None


def _cell(op: str, cell: Any, activations: tuple[tuple[str, float | None, float | None], ...]) -> RecurrentCell:
    bias = None
    if cell.use_bias:
        given = np.asarray(keras.ops.convert_to_numpy(cell.bias), np.float32)
        # In Keras only a GRU with `reset_after` has a bias for the recurrent product; ONNX has one for each product.
        bias = given if given.ndim == 2 else np.stack([given, np.zeros_like(given)])
    return RecurrentCell(op, cell.units, cell.kernel, cell.recurrent_kernel, bias, activations)
