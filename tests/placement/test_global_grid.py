"""The variables of NVIDIA's tensorflow-quantization: `G_NUM_BITS` and its kin hold for whatever says nothing else."""

import keras
import pytest
from small_models import residual_net

import qdq_workbench as qdq
from qdq_workbench.errors import SpecError
from qdq_workbench.planning import retarget_plan


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
def test_four_bits_for_every_quantizer(target, monkeypatch):
    graph = qdq.build_graph(residual_net())
    usual = qdq.plan_placement(graph, target=target)
    monkeypatch.setattr(qdq, "G_NUM_BITS", 4)
    plan = qdq.plan_placement(graph, target=target)
    assert {pair.quantizer.num_bits for pair in plan.tensors} == {4}
    assert [pair.name for pair in plan.tensors] == [pair.name for pair in usual.tensors]
    assert [pair.quantizer.replace(num_bits=8) for pair in plan.tensors] == [pair.quantizer for pair in usual.tensors]


def test_what_a_quantizer_says_itself_is_stronger_and_the_plan_keeps_the_rest(monkeypatch):
    model = residual_net()
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 6}))
    monkeypatch.setattr(qdq, "G_NUM_BITS", 4)
    plan = qdq.PlacementPlan.from_dict(qdq.plan_placement(model, quantization_spec=spec).to_dict())
    monkeypatch.undo()
    for each in (plan, retarget_plan(plan, "onnxruntime")):
        bits = {pair.name: pair.quantizer.num_bits for pair in each.tensors}
        assert bits.pop("conv/kernel") == 6
        assert set(bits.values()) == {4}


def test_the_other_variables(monkeypatch):
    monkeypatch.setattr(qdq, "G_SYMMETRIC", False)
    monkeypatch.setattr(qdq, "G_NARROW_RANGE", False)
    grids = [pair.quantizer for pair in qdq.plan_placement(residual_net()).tensors]
    assert {(grid.symmetric, grid.narrow_range, grid.num_bits) for grid in grids} == {(False, False, 8)}


@pytest.mark.parametrize(("name", "value"), [("G_NUM_BITS", 1), ("G_NUM_BITS", "8"), ("G_SYMMETRIC", 1)])
def test_other_values_are_refused(name, value, monkeypatch):
    monkeypatch.setattr(qdq, name, value)
    with pytest.raises(SpecError, match=f"qdq_workbench.{name} must be"):
        qdq.plan_placement(residual_net())


def test_weights_that_keras_has_quantized_keep_their_integers(monkeypatch):
    x = keras.Input((4,), name="x")
    model = keras.Model(x, keras.layers.Dense(3, name="kept")(keras.layers.Dense(4, name="own")(x)))
    model.get_layer("kept").quantize("int8")
    usual = {pair.name: pair.quantizer for pair in qdq.plan_placement(model).tensors}
    monkeypatch.setattr(qdq, "G_NUM_BITS", 6)
    plan = qdq.plan_placement(model)
    grids = {pair.name: pair.quantizer for pair in plan.tensors}
    assert grids["kept/kernel"] == usual["kept/kernel"]
    assert "model.quantize" in next(p.reason for p in plan.placements if p.tensor == "kept/kernel")
    assert (grids["own/kernel"].num_bits, grids["x"].num_bits) == (6, 6)
