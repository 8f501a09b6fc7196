import dataclasses

import pytest
from mock_graphs import GraphMaker, chain, residual

from qdq_workbench import QuantizationSpec
from qdq_workbench.errors import SpecError
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.placement.targets import target_names
from qdq_workbench.runtimes import explain_plan


def explained(graph, target, spec=None, mode="full"):
    return explain_plan(make_plan(graph, decide(graph, mode, spec, []), mode, target), target)


def switched_off(*names):
    spec = QuantizationSpec()
    for name in names:
        spec.add(name, quantize_input=False, quantize_weight=False)
    return spec


@pytest.mark.parametrize("target", target_names())
def test_fixes_bring_a_residual_block_to_integers(target):
    graph = residual("Conv2D", "BatchNormalization", "ReLU", skip=("Conv2D",))
    spec = switched_off("conv2d", "skip_conv2d")
    before = explained(graph, target, spec)
    assert before.coverage["macs"] == before.coverage["bytes"] == 0.0
    after = explained(graph, target, before.apply_fixes())
    status = {entry.layer: entry.status for entry in after.layers}
    assert {status[name] for name in ("conv2d", "batchnormalization", "relu", "skip_conv2d", "add")} == {"int8"}
    assert after.coverage["macs"] == 1.0
    assert spec.layers == switched_off("conv2d", "skip_conv2d").layers


def test_a_fix_keeps_what_was_wished_before():
    graph = chain(("Conv2D", "conv"), ("ReLU", "relu"), ("Conv2D", "last"))
    spec = switched_off("last")
    spec.add("conv", quantize_output=True, quantize_weight=False)
    fixed = {entry.name: entry for entry in explained(graph, "onnxruntime", spec).apply_fixes().layers}
    assert (fixed["conv"].quantize_output, fixed["conv"].quantize_input) == (True, True)
    assert (fixed["last"].quantize_input, fixed["last"].quantize_weight) == (True, True)


def test_partial_mode_stays_partial():
    graph = chain(("Conv2D", "conv"), ("Conv2D", "last"))
    spec = QuantizationSpec()
    spec.add("conv", quantize_weight=False)
    fixed = explained(graph, "tensorrt", spec, "partial").apply_fixes()
    assert explained(graph, "tensorrt", fixed, "partial").counts["float"] == 0


def test_a_shared_layer_gets_an_entry_per_call():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("Conv2D", "conv#1", "conv", layer="conv")
    fixed = explained(maker.graph("conv#1"), "tensorrt", switched_off("conv")).apply_fixes()
    assert explained(maker.graph("conv#1"), "tensorrt", fixed).for_layer("conv").status == "int8"


def test_without_a_plan_there_is_nothing_to_change():
    found = dataclasses.replace(explained(chain(("Conv2D", "conv")), "litert"), plan=None)
    with pytest.raises(SpecError, match="does not know its plan"):
        found.apply_fixes()


def test_coverage_counts_layers_products_and_bytes():
    graph = chain(("Conv2D", "conv"), ("Conv2D", "off"), ("Mystery", "mystery"))
    found = explained(graph, "tensorrt", switched_off("off"))
    assert found.coverage == {"layers": pytest.approx(1 / 3), "macs": 0.5, "bytes": pytest.approx(144 / (2 * 148))}
    assert "50.0 % of macs" in found.summary()
    assert found.to_dict()["coverage"] == found.coverage
