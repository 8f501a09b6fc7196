"""How exact the reference interpreter of firmware is: against ONNX Runtime, TensorFlow Lite, and its two forms.

python benchmarks/firmware.py [--model MODEL.keras --images IMAGES.npy] [--count 500] [--epochs 4]

Without a model the demo's network is trained on scikit-learn's digits. Images are [N, height, width, channels] as the
model takes them; the first half calibrates, of the second half up to --count are compared.
"""

import argparse
import json
import pathlib
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import onnx
import onnxruntime
import tensorflow as tf

import qdq_workbench as qdq
from qdq_workbench.cli.demo.data import load_images
from qdq_workbench.cli.demo.network import residual_network
from qdq_workbench.export.firmware import interpreter

_TFLITE_IMAGES = 100  # one by one, with kernels that are not made for speed


def digits(epochs: int) -> tuple[keras.Model, np.ndarray]:
    """Return the demo's network, trained, and images that first calibrate and then are compared."""
    data = load_images().scaled()
    keras.utils.set_random_seed(0)
    model = residual_network(data.x_train.shape[1:], data.classes)
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(data.x_train, data.y_train, batch_size=32, epochs=epochs, verbose=0)
    count = len(data.x_test)
    return model, np.concatenate([data.x_train[:count], data.x_test]).astype(np.float32)


def run_onnx(path: pathlib.Path, inputs: dict[str, np.ndarray], wanted: list[str], *, fused: bool) -> list[np.ndarray]:
    """Return tensors of an ONNX file."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    proto = onnx.load(path)
    is_signed = any(node.op_type == "QuantizeLinear" and _is_int8(proto, node.input[2]) for node in proto.graph.node)
    # int8 throughout, or sums that do not saturate without VNNI: some kernels have no form with both settings.
    options.add_session_config_entry(f"session.{'qdqisint8allowed' if is_signed else 'x64quantprecision'}", "1")
    if not fused:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    known = {value.name for value in proto.graph.output}
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in wanted if name not in known)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    return list(session.run(wanted, inputs))


def _is_int8(proto: onnx.ModelProto, name: str) -> bool:
    return any(part.name == name and part.data_type == onnx.TensorProto.INT8 for part in proto.graph.initializer)


def differing(ours: np.ndarray, theirs: np.ndarray) -> int:
    """Return how many values differ from those of a file, whose images may be channels-first."""
    layouts = [theirs, theirs.transpose(0, 2, 3, 1)] if theirs.ndim == 4 else [theirs.reshape(ours.shape)]
    return min(int((ours != layout).sum()) for layout in layouts if layout.shape == ours.shape)


def node_by_node(path: pathlib.Path, values: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield operator and steps between fixed point and floats of every node, fed the same integers."""
    arrays = interpreter.read(str(path))
    held = json.loads(arrays["model.json"])
    for found in held["nodes"]:
        tensor = found["outputs"][0]
        if held["tensors"][tensor]["dtype"] != "float32":
            node: dict[str, Any] = found | {role: arrays[name] for role, name in found["arrays"].items()}
            node |= {"in": [held["tensors"][name] for name in found["inputs"]], "out": held["tensors"][tensor]}
            result = interpreter.OPERATORS[found["operator"]](
                node | {"fixed": True}, *[values[name] for name in found["inputs"]]
            )
            result = np.clip(result, *node["clamp"]) if "clamp" in node else result
            yield found["operator"], np.abs(result.astype(int) - values[tensor].astype(int))


