"""One conversion of a float model, from which the QDQ file of any plan is made in a fraction of a second.

`export_onnx` cuts a model where its pairs belong and lets tf2onnx translate the pieces; that takes most of its time.
Here the model is cut at *every* edge and weight once. A plan then says which ends are joined through a pair and which
are simply joined again; everything behind that is the exporter's own code. Ranges and integers are made up: which
kernels ONNX Runtime forms depends on zero points and types, not on values.

`test_fast_export.py` compares such files with the real exporter's, node by node.
"""

from __future__ import annotations

import dataclasses
import zlib

import keras
import numpy as np
import onnx

from qdq_workbench.conversion.engine.rebuild import Rebuilder, unique_names
from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.finish import assemble
from qdq_workbench.export.insert_qdq import QDQWriter, _ends_of_movements
from qdq_workbench.export.keras_side.cut_model import CutModel
from qdq_workbench.export.keras_side.float_graph import convert_float
from qdq_workbench.export.moved_scales import moved
from qdq_workbench.export.passes.drop_identities import drop_identities
from qdq_workbench.export.passes.order import FLOAT, JOINED, run_stage
from qdq_workbench.export.target_stages import stages_for
from qdq_workbench.graph.never_negative import is_never_negative
from qdq_workbench.graph.op_kinds import vanishes
from qdq_workbench.graph_builder import bind_graph, layer_weights, output_names
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.placement.defaults import find_default
from qdq_workbench.placement.opsets import is_packed
from qdq_workbench.placement.targets import get_target
from qdq_workbench.quantizers import numerics
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

LARGEST = {"relu6": 6.0, "sigmoid": 1.0, "softmax": 1.0, "hard_sigmoid": 1.0}
KEEPING = (
    "Concatenate",
    "Flatten",
    "Permute",
    "RepeatVector",
    "Reshape",
    "UpSampling1D",
    "UpSampling2D",
    "ZeroPadding1D",
    "ZeroPadding2D",
    "ZeroPadding3D",
)
MAXIMA = tuple(f"{kind}Pooling{rank}D" for kind in ("Max", "GlobalMax") for rank in (1, 2, 3))
WHOLE = QuantizerSpec(signed=True, symmetric=True, narrow_range=True)


