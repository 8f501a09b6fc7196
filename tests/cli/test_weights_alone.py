"""`quantize --weights-alone` and `gptq`: from a float model to 4 bits in blocks, on files."""

import json

import keras
import numpy as np

import qdq_workbench as qdq


def blocks(plan):
    return {item.tensor: item.quantizer.block_size for item in plan.tensors}


def test_a_model_goes_from_floats_to_gptq(cli, workplace):
    code, out, errors = cli(
        "quantize", "model.keras", "-o", "alone.keras", "--weights-alone", "4", "--target", "onnxruntime"
    )
    assert code == 0, errors
    assert "nothing to calibrate" in out
    q_model = keras.models.load_model(workplace / "alone.keras")
    assert q_model.plan.mode == "partial"
    assert blocks(q_model.plan) == {"head/kernel": 32}
    code, out, errors = cli(
        "gptq", "alone.keras", "--data", "images.npy", "-o", "gptq.keras", "--report", "gptq.json", "--activation-order"
    )
    assert code == 0, errors
    assert "GPTQ's rounding of" in out
    told = json.loads((workplace / "gptq.json").read_text())
    assert told["settings"]["activation_order"] is True
    rounded = keras.models.load_model(workplace / "gptq.keras")
    by_hand = keras.models.load_model(workplace / "alone.keras")
    images = np.load(workplace / "images.npy")
    qdq.correction.gptq_weights(by_hand, images, activation_order=True, verbose=False)
    ours, theirs = (qdq.integer_weights(each)["head/kernel"].codes for each in (rounded, by_hand))
    np.testing.assert_array_equal(ours, theirs)


def test_a_spec_overrules_and_blocks_can_be_left_out(cli, workplace):
    (workplace / "float_head.json").write_text(json.dumps(spec_of_float_head()))
    code, out, _ = cli("plan", "model.keras", "--weights-alone", "4", "--block-size", "0", "--json")
    assert code == 0
    assert [p["quantizer"].get("block_size") for p in json.loads(out)["placements"]] == [None]
    code, _, errors = cli("plan", "model.keras", "--weights-alone", "4", "--spec", "float_head.json")
    assert code == 2
    assert "Nothing is left to quantize" in errors


def test_a_class_in_a_spec_overrules_too(cli, workplace):
    command = ("plan", "model.keras", "--weights-alone", "4", "--target", "onnxruntime", "--spec", "of_class.json")
    eight = {"name": "Dense", "is_keras_class": True, "quantize_input": False}
    (workplace / "of_class.json").write_text(json.dumps({"layers": [eight]}))
    code, out, errors = cli(*command, "--json")
    assert code == 0, errors
    found = {item["tensor"]: item["quantizer"] for item in json.loads(out)["placements"]}
    assert {name: grid["num_bits"] for name, grid in found.items()} == {"head/kernel": 8}
    (workplace / "of_class.json").write_text(json.dumps({"layers": [{**eight, "quantize_weight": False}]}))
    code, _, errors = cli(*command)
    assert code == 2
    assert "Nothing is left to quantize" in errors


def spec_of_float_head():
    spec = qdq.QuantizationSpec()
    spec.add("head", quantize_input=False, quantize_weight=False)
    return spec.to_dict()


def test_blocks_by_themselves_are_refused(cli):
    code, _, errors = cli("plan", "model.keras", "--block-size", "32")
    assert code == 2
    assert "--block-size is for --weights-alone" in errors
