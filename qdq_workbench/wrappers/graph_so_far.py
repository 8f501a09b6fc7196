"""Whether the operations of a graph may have written to a variable, at a point of its tracing."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_RUNS_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
# Stateful operations that read variables, take arguments or call functions.
_READS = {
    *("ReadVariableOp", "ResourceGather", "VariableShape", "Placeholder"),
    *("PartitionedCall", "StatefulPartitionedCall", "If", "While", "Case"),
}
_HOLDS_FUNCTIONS: dict[str, bool] = {}  # by operation type


class GraphSoFar:
    """A graph while it is traced; each operation is examined once.

    Args:
        graph: The graph of a function.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._seen = 0
        self._runs_python = False

    def may_have_written(self, variable: Any) -> bool:
        """Return whether the graph may have changed a Keras variable by this point."""
        handle = variable.value.handle
        inside = [held for outer, held in self._graph.captures if outer is handle]
        uses = (use for held in inside for use in held.consumers())
        # Any other use of the handle may write: an assignment, or a function that receives the handle.
        return any(use.type != "ReadVariableOp" for use in uses) or self._may_have_run_python()

    def _may_have_run_python(self) -> bool:
        """Return whether the graph, or a function that it calls, calls a Python function, which may do anything."""
        operations = self._graph.get_operations()
        added, self._seen = operations[self._seen :], len(operations)
        if any(_holds_functions(operation) for operation in added):
            self._runs_python |= not _RUNS_PYTHON.isdisjoint(_kinds_in_functions(self._graph))
        self._runs_python |= any(operation.type in _RUNS_PYTHON for operation in added)
        return self._runs_python


def writes_nothing(graph: Any) -> bool:
    """Return whether no operation of a graph, nor of a function that it calls, changes a variable or runs Python.

    Of the stateful operations only those that read are known here; others may write.
    """
    kinds = {operation.type for operation in graph.get_operations()} | _kinds_in_functions(graph)
    return all(kind in _READS or not _is_stateful(kind) for kind in kinds)


def depth() -> int:
    """Return the nesting depth of the functions that are being traced."""
    graph, found = tf.compat.v1.get_default_graph(), 0
    while getattr(graph, "building_function", False):
        graph, found = graph.outer_graph, found + 1
    return found


def _kinds_in_functions(graph: Any) -> set[str]:
    """Return the types of the operations of all functions that a graph calls."""
    # The library holds the called functions of every depth, so their bodies need not be followed.
    return {node.op for held in graph.as_graph_def().library.function for node in held.node_def}


def _holds_functions(operation: Any) -> bool:
    """Return whether operations of this type call functions."""
    kind = operation.type
    if kind not in _HOLDS_FUNCTIONS:
        # Attributes of the types `func` and `list(func)`, as of PartitionedCall, If and While.
        _HOLDS_FUNCTIONS[kind] = any("func" in attribute.type for attribute in operation.op_def.attr)
    return _HOLDS_FUNCTIONS[kind]


def _is_stateful(kind: str) -> bool:
    """Return whether operations of a type are stateful; from a private module of TensorFlow, without which all are."""
    if kind in _RUNS_PYTHON:
        return True
    try:
        from tensorflow.python.framework import op_def_registry
    except ImportError:
        return True
    definition = op_def_registry.get(kind)
    return definition is None or definition.is_stateful
