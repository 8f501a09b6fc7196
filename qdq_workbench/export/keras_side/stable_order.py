"""The order and the numbers of a converted graph, which tf2onnx and TensorFlow take from all earlier conversions.

tf2onnx numbers the names it makes in one sequence per process, TensorFlow does the same with the functions of loops and
branches, and tf2onnx sorts nodes and constants by these names, so that `__99` and `__100` change places. It also
follows sets of names, whose order is another one in every process. Here nodes, constants and numbers, in the bodies of
loops and branches too, get an order that follows from the outputs and what each node reads.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import onnx

from qdq_workbench.graph.free_names import take_name
from qdq_workbench.onnx_graph.body_names import all_graphs, bodies_of, nodes_in, rename_in, tensors_in
from qdq_workbench.onnx_graph.graph import node_reads

_Tensor = TypeVar("_Tensor", str, int)

# What tf2onnx's `make_name` appends; a number of the output or a further part may follow.
_RUNNING_NUMBER = re.compile(r"__\d+(?=$|[:/])")
_FUNCTION_NUMBER = re.compile(r"(?:_frozen)?_\d+$")
_OUTPUT = re.compile(r":\d+$")


def number_functions(graph_def: Any) -> None:
    """Give the functions of a TensorFlow graph names without TensorFlow's running number; the graph is changed."""
    functions = {function.signature.name: function for function in graph_def.library.function}
    taken: set[str] = set()
    renamed = {name: take_name(_FUNCTION_NUMBER.sub("", name), taken) for name in _called(graph_def.node, functions)}
    for nodes in (graph_def.node, *(function.node_def for function in functions.values())):
        for function in _references(nodes):
            function.name = renamed.get(function.name, function.name)
        for node in nodes:
            node.op = renamed.get(node.op, node.op)
    for name, function in functions.items():
        function.signature.name = renamed.get(name, name)
    for gradient in graph_def.library.gradient:
        gradient.function_name = renamed.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = renamed.get(gradient.gradient_func, gradient.gradient_func)


def _called(nodes: Any, functions: dict[str, Any]) -> list[str]:
    """Return the functions that nodes call, each before those that it calls itself."""
    found: dict[str, None] = {}
    todo = [nodes]
    while todo:
        nodes = todo.pop(0)
        names = [*(node.op for node in nodes), *(function.name for function in _references(nodes))]
        for name in names:
            if name in functions and name not in found:
                found[name] = None
                todo.append(functions[name].node_def)
    return list(found)


def _references(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        # The entries of a protobuf map have no order.
        for _, value in sorted(node.attr.items()):
            if value.HasField("func"):
                yield value.func
            yield from value.list.func


def in_stable_order(model: onnx.ModelProto) -> None:
    """Sort the nodes and constants of a model, and number its names and sizes anew; the model is changed.

    Inputs and outputs of the model keep their names and order. Nodes that no output depends on are left out.
    """
    graph = model.graph
    _sort(graph)
    ends = {value.name for value in (*graph.input, *graph.output)}
    rename_in(graph, _numbered(nodes_in(graph), set()), _numbered(tensors_in(graph), ends), without_running_numbers)
    sizes: dict[str, str] = {}
    for part in all_graphs(graph):
        for value in (*part.input, *part.output, *part.value_info):
            for size in value.type.tensor_type.shape.dim:
                if _RUNNING_NUMBER.search(size.dim_param):
                    number = f"{without_running_numbers(size.dim_param)}__{len(sizes)}"
                    size.dim_param = sizes.setdefault(size.dim_param, number)


def without_running_numbers(name: str) -> str:
    """Return a name without the numbers that tf2onnx has appended to its parts."""
    return _RUNNING_NUMBER.sub("", name)


def _sort(graph: onnx.GraphProto) -> None:
    """Sort nodes depth first from the outputs, constants and known shapes by the first read, in bodies too."""
    for body in bodies_of(graph.node):
        _sort(body)  # first, because a node reads what its bodies read
    reads = [node_reads(node) for node in graph.node]
    writers = {output: index for index, node in enumerate(graph.node) for output in node.output if output}
    outputs = [value.name for value in graph.output]
    order = depth_first(outputs, reads, writers)
    read = _ranks([*(tensor for index in order for tensor in reads[index]), *outputs])
    written = _ranks(output for index in order for output in graph.node[index].output if output)
    _arrange(graph.node, lambda node: written.get(next(output for output in node.output if output)))
    _arrange(graph.initializer, lambda tensor: read.get(tensor.name))
    _arrange(graph.value_info, lambda value: written.get(value.name))


def depth_first(
    outputs: Sequence[_Tensor], reads: Sequence[Sequence[_Tensor]], writers: Mapping[_Tensor, int]
) -> list[int]:
    """Return the nodes that the outputs depend on, by their index, each behind those that write what it reads."""
    # With a stack of its own: a deep model exceeds Python's recursion limit.
    order: list[int] = []
    done: set[int] = set()
    ends = len(reads)  # stands for the reader of the outputs
    stack = [(ends, iter(outputs))]
    while stack:
        index, left = stack[-1]
        for tensor in left:
            before = writers.get(tensor)
            if before is not None and before not in done:
                done.add(before)
                stack.append((before, iter(reads[before])))
                break
        else:
            order.append(index)
            stack.pop()
    return order[:-1]


def _ranks(names: Iterable[str]) -> dict[str, int]:
    return {name: rank for rank, name in enumerate(dict.fromkeys(names))}


def _arrange(field: Any, rank: Callable[[Any], int | None]) -> None:
    """Sort a repeated field, in place because constants are large, and drop what has no rank."""
    ranks = [rank(value) for value in field]
    field.sort(key=lambda value: math.inf if (found := rank(value)) is None else found)
    del field[len(ranks) - ranks.count(None) :]


def _numbered(names: list[str], fixed: set[str]) -> dict[str, str]:
    """Map the names with a running number to names whose numbers follow the order of the list."""
    changed = [name for name in names if name not in fixed and _RUNNING_NUMBER.search(name)]
    taken = fixed | (set(names) - set(changed))
    renamed = {}
    for name in changed:
        output = _OUTPUT.search(name)
        end = "" if output is None else output[0]
        base = without_running_numbers(name.removesuffix(end))
        free = next(candidate for n in itertools.count(2) if (candidate := f"{base}__{n}{end}") not in taken)
        renamed[name] = free
        taken.add(free)
    return renamed
