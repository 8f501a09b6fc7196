"""A `Target` that the user altered: in plans, encodings, files, verification, saved models and JSON."""

import dataclasses
import json

import keras
import numpy as np
import onnx
import pytest
from firmware_nets import document
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.errors import QDQError, TargetError
from qdq_workbench.placement.plan import PlacementPlan

NAMES = ["tensorrt", "onnxruntime", "openvino", "litert"]


def altered(name):
    """The target with the other kind of biases, and activations of 7 bits."""
    target = qdq.get_target(name)
    bias = "float" if target.bias == "int32" else "int32"
    return dataclasses.replace(target, bias=bias, activation=target.activation.replace(num_bits=7))


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    image = keras.Input((5, 5, 2), name="image")
    hidden = layers.Conv2D(4, 3, activation="relu", bias_initializer="ones", name="conv")(image)
    return keras.Model(image, layers.Conv2D(3, 3, bias_initializer="ones", name="head")(hidden))


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).normal(size=(8, 5, 5, 2)).astype("float32")


def integer_biases(path):
    found = onnx.load(path).graph.initializer
    return sum(tensor.data_type == onnx.TensorProto.INT32 for tensor in found)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_honoured_from_the_plan_to_the_file(model, x, name, tmp_path):
    target = altered(name)
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, x, verbose=False)
    assert {layer.spec.num_bits for layer in q_model.activation_quantizers} == {7}
    assert PlacementPlan.from_dict(json.loads(json.dumps(q_model.plan.to_dict()))) == q_model.plan
    q_model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert (loaded.target, loaded.plan.target_object) == (name, target)
    path = tmp_path / "model.onnx"
    for each in (q_model, loaded):
        report = qdq.export_onnx(each, path)
        assert (integer_biases(path) > 0) == (target.bias == "int32")
        assert not any("Planned anew" in note for note in report.notes)
        assert report.target == f"{name} (altered)"
        qdq.verify_onnx(path, q_model, x).raise_if_failed()
        qdq.verify_onnx(path).raise_if_failed()
    assert f"target {name} (altered)" in loaded.plan.summary()
    explained = qdq.explain(loaded)
    assert explained.plan == loaded.plan
    assert qdq.plan_placement(model, quantization_spec=explained.apply_fixes(), target=target).altered_target == target

    # The target that is known by the name is another one.
    qdq.export_onnx(loaded, path, target=qdq.get_target(name))
    assert (integer_biases(path) > 0) == (qdq.get_target(name).bias == "int32")
    qdq.verify_onnx(path, loaded, x).raise_if_failed()
    there = qdq.retarget(loaded, qdq.get_target(name))
    assert (there.plan.altered_target, there.plan.target_object) == (None, qdq.get_target(name))
    assert qdq.retarget(there, target).plan == q_model.plan


def test_the_name_of_a_models_own_target_means_its_own(model, x, tmp_path):
    target = qdq.get_target("litert")
    target = dataclasses.replace(target, activation=target.activation.replace(symmetric=True))
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, x, verbose=False)

    reports = [
        qdq.export_onnx(q_model, tmp_path / "model.onnx", target="litert"),
        qdq.files.save_firmware(q_model, tmp_path / "model.npz", target="litert"),
    ]

    assert [report.target for report in reports] == ["litert (altered)"] * 2
    assert qdq.export_tflite(q_model, tmp_path / "model.tflite").notes == ()
    assert not any("Planned anew" in note for report in reports for note in report.notes)
    assert qdq.retarget(q_model, "litert").plan == q_model.plan
    assert qdq.explain(q_model, "litert").plan == qdq.explain(q_model.plan, "litert").plan == q_model.plan
    assert qdq.verify_onnx(tmp_path / "model.onnx", qdq.retarget(q_model, "litert")).passed
    assert qdq.quantize_model(model, plan=q_model.plan, target="litert").plan == q_model.plan
    # The registered target is asked for as an object.
    registered = qdq.get_target("litert")
    assert qdq.export_onnx(q_model, tmp_path / "model.onnx", target=registered).target == "litert"
    assert qdq.explain(q_model, registered).plan.target_object == registered
    with pytest.raises(QDQError, match="A plan is made for one target"):
        qdq.quantize_model(model, plan=q_model.plan, target=registered)


def test_the_name_of_a_target_of_ones_own_means_it(model, x, tmp_path):
    mine = dataclasses.replace(qdq.get_target("openvino"), name="mine")
    q_model = qdq.quantize_model(model, target=mine)
    qdq.calibrate(q_model, x, verbose=False)
    assert qdq.export_onnx(q_model, tmp_path / "model.onnx", target="mine").target == "mine"


def test_every_report_names_it_alike(x, tmp_path):
    image = keras.Input((5, 5, 2), name="image")
    model = keras.Model(image, layers.Conv2D(3, 3, name="conv")(image))
    target = qdq.get_target("litert")
    target = dataclasses.replace(target, activation=target.activation.replace(symmetric=True))
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, x, verbose=False)
    firmware = qdq.files.save_firmware(q_model, tmp_path / "model.npz")
    exported = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert (
        firmware.target
        == document(tmp_path / "model.npz")["target"]
        == exported.target
        == q_model.plan.target_label
        == "litert (altered)"
    )


def test_a_target_of_ones_own_is_planned_exported_and_verified(model, x, tmp_path):
    mine = dataclasses.replace(qdq.get_target("openvino"), name="mine", bias="int32")
    q_model = qdq.quantize_model(model, target=mine)
    qdq.calibrate(q_model, x, verbose=False)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert integer_biases(tmp_path / "model.onnx") > 0
    qdq.verify_onnx(tmp_path / "model.onnx", q_model, x).raise_if_failed()
    assert "target mine;" in q_model.plan.summary()
    with pytest.raises(TargetError, match="No rules are known for target 'mine'"):
        qdq.explain(q_model)


def test_plans_of_known_targets_are_what_they_were(model):
    plan = qdq.plan_placement(model, target=dataclasses.replace(qdq.get_target("tensorrt")))
    assert plan == qdq.plan_placement(model, target="tensorrt")
    assert "altered_target" not in plan.to_dict()


@pytest.mark.parametrize("changes", [{"bias": "int8"}, {"activation": "uint8"}, {"name": None}])
def test_what_is_no_target_is_refused(changes):
    with pytest.raises(TargetError, match="A target needs a name, a QuantizerSpec"):
        dataclasses.replace(qdq.get_target("litert"), **changes)


@pytest.mark.parametrize("damage", [{}, {"bias": 3}, [], {"activation": {"num_bits": 99}}])
def test_damaged_notes_of_a_target_are_named(model, damage):
    plan = qdq.plan_placement(model, target=altered("litert")).to_dict()
    plan["altered_target"] = {**plan["altered_target"], **damage} if damage else damage
    with pytest.raises(QDQError, match="This is no target"):
        PlacementPlan.from_dict(plan)
