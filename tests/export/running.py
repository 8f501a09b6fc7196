"""Running exported models in ONNX Runtime and counting what is in them."""

from __future__ import annotations

import collections

import numpy as np
import onnx
import onnxruntime
import pytest

from qdq_workbench.export import build_onnx
from tests.export.cutting import Built, Cutter


def run(model: onnx.ModelProto, data: dict[str, np.ndarray], *, optimize: bool = False) -> list[np.ndarray]:
    """Run a model in ONNX Runtime."""
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, data)


def ops(model: onnx.ModelProto) -> collections.Counter[str]:
    """Count the operators of a model."""
    return collections.Counter(node.op_type for node in model.graph.node)


def random_data(net: Built, batch: int = 2, unknown: int = 8) -> dict[str, np.ndarray]:
    """Draw inputs for a network; axes of unknown size get `unknown`."""
    rng = np.random.default_rng(1)
    data = {}
    for name, tensor in net.cut.inputs.items():
        shape = [batch, *(size or unknown for size in tensor.shape[1:])]
        floats = "float" in tensor.dtype
        data[name] = (
            rng.normal(size=shape).astype(np.float32) if floats else rng.integers(0, 5, shape).astype(tensor.dtype)
        )
    return data


def build(net: Built, **options: object) -> onnx.ModelProto:
    """Export a calibrated network for its own target."""
    return build_onnx(net.cut, net.activations, net.weights, target=net.cutter.target, **options)  # type: ignore[arg-type]


def exported(cut: Cutter, inputs: object, outputs: object, **options: object) -> tuple[onnx.ModelProto, list[float]]:
    """Calibrate, export and run; return the model and its largest difference from the simulation per output."""
    net = cut.finish(inputs, outputs)
    data = random_data(net)
    expected = net.calibrate(data).values()
    model = build(net, **options)
    pairs = zip(run(model, data), expected, strict=True)
    return model, [float(np.abs(got - want).max()) for got, want in pairs]


def needs_opset(opset: int) -> None:
    """Skip where the installed ONNX Runtime is older than the opset: 1.23 reads up to 22, 1.31 up to 26."""
    release = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    if opset > 22 and release < (1, 31):
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} does not read opset {opset}")
