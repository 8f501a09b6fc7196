"""`read_layers`: the operators, Q/DQ pairs and integer weights of every layer, read from an exported file."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping

import onnx

from qdq_workbench._files import as_path
from qdq_workbench._interrupts import interrupts_held
from qdq_workbench.errors import FileAccessError, UnverifiableFileError
from qdq_workbench.export.metadata import read_metadata
from qdq_workbench.foreign.lint import load_graph
from qdq_workbench.onnx_graph.graph import standard_opset
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QUANTIZE, QDQGraph, type_name
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.verification.lowered import lowering_differences, operators_by_layer


@dataclasses.dataclass(frozen=True)
class FileGrid:
    """The encoding of a Q/DQ pair or of an integer weight in a file.

    Args:
        dtype: Integer type, such as "uint8".
        scales: The number of scales: 1 per tensor, or one per channel or block.
        scale: The scale; None if there are several.
        zero_point: The zero point; None if there are several scales.
    """

    dtype: str
    scales: int
    scale: float | None = None
    zero_point: int | None = None

    @property
    def label(self) -> str:
        """The encoding as text, such as "uint8, scale 0.01, zero point 128"."""
        if self.scale is None:
            return f"{self.dtype}, {self.scales} scales"
        return f"{self.dtype}, scale {self.scale:.4g}, zero point {self.zero_point}"


@dataclasses.dataclass(frozen=True)
class FileLayers:
    """The operators, Q/DQ pairs and integer weights in a file, for every layer of its plan.

    Args:
        path: The file.
        plan: The plan that the file was written from; `plan.lowering` has the lowering step of every node.
        pairs: The Q/DQ pairs on activations in the file, by name as in `plan.tensors`.
        weights: The integer weights in the file, by name as in `plan.tensors`.
        operators: By layer, the count of each operator in the file, without Q/DQ and without operators that only move
            or cast values; layers without an operator of their own are absent.
        problems: The differences between the operators in the file and those of the plan's lowering, one sentence
            each; empty for a correct file.
        opset: Its ONNX opset, which `explain` reads.
    """

    path: pathlib.Path
    plan: PlacementPlan = dataclasses.field(repr=False)
    pairs: Mapping[str, FileGrid]
    weights: Mapping[str, FileGrid]
    operators: Mapping[str, Mapping[str, int]]
    problems: tuple[str, ...] = ()
    opset: int | None = None


@interrupts_held()
def read_layers(path: str | os.PathLike[str]) -> FileLayers:
    """Return the operators, Q/DQ pairs and integer weights of every layer of an exported file.

    Pairs, encodings and operators are read from the file's graph; the plan, with the names of the layers and the
    lowering of those without operators, from its metadata.

    Args:
        path: A file written by `export_onnx`.

    Returns:
        The operators, pairs and weights, with the plan.

    Raises:
        FileAccessError: If the file cannot be read, or is not an ONNX model.
        UnverifiableFileError: If the file has no plan in its metadata.

    Example:
        >>> import keras, numpy as np, pathlib, tempfile
        >>> from qdq_workbench import calibrate, export_onnx, quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> q_model = quantize_model(keras.Model(image, keras.layers.Dense(4, name="head")(image)))
        >>> _ = calibrate(q_model, np.ones((1, 2)), verbose=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     held = read_layers(export_onnx(q_model, pathlib.Path(folder) / "model.onnx").path)
        >>> sorted(held.pairs), held.weights["head/kernel"].dtype
        (['image'], 'int8')
    """
    place = as_path(path, FileAccessError)
    file = load_graph(place)
    noted = read_metadata(file)
    if noted is None:
        raise UnverifiableFileError(
            "The file carries no plan, so its layers are not known. Expected a file of export_onnx. "
            f"Received: path={str(place)!r}"
        )
    plan = PlacementPlan.from_dict(noted["plan"])
    nodes = list(file.graph.node)
    pairs, weights = _grids(file)
    held = {layer: dict(found) for layer, found in operators_by_layer(plan, nodes).items() if found}
    problems = tuple(lowering_differences(plan, nodes))
    return FileLayers(place, plan, pairs, weights, held, problems, standard_opset(file))


def _grids(file: onnx.ModelProto) -> tuple[dict[str, FileGrid], dict[str, FileGrid]]:
    """Return the encodings of the pairs and of the integer weights, without the int32 biases."""
    graph = QDQGraph(file)
    pairs, weights = {}, {}
    for node in graph.nodes:
        if node.op_type == QUANTIZE:
            grid = _grid(graph, node)
            if grid is not None:
                pairs[node.name.removesuffix(f"/{QUANTIZE}")] = grid
        elif node.op_type == DEQUANTIZE and graph.is_constant(node.input[0]):
            grid = _grid(graph, node)
            if grid is not None and grid.dtype != "int32":
                weights[node.name.removesuffix(f"/{DEQUANTIZE}")] = grid
    return pairs, weights


def _grid(graph: QDQGraph, node: onnx.NodeProto) -> FileGrid | None:
    found = graph.parameters(node)
    if found is None:
        return None
    scale, zero = found
    codes = graph.tensors.get(node.input[0])
    dtype = type_name(zero.dtype) if codes is None else str(onnx.TensorProto.DataType.Name(codes.data_type)).lower()
    if scale.size != 1:
        return FileGrid(dtype, int(scale.size))
    return FileGrid(dtype, 1, float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]))