class FastExport:
    """A float model, converted once.

    Args:
        model: A built Keras model without recurrent layers.
        opset: The opset of the files.
    """

    def __init__(self, model: keras.Model, opset: int = 17) -> None:
        bound = bind_graph(model)
        self.graph = bound.graph
        builder = _OpenEverywhere(bound)
        builder.run()
        builder.copy_weights()
        inputs = list(bound.input_tensors)
        references = keras.tree.flatten(bound.output_structure)
        names = list(unique_names({str(i): n for i, n in enumerate([*inputs, *output_names(model)])}).values())
        self.outputs = {f"output/{index}": ref.name for index, ref in enumerate(references)}
        ends = {
            name: builder.open("output", str(index), ref.name)
            for index, (name, ref) in enumerate(zip(names[len(inputs) :], references, strict=True))
        }
        weights = builder.weights()
        self._values = {name: np.asarray(variable, np.float32) for name, variable in weights.items()}
        cut = CutModel({name: builder.values[name] for name in inputs}, ends, builder.edges, weights)
        self._edges = builder.tensors
        self._first_edges = {tensor: edge for edge, tensor in reversed(builder.tensors.items())}
        self._float = convert_float(cut, opset=opset, dynamic_batch=True)
        self._canonical = {self._float.ends.sources[edge] for edge in self._first_edges.values()}
        self._open = Graph(self._float.model)
        for source in set(self._float.ends.sources.values()) - self._canonical:
            del self._open.outputs[source]
        self._open.prune()
        drop_identities(self._open)
        self._codes: dict[tuple[str, QuantizerSpec], Encoding] = {}
        self.opset = opset

    def build(self, plan, seed: int = 0) -> onnx.ModelProto:
        """Return the file of a plan for ONNX Runtime, with made-up ranges.

        Args:
            plan: A plan of the model.
            seed: Other seeds give other ranges.
        """
        graph = self._open.copy()
        integer = {p.tensor: p.quantizer for p in plan.placements if p.site == "weight"}
        for name, source in self._float.ends.weights.items():
            if name not in integer:
                self._write_float(graph, name, source)
        pairs = self._join_what_has_no_pair(graph, plan, set(integer))
        for source in self._canonical:
            del graph.outputs[source]
        graph.outputs.update(dict.fromkeys(source for source, _ in pairs.values()))
        drop_identities(graph)
        run_stage(graph, FLOAT)
        writer = QDQWriter(graph)
        for name, spec in integer.items():
            writer.write_weight(name, self._weight(name, spec), self._float.ends.weights[name])
        encodings = made_up(plan, seed)
        for name, (source, placeholder) in pairs.items():
            writer.join_pair(name, encodings[name], source, placeholder)
            graph.outputs.pop(source, None)
        graph.prune()
        run_stage(graph, JOINED)
        for stage in stages_for(get_target(plan.target), half=False):
            run_stage(graph, stage)
        ends = dataclasses.replace(
            self._float.ends,
            sources={name: source for name, (source, _) in pairs.items()},
            placeholders={name: placeholder for name, (_, placeholder) in pairs.items()},
        )
        names = dataclasses.replace(self._float, ends=ends)
        packed = [name for name, spec in integer.items() if is_packed(spec, self.opset)]
        return assemble(graph, names, dynamic_batch=True, four_bits=packed)  # the runtime reads it at once

    def _join_what_has_no_pair(self, graph: Graph, plan, integer: set[str]) -> dict[str, tuple[str, str]]:
        """Join the open edges without a pair; return source and placeholder of each pair."""
        ends = self._float.ends
        values = {tensor: ends.sources[edge] for tensor, edge in self._first_edges.items()}
        folded = {fold.batch_norm.name: fold for fold in plan.lowering.folds}
        pairs: dict[str, tuple[str, str]] = {}
        for edge, tensor in self._edges.items():
            placeholder = ends.placeholders[edge]
            node, _, index = edge.rpartition("/")
            if node in folded:
                # Its input reaches what reads its output, with a bias in between, as in a folded layer.
                source = _add_bias(graph, values[tensor], node)
                values[folded[node].batch_norm.outputs[0]] = source
                del graph.inputs[placeholder]
                continue
            placement = plan.output_placement(tensor) if node == "output" else plan.input_placement(node, int(index))
            if placement is None:
                graph.replace_reads(placeholder, values[tensor])
                del graph.inputs[placeholder]
                continue
            name = plan.pair_of(placement).name
            if name not in pairs:
                pairs[name] = (values[tensor], placeholder)
            else:
                graph.replace_reads(placeholder, pairs[name][1])
                del graph.inputs[placeholder]
        return pairs

    def _write_float(self, graph: Graph, name: str, source: str) -> None:
        """Write a weight as a float constant directly in front of its readers, as tf2onnx does."""
        encoding = Encoding(np.float32(1.0), np.int32(0), WHOLE, np.zeros(self._values[name].shape, np.int8))
        for end in _ends_of_movements(graph, source, encoding):
            constant = graph.add_constant(f"{name}/float", moved(self._values[name], end.movements))
            graph.replace_reads(end.tensor, constant, end.readers)
        del graph.inputs[source]

    def _weight(self, name: str, spec: QuantizerSpec) -> Encoding:
        key = (name, spec)
        if key not in self._codes:
            shape = self._values[name].shape
            generator = np.random.default_rng(zlib.crc32(name.encode()))
            codes = generator.integers(spec.qmin, spec.qmax + 1, shape)
            slices = () if spec.axis is None else (shape[spec.axis],)
            self._codes[key] = Encoding(
                generator.uniform(0.005, 0.02, slices).astype(np.float32), np.zeros(slices, np.int32), spec, codes
            )
        return self._codes[key]


