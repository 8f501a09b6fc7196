"""Plans, explanations and structures of files as they were: a change of any shows as a readable difference.

The files are verified: ONNX Runtime computes what Keras does.

`pytest --regen-golden` rewrites the texts; what `git diff` then shows is the change, to be looked at before it is
kept. Places are named i0 (first input), o (output) or by their weight; grids as in `plan_texts.grid_text`; the columns
T, O, V and L are TensorRT, ONNX Runtime, OpenVINO and LiteRT.
"""

import keras
import numpy as np
import onnx
import pytest
from agreement.networks import SMALL
from families.test_contracts import GROUPS, float_model, quantized
from families.zoo import FAMILIES
from file_texts import onnx_lines, tflite_lines
from pass_contracts import contracts_watched
from plan_texts import TARGETS, model_lines, summarized
from predecessor_networks import build_network, network_names
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.export.litert.comparison import LARGE, outputs_of_both
from qdq_workbench.export.litert.converter import Names
from qdq_workbench.verification.lowered import layer_operators

APPLICATIONS = {
    "ConvNeXtTiny": 32,
    "DenseNet121": 32,
    "EfficientNetB0": 32,
    "EfficientNetV2B0": 32,
    "InceptionV3": 75,
    "MobileNet": 32,
    "MobileNetV2": 32,
    "MobileNetV3Small": 32,
    "NASNetMobile": 32,
    "ResNet50": 32,
    "ResNet50V2": 32,
    "Xception": 71,
}


def without_values():
    """Build networks without values in their variables: a plan reads shapes, and filling them is half of the work."""
    return keras.StatelessScope(initialize_variables=False)


def clear_names():
    """Let Keras count anew: the names that it gives must not depend on the tests before."""
    keras.backend.clear_session(free_memory=False)


def named_spec(families):
    spec = qdq.QuantizationSpec()
    for family in families:
        if family.named:
            spec.add(family.name)
    return spec


def text_of(lines):
    return "\n".join(lines) + "\n"


def test_plans_of_the_layer_families(golden):
    clear_names()
    golden("plans/families.txt", text_of(model_lines(float_model(FAMILIES), named_spec(FAMILIES))))


@pytest.mark.parametrize("name", SMALL)
def test_plans_of_small_networks(golden, name):
    clear_names()
    golden(f"plans/{name}.txt", text_of(model_lines(SMALL[name]())))


@pytest.mark.parametrize("name", APPLICATIONS)
def test_plans_of_known_networks(golden, name):
    clear_names()
    size = APPLICATIONS[name]
    with without_values():
        model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=8)
    golden(f"plans/{name}.txt", text_of(summarized(model_lines(model))))


def test_plans_of_the_predecessors_networks(golden):
    for name in network_names():
        with without_values():
            model = build_network(name)
        golden(f"plans/oracle_{name}.txt", text_of(summarized(model_lines(model))))


def compare_with_plan(q_model, path):
    """Every layer has in the file the operators that the plan says, not one more or less."""
    every = list(layer_operators(q_model.plan, onnx.load(path).graph.node))
    assert every
    assert [item for item in every if item.expected != item.found] == []


def compare_each_output(path, q_model, data):
    """Every output of a LiteRT file is near that of the model: `verify_tflite` compares the mean of all."""
    arrays = [np.asarray(array) for array in keras.tree.flatten(data)]
    both = outputs_of_both(q_model, path.read_bytes(), Names.of(q_model), arrays)
    for name, ours, theirs in zip(Names.of(q_model).outputs, *both, strict=True):
        assert theirs.shape == ours.shape, name
        assert np.abs(theirs - ours).mean() <= LARGE * np.abs(ours).mean(), name


def target_lines(q_model, target, path, data):
    """One line per output of a model's file for a target. Every pass keeps its contract, and ONNX Runtime agrees."""
    model = q_model if target == q_model.plan.target else qdq.retarget(q_model, target)
    if target == "litert":
        written = qdq.export_tflite(model, path.with_suffix(".tflite")).path
        compare_each_output(written, model, data)
        return tflite_lines(written)
    with contracts_watched():
        report = qdq.export_onnx(model, path)
    assert report.pairs == len(model.plan.tensors)
    compare_with_plan(model, path)
    verification = qdq.verify_onnx(path, model, data)
    assert verification.passed, verification.summary()
    return onnx_lines(path)


def one_by_one(families, target, path):
    """The lines of the families of a group that is refused together, and who of them is refused alone."""
    lines = []
    for family in families:
        _, q_model, data = quantized([family])
        try:
            lines += target_lines(q_model, target, path, data)
        except qdq.QDQError as error:
            lines.append(f"{family}  {type(error).__name__}")
    return lines


def file_lines(q_model, path, data, families=()):
    """One line per target and output of a model's files; a refusal is a line, too."""
    lines = []
    for initial, target in TARGETS.items():
        try:
            found = target_lines(q_model, target, path, data)
        except qdq.QDQError as error:
            found = one_by_one(families, target, path)
            if not any(line.endswith("Error") for line in found):
                found.append(type(error).__name__)
        lines += [f"{initial} {line}" for line in found]
    return lines


@pytest.mark.parametrize("families", GROUPS, ids=lambda group: f"{group[0]}-{group[-1]}")
def test_files_of_the_layer_families(golden, families, tmp_path):
    _, q_model, data = quantized(families)
    lines = file_lines(q_model, tmp_path / "model.onnx", data, families)
    golden(f"files/{families[0]}-{families[-1]}.txt", text_of(lines))


@pytest.mark.parametrize("name", SMALL)
def test_files_of_small_networks(golden, name, tmp_path):
    model = SMALL[name]()
    data = samples(model)
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase("tensorrt")])
    qdq.calibrate(q_model, data, verbose=False)
    golden(f"files/{name}.txt", text_of(file_lines(q_model, tmp_path / "model.onnx", data)))