def run_tflite(path: pathlib.Path, images: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """Return scale and values of every int8 tensor, computed by TensorFlow Lite's reference kernels."""
    kind = tf.lite.experimental.OpResolverType.BUILTIN_REF
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorFlow announces that the interpreter will move to another package
        lite = tf.lite.Interpreter(
            str(path), experimental_op_resolver_type=kind, experimental_preserve_all_tensors=True
        )
    lite.allocate_tensors()
    details = {detail["index"]: detail for detail in lite.get_tensor_details()}
    values: dict[int, list[np.ndarray]] = {}
    for image in images:
        lite.set_tensor(lite.get_input_details()[0]["index"], image[np.newaxis])
        lite.invoke()
        for operator in lite._get_ops_details():  # noqa: SLF001 - there is no public list of operators
            for index in operator["outputs"]:
                if details[index]["dtype"] == np.int8:
                    values.setdefault(index, []).append(lite.get_tensor(index))
    return [(details[index]["quantization"][0], np.concatenate(found)) for index, found in values.items()]


def against_onnx(folder: pathlib.Path, inputs: dict[str, np.ndarray], values: dict[str, np.ndarray]) -> None:
    """Print how many integers differ from those of ONNX Runtime, with and without graph optimizations."""
    held = {name for node in onnx.load(folder / "model.onnx").graph.node for name in node.output}
    names = [name for name in values if name.endswith("/quantized") and name in held]
    total = sum(values[name].size for name in names)
    for fused in (True, False):
        theirs = run_onnx(folder / "model.onnx", inputs, names, fused=fused)
        count = sum(differing(values[name], found) for name, found in zip(names, theirs, strict=True))
        print(f"  ONNX Runtime, graph optimizations {'on' if fused else 'off'}: {count} of {total} integers differ")


def against_tflite(folder: pathlib.Path, images: np.ndarray) -> None:
    """Print how many integers differ from those of TensorFlow Lite's reference kernels."""
    held = json.loads(interpreter.read(str(folder / "model.npz"))["model.json"])
    name = held["inputs"][0]
    ours = interpreter.run(str(folder / "model.npz"), {name: images}, fixed_point=True)
    theirs = run_tflite(folder / "model.tflite", images)
    worst: dict[str, float] = {}
    for node in held["nodes"]:
        tensor = node["outputs"][0]
        grid = held["tensors"][tensor]
        alike = [
            float((found.reshape(ours[tensor].shape) != ours[tensor]).mean())
            for scale, found in theirs
            if grid["dtype"] == "int8"
            and np.isclose(scale, grid["scale"], rtol=1e-6)
            and found.size == ours[tensor].size
        ]
        if alike:
            worst[node["operator"]] = max(worst.get(node["operator"], 0.0), min(alike))
    shown = ", ".join(f"{operator} {100 * share:.2f} %" for operator, share in worst.items())
    print(f"  TensorFlow Lite's reference kernels, fixed point: of the worst tensor differ: {shown}")


def between_forms(folder: pathlib.Path, inputs: dict[str, np.ndarray], values: dict[str, np.ndarray]) -> None:
    """Print how fixed point differs from floats, node by node and from end to end."""
    found: dict[str, list[np.ndarray]] = {}
    for operator, steps in node_by_node(folder / "model.npz", values):
        found.setdefault(operator, []).append(steps.ravel())
    for operator, parts in found.items():
        steps = np.concatenate(parts)
        print(f"  {operator}: fixed point differs in {100 * (steps > 0).mean():.3f} %, by {steps.max()} at most")
    fixed = interpreter.run(str(folder / "model.npz"), inputs, fixed_point=True)
    integers = [name for name in values if name.endswith("/quantized")]
    apart = sum(int((values[name] != fixed[name]).sum()) for name in integers)
    last = list(values)[-1]
    same = int((values[last].argmax(-1) == fixed[last].argmax(-1)).sum())
    total = sum(values[name].size for name in integers)
    print(
        f"  from end to end: {100 * apart / total:.2f} % of the integers; {same} of {len(values[last])} classes alike"
    )


def main() -> None:
    """Measure one network for both targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a float model, .keras")
    parser.add_argument("--images", help="its images, .npy")
    parser.add_argument("--count", type=int, default=500, help="how many images are compared")
    parser.add_argument("--epochs", type=int, default=4, help="of the digits' training")
    options = parser.parse_args()
    if options.model:
        model, images = keras.models.load_model(options.model, compile=False), np.load(options.images)
    else:
        model, images = digits(options.epochs)
    half = len(images) // 2
    shown = images[half : half + options.count].astype(np.float32)
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="onnxruntime")
    qdq.calibrate(q_model, images[:half].astype(np.float32), verbose=False)
    for target in ("onnxruntime", "litert"):
        print(f"{model.name}, {target}, {len(shown)} images")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            planned = q_model if target == q_model.target else qdq.retarget(q_model, target)
            qdq.files.save_firmware(planned, folder / "model.npz")
            qdq.export_onnx(planned, folder / "model.onnx")
            inputs = {model.inputs[0].name: shown}
            values = interpreter.run(str(folder / "model.npz"), inputs)
            against_onnx(folder, inputs, values)
            if target == "litert":
                qdq.export_tflite(planned, folder / "model.tflite")
                against_tflite(folder, shown[:_TFLITE_IMAGES])
            between_forms(folder, inputs, values)


if __name__ == "__main__":
    main()
