"""`lint_onnx`: faults in the Q/DQ placement of an ONNX file of any exporter.

Every rule is one generator over a graph (`lint_rules.py`). Here the rules run on the main graph of a file and on those
of branches and loop bodies.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import onnx
import onnx.inliner

from qdq_workbench._files import as_path
from qdq_workbench.errors import FileAccessError
from qdq_workbench.foreign.file_formats import check_nodes, integer_operations
from qdq_workbench.foreign.finding import Finding
from qdq_workbench.foreign.lint_planned import split_planned
from qdq_workbench.foreign.lint_rules import RULES
from qdq_workbench.onnx_graph.model_files import read_model
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QUANTIZE, QDQGraph, has_negative_scales, subgraphs


@dataclasses.dataclass(frozen=True)
class LintReport:
    """The findings of `lint_onnx`.

    Args:
        path: The file.
        findings: The faults, in the order of the rules; first those of the main graph, then those of branches and
            loop bodies.
        pairs: The number of QuantizeLinear nodes in the file.
        weights: The number of DequantizeLinear nodes that read a constant.
        notes: What the rules do not cover, and float layers that the file's own plan explains.
    """

    path: pathlib.Path
    findings: tuple[Finding, ...]
    pairs: int
    weights: int
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    @property
    def counts(self) -> dict[str, int]:
        """The number of findings by rule; rules without any are left out."""
        counts: dict[str, int] = {}
        for finding in self.findings:
            counts[finding.rule] = counts.get(finding.rule, 0) + 1
        return counts

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-compatible dictionary."""
        return {
            "path": str(self.path),
            "passed": self.passed,
            "pairs": self.pairs,
            "weights": self.weights,
            "counts": self.counts,
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "notes": list(self.notes),
        }

    def summary(self) -> str:
        """Return the report as text, one line per finding and note."""
        head = f"{self.path}: {self.pairs} Q/DQ pairs, {self.weights} integer constants, {len(self.findings)} findings"
        found = (f"{item.rule}  {item.node}: {item.message}" for item in self.findings)
        return "\n".join([head, *found, *(f"note: {note}" for note in self.notes)])


def lint_onnx(path: str | os.PathLike[str]) -> LintReport:
    """Check the Q/DQ placement of an ONNX file of any exporter.

    Args:
        path: The file.

    Returns:
        The findings, each with its rule, the node and what to do. Files that `export_onnx` wrote have none: where the
        plan leaves a layer in float between integer ones, a note says so.

    Raises:
        FileAccessError: If the file cannot be read, or is not an ONNX model.

    Example:
        >>> import keras, numpy as np, pathlib, tempfile
        >>> from qdq_workbench import calibrate, export_onnx, quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> q_model = quantize_model(keras.Model(image, keras.layers.Dense(1, name="head")(image)))
        >>> _ = calibrate(q_model, np.ones((1, 2)), verbose=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lint_onnx(export_onnx(q_model, pathlib.Path(folder) / "model.onnx").path).findings
        ()
    """
    return lint_model(path, load_graph(path))


def lint_model(path: str | os.PathLike[str], proto: onnx.ModelProto) -> LintReport:
    """Return the findings in a model that `load_graph` read from a file, or `inlined` returned."""
    graphs = list(QDQGraph(proto).all_graphs())
    findings, planned = split_planned((finding for graph in graphs for rule in RULES for finding in rule(graph)), proto)
    weights = sum(
        node.op_type == DEQUANTIZE and graph.is_constant(node.input[0]) for graph in graphs for node in graph.nodes
    )
    pairs = sum(node.op_type == QUANTIZE for graph in graphs for node in graph.nodes)
    notes = (*planned, *_notes(graphs, pairs + weights))
    return LintReport(pathlib.Path(path), tuple(findings), pairs, weights, notes)


def _notes(graphs: list[QDQGraph], quantized: int) -> Iterator[str]:
    """Yield notes on what the rules do not cover: operations on integers, files without pairs, negative scales."""
    found = integer_operations(graphs)
    if found:
        kinds = ", ".join(sorted(set(found)))
        yield f"{len(found)} operations take integers and scales themselves ({kinds}); the rules are about Q/DQ pairs"
    elif not quantized:
        yield "nothing in this file is quantized, so there was nothing to check: it has no Q/DQ pair"
    negative = sum(has_negative_scales(graph, node) for graph in graphs for node in graph.nodes)
    if negative:
        yield (
            f"{negative} constants have negative scales, as symmetric int4 weights do: ONNX Runtime runs them, other "
            "runtimes may want positive ones"
        )


def load_graph(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Return an ONNX model with its external data; functions are inlined if any of them has Q or DQ nodes.

    Raises:
        FileAccessError: If the file cannot be read, or is not an ONNX model.
    """
    return inlined(read_whole(path))


def read_whole(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Return an ONNX model with its external data and its functions.

    Raises:
        FileAccessError: If the file cannot be read, or is not an ONNX model.
    """
    place = as_path(path, FileAccessError)
    model = read_model(
        place,
        in_place_of_litert="this reads ONNX files. A LiteRT file is checked by files.verify_tflite (qdq-workbench "
        "verify FILE.tflite --model Q_MODEL) and measured by profile_onnx(path, runtime='litert') (--runtime litert), "
        "on the device by LiteRT's own benchmark_model; export_onnx writes the same model as an ONNX file",
    )
    check_nodes(model, place)
    return model


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with its functions inlined if any of them has Q or DQ nodes, else the model itself."""
    if any(_quantizes(function.node) for function in model.functions):
        return onnx.inliner.inline_local_functions(model)
    return model


def _quantizes(nodes: Iterable[onnx.NodeProto]) -> bool:
    """Return whether some nodes, or those in their branches and bodies, contain a Q or DQ."""
    return any(
        node.op_type in (QUANTIZE, DEQUANTIZE) or any(_quantizes(graph.node) for graph in subgraphs(node))
        for node in nodes
    )
