"""Every tensor of a firmware program has one writer, wherever the plan has pairs."""

import keras
import numpy as np
import pytest
from firmware_nets import document, run_file, samples, with_biases
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.errors import ExportError
from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.firmware import interpreter
from qdq_workbench.export.firmware.program import Program
from qdq_workbench.quantizers import numerics
from qdq_workbench.spec import LayerQuantizeConfig
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

ASYMMETRIC = LayerQuantizeConfig(activation={"symmetric": False})
SYMMETRIC = LayerQuantizeConfig(activation={"symmetric": True})


def quantized(make, spec):
    keras.utils.set_random_seed(2)
    image = keras.Input((6, 6, 3), name="image")
    x = layers.Conv2D(4, 3, padding="same", activation="relu", name="first")(image)
    q_model = qdq.quantize_model(with_biases(keras.Model(image, make(x))), quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, samples(q_model, 16)["image"], verbose=False)
    return q_model


def written_once(q_model, folder, atol=1e-6):
    """Save a model for firmware, and compare its outputs with the ONNX file's; return the content of `model.json`."""
    path, onnx_path = folder / "model.npz", folder / "model.onnx"
    qdq.files.save_firmware(q_model, path)
    qdq.export_onnx(q_model, onnx_path)
    held, inputs = document(path), samples(q_model, 40, seed=1)
    writers = [*held["inputs"], *(node["outputs"][0] for node in held["nodes"])]
    assert sorted(writers) == sorted(held["tensors"])
    assert len({node["name"] for node in held["nodes"]}) == len(held["nodes"])
    found = interpreter.run(path, inputs)
    theirs = run_file(onnx_path, inputs, list(held["outputs"]))
    for output, tensor in held["outputs"].items():
        np.testing.assert_allclose(found[tensor], theirs[output], rtol=0, atol=atol)
    return held


def last(x):
    return layers.Conv2D(2, 3, name="last")(x)


KEEPING = {
    "MaxPool": lambda x: last(layers.MaxPooling2D(2, name="kept")(x)),
    "Concatenate": lambda x: last(layers.Concatenate(name="kept")([x, x])),
    "Reshape": lambda x: layers.Dense(3, name="last")(layers.Flatten(name="kept")(x)),
    "Pad": lambda x: last(layers.AveragePooling2D(2, name="mean")(layers.ZeroPadding2D(1, name="kept")(x))),
}


@pytest.mark.parametrize("operator", KEEPING)
def test_a_pair_on_another_grid_behind_what_keeps_its_grid(operator, tmp_path):
    spec = qdq.QuantizationSpec()
    spec.add("kept", quantize_input=True, quantize_config=ASYMMETRIC)
    spec.add("mean" if operator == "Pad" else "last", quantize_input=True, quantize_config=SYMMETRIC)

    held = written_once(quantized(KEEPING[operator], spec), tmp_path)

    found = [(node["operator"], node["inputs"], node["outputs"]) for node in held["nodes"]]
    assert ("Requantize", ["kept/input_grid/quantized"], ["kept/quantized"]) in found
    assert next(node for node in found if node[2] == ["kept/input_grid/quantized"])[0] == operator


def test_softmaxes_that_read_one_tensor_on_two_grids(tmp_path):
    spec = qdq.QuantizationSpec()
    spec.add("kept", quantize_input=True, quantize_config=ASYMMETRIC)
    spec.add("one", quantize_input=True, quantize_config=SYMMETRIC)
    spec.add(["other", "third"], quantize_input=True, quantize_config=ASYMMETRIC)

    def make(x):
        x = layers.Flatten(name="kept")(x)
        return [layers.Softmax(name=name)(x) for name in ("one", "other", "third")]

    held = written_once(quantized(make, spec), tmp_path)

    assert [node["operator"] for node in held["nodes"]].count("Dequantize") == 2


def test_every_requantization_has_a_name_of_its_own(tmp_path):
    spec = qdq.QuantizationSpec()
    spec.add("kept", quantize_input=True, quantize_config=ASYMMETRIC)
    spec.add("one", quantize_input=True, quantize_config=SYMMETRIC)
    spec.add(
        "two", quantize_input=True, quantize_config=LayerQuantizeConfig(activation={"signed": True, "symmetric": False})
    )

    def make(x):
        x = layers.MaxPooling2D(2, name="kept")(x)
        return [layers.Conv2D(2, 1, name=name)(x) for name in ("one", "two")]

    qdq.files.save_firmware(quantized(make, spec), tmp_path / "model.npz")

    held = document(tmp_path / "model.npz")
    assert len({node["name"] for node in held["nodes"]}) == len(held["nodes"])
    names = {node["name"]: node["operator"] for node in held["nodes"]}
    assert [names[name] for name in ("kept", "kept/requantize", "kept@2/requantize")] == [
        "MaxPool",
        "Requantize",
        "Requantize",
    ]


def test_two_nodes_of_one_name_are_refused():
    program = Program()
    source, result = program.floats("x", (2,)), program.floats("y", (2,))
    program.add("flat", "Reshape", (source,), result)
    with pytest.raises(ExportError, match=r"one name\. Rename the layer.*Received: node='flat'"):
        program.add("flat", "Reshape", (source,), result)


def test_a_softmax_with_a_pair_behind_it(tmp_path):
    spec = qdq.QuantizationSpec()
    spec.add("scores", quantize_output=True)

    def make(x):
        return layers.Softmax(name="scores")(layers.Dense(3, name="last")(layers.Flatten(name="flat")(x)))

    # ONNX Runtime computes a softmax between two pairs from a table, which now and then is one step apart.
    held = written_once(quantized(make, spec), tmp_path, atol=1.01 / 255)

    assert held["outputs"] == {"scores": "scores@2"}


def test_a_second_writer_of_a_tensor_is_refused():
    program, spec = Program(), QuantizerSpec()
    qparams = numerics.qparams_from_range(-1.0, 1.0, spec)
    encoding = Encoding(qparams.scale, qparams.zero_point, spec)
    program.integers("pool", (4,), encoding)
    for again in (lambda: program.integers("pool", (4,), encoding), lambda: program.floats("pool/quantized", (4,))):
        with pytest.raises(ExportError, match=r"write one tensor.*Received: tensor='pool/quantized'"):
            again()
