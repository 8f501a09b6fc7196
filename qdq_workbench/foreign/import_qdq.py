"""`import_qdq`: the Q/DQ placement and parameters of any QDQ ONNX file, mapped to a Keras model by structure.

Tensors are matched by the operations that compute them, not by name. The signature of a tensor consists of the
operation, the size of its weight, and the signatures of its inputs. Pairs, movements of data, batch normalizations,
sums or products with constants, and ReLUs are looked through, because exporters and quantizers fold, move and drop
them; a pair is before a ReLU of the model if the file still has a ReLU after it. Tensors of equal signatures (parallel
branches of one shape) are matched in their order.

The Keras side is exported once with a pair on every tensor, so that its tensors have signatures of the same kind.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from qdq_workbench.foreign.file_formats import check_qdq_format, pairs_in_branches
from qdq_workbench.foreign.float_signatures import ImportedTensor, match_tensors, read_float_view
from qdq_workbench.foreign.keras_signatures import keras_view, placement_spec
from qdq_workbench.foreign.lint import load_graph
from qdq_workbench.onnx_graph.qdq_graph import QDQGraph


@dataclasses.dataclass(frozen=True)
class ImportedQDQ:
    """The placement and parameters that `import_qdq` read.

    Args:
        path: The file.
        tensors: The activation tensors with pairs, with an integer weight in their operation, or with quantization
            that cannot be imported.
        keras_tensors: File tensor -> Keras tensor, for those with a counterpart; empty without a model.
        spec: The placement as a specification for that model, for partial mode; None without a model.
        ranges: Keras tensor -> range of its first pair.
        inside: File tensor -> layer, for tensors in the middle of a layer (before its softmax, after the sigmoid of
            its swish): they have no Keras tensor, but an integer weight of their operation is that of the layer.
        unmatched: File tensors with pairs or integer weights that have no counterpart in the model, pairs in the
            middle of a layer included, and tensors whose quantization cannot be imported.
        notes: The parts of the file that were not read, and whether nothing in it is quantized.
    """

    path: pathlib.Path
    tensors: tuple[ImportedTensor, ...]
    keras_tensors: Mapping[str, str] = dataclasses.field(default_factory=dict)
    spec: Any = None
    ranges: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    inside: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unmatched: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def summary(self) -> str:
        """Return the imported placement as a few lines of text."""
        pairs = sum(len(tensor.quantizers) for tensor in self.tensors)
        weights = sum(bool(tensor.weight_dtype) for tensor in self.tensors)
        lines = [f"{self.path}: {pairs} pairs on activations, {weights} integer weights"]
        if self.spec is not None:
            known = len({*self.keras_tensors, *self.inside} - {*self.unmatched})
            lines.append(f"{known} tensors recognised in the model, {len(self.unmatched)} not")
        refused = {tensor.name: tensor.not_imported for tensor in self.tensors if tensor.not_imported}
        for name in self.unmatched:
            if name in self.inside:
                lines.append(f"in the middle of layer {self.inside[name]!r}, where no pair can be placed: {name}")
            elif name not in refused:
                lines.append(f"not recognised: {name}")
        lines += [f"not imported: {name}: {reason}" for name, reasons in refused.items() for reason in reasons]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def import_qdq(path: str | os.PathLike[str], model: Any = None) -> ImportedQDQ:
    """Read the Q/DQ placement of an ONNX file and map it to a Keras model.

    Args:
        path: The file, from any exporter or quantizer that writes QuantizeLinear and DequantizeLinear.
        model: The float Keras model of the same network; None to read the file alone. It is only read.

    Returns:
        The pairs and weights; with a model also the ranges, and the specification that reproduces the placement
        (`quantize_model(model, "partial", imported.spec)`).

    Raises:
        FileAccessError: If the file cannot be read, is not an ONNX model, or is in the QOperator format.
        UnsupportedModelError: If the model's graph cannot be read.

    Example:
        >>> import keras, numpy as np, tempfile
        >>> from qdq_workbench import calibrate, export_onnx, quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(1, name="head")(image))
        >>> q_model = quantize_model(model)
        >>> _ = calibrate(q_model, np.ones((1, 2)), verbose=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     imported = import_qdq(export_onnx(q_model, pathlib.Path(folder) / "model.onnx").path, model)
        >>> sorted(imported.ranges)
        ['image']
    """
    file = load_graph(path)
    graphs = list(QDQGraph(file).all_graphs())
    check_qdq_format(graphs, path)
    view = read_float_view(file)
    kept = tuple(item for item in view.values() if item.quantizers or item.weight_dtype or item.not_imported)
    refused = tuple(item.name for item in kept if item.not_imported and not item.quantizers)
    found = ImportedQDQ(pathlib.Path(path), kept, unmatched=refused, notes=_notes(graphs, kept))
    if model is None:
        return found
    reference, aliases, inner = keras_view(model)
    known: dict[str, str] = {}
    inside: dict[str, str] = {}
    for tensor, other in match_tensors(view, reference).items():
        if aliases.get(other):
            known[tensor] = _alias(view[tensor], aliases[other])
        elif other in inner and (view[tensor].weight_dtype or view[tensor].quantizers):
            inside[tensor] = inner[other]
    matched = {tensor.name: known[tensor.name] for tensor in kept if tensor.name in known}
    ranges = {matched[item.name]: item.quantizers[0].range for item in kept if item.quantizers and item.name in matched}
    # A pair in the middle of a layer has no counterpart, though the weight before it has.
    unmatched = tuple(
        item.name
        for item in kept
        if item.name in refused or (item.name not in matched and (item.name not in inside or item.quantizers))
    )
    weighted = {layer: view[tensor] for tensor, layer in inside.items() if view[tensor].weight_dtype}
    spec = placement_spec(model, {matched[item.name]: item for item in kept if item.name in matched}, weighted)
    return dataclasses.replace(
        found, keras_tensors=matched, spec=spec, ranges=ranges, inside=inside, unmatched=unmatched
    )


def _notes(graphs: list[QDQGraph], kept: tuple[ImportedTensor, ...]) -> tuple[str, ...]:
    count = pairs_in_branches(graphs)
    note = f"{count} Q and DQ nodes stand in branches or loop bodies (of If, Loop, Scan), which are not imported"
    nothing = "nothing was read that is quantized, so a specification for it places no pair: is it the float file?"
    if count:
        return (note,)
    return () if kept else (nothing,)


def _alias(tensor: ImportedTensor, aliases: list[tuple[int, str]]) -> str:
    """Return the Keras tensor of a chain that a pair is on: the last one, unless a ReLU follows it in the file."""
    stage = tensor.quantizers[0].stage if tensor.quantizers else tensor.stages
    if stage == tensor.stages:
        return aliases[-1][1]
    return [name for level, name in aliases if level <= stage][-1]
