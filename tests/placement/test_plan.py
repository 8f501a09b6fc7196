import dataclasses
import json

import pytest
from mock_graphs import GraphMaker, chain

from qdq_workbench import LayerQuantizeConfig
from qdq_workbench.errors import SpecError
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.plan import PlacementPlan, PlanDiff
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.placement.targets import get_target
from qdq_workbench.spec import QuantizationSpec

ROW = (
    ("Conv2D", "conv"),
    ("BatchNormalization", "norm"),
    ("ReLU", "relu"),
    ("MaxPooling2D", "pool"),
    ("Conv2D", "next"),
)
ORT = get_target("onnxruntime")


def planned(graph=None, target="onnxruntime", **entries):
    graph, spec = graph or chain(*ROW), QuantizationSpec()
    for name, settings in entries.items():
        spec.add(name, **settings)
    return make_plan(graph, decide(graph, "full", spec, []), "full", target)


class TestLayers:
    def test_an_input_of_the_model_has_no_decision(self):
        entry = planned().for_layer("image")
        assert (entry.author, entry.reason, entry.replaced) == ("default", "an input of the model", ())
        assert (entry.quantize_input, entry.quantize_weight, entry.quantize_output) == (False, False, False)

    def test_a_layer_that_the_defaults_leave_in_float_is_the_targets_where_it_has_a_pair(self):
        entry = planned().for_layer("pool")
        assert entry.author == "target"
        assert entry.reason == planned().output_placement("pool").reason
        assert (entry.quantize_input, entry.quantize_output) == (False, True)
        untouched = planned(target="tensorrt").for_layer("pool")
        assert untouched.author == "default"
        assert "off by default for MaxPooling2D" in untouched.reason

    def test_a_decision_stays_the_authors_beside_a_pair_of_the_target(self):
        entry = planned(next={"quantize_weight": True}).for_layer("next")
        assert (entry.author, entry.replaced, entry.quantize_output) == ("spec[0]", ("default",), True)

    def test_calls_of_a_shared_layer_apart_and_together(self):
        maker = GraphMaker()
        maker.add("Conv2D", "conv", "image")
        maker.add("Conv2D", "conv#1", "conv", layer="conv")
        plan = planned(maker.graph("conv#1"), "tensorrt", **{"conv": {"quantize_input": False}, "conv#1": {}})
        first, second, both = (plan.for_layer(name) for name in ("conv", "conv#1", "conv"))
        assert both == first
        assert (second.quantize_input, second.quantize_weight, second.layer) == (True, True, "conv")
        assert planned(maker.graph("conv#1"), "tensorrt", conv={"quantize_weight": False}).for_layer(
            "conv#1"
        ).input_indices == (0,)


class TestPlaces:
    def test_placements_share_pairs(self):
        maker = GraphMaker()
        maker.add("Conv2D", "a", "image")
        maker.add("Conv2D", "b", "image")
        plan = planned(maker.graph("a", "b"), "tensorrt")
        places = [placement for placement in plan.placements if placement.tensor == "image"]
        assert [plan.pair_of(place).name for place in places] == ["image", "image"]
        assert plan.pair_of(next(p for p in plan.placements if p.weight)).name == "a/kernel"

    def test_a_pair_of_its_own_comes_before_that_of_all_readers(self):
        maker = GraphMaker()
        maker.add("ReLU", "relu", "image")
        maker.add("Conv2D", "conv", "relu")
        config = LayerQuantizeConfig(activation={"num_bits": 4})
        graph, six = maker.graph("conv", "relu"), LayerQuantizeConfig(output={"num_bits": 6})
        relu = {"quantize_output": True, "quantize_config": six}
        plan = planned(graph, "tensorrt", relu=relu, conv={"quantize_config": config})
        assert plan.input_placement("conv", 0).quantizer.num_bits == 4
        assert plan.output_placement("relu").quantizer.num_bits == 6
        assert plan.output_placement("conv") is None

    @pytest.mark.parametrize("change", [{"input_index": -1}, {"input_index": 1}, {"layer": ""}, {"node": None}])
    def test_a_place_that_the_model_does_not_have_is_refused(self, change):
        data = planned().to_dict()
        next(item for item in data["placements"] if item["site"] == "input").update(change)
        with pytest.raises(SpecError):
            PlacementPlan.from_dict(data)

    def test_the_tensor_of_an_output_must_exist_and_that_of_a_weight_need_not(self):
        data = planned().to_dict()
        next(item for item in data["placements"] if item["site"] == "weight")["tensor"] = "conv/other"
        assert "conv/other" in [pair.name for pair in PlacementPlan.from_dict(data).tensors]
        next(item for item in data["placements"] if item["site"] == "output")["tensor"] = "relv"
        with pytest.raises(SpecError, match=r"no such tensor\. Did you mean 'relu'"):
            PlacementPlan.from_dict(data)


