import dataclasses
import json

import pytest
from mock_graphs import chain

from qdq_workbench.errors import SpecError
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.runtimes.explanation import Explanation
from qdq_workbench.runtimes.measured import Island
from qdq_workbench.runtimes.measured_edges import IslandEdge
from qdq_workbench.runtimes.verdict import LayerExplanation

NAMES = ("stem", "middle", "last")


def entry(layer, status="int8", **more):
    return LayerExplanation(layer, "Conv2D", status, "ORT-INTEGER", "because", "https://example.com", **more)


def plan():
    graph = chain(*(("Conv2D", name) for name in NAMES))
    return make_plan(graph, decide(graph, "full", None, []), "full", "onnxruntime")


def edge(layer, side="first", *, is_loss=True):
    return IslandEdge((layer,), side, ms=2.0, baseline_ms=1.0, conversions_ms=0.5, moved_ms=0.25, is_loss=is_loss)


LOST = Island(("stem",), 0.25, 1.0, is_loss=True)
WON = Island(("middle", "last"), 3.0, 1.0, is_loss=False)


def explanation(**more):
    return Explanation("onnxruntime", tuple(entry(name) for name in NAMES), **more)


def test_layers_are_counted_by_status():
    found = Explanation("litert", (entry("a"), entry("b", "float"), entry("c", "partial"), entry("d", "float")))
    assert found.counts == {"int8": 1, "partial": 1, "float": 2}
    assert Explanation("litert", ()).counts == {"int8": 0, "partial": 0, "float": 0}


def test_a_partial_layer_counts_half_and_by_its_calls():
    layers = (entry("a", "partial", macs=10, int8_macs=3, bytes=8, int8_bytes=2), entry("b", "float", macs=30, bytes=8))
    assert Explanation("litert", layers).coverage == {"layers": 0.25, "macs": 0.075, "bytes": 0.125}


def test_of_what_is_not_there_all_runs_in_int8():
    assert Explanation("litert", ()).coverage == {"layers": 1.0, "macs": 1.0, "bytes": 1.0}
    assert Explanation("litert", (entry("a", "float"),)).coverage == {"layers": 0.0, "macs": 1.0, "bytes": 1.0}


def test_an_unknown_layer_is_named_with_the_nearest():
    with pytest.raises(SpecError, match=r"no layer of that name.*'middle'.*name='midle'"):
        explanation().for_layer("midle")
    assert explanation().for_layer("last").layer == "last"


def test_the_island_of_a_layer():
    found = explanation(islands=(LOST, Island(("middle",), 3.0, 1.0, is_loss=False)))
    assert found.island_of("stem") is LOST
    assert found.island_of("last") is None
    with pytest.raises(SpecError, match="no layer of that name"):
        found.island_of("lst")


def test_losses_are_those_beyond_the_noise():
    assert explanation(islands=(LOST, WON)).losses == (LOST,)
    assert explanation().losses == ()


def test_layers_inside_are_no_edges_and_those_of_a_lost_island_no_losses_again():
    alone = (edge("stem"), edge("middle", "inside"), edge("last", "last"), edge("middle", is_loss=False))
    found = explanation(islands=(LOST, WON), alone=alone)
    assert found.edges == (alone[0], alone[2], alone[3])
    assert found.edge_losses == (alone[2],)


class TestWithoutLosses:
    def named(self, spec):
        return {e.name for e in spec.layers if not (e.quantize_input or e.quantize_weight or e.quantize_output)}

    def test_edges_are_left_in_float_when_asked_for(self):
        found = explanation(plan=plan(), islands=(LOST, WON), alone=(edge("last", "last"),))
        assert self.named(found.without_losses()) == {"stem"}
        assert self.named(found.without_losses(edges=True)) == {"stem", "last"}

    def test_a_measurement_without_losses_leaves_the_plan_as_it_is(self):
        assert self.named(explanation(plan=plan(), islands=(WON,)).without_losses(edges=True)) == set()

    @pytest.mark.parametrize(
        ("more", "received"), [({}, "without a plan"), ({"plan": None, "islands": (WON,)}, "without a plan")]
    )
    def test_a_plan_is_needed(self, more, received):
        with pytest.raises(SpecError, match=f"Received: an Explanation {received}"):
            explanation(**more).without_losses()

    def test_a_measurement_is_needed(self):
        with pytest.raises(SpecError, match=r"knows of no measurement.*an Explanation with a plan and without islands"):
            explanation(plan=plan()).without_losses()


class TestDictionary:
    def test_without_a_measurement_it_has_no_islands(self):
        assert list(explanation().to_dict()) == ["target", "counts", "coverage", "layers"]

    def test_with_one_it_has_gains_of_islands_edges_and_layers_alone(self):
        alone = (edge("stem"), edge("middle", "inside"))
        found = json.loads(json.dumps(explanation(islands=(LOST, WON), alone=alone).to_dict()))
        assert [item["gain_ms"] for item in found["islands"]] == [-0.75, 2.0]
        assert [item["layers"] for item in found["edges"]] == [["stem"]]
        assert [item["gain_ms"] for item in found["alone"]] == [-1.25, -1.25]

    def test_fixes_are_dictionaries_of_their_own(self):
        fix = {"name": "stem", "quantize_output": True}
        found = Explanation("litert", (entry("stem", fix=(fix,)),)).to_dict()["layers"][0]["fix"]
        assert found == [fix]
        assert found[0] is not fix


def test_only_tensorrt_with_a_plan_has_builds():
    assert explanation(plan=plan()).builds == ()
    tensorrt = dataclasses.replace(explanation(), target="tensorrt")
    assert tensorrt.builds == ()
    assert "builds" not in tensorrt.to_dict()
    planned = dataclasses.replace(tensorrt, plan=plan())
    assert [build["version"] for build in planned.to_dict()["builds"]] == [build.version for build in planned.builds]
    assert all(type(build["reasons"]) is dict for build in planned.to_dict()["builds"])


def test_explanations_are_compared_by_their_layers_alone():
    assert explanation(plan=plan(), opset=21) == explanation()
    assert explanation(islands=(LOST,)) != explanation()
