"""Reference interpreter of a model that `save_firmware` wrote. It needs this file and NumPy: copy it, read it, port it.

    python interpreter.py MODEL.npz INPUTS.npz OUTPUTS.npz [--fixed-point]

INPUTS.npz holds one float32 array per input of the model, batch first. Factors between two scales are float32, rounded
half to even, in the order of operations of ONNX Runtime's integer kernels for x86-64. With --fixed-point they are the
int32 multipliers and shifts of gemmlowp, TensorFlow Lite and CMSIS-NN, and nothing between integers needs a float.
"""

import json
import sys
from typing import Any

import numpy as np

Node = dict[str, Any]  # of the file, with its arrays, and the tensors that it reads ("in") and makes ("out")
f32 = np.float32


def run(path: str, inputs: dict[str, np.ndarray], *, fixed_point: bool = False) -> dict[str, np.ndarray]:
    """Return all tensors of the model by name, given its inputs by name."""
    arrays = np.load(path)
    model = json.loads(arrays["model.json"])
    values = {name: np.asarray(inputs[name], f32) for name in model["inputs"]}
    for found in model["nodes"]:
        node = found | {role: arrays[name] for role, name in found["arrays"].items()}
        node |= {"in": [model["tensors"][name] for name in node["inputs"]], "fixed": fixed_point}
        node |= {"out": model["tensors"][node["outputs"][0]]}
        result = OPERATORS[node["operator"]](node, *[values[name] for name in node["inputs"]])
        result = np.clip(result, *node["clamp"]) if "clamp" in node else result
        values[node["outputs"][0]] = result.astype(node["out"]["dtype"])
    return values


def scaled(acc: np.ndarray, multiplier: Any, shift: Any) -> np.ndarray:
    """Return acc * multiplier * 2^(shift - 31): a rounding doubling high product, a rounding division by 2^-shift."""
    left, right = np.maximum(shift, 0), np.maximum(np.negative(shift), 0)
    high = ((acc << left) * np.int64(multiplier) + (1 << 30)) >> 31
    mask = (1 << np.int64(right)) - 1
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))


def moved(node: Node, acc: np.ndarray, factor: Any, multiplier: Any, shift: Any) -> np.ndarray:
    """Return accumulators as integers of the result."""
    steps = scaled(acc, multiplier, shift) if node["fixed"] else np.rint(acc.astype(f32) * factor)
    return steps + node["out"]["zero_point"]


def centred(node: Node, x: np.ndarray, index: int = 0) -> np.ndarray:
    """Return the integers of an operand less their zero point."""
    return x.astype(np.int64) - node["in"][index]["zero_point"]


