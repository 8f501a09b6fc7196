"""The order and the names in a file of TensorFlow's converter, which differ from one conversion to the next.

It inserts the QUANTIZE and DEQUANTIZE behind an operator with several results in the order of their addresses in
memory. Of equal constants it keeps one, now with the name of one of them and now with none, such as "arith.constant2".
Here operators, tensors and buffers get an order that follows from the outputs and what each operator reads, and such
constants the scope of the operator that reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from qdq_workbench.export.keras_side.stable_order import depth_first
from qdq_workbench.export.litert.tflite_file import TFLiteFile
from qdq_workbench.graph.free_names import take_name

_NAMELESS = re.compile(r"([a-z]+\.\w+?)\d*")  # the operation of the compiler that made a tensor, and a running number
_CONSTANT = "constant"


def in_stable_order(file: TFLiteFile) -> None:
    """Sort a file's operators, tensors, buffers and operator codes, and rename its nameless tensors.

    Tensors that nothing reads are left out, and so are operators, unless their graph has one without a result.
    """
    for number, graph in enumerate(file.graphs):
        if all(len(each.outputs) for each in graph.operators):  # one without a result counts by when it runs
            graph.operators = list(_sorted(graph))
        ends = [each for each in file.signatures if each.subgraphIndex == number]
        _number_tensors(graph, [entry for each in ends for entry in (*each.inputs, *each.outputs)])
    _rename(file)
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


def _rename(file: TFLiteFile) -> None:
    """Name constants that several operators read, and nameless ones, by the scope of a reader; number other ones."""
    renamed: list[tuple[Any, str]] = []
    taken = set()
    for graph in file.graphs:
        ends = {int(index) for index in (*graph.inputs, *graph.outputs)}
        readers: dict[int, list[Any]] = {}
        for each in graph.operators:
            for index in each.inputs:
                readers.setdefault(int(index), []).append(each)
        for index, tensor in enumerate(graph.tensors):
            name, reading = tensor.name.decode(), readers.get(index, [])
            nameless, constant = _NAMELESS.fullmatch(name), bool(file.data(tensor))
            if index in ends or not (nameless or (constant and len(reading) > 1)):
                taken.add(name)
            elif constant:
                results = (graph.tensors[each.outputs[0]].name.decode() for each in reading)
                renamed.append((tensor, _in_scope([*results, name])))
            elif nameless:
                renamed.append((tensor, nameless[1]))
    for tensor, name in renamed:
        tensor.name = take_name(name, taken, "").encode()


def _in_scope(names: list[str]) -> str:
    """Return the name of a constant in the first scope that some names tell."""
    scope = next((name for name in names if "/" in name), "").split(";")[0].rpartition("/")[0]
    return f"{scope}/{_CONSTANT}" if scope else _CONSTANT
