"""Reference interpreter of a model that `save_firmware` wrote; it needs NumPy alone, and is meant to be ported.

    python interpreter.py MODEL.npz INPUTS.npz OUTPUTS.npz [--fixed-point]

INPUTS.npz holds one float32 array per input of the model, batch first. Factors between two scales are float32, rounded
half to even, in the order of operations of ONNX Runtime's integer kernels for x86-64. With --fixed-point they are the
int32 multipliers and shifts of gemmlowp, TensorFlow Lite and CMSIS-NN, and nothing between integers needs a float.
"""

import json
import sys
from typing import Any

import numpy as np

Node = dict[str, Any]  # a node of the file, with its arrays, its input tensors ("in") and its output tensor ("out")
f32 = np.float32


def read(path: str) -> dict[str, Any]:
    """Return the arrays of an .npz file by name."""
    with np.load(path) as file:
        return dict(file)


def run(path: str, inputs: dict[str, Any], *, fixed_point: bool = False) -> dict[str, Any]:
    """Return all tensors of the model by name, given its inputs by name."""
    arrays = read(path)
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


def scaled(acc: Any, multiplier: Any, shift: Any) -> Any:
    """Return acc * multiplier * 2^(shift - 31): a rounding doubling high product, a rounding division by 2^-shift."""
    left, right = np.maximum(shift, 0), np.maximum(np.negative(shift), 0)
    # gemmlowp's SaturatingRoundingDoublingHighMul; nothing saturates, because no multiplier is -2^31.
    high = ((acc << left) * np.int64(multiplier) + (1 << 30)) >> 31
    # gemmlowp's RoundingDivideByPOT: halves go away from zero.
    mask = (1 << np.int64(right)) - 1
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))


def moved(node: Node, acc: Any, factor: Any, multiplier: Any, shift: Any) -> Any:
    """Return accumulators requantized to the grid of the result, before the clamp."""
    steps = scaled(acc, multiplier, shift) if node["fixed"] else np.rint(acc.astype(f32) * factor)
    return steps + node["out"]["zero_point"]


def centred(node: Node, x: Any, index: int = 0) -> Any:
    """Return the integers of an operand minus their zero point."""
    return x.astype(np.int64) - node["in"][index]["zero_point"]