class _OpenEverywhere(Rebuilder):
    """Rebuilds a model with a placeholder in front of every input of every operation."""

    def __init__(self, bound) -> None:
        super().__init__(bound)
        self.edges: dict[str, tuple[object, object]] = {}
        self.tensors: dict[str, str] = {}
        self._sources: dict[str, object] = {}

    def read(self, call, index, tensor):
        return self.open(call.node.name, str(index), tensor)

    def open(self, node: str, index: str, tensor: str):
        """Return the placeholder of an edge."""
        value = self.values[tensor]
        if tensor not in self._sources:
            self._sources[tensor] = keras.ops.cast(value, value.dtype)
        source = self._sources[tensor]
        placeholder = keras.Input(batch_shape=source.shape, dtype=source.dtype, name=self.free_name("edge"))
        edge = f"{node}/{index}"
        self.edges[edge], self.tensors[edge] = (source, placeholder), tensor
        return placeholder

    def weights(self) -> dict[str, object]:
        """Return every variable that a plan may quantize, by name."""
        found = {}
        for node in self.graph.nodes:
            default = find_default(node)
            for name in default.weights if default is not None else ():
                found[f"{node.layer}/{name}"] = dict(layer_weights(self.clones[node.layer]))[name]
        return found


def _add_bias(graph: Graph, tensor: str, name: str) -> str:
    shape = graph.shape(tensor)
    bias = graph.add_constant(f"{name}/folded", np.full(shape[-1], 0.01, np.float32))
    node = graph.add("Add", [tensor, bias], f"{name}/folded")
    graph.shapes[node.output] = shape
    return node.output


def made_up(plan, seed: int = 0) -> dict[str, Encoding]:
    """Return an encoding for every activation pair of a plan, of the kind that calibration would give.

    What cannot be negative starts at 0, activations with a largest value end there, groups share a range.

    Args:
        plan: The plan.
        seed: Other seeds give other ranges.
    """
    owners = plan.range_owners
    ends: dict[str, tuple[float, float]] = {}
    for tensor in plan.tensors:
        if tensor.kind != "activation":
            continue
        low, high = _range_of(plan.graph, tensor.tensor, seed)
        if tensor.method is not None and tensor.method.name == "fixed":
            low, high = (tensor.method.arguments[end] for end in ("init_min", "init_max"))
        owner = owners[tensor.name]
        before = ends.get(owner, (low, high))
        ends[owner] = min(low, before[0]), max(high, before[1])
    encodings = {}
    for tensor in plan.tensors:
        if tensor.kind == "activation":
            stored = plan.target_object.activation_in_file(tensor.quantizer)
            found = numerics.qparams_from_range(*ends[owners[tensor.name]], stored)
            encodings[tensor.name] = Encoding(found.scale, found.zero_point, stored)
    return encodings


def _range_of(graph, tensor: str, seed: int) -> tuple[float, float]:
    """Make up a range; what only moves values has that of its source, as padding with zeros does."""
    producer = graph.producer(tensor)
    if (producer.is_a(*KEEPING) or vanishes(producer)) and producer.inputs:
        ranges = [_range_of(graph, name, seed) for name in producer.inputs]
        return min(low for low, _ in ranges), max(high for _, high in ranges)
    generator = np.random.default_rng([seed, zlib.crc32(tensor.encode())])
    if producer.is_a(*MAXIMA) and not producer.is_operation:  # a part of its source's values
        low, high = _range_of(graph, producer.inputs[0], seed)
        return low * generator.uniform(0.5, 1.0), high * generator.uniform(0.9, 1.0)
    largest = producer.settings.get("max_value") or LARGEST.get(producer.activation_name, 4.0)
    high = generator.uniform(0.3, 1.0) * float(largest)
    return (0.0, high) if is_never_negative(graph, tensor) else (-generator.uniform(0.2, 3.0), high)
