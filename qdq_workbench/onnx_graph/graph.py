"""A small mutable ONNX graph: nodes, constants and shapes, with producers and readers kept up to date.

The exporter's passes (`export/passes`) are written against this class. A pass changes the graph only through its
methods, each of which leaves every index consistent.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from qdq_workbench.errors import ExportError
from qdq_workbench.graph.free_names import free_name
from qdq_workbench.graph.half_precision import HalfRequest
from qdq_workbench.graph.operators import WITH_BODIES

Shape = tuple[int | None, ...]


def static_shape(value: onnx.ValueInfoProto) -> Shape | None:
    """Return the shape that a file states for a tensor, with None for open sizes; None where the rank is unknown."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(size.dim_value if size.HasField("dim_value") else None for size in tensor.shape.dim)


@dataclasses.dataclass(eq=False)
class Node:
    """One operation.

    Args:
        op: ONNX operator type.
        inputs: Names of the tensors read; "" where an optional input is left out.
        outputs: Names of the tensors written.
        attributes: Attribute name -> ONNX attribute.
        name: Node name, unique in the graph.
        domain: Operator domain, "" for the standard one.
    """

    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, onnx.AttributeProto] = dataclasses.field(default_factory=dict)
    name: str = ""
    domain: str = ""

    def get(self, key: str, default: Any = None) -> Any:
        """Return an attribute's value, or `default` where it is not set."""
        return helper.get_attribute_value(self.attributes[key]) if key in self.attributes else default

    def set(self, key: str, value: Any) -> None:
        """Set an attribute."""
        self.attributes[key] = helper.make_attribute(key, value)

    @property
    def output(self) -> str:
        """The first output."""
        return self.outputs[0]


