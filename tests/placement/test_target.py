import dataclasses
import json

import pytest

from qdq_workbench.errors import TargetError
from qdq_workbench.placement.targets import Target, get_target, is_registered, target_names
from qdq_workbench.placement.targets.target import suggested_target
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

GRID = QuantizerSpec()


@pytest.mark.parametrize("name", target_names())
def test_every_target_goes_through_json(name):
    target = get_target(name)
    data = json.loads(json.dumps(target.to_dict()))
    assert Target.from_dict(data) == target
    assert data["integer_kinds"] == sorted(target.integer_kinds)


@pytest.mark.parametrize(
    "change", [{"name": None}, {"activation": "int8"}, {"weight": {}}, {"bias": "int8"}, {"bias": None}]
)
def test_what_makes_no_target_is_named(change):
    fields = {"name": "mine", "title": "Mine", "activation": GRID, "weight": GRID, "bias": "float", **change}
    (key, value), *_ = change.items()
    with pytest.raises(TargetError) as caught:
        Target(**fields)
    assert f"{key}={value!r}" in str(caught.value)
    assert Target(**{**fields, "name": "mine", "activation": GRID, "weight": GRID, "bias": "int32"}).bias == "int32"


@pytest.mark.parametrize(
    "change",
    [
        {"activation": None},
        {"weight": {"num_bits": 99}},
        {"surprise": 1},
        {"bias": "int8"},
        {"title": [[]]},
    ],
)
def test_a_dictionary_of_something_else_is_no_target(change):
    data = {**get_target("tensorrt").to_dict(), **change}
    with pytest.raises(TargetError):
        Target.from_dict(data)
    for other in ({}, None, [1]):
        with pytest.raises(TargetError, match=r"This is no target; Target\.to_dict\(\) gives one"):
            Target.from_dict(other)


def test_a_target_is_returned_as_it_is_and_compared_with_the_registered_one():
    usual = get_target("onnxruntime")
    altered = dataclasses.replace(usual, bias="float")
    assert get_target(altered) is altered
    assert (is_registered(usual), is_registered(altered)) == (True, False)
    assert not is_registered(dataclasses.replace(usual, name="another"))


@pytest.mark.parametrize(
    ("given", "meant"), [("TFLM", "litert"), ("onnxrt", "onnxruntime"), ("NVIDIA", "tensorrt"), ("openvno", "openvino")]
)
def test_other_names_lead_to_a_target(given, meant):
    assert suggested_target(given).startswith(f"Did you mean {meant!r}? The targets are 'litert', ")
    assert suggested_target("x").startswith("The targets are ")
