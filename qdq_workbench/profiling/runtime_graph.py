"""`read_kernels`: the kernels that ONNX Runtime executes for a file, without running it."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Literal

import onnx
import onnxruntime

from qdq_workbench._files import as_path
from qdq_workbench._interrupts import interrupts_held
from qdq_workbench._scratch import scratch_folder
from qdq_workbench.errors import FileAccessError
from qdq_workbench.foreign.lint import load_graph
from qdq_workbench.onnx_graph.sessions import session_source
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.profiling.kernels import match_kernels
from qdq_workbench.profiling.owners import KernelOwners, noted_plan, with_names
from qdq_workbench.verification.integer_kernels import on_integers, optimized_graph

Status = Literal["int8", "partial", "float"]
# Kernels with these operators decide the status of their layer; its other kernels only prepare or postprocess.
_DECIDING = ("Conv", "Gemm", "MatMul", "LSTM", "GRU", "RNN", "Attention", "EmbedLayerNormalization")


@dataclasses.dataclass(frozen=True)
class RuntimeKernel:
    """One kernel that ONNX Runtime executes.

    Args:
        name: Its name in the runtime's graph.
        operator: Its operator, such as "QLinearConv".
        on_integers: Whether it computes on integers, or moves them.
        layers: Paths of the layers that it computes, its main layer first; empty for a conversion (a QuantizeLinear or
            DequantizeLinear that no kernel absorbs, or a change of layout).
        behind: For a conversion, the layer or the model input whose output it converts; empty for other kernels.
    """

    name: str
    operator: str
    on_integers: bool
    layers: tuple[str, ...] = ()
    behind: str = ""


@dataclasses.dataclass(frozen=True)
class RuntimeGraph:
    """The kernels that ONNX Runtime executes for a file.

    Args:
        path: The file.
        kernels: The kernels in the order of their execution.
        runtime: The version of ONNX Runtime.
        plan: The plan in the file's metadata; None for a file of another exporter, whose layers are its nodes.
    """

    path: pathlib.Path
    kernels: tuple[RuntimeKernel, ...]
    runtime: str
    plan: PlacementPlan | None = dataclasses.field(default=None, repr=False, compare=False)

    def for_layer(self, name: str) -> tuple[RuntimeKernel, ...]:
        """Return the kernels of a layer: those with it as their main layer, else those that it is fused into.

        Args:
            name: Path of the layer.

        Returns:
            The kernels; empty for a layer without a kernel, such as a folded normalization.
        """
        own = tuple(kernel for kernel in self.kernels if kernel.layers[:1] == (name,))
        return own or tuple(kernel for kernel in self.kernels if name in kernel.layers)

    def statuses(self) -> dict[str, Status]:
        """Return how every layer that has a kernel runs: "int8", "partial" or "float".

        The status of a layer with a product, such as a convolution, is that of the product's kernel alone.
        """
        found: dict[str, list[RuntimeKernel]] = {}
        for kernel in self.kernels:
            for layer in kernel.layers[:1]:
                found.setdefault(layer, []).append(kernel)
        for kernel in self.kernels:
            for layer in kernel.layers[1:]:
                # A fused layer without a kernel of its own has the status of the first kernel that computes it.
                found.setdefault(layer, [kernel])
        return {layer: _status(kernels) for layer, kernels in found.items()}

    @property
    def conversions(self) -> tuple[RuntimeKernel, ...]:
        """The kernels that compute no layer."""
        return tuple(kernel for kernel in self.kernels if not kernel.layers)

    def summary(self) -> str:
        """Return the kernels as a text table."""
        whole = [kernel for kernel in self.kernels if kernel.layers]
        integers = sum(kernel.on_integers for kernel in whole)
        head = (
            f"{self.path}: {len(whole)} kernels for layers, {integers} of them on integers, and "
            f"{len(self.conversions)} conversions, in ONNX Runtime {self.runtime}"
        )
        width = max((len(kernel.operator) for kernel in self.kernels), default=0)
        rows = [
            f"{'int  ' if kernel.on_integers else 'float'}  {kernel.operator.ljust(width)}  "
            f"{' + '.join(kernel.layers) or f'(behind {kernel.behind})'}"
            for kernel in self.kernels
        ]
        return "\n".join([head, *rows])


@interrupts_held()
def read_kernels(path: str | os.PathLike[str]) -> RuntimeGraph:
    """Return the kernels that ONNX Runtime on the CPU executes for a file, with the layers that each computes.

    The file is loaded with all optimizations but not run; `profile_onnx` measures the times of the kernels.

    Args:
        path: The file: kernels of a file of `export_onnx` are mapped to the layers of its plan, those of any other
            file to its nodes.

    Returns:
        The kernels.

    Raises:
        FileAccessError: If the file cannot be read, or is not an ONNX model.
        VerificationError: If ONNX Runtime rejects the file.

    Example:
        >>> import keras, numpy as np, pathlib, tempfile
        >>> from qdq_workbench import calibrate, export_onnx, quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(4, name="head")(image))
        >>> q_model = quantize_model(model, target="onnxruntime")
        >>> _ = calibrate(q_model, np.ones((1, 2)), verbose=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     graph = read_kernels(export_onnx(q_model, pathlib.Path(folder) / "model.onnx").path)
        >>> graph.statuses()
        {'head': 'int8'}
    """
    place = as_path(path, FileAccessError)
    file = with_names(load_graph(place))
    with scratch_folder() as folder, session_source(file) as model:
        optimized = optimized_graph(model, folder / "optimized.onnx")
    plan = noted_plan([file])
    kernels = _kernels(KernelOwners(file, match_kernels(file, optimized), plan), optimized)
    return RuntimeGraph(place, kernels, onnxruntime.__version__, plan)


def _kernels(owners: KernelOwners, optimized: onnx.ModelProto) -> tuple[RuntimeKernel, ...]:
    integers = on_integers(optimized)
    layers: list[tuple[str, ...]] = []
    ends: list[str] = []
    for kernel in owners.kernels:
        own = () if owners.kind(kernel) is not None else (owners.layer(kernel.leader or kernel.name),)
        layers.append(tuple(dict.fromkeys([*own, *(owners.fused(kernel, own[0]) if own else ())])))
        # The last layer of a kernel writes its output, which conversions behind it read.
        behind = (layer for layer in map(owners.layer, reversed(kernel.nodes)) if layer in layers[-1])
        ends.append(next(behind, own[0] if own else ""))
    nodes = optimized.graph.node
    producers = {name: place for place, node in enumerate(nodes) for name in node.output}

    def origin(place: int) -> str:
        """Return the layer or input whose output a conversion converts, through the conversions before it."""
        while not layers[place]:
            tensor = nodes[place].input[0]
            if tensor not in producers:
                return str(tensor)
            place = producers[tensor]
        return ends[place]

    return tuple(
        RuntimeKernel(kernel.name, kernel.operator, integer, computed, "" if computed else origin(place))
        for place, (kernel, integer, computed) in enumerate(zip(owners.kernels, integers, layers, strict=True))
    )


def _status(kernels: Sequence[RuntimeKernel]) -> Status:
    deciding = [kernel for kernel in kernels if any(name in kernel.operator for name in _DECIDING)] or kernels
    found = {kernel.on_integers for kernel in deciding}
    return "partial" if len(found) > 1 else "int8" if found == {True} else "float"