def standard_opset(model: onnx.ModelProto) -> int:
    """Return the opset of ONNX's own operators, which need not be the first that a model imports; 1 without one."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)


class Graph:
    """An ONNX model opened for editing.

    Args:
        model: The model; it is not changed.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.opset = standard_opset(model)
        self.other_domains = [entry for entry in model.opset_import if entry.domain not in ("", "ai.onnx")]
        graph = model.graph
        self.inputs: dict[str, onnx.ValueInfoProto] = {value.name: value for value in graph.input}
        self.outputs: dict[str, onnx.ValueInfoProto] = {value.name: value for value in graph.output}
        self.constants: dict[str, np.ndarray] = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        # Files of IR version 3 list their initializers among the inputs as well.
        for name in self.constants:
            self.inputs.pop(name, None)
        self.shapes: dict[str, Shape] = {}
        for value in (*graph.input, *graph.output, *graph.value_info):
            self._learn_shape(value)
        #: The nodes that `move_to_channels_first` flipped.
        # Passes visit them, and the order of a set would follow addresses in memory, which differ in every run.
        self.channels_first: dict[Node, None] = {}
        #: Whether a layer normalization of images is slower with Transposes around it than in steps, for the target.
        self.slow_transposes = False
        #: Whether the first of two nodes may become a part of the second; the plan decides.
        self.may_join: Callable[[Node, Node], bool] = lambda _part, _whole: True
        #: The request for `to_half`; None leaves the graph in float32.
        self.half: HalfRequest | None = None
        self._nodes: dict[int, Node] = {}
        self._producers: dict[str, Node] = {}
        self._readers: dict[str, dict[int, Node]] = {}
        self._tensor_names: set[str] = set(self.inputs) | set(self.constants)
        self._node_names: set[str] = set()
        self._order: list[Node] | None = None  # this and `_pruned_to` are valid until the next change
        self._pruned_to: list[str] | None = None
        for proto in graph.node:
            self._load(proto)

    def copy(self) -> Graph:
        """Return a graph that can be changed without changing this one; the constants' values are shared."""
        copied = object.__new__(Graph)
        copied.opset, copied.other_domains = self.opset, list(self.other_domains)
        copied.inputs, copied.outputs = dict(self.inputs), dict(self.outputs)
        copied.constants, copied.shapes = dict(self.constants), dict(self.shapes)
        copied._nodes, copied._producers, copied._readers = {}, {}, {}
        copied._tensor_names, copied._node_names = set(self._tensor_names), set()
        copied._order = copied._pruned_to = None
        copied.channels_first, copied.half, copied.slow_transposes = {}, self.half, self.slow_transposes
        copied.may_join = self.may_join
        for node in self.nodes:
            # `replace_reads` renames tensors inside bodies; other attributes are only replaced as a whole.
            attributes = copy.deepcopy(node.attributes) if _has_bodies(node) else dict(node.attributes)
            new = Node(node.op, list(node.inputs), list(node.outputs), attributes, node.name, node.domain)
            copied._insert(new)
            if node in self.channels_first:
                copied.channels_first[new] = None
        return copied

    def _learn_shape(self, value: onnx.ValueInfoProto) -> None:
        shape = static_shape(value)
        if shape is not None:
            self.shapes[value.name] = shape

    def _load(self, proto: onnx.NodeProto) -> None:
        if proto.op_type == "Constant" and proto.attribute[0].name == "value":
            self.constants[proto.output[0]] = numpy_helper.to_array(proto.attribute[0].t)
            self._tensor_names.add(proto.output[0])
            return
        attributes = {attribute.name: attribute for attribute in proto.attribute}
        self._insert(Node(proto.op_type, list(proto.input), list(proto.output), attributes, proto.name, proto.domain))

    # Reading

    @property
    def nodes(self) -> list[Node]:
        """The nodes, in no particular order."""
        return list(self._nodes.values())

    def __contains__(self, node: Node) -> bool:
        return id(node) in self._nodes

    def producer(self, tensor: str) -> Node | None:
        """Return the node that writes `tensor`; None for inputs and constants."""
        return self._producers.get(tensor)

    def readers(self, tensor: str) -> list[Node]:
        """Return the nodes that read `tensor`, in their subgraphs too; graph outputs are not counted."""
        return list(self._readers.get(tensor, {}).values())

    def has_one_reader(self, tensor: str) -> bool:
        """Return whether `tensor` is read by exactly one node and is no graph output."""
        return tensor not in self.outputs and len(self._readers.get(tensor, {})) == 1

    def constant(self, tensor: str) -> np.ndarray | None:
        """Return the value of a constant tensor, else None."""
        return self.constants.get(tensor)

    def shape(self, tensor: str) -> Shape | None:
        """Return the static shape, with None for unknown sizes; None where even the rank is unknown."""
        value = self.constants.get(tensor)
        return value.shape if value is not None else self.shapes.get(tensor)

    def rank(self, tensor: str) -> int | None:
        """Return the number of axes, or None where it is unknown."""
        shape = self.shape(tensor)
        return None if shape is None else len(shape)

    # Writing

    def fresh(self, name: str) -> str:
        """Return `name`, or `name` with a number where a tensor of that name exists or existed."""
        return free_name(name, self._tensor_names, "__")

    def add(
        self,
        op: str,
        inputs: Iterable[str],
        name: str,
        *,
        output: str | None = None,
        more_outputs: Iterable[str] = (),
        **attributes: Any,
    ) -> Node:
        """Append a node; its name is made unique, and an attribute that is None is left out.

        `output` is the tensor to write, made unique if a node writes it already, by default `name` + ":0"; the further
        ones are made unique.
        """
        written = output if output is not None and output not in self._producers else self.fresh(output or f"{name}:0")
        attrs = {key: helper.make_attribute(key, value) for key, value in attributes.items() if value is not None}
        self._tensor_names.add(written)
        written_too = []
        for tensor in more_outputs:
            written_too.append(self.fresh(tensor))
            self._tensor_names.add(written_too[-1])
        return self._insert(Node(op, list(inputs), [written, *written_too], attrs, name))

    def add_constant(self, name: str, value: np.ndarray) -> str:
        """Add an initializer and return its name, which is `name` or `name` with a number."""
        unique = self.fresh(name)
        self._changed()
        self.constants[unique] = value
        self._tensor_names.add(unique)
        return unique

    def remove(self, node: Node) -> None:
        """Remove a node; its outputs must have no reader, or get another producer."""
        self._changed()
        del self._nodes[id(node)]
        self._node_names.discard(node.name)
        for tensor in node.outputs:
            if self._producers.get(tensor) is node:
                del self._producers[tensor]
        for tensor in self.reads(node):
            self._readers.get(tensor, {}).pop(id(node), None)

    def set_inputs(self, node: Node, inputs: Iterable[str]) -> None:
        """Replace the inputs of a node."""
        for tensor in self.reads(node):
            self._readers.get(tensor, {}).pop(id(node), None)
        node.inputs = list(inputs)
        self._register_reads(node)

    def set_output(self, node: Node, tensor: str, index: int = 0) -> None:
        """Replace an output of a node by a tensor that nothing else writes."""
        if tensor in self._producers:
            raise ExportError(f"Two nodes would write one tensor. Received: tensor={tensor!r}, node={node.name!r}")
        self._changed()
        if self._producers.get(node.outputs[index]) is node:
            del self._producers[node.outputs[index]]
        node.outputs[index] = tensor
        self._producers[tensor] = node
        self._tensor_names.add(tensor)

    def insert_output(self, node: Node, index: int, tensor: str) -> None:
        """Insert an output of a node before its output number `index`."""
        self._changed()
        node.outputs.insert(index, tensor)
        self._producers[tensor] = node
        self._tensor_names.add(tensor)

    def replace_reads(self, old: str, new: str, nodes: Iterable[Node] | None = None) -> None:
        """Replace `old` by `new` in its readers, or only in `nodes`; graph outputs stay."""
        for node in self.readers(old) if nodes is None else list(nodes):
            for subgraph in bodies(node):
                rename_reads(subgraph, old, new)
            self._readers[old].pop(id(node), None)
            self.set_inputs(node, [new if tensor == old else tensor for tensor in node.inputs])

    def rename(self, names: Mapping[Node, str]) -> None:
        """Rename nodes; the new names are distinct."""
        for node, name in names.items():
            node.name = name
        self._node_names = set(names.values())

    def prune(self) -> None:
        """Remove nodes and constants that no graph output depends on."""
        # Compared by content: outputs are also deleted from the dictionary itself, which `_changed` does not notice.
        if self._pruned_to == list(self.outputs):
            return
        needed, todo = set(), list(self.outputs)
        while todo:
            producer = self._producers.get(todo.pop())
            if producer is not None and id(producer) not in needed:
                needed.add(id(producer))
                todo.extend(_all_reads(producer))
        for node in self.nodes:
            if id(node) not in needed:
                self.remove(node)
        self.constants = {
            name: value for name, value in self.constants.items() if self._readers.get(name) or name in self.outputs
        }
        self._pruned_to = list(self.outputs)

    def sorted_nodes(self) -> list[Node]:
        """Return the nodes so that every tensor is written before it is read."""
        if self._order is None:
            self._order = self._sort()
        return list(self._order)

    def _sort(self) -> list[Node]:
        # Depth first with a stack of its own: a deep model exceeds Python's recursion limit.
        done: set[int] = set()
        order: list[Node] = []
        for root in self.nodes:
            stack = [(root, iter(_all_reads(root)))] if id(root) not in done else []
            done.add(id(root))
            while stack:
                node, reads = stack[-1]
                for tensor in reads:
                    before = self._producers.get(tensor)
                    if before is not None and id(before) not in done:
                        done.add(id(before))
                        stack.append((before, iter(_all_reads(before))))
                        break
                else:
                    order.append(node)
                    stack.pop()
        return order

    # Indexes

    def _changed(self) -> None:
        self._order = self._pruned_to = None

    def _insert(self, node: Node) -> Node:
        node.name = free_name(node.name or node.op, self._node_names, "__")
        self._node_names.add(node.name)
        self._nodes[id(node)] = node
        for tensor in node.outputs:
            if tensor:
                self._producers[tensor] = node
                self._tensor_names.add(tensor)
        self._register_reads(node)
        return node

    def _register_reads(self, node: Node) -> None:
        self._changed()
        for tensor in self.reads(node):
            self._readers.setdefault(tensor, {})[id(node)] = node

    @staticmethod
    def reads(node: Node) -> list[str]:
        """Return the tensors that a node reads, in its subgraphs too."""
        return [tensor for tensor in _all_reads(node) if tensor]


