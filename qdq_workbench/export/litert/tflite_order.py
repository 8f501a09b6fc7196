"""The order and the names in a file of TensorFlow's converter, which differ from one conversion to the next.

It inserts the QUANTIZE and DEQUANTIZE behind an operator with several results in the order of their addresses in
memory. Of equal constants it keeps one, now with the name of one of them and now with none, such as "arith.constant2",
which also numbers the results of that name anew. Here operators, tensors and buffers get an order that follows from the
outputs and what each operator reads, constants the scope of the operator that reads them, and results their numbers in
that order.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from qdq_workbench.export.keras_side.stable_order import depth_first
from qdq_workbench.export.litert.tflite_file import TFLiteFile
from qdq_workbench.graph.free_names import take_name

_CONSTANT = "constant"


def in_stable_order(file: TFLiteFile) -> None:
    """Sort a file's operators, tensors, buffers and operator codes, and name its tensors anew.

    Tensors that nothing reads are left out, and so are operators, unless their graph has one without a result.
    """
    known = {tensor.name.decode() for graph in file.graphs for tensor in graph.tensors}
    for number, graph in enumerate(file.graphs):
        if all(len(each.outputs) for each in graph.operators):  # one without a result counts by when it runs
            graph.operators = list(_sorted(graph))
        ends = [each for each in file.signatures if each.subgraphIndex == number]
        _number_tensors(graph, [entry for each in ends for entry in (*each.inputs, *each.outputs)])
    _rename(file, known)
    file.number_anew()
    file.forget_hash()


def _sorted(graph: Any) -> Iterator[Any]:
    """Yield the operators that a graph's outputs depend on, depth first."""
    writers = {int(result): place for place, each in enumerate(graph.operators) for result in each.outputs}
    reads = [[int(index) for index in each.inputs if index >= 0] for each in graph.operators]
    for place in depth_first([int(index) for index in graph.outputs], reads, writers):
        yield graph.operators[place]


def _number_tensors(graph: Any, ends: Iterable[Any]) -> None:
    """Sort the tensors of a graph by the first operator that reads or writes them; `ends` are of its signatures."""
    used = [*graph.inputs]
    for each in graph.operators:
        used += [*each.inputs, *(() if each.intermediates is None else each.intermediates), *each.outputs]
    # -1 stands for an input that is left out, and for a result that nothing reads.
    order = [index for index in dict.fromkeys(map(int, (*used, *graph.outputs))) if index >= 0]
    numbers = {old: new for new, old in enumerate(order)} | {-1: -1}

    def renumbered(indices: Any) -> np.ndarray:
        return np.array([numbers[int(index)] for index in indices], np.int32)

    graph.tensors = [graph.tensors[index] for index in order]
    graph.inputs, graph.outputs = renumbered(graph.inputs), renumbered(graph.outputs)
    for each in graph.operators:
        each.inputs, each.outputs = renumbered(each.inputs), renumbered(each.outputs)
        each.intermediates = None if each.intermediates is None else renumbered(each.intermediates)
    for entry in ends:
        entry.tensorIndex = numbers[int(entry.tensorIndex)]


def _rename(file: TFLiteFile, known: Collection[str]) -> None:
    """Name constants by the scope of a reader, and number names anew that the converter has numbered."""
    ends = [(graph, {int(index) for index in (*graph.inputs, *graph.outputs)}) for graph in file.graphs]
    taken = {graph.tensors[index].name.decode() for graph, indices in ends for index in indices}
    for graph, kept in ends:
        readers: dict[int, list[Any]] = {}
        for each in graph.operators:
            for index in each.inputs:
                readers.setdefault(int(index), []).append(each)
        for index, tensor in enumerate(graph.tensors):
            if index in kept:
                continue
            name = tensor.name.decode()
            if file.data(tensor):
                results = (_unnumbered(graph.tensors[each.outputs[0]].name.decode(), known) for each in readers[index])
                name = _in_scope([*results, name])
            tensor.name = take_name(_unnumbered(name, known), taken, ":").encode()


def _unnumbered(name: str, known: Collection[str]) -> str:
    """Return a name without the number that the converter appends where it is taken, by a constant for example."""
    for size in range(len(name) - 1, len(name.rstrip(string.digits)) - 1, -1):
        if name[:size] in known:
            return _unnumbered(name[:size], known)
    return name


def _in_scope(names: list[str]) -> str:
    """Return the name of a constant in the first scope that some names tell."""
    # The operation that came first is the last of a name.
    parts = [part for name in names for part in reversed(name.split(";")) if "/" in part]
    return f"{parts[0].rpartition('/')[0]}/{_CONSTANT}" if parts else _CONSTANT