class TestTargets:
    def test_an_altered_target_is_stored_and_marked(self):
        altered = dataclasses.replace(ORT, bias="float")
        plan = planned(target=altered)
        assert (plan.target, plan.target_label) == ("onnxruntime", "onnxruntime (altered)")
        again = PlacementPlan.from_dict(json.loads(json.dumps(plan.to_dict())))
        assert again.target_object == altered
        assert "target='onnxruntime (altered)', 6 Q/DQ pairs" in repr(again)

    def test_a_target_of_ones_own_has_its_own_name(self):
        plan = planned(target=dataclasses.replace(ORT, name="mine"))
        assert plan.target_label == "mine"
        assert plan.target_object.name == "mine"

    def test_a_registered_target_is_stored_by_its_name(self):
        assert "altered_target" not in planned().to_dict()
        assert planned().target_object is ORT
        assert planned().target_label == "onnxruntime"

    def test_other_files_have_a_lowering_of_their_own(self):
        graph = chain(("ZeroPadding2D", "pad"), ("Conv2D", "conv", {"padding": "valid"}))
        plan = planned(graph, "litert")
        assert plan.lowering.nodes["pad"].step == "written"
        assert plan.onnx_lowering.nodes["pad"].step == "absorbed"
        assert planned(graph).lowering is not None
        same = planned(graph)
        assert same.lowering is same.onnx_lowering

    def test_every_node_is_listed_with_its_operators(self):
        told = planned().to_dict()["lowering"]
        assert list(told) == [node.name for node in planned().graph.nodes]
        assert told["conv"] == {"step": "written", "operators": ["Conv"]}
        assert told["norm"] == {
            "step": "folded",
            "operators": [],
            "into": ["conv"],
            "reason": "it becomes a part of the weights and the bias of 'conv'",
        }

    def test_a_plan_of_before_without_operators_is_read(self):
        earlier = planned().to_dict()
        earlier["lowering"] = {"norm": {"step": "folded", "into": ["conv"], "reason": "it becomes a part"}}
        assert PlacementPlan.from_dict(earlier) == planned()
        del earlier["lowering"]
        assert PlacementPlan.from_dict(earlier).lowering == planned().lowering


class TestDifferences:
    def test_of_a_plan_and_itself(self):
        diff = planned().diff(planned())
        assert not diff
        assert (diff.counts, diff.summary(), diff.lowered) == ("no difference", "no difference", ())

    def test_every_change_of_a_place_is_told(self):
        grid = LayerQuantizeConfig(weight={"num_bits": 4, "quantizer": "lsq"})
        diff = planned().diff(planned(next={"quantize_config": grid}))
        assert diff
        lines = diff.summary().splitlines()
        assert lines[0] == "2 with another grid or author"
        assert "~ pool (input of next): default -> spec[0]" in lines
        (line,) = (line for line in lines if "next/kernel" in line)
        assert "~ next/kernel (weight of next): int8/axis 3 -> int4/axis 3, default -> spec[0], " in line
        assert line.endswith("quantizer of the defaults -> quantizer lsq")

    def test_a_scale_group_is_told(self):
        graph = chain(("ReLU", "relu"), ("MaxPooling2D", "pool"), ("Conv2D", "next"))
        before = planned(graph, relu={"quantize_output": True}, pool={"quantize_input": False})
        after = planned(graph, relu={"quantize_output": True})
        changed = [line for line in before.diff(after).summary().splitlines() if line.startswith("~")]
        assert any("scale group None -> scale group relu" in line for line in changed)

    def test_a_reason_alone_is_no_difference(self):
        plan = planned()
        said = tuple(dataclasses.replace(placement, reason="because") for placement in plan.placements)
        assert not plan.diff(dataclasses.replace(plan, placements=said))

    def test_a_pair_in_between_keeps_a_normalization_from_being_folded(self):
        before, after = planned(), planned(norm={})
        diff = before.diff(after)
        assert [(one.step, other.step) for one, other in diff.lowered] == [("folded", "split")]
        assert "> norm: folded into conv -> split" in diff.summary().splitlines()
        assert "> norm: split -> folded into conv" in after.diff(before).summary().splitlines()
        assert diff

    def test_without_the_plans_places_are_counted_and_no_steps(self):
        diff = planned().diff(planned(norm={}))
        alone = PlanDiff(diff.added, diff.removed, diff.changed)
        assert alone == diff
        assert alone.lowered == ()
        assert alone.counts.startswith(f"{len(diff.added)} places more")

    def test_only_plans_of_one_model_are_compared(self):
        with pytest.raises(SpecError, match=r"Received: 'net' and 3$"):
            planned().diff(3)
        with pytest.raises(SpecError, match="Received: 'net' and 'net'"):
            planned().diff(planned(chain(*ROW[:2])))