def _all_reads(node: Node) -> list[str]:
    """Return the tensors that a node reads, with "" where an optional input is left out."""
    if not _has_bodies(node):
        return node.inputs
    return [*node.inputs, *(tensor for body in bodies(node) for tensor in outer_reads(body))]


def _has_bodies(node: Node) -> bool:
    # Nothing is known of operators of other domains, so they are searched for bodies, too.
    return node.op in WITH_BODIES or node.domain != ""


def bodies(node: Node) -> Iterator[onnx.GraphProto]:
    """Yield the loop and branch bodies of a node, without those in bodies."""
    if _has_bodies(node):
        for attribute in node.attributes.values():
            yield from _subgraphs(attribute)


def _subgraphs(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    if attribute.type == onnx.AttributeProto.GRAPH:
        yield attribute.g
    elif attribute.type == onnx.AttributeProto.GRAPHS:
        yield from attribute.graphs


def node_reads(node: onnx.NodeProto) -> list[str]:
    """Return the tensors that a node of a file reads, those that its bodies take from around them included."""
    inside = (body for attribute in node.attribute for body in _subgraphs(attribute))
    return [name for name in node.input if name] + [name for body in inside for name in outer_reads(body)]


def outer_reads(graph: onnx.GraphProto) -> list[str]:
    """Return the tensors that a loop or branch body, nested bodies included, reads from the graphs around it."""
    local = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    local |= {output for node in graph.node for output in node.output}
    # A body may return a tensor of the graph around it without any node between.
    reads = [value.name for value in graph.output]
    for node in graph.node:
        reads.extend(node.input)
        for attribute in node.attribute:
            for subgraph in _subgraphs(attribute):
                reads.extend(outer_reads(subgraph))
    return [tensor for tensor in reads if tensor and tensor not in local]


def rename_reads(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Replace the tensor `old` by `new` in what a loop or branch body, nested bodies included, reads or returns."""
    for node in graph.node:
        for index, tensor in enumerate(node.input):
            if tensor == old:
                node.input[index] = new
        for attribute in node.attribute:
            for subgraph in _subgraphs(attribute):
                rename_reads(subgraph, old, new)
    for value in graph.output:
        if value.name == old:
            value.name = new