def windows(node: Node, x: np.ndarray, fill: int = 0) -> Any:
    """Yield row and column of every element of a window, and that element of all windows."""
    x = np.pad(x, ((0, 0), *node["padding"], (0, 0)), constant_values=fill)
    steps, size = node["strides"], zip(x.shape[1:3], node["kernel"], node["dilation"], node["strides"])
    last = [(n - (k - 1) * d - 1) // s * s + 1 for n, k, d, s in size]
    for i, j in np.ndindex(*node["kernel"]):
        y, z = i * node["dilation"][0], j * node["dilation"][1]
        yield i, j, x[:, y : y + last[0] : steps[0], z : z + last[1] : steps[1]]


def product(node: Node, x: np.ndarray) -> np.ndarray:
    """Conv2D, DepthwiseConv2D and Dense; float64 holds their sums exactly."""
    x, w = np.float64(centred(node, x)), np.float64(node["weights"])
    if node["operator"] == "Dense":
        acc = x @ w.T
    elif node["operator"] == "DepthwiseConv2D":
        acc = sum(part.repeat(w.shape[3] // x.shape[3], 3) * w[0, i, j] for i, j, part in windows(node, x))
    else:
        groups = zip(np.split(x, node["groups"], 3), np.split(w, node["groups"]))
        acc = np.concatenate([sum(p @ v[:, i, j].T for i, j, p in windows(node, part)) for part, v in groups], 3)
    acc, factor = acc.astype(np.int64) + node["bias"], f32(node["in"][0]["scale"]) * node["weight_scale"]
    if node["out"]["dtype"] == "float32":
        return acc.astype(f32) * factor
    return moved(node, acc, factor / f32(node["out"]["scale"]), node["multiplier"], node["shift"])


def add(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Add two tensors."""
    if node["fixed"]:
        wide = [centred(node, x, index) << node["left_shift"] for index, x in enumerate((a, b))]
        both = sum(scaled(x, m, s) for x, m, s in zip(wide, node["multiplier"], node["shift"]))
        return scaled(both, node["multiplier"][2], node["shift"][2]) + node["out"]["zero_point"]
    (one, two), out = node["in"], node["out"]
    p, q = f32(one["scale"]) / f32(out["scale"]), f32(two["scale"]) / f32(out["scale"])
    zero = f32(out["zero_point"]) - f32(np.float64(p) * one["zero_point"] + q * f32(two["zero_point"]))
    half = f32(b * np.float64(q) + zero)  # three fused multiply-adds: float64 holds product and sum
    return np.rint(f32(a * np.float64(p) + half))


def average(node: Node, x: np.ndarray) -> np.ndarray:
    """AveragePool and GlobalAveragePool; padding does not count."""
    (grid,), out = node["in"], node["out"]
    count = sum(part for _, _, part in windows(node, np.ones_like(x[:1], np.int64)))
    if "multipliers" not in node and node["fixed"]:  # one grid: the mean of the integers, rounded half away from zero
        total = sum(part for _, _, part in windows(node, x.astype(np.int64)))
        return np.sign(total) * ((abs(total) + count // 2) // count)
    if node["operator"] == "AveragePool" and not node["fixed"]:
        total = sum(part for _, _, part in windows(node, f32(centred(node, x)) * f32(grid["scale"])))
        return np.rint(total / f32(count) / f32(out["scale"]) + f32(out["zero_point"]))
    acc = sum(part for _, _, part in windows(node, centred(node, x)))
    table = {int(key): pair for key, pair in node["multipliers"].items()}
    multiplier, shift = (np.vectorize(lambda n, k=k: table[n][k])(count) for k in (0, 1))
    mean = moved(node, acc, f32(grid["scale"]) / (f32(out["scale"]) * f32(count)), multiplier, shift)
    return mean.reshape(len(x), *out["shape"])


def regrid(node: Node, *operands: np.ndarray) -> np.ndarray:
    """Concatenate and Requantize: every operand on the grid of the result."""
    out, parts = node["out"], []
    for index, (x, grid) in enumerate(zip(operands, node["in"])):
        if (grid["scale"], grid["zero_point"]) == (out["scale"], out["zero_point"]):
            parts.append(x)
            continue
        steps = scaled(centred(node, x, index), node["multiplier"][index], node["shift"][index])
        if not node["fixed"]:
            steps = np.rint(f32(centred(node, x, index)) * f32(grid["scale"]) / f32(out["scale"]))
        parts.append(steps + out["zero_point"])
    return np.concatenate(parts, node.get("axis", 0))


def quantize(node: Node, x: np.ndarray) -> np.ndarray:
    """From float32 to integers."""
    return np.rint(x / f32(node["out"]["scale"])) + node["out"]["zero_point"]


def dequantize(node: Node, x: np.ndarray) -> np.ndarray:
    """From integers to float32."""
    return f32(centred(node, x)) * f32(node["in"][0]["scale"])


def maximum(node: Node, x: np.ndarray) -> np.ndarray:
    """MaxPool: padding never wins."""
    return np.maximum.reduce([part for _, _, part in windows(node, x, np.iinfo(x.dtype).min)]).reshape(
        len(x), *node["out"]["shape"]
    )


def pad(node: Node, x: np.ndarray) -> np.ndarray:
    """Zero padding: the zero point stands for 0."""
    return np.pad(x, ((0, 0), *node["padding"], (0, 0)), constant_values=node["in"][0]["zero_point"])


def softmax(node: Node, x: np.ndarray) -> np.ndarray:
    """Softmax in float32, along the last axis."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


OPERATORS = {"Conv2D": product, "DepthwiseConv2D": product, "Dense": product, "Add": add, "Softmax": softmax, "Pad": pad}
OPERATORS |= {"AveragePool": average, "GlobalAveragePool": average, "MaxPool": maximum, "Concatenate": regrid}
OPERATORS |= {"Requantize": regrid, "Quantize": quantize, "Dequantize": dequantize}
OPERATORS |= {"Reshape": lambda node, x: x.reshape(len(x), *node["out"]["shape"])}
OPERATORS |= {"Clip": lambda node, x: np.clip(x, node["minimum"], node["maximum"])}

if __name__ == "__main__":
    tensors = run(sys.argv[1], dict(np.load(sys.argv[2])), fixed_point="--fixed-point" in sys.argv)
    np.savez(sys.argv[3], **tensors)
