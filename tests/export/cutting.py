"""Hand-made cut models: a small network is written as pieces, cut at the tensors that get a pair."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np

from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.keras_side.cut_model import CutModel
from qdq_workbench.placement.targets import Target, get_target
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

WEIGHT_AXES = {
    "Dense": 1,
    "Conv1D": 2,
    "Conv2D": 3,
    "DepthwiseConv2D": 2,
    "Conv2DTranspose": 2,
    "EinsumDense": -1,
}


def encode_range(low: float, high: float, spec: QuantizerSpec) -> Encoding:
    """Encode an activation range; written apart from the library's numerics on purpose."""
    low, high = min(low, 0.0), max(high, 0.0)
    if spec.symmetric:
        scale = np.float32(max(-low, high, 1e-6) / (2 ** (spec.num_bits - 1) - 1))
        zero = 0 if spec.signed else 2 ** (spec.num_bits - 1)
    else:
        scale = np.float32(max(high - low, 1e-6) / (spec.qmax - spec.qmin))
        zero = int(np.clip(np.round(spec.qmin - low / scale), spec.qmin, spec.qmax))
    return Encoding(scale, np.int32(zero), spec)


def encode_weight(value: np.ndarray, spec: QuantizerSpec) -> Encoding:
    """Encode a weight symmetrically, per axis where the spec has one."""
    if spec.axis is None:
        largest = np.max(np.abs(value), initial=0)
    else:
        others = tuple(axis for axis in range(value.ndim) if axis != spec.axis % value.ndim)
        largest = np.max(np.abs(value), axis=others)
    scale = (np.where(largest > 0, largest, 1.0) / spec.qmax).astype(np.float32)
    encoding = Encoding(scale, np.zeros(scale.shape, np.int32), spec, np.zeros(value.shape, np.int8))
    codes = np.clip(np.rint(value / encoding.broadcast(scale)), spec.qmin, spec.qmax).astype(encoding.dtype)
    return dataclasses.replace(encoding, codes=codes)


def fake_quantize(x: np.ndarray, encoding: Encoding) -> np.ndarray:
    """Quantize and dequantize an activation as ONNX does."""
    spec, scale = encoding.spec, np.float32(encoding.scale)
    codes = np.clip(np.rint(x / scale) + encoding.zero_point, spec.qmin, spec.qmax)
    return ((codes - encoding.zero_point) * scale).astype(np.float32)


class Cutter:
    """Records pairs and weights while a test writes its network.

    Args:
        target: The target whose grids are used.
    """

    def __init__(self, target: str | Target = "onnxruntime") -> None:
        self.target: Target = get_target(target)
        self.pairs: dict[str, tuple[Any, Any]] = {}
        self.weights: dict[str, keras.Variable] = {}
        self.weight_specs: dict[str, QuantizerSpec] = {}
        self.pair_specs: dict[str, QuantizerSpec] = {}

    def pair(self, tensor: Any, name: str | None = None, spec: QuantizerSpec | None = None) -> Any:
        """Cut at a tensor and return what its quantized readers read."""
        name = name or f"t{len(self.pairs)}"
        placeholder = keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype)
        self.pairs[name] = (tensor, placeholder)
        self.pair_specs[name] = spec or self.target.activation
        return placeholder

    def layer(self, layer: keras.Layer, inputs: Any, *names: str, axis: int | str | None = "default") -> Any:
        """Call a layer and mark its weights (the kernel by default) as quantized."""
        result = layer(inputs)
        default = {"DepthwiseConv2D": "kernel", "Embedding": "embeddings"}.get(type(layer).__name__, "kernel")
        for name in names or (default,):
            variable = getattr(layer, name)
            chosen = WEIGHT_AXES.get(type(layer).__name__) if axis == "default" else axis
            self.weights[f"{layer.name}/{name}"] = variable
            self.weight_specs[f"{layer.name}/{name}"] = self.target.weight.replace(
                axis=None if chosen is None else int(chosen) % len(variable.shape)
            )
        return result

    def weight(self, name: str, variable: keras.Variable, axis: int | None = None) -> None:
        """Mark one variable as quantized."""
        self.weights[name] = variable
        self.weight_specs[name] = self.target.weight.replace(axis=axis)

    def finish(self, inputs: Any, outputs: Any) -> Built:
        """Close the network over its inputs and outputs."""
        inputs = inputs if isinstance(inputs, dict) else {"x": inputs}
        outputs = outputs if isinstance(outputs, dict) else {"y": outputs}
        return Built(CutModel(inputs, outputs, dict(self.pairs), dict(self.weights)), self)


class Built:
    """A finished cut network with its simulation in Keras and numpy."""

    def __init__(self, cut: CutModel, cutter: Cutter) -> None:
        self.cut = cut
        self.cutter = cutter
        self.variables = _all_variables(cut)
        for index, variable in enumerate(self.variables):
            _randomize(variable, index)
        self.weights = {n: encode_weight(np.asarray(v), cutter.weight_specs[n]) for n, v in cut.weights.items()}
        for name, variable in cut.weights.items():
            variable.assign(self.weights[name].dequantized())
        placeholders = [ends[1] for ends in cut.pairs.values()]
        sources = [ends[0] for ends in cut.pairs.values()]
        self._model = keras.Model([*cut.inputs.values(), *placeholders], [*cut.outputs.values(), *sources])
        self.activations: dict[str, Encoding] = {}

    def calibrate(self, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Choose every pair's encoding in order and return the simulated outputs."""
        return self.simulate(data, calibrate=True)

    def calibrate_by_hand(self, low: float, high: float) -> None:
        """Give every pair the same range."""
        for name in self.cut.pairs:
            self.activations[name] = encode_range(low, high, self.cutter.pair_specs[name])

    def simulate(self, data: dict[str, np.ndarray], *, calibrate: bool = False) -> dict[str, np.ndarray]:
        """Run the pieces one after another, quantizing at every cut; pairs must be recorded in graph order."""
        batch = len(next(iter(data.values())))
        held = {
            name: np.zeros([batch if d is None else d for d in ends[1].shape], ends[1].dtype)
            for name, ends in self.cut.pairs.items()
        }
        for index, name in enumerate([*self.cut.pairs, None]):
            feeds = [*(data[key] for key in self.cut.inputs), *held.values()]
            results = self._model([keras.ops.convert_to_tensor(feed) for feed in feeds], training=False)
            results = [np.asarray(result) for result in keras.tree.flatten(results)]
            if name is None:
                return dict(zip(self.cut.outputs, results, strict=False))
            source = results[len(self.cut.outputs) + index]
            if calibrate:
                spec = self.cutter.pair_specs[name]
                self.activations[name] = encode_range(float(source.min()), float(source.max()), spec)
            held[name] = fake_quantize(source, self.activations[name])
        raise AssertionError("unreachable")


def _all_variables(cut: CutModel) -> list[keras.Variable]:
    inputs = [*cut.inputs.values(), *(ends[1] for ends in cut.pairs.values())]
    outputs = [*cut.outputs.values(), *(ends[0] for ends in cut.pairs.values())]
    for tensor in inputs:
        keras.layers.Identity()(tensor)  # Keras before 3.13 refuses a model with an input that no operation reads
    return keras.Model(inputs, outputs).variables


def _randomize(variable: keras.Variable, seed: int) -> None:
    """Give biases and normalization statistics values that matter."""
    if len(variable.shape) == 1 and "float" in variable.dtype:
        noise = np.random.default_rng(seed).uniform(0.1, 0.6, variable.shape)
        variable.assign(noise.astype(np.float32))
