"""Placements against those recorded from the predecessor, on its own networks; see docs/placement_differences.md."""

import collections

import pytest
from predecessor_networks import build_network, network_names, recorded

import qdq_workbench as qdq


@pytest.fixture(scope="module")
def oracle():
    return {name: build_network(name) for name in network_names()}, recorded()["placements"]


def plan(network, placement):
    spec = qdq.QuantizationSpec()
    for entry in placement["spec"]:
        spec.add(**entry)
    cases = [getattr(qdq, name)() for name in placement["custom_qdq_cases"]]
    return qdq.plan_placement(network, placement["mode"], spec, cases)


def names_a_missing_class(network, placement):
    present = {type(layer).__name__ for layer in network.layers}
    return any(entry.get("is_keras_class") and entry["name"] not in present for entry in placement["spec"])


def differences(ours, placement):
    """Return the layers that differ, and the number of pairs where that differs."""
    theirs = {layer["name"]: layer for layer in placement["wrapped"]}
    found = []
    for layer in ours.graph.layers:
        mine, other = ours.for_layer(layer), theirs.get(layer, {})
        expected = (
            other.get("quantize_input", False),
            other.get("quantize_weight", False),
            tuple(other.get("input_indices", ())),
        )
        if (mine.quantize_input, mine.quantize_weight, mine.input_indices) != expected:
            found.append(layer)
    if len(ours.tensors) != placement["onnx_q_nodes"]:
        found.append(f"{len(ours.tensors)} pairs instead of {placement['onnx_q_nodes']}")
    return found


def test_placements_equal_the_predecessors_but_for_the_listed_differences(oracle, capsys):
    networks, placements = oracle
    equal, refused, total = collections.Counter(), collections.Counter(), collections.Counter()
    wrong = []
    for placement in placements:
        name = placement["network"]
        total[name] += 1
        if names_a_missing_class(networks[name], placement):
            with pytest.raises(qdq.SpecError, match="no layer or operation of that class"):
                plan(networks[name], placement)
            refused[name] += 1
        elif found := differences(plan(networks[name], placement), placement):
            wrong.append((name, placement["config_id"], found))
        else:
            equal[name] += 1
    with capsys.disabled():
        print()
        for name in networks:
            print(f"{name}: {equal[name]} of {total[name]} equal, {refused[name]} name a class that it does not have")
    assert wrong == []
    assert sum(equal.values()) == 112


def test_planning_one_network_does_not_change_another_plan(oracle):
    """The predecessor's placement changed when a probe model was built on the same layers."""
    import keras

    networks, _ = oracle
    network = networks["frodo_32_32"]
    before = qdq.plan_placement(network, custom_qdq_cases=[qdq.ResNetV1QDQCase()])
    keras.Model(network.inputs, keras.layers.ReLU(name="probe")(network.get_layer("conv2d_3").output))
    assert qdq.plan_placement(network, custom_qdq_cases=[qdq.ResNetV1QDQCase()]) == before