def windows(node: Node, x: Any, fill: int = 0) -> Any:
    """Yield row and column of every position in the window, and the elements at that position in all windows."""
    x = np.pad(x, ((0, 0), *node["padding"], (0, 0)), constant_values=fill)
    kernel, strides, dilation = node["kernel"], node["strides"], node["dilation"]
    reach = [(x.shape[n + 1] - (kernel[n] - 1) * dilation[n] - 1) // strides[n] * strides[n] + 1 for n in (0, 1)]
    for i, j in np.ndindex(*kernel):
        y, z = i * dilation[0], j * dilation[1]
        yield i, j, x[:, y : y + reach[0] : strides[0], z : z + reach[1] : strides[1]]


def product(node: Node, x: Any) -> Any:
    """Conv2D, DepthwiseConv2D and Dense; float64 holds their sums exactly."""
    x, w = centred(node, x).astype(float), node["weights"].astype(float)
    if node["operator"] == "Dense":
        acc = x @ w.T
    elif node["operator"] == "DepthwiseConv2D":
        # An input channel has its `depth_multiplier` outputs side by side.
        acc = sum(part.repeat(w.shape[3] // x.shape[3], 3) * w[0, i, j] for i, j, part in windows(node, x))
    else:
        groups = zip(np.split(x, node["groups"], 3), np.split(w, node["groups"]), strict=True)
        acc = np.concatenate([sum(p @ v[:, i, j].T for i, j, p in windows(node, part)) for part, v in groups], 3)
    acc, factor = acc.astype(np.int64) + node["bias"], f32(node["in"][0]["scale"]) * node["weight_scale"]
    if node["out"]["dtype"] == "float32":
        return acc.astype(f32) * factor
    return moved(node, acc, factor / f32(node["out"]["scale"]), node["multiplier"], node["shift"])


def add(node: Node, a: Any, b: Any) -> Any:
    """Add two tensors."""
    if node["fixed"]:
        multiplier, shift = node["multiplier"], node["shift"]
        p = scaled(centred(node, a, 0) << node["left_shift"], multiplier[0], shift[0])
        q = scaled(centred(node, b, 1) << node["left_shift"], multiplier[1], shift[1])
        return scaled(p + q, multiplier[2], shift[2]) + node["out"]["zero_point"]
    zero = [f32(grid["zero_point"]) for grid in (*node["in"], node["out"])]
    p, q = (f32(grid["scale"]) / f32(node["out"]["scale"]) for grid in node["in"])
    start = zero[2] - fused(p, zero[0], q * zero[1])
    return np.rint(fused(p, a, fused(q, b, start)))


def fused(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once to float32; float64 holds product and sum of these operands exactly."""
    return f32(np.float64(a) * b + c)


def average(node: Node, x: Any) -> Any:
    """AveragePool and GlobalAveragePool; padding is left out of sum and count."""
    (grid,), out = node["in"], node["out"]
    count = sum(part for _, _, part in windows(node, np.ones_like(x[:1], np.int64)))
    if "multipliers" not in node and node["fixed"]:  # one grid: the mean of the integers, rounded half away from zero
        total = sum(part for _, _, part in windows(node, x.astype(np.int64)))
        return np.sign(total) * ((abs(total) + count // 2) // count)
    if node["operator"] == "AveragePool" and not node["fixed"]:
        total = sum(part for _, _, part in windows(node, f32(centred(node, x)) * f32(grid["scale"])))
        return np.rint(total / f32(count) / f32(out["scale"]) + f32(out["zero_point"]))
    acc = sum(part for _, _, part in windows(node, centred(node, x)))
    multiplier, shift = np.array([node["multipliers"][str(n)] for n in count.ravel()]).T.reshape(2, *count.shape)
    mean = moved(node, acc, f32(grid["scale"]) / (f32(out["scale"]) * f32(count)), multiplier, shift)
    return mean.reshape(len(x), *out["shape"])


def regrid(node: Node, *operands: Any) -> Any:
    """Concatenate and Requantize: bring every operand to the grid of the result, then join them."""
    out, parts = node["out"], []
    for index, x in enumerate(operands):
        steps = scaled(centred(node, x, index), node["multiplier"][index], node["shift"][index])
        if not node["fixed"]:
            steps = np.rint(f32(centred(node, x, index)) * f32(node["in"][index]["scale"]) / f32(out["scale"]))
        parts.append(steps + out["zero_point"])
    return np.concatenate(parts, node.get("axis", 0))


def maximum(node: Node, x: Any) -> Any:
    """MaxPool; padding is the lowest integer of the type, which never exceeds an element of the image."""
    found = [part for _, _, part in windows(node, x, np.iinfo(x.dtype).min)]
    return np.maximum.reduce(found).reshape(len(x), *node["out"]["shape"])


def pad(node: Node, x: Any) -> Any:
    """Zero padding with the zero point, which is the integer for 0."""
    return np.pad(x, ((0, 0), *node["padding"], (0, 0)), constant_values=node["in"][0].get("zero_point", 0))


def softmax(_: Node, x: Any) -> Any:
    """Softmax in float32, along the last axis."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


OPERATORS: dict[str, Any] = {"Conv2D": product, "DepthwiseConv2D": product, "Dense": product, "Add": add}
OPERATORS |= {"AveragePool": average, "GlobalAveragePool": average, "MaxPool": maximum, "Concatenate": regrid}
OPERATORS |= {"Requantize": regrid, "Softmax": softmax, "Pad": pad}
OPERATORS |= {"Quantize": lambda node, x: np.rint(x / f32(node["out"]["scale"])) + node["out"]["zero_point"]}
OPERATORS |= {"Dequantize": lambda node, x: f32(centred(node, x)) * f32(node["in"][0]["scale"])}
OPERATORS |= {"Reshape": lambda node, x: x.reshape(len(x), *node["out"]["shape"])}
OPERATORS |= {"Clip": lambda node, x: np.clip(x, node["minimum"], node["maximum"])}

if __name__ == "__main__":
    tensors = run(sys.argv[1], read(sys.argv[2]), fixed_point="--fixed-point" in sys.argv)
    np.savez(sys.argv[3], **tensors)
