"""The reference interpreter computes what ONNX Runtime and TensorFlow Lite compute of our files, from one file."""

import ast
import subprocess
import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf
from firmware_nets import IS_X86, NETS, calibrated, differing, document, run_file, samples, tensors_in

import qdq_workbench as qdq
from qdq_workbench.export.firmware import interpreter
from qdq_workbench.export.firmware.save_firmware import interpreter_text

TARGETS = ("onnxruntime", "litert")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Write the files of a net for a target once: for firmware, and ONNX."""
    folder, done = tmp_path_factory.mktemp("firmware"), {}

    def write(name, target):
        if (name, target) not in done:
            q_model, stem = calibrated(name, target), folder / f"{name}_{target}"
            qdq.files.save_firmware(q_model, stem.with_suffix(".npz"))
            qdq.export_onnx(q_model, stem.with_suffix(".onnx"))
            done[name, target] = q_model, stem.with_suffix(".npz"), stem.with_suffix(".onnx")
        return done[name, target]

    return write


@pytest.mark.skipif(not IS_X86, reason="ONNX Runtime's other kernels add and average in fixed point of their own")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NETS)
def test_integers_equal_onnx_runtimes_bit_for_bit(name, target, written):
    q_model, path, onnx_path = written(name, target)
    inputs = samples(q_model, 200, seed=1)

    ours = interpreter.run(path, inputs)

    held = document(path)
    shared = {tensor for tensor in ours if tensor.endswith("/quantized")} & tensors_in(onnx_path)
    # Where the pair of what only moves integers stands elsewhere, the file has no name for these.
    moved = {node["outputs"][0] for node in held["nodes"] if node["operator"] in ("MaxPool", "Pad", "Reshape")}
    assert shared >= {tensor for tensor in ours if tensor.endswith("/quantized")} - moved
    compared = sorted(shared)
    theirs = run_file(onnx_path, inputs, compared, exact_sums=name != "shared_net")
    assert {tensor: differing(ours[tensor], theirs[tensor]) for tensor in compared} == dict.fromkeys(compared, 0)
    outputs = run_file(onnx_path, inputs, list(held["outputs"]), exact_sums=name != "shared_net")
    for output, tensor in held["outputs"].items():
        makers = {node["outputs"][0]: node["operator"] for node in held["nodes"]}
        allowed = 1e-6 if makers[tensor] == "Softmax" else 0.0  # powers of e are the only values not computed alike
        np.testing.assert_allclose(ours[tensor], outputs[output], rtol=0, atol=allowed)


@pytest.mark.parametrize("name", ["mobile_net", "branched_net"])
def test_in_fixed_point_integers_equal_those_of_tensorflow_lites_reference_kernels(name, written, tmp_path):
    q_model, path, _ = written(name, "litert")
    inputs = samples(q_model, 60, seed=1)
    qdq.export_tflite(q_model, tmp_path / "model.tflite")

    ours = interpreter.run(path, inputs, fixed_point=True)

    held = document(path)
    theirs = run_reference_kernels(tmp_path / "model.tflite", inputs["image"])
    compared = set()
    for node in held["nodes"]:
        tensor = node["outputs"][0]
        grid = held["tensors"][tensor]
        if grid["dtype"] == "float32" or node["operator"] == "Reshape":
            continue
        alike = [values for scale, values in theirs if np.isclose(scale, grid["scale"], rtol=1e-6, atol=0)]
        alike = [values.reshape(ours[tensor].shape) for values in alike if values.size == ours[tensor].size]
        fewest = min(int((values != ours[tensor]).sum()) for values in alike)
        # Its matrix products with a scale per output round once, which now and then is one step apart.
        behind_dense = node["operator"] == "Dense"
        assert fewest <= (0.02 * ours[tensor].size if behind_dense else 0), (tensor, fewest)
        compared.add(node["operator"])
    assert {"Conv2D", "Quantize"} < compared


def run_reference_kernels(path, images):
    """Return scale and values of every int8 tensor that an operator of a .tflite file makes."""
    kernels = tf.lite.experimental.OpResolverType.BUILTIN_REF
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorFlow announces that the interpreter will move to another package
        lite = tf.lite.Interpreter(
            model_path=str(path), experimental_op_resolver_type=kernels, experimental_preserve_all_tensors=True
        )
    lite.allocate_tensors()
    details = {detail["index"]: detail for detail in lite.get_tensor_details()}
    made = [index for operator in lite._get_ops_details() for index in operator["outputs"]]
    made = [index for index in made if details[index]["dtype"] == np.int8]
    values = {index: [] for index in made}
    for image in images:
        lite.set_tensor(lite.get_input_details()[0]["index"], image[np.newaxis])
        lite.invoke()
        for index in made:
            values[index].append(lite.get_tensor(index))
    return [(details[index]["quantization"][0], np.concatenate(found)) for index, found in values.items()]


@pytest.mark.parametrize("name", NETS)
def test_fixed_point_differs_from_floats_by_single_steps_at_rare_ties(name, written):
    """Each node is fed the integers of the other arithmetic, so that steps do not add up."""
    q_model, path, _ = written(name, "litert")
    inputs = samples(q_model, 60, seed=1)
    held, arrays = document(path), interpreter.read(path)

    values = interpreter.run(path, inputs)

    for node in held["nodes"]:
        tensor = node["outputs"][0]
        if held["tensors"][tensor]["dtype"] == "float32":
            continue
        full = node | {role: arrays[array] for role, array in node["arrays"].items()}
        full |= {"in": [held["tensors"][source] for source in node["inputs"]], "out": held["tensors"][tensor]}
        operands = [values[source] for source in node["inputs"]]
        again = interpreter.OPERATORS[node["operator"]](full | {"fixed": True}, *operands)
        again = np.clip(again, *node["clamp"]) if "clamp" in node else again
        steps = np.abs(again.astype(int) - values[tensor].astype(int))
        assert steps.max() <= 1
        # Sums of few values leave few bits behind the first of two roundings, and means of integers have many ties.
        often = node["operator"] in ("AveragePool", "GlobalAveragePool")
        assert (steps > 0).mean() <= (0.2 if often else 0.03), (tensor, (steps > 0).mean())


def test_it_runs_alone_in_a_process_of_its_own(written, tmp_path):
    q_model, path, _ = written("mobile_net", "onnxruntime")
    inputs = samples(q_model, 5)
    copied = tmp_path / "run.py"
    qdq.files.save_firmware(q_model, tmp_path / "model.npz", interpreter=copied)
    np.savez(tmp_path / "inputs.npz", **inputs)

    command = [sys.executable, "-I", copied, tmp_path / "model.npz", tmp_path / "inputs.npz", tmp_path / "out.npz"]
    for more in ([], ["--fixed-point"]):
        subprocess.run([*command, *more], cwd=tmp_path, check=True)
        found = interpreter.read(tmp_path / "out.npz")
        wanted = interpreter.run(path, inputs, fixed_point=bool(more))
        assert set(found) == set(wanted)
        for name, values in wanted.items():
            np.testing.assert_array_equal(found[name], values)


def test_it_has_about_a_hundred_lines_and_imports_numpy_alone():
    text = interpreter_text()
    tree = ast.parse(text)

    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"json", "sys", "typing", "numpy"}
    documented = [node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.FunctionDef))]
    texts = sum(node.body[0].end_lineno - node.body[0].lineno + 1 for node in documented if ast.get_docstring(node))
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert len(lines) - texts <= 100
