import pytest
from mock_graphs import GraphMaker, chain

from qdq_workbench import LayerQuantizeConfig
from qdq_workbench.graph.model_graph import Weight
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.runtimes.facts import PlanFacts
from qdq_workbench.spec import QuantizationSpec


def facts_of(graph, target="onnxruntime", opset=None, **entries):
    spec = QuantizationSpec()
    for name, settings in entries.items():
        spec.add(name, **settings)
    return PlanFacts(make_plan(graph, decide(graph, "full", spec, []), "full", target), opset)


def asked(graph, method, node, **entries):
    facts = facts_of(graph, **entries)
    return getattr(facts, method)(facts.graph.node(node))


CONV = ("Conv2D", "conv")


class TestOperands:
    @pytest.mark.parametrize(
        ("inputs", "reason"),
        [(("image",), "a constant, which has no"), (("image",) * 2, None), (("image",) * 3, "has 3 tensor operands")],
    )
    def test_a_kernel_takes_two(self, inputs, reason):
        maker = GraphMaker()
        maker.add("Add", "sum", *inputs)
        found = asked(maker.graph("sum"), "why_not_two_operands", "sum")
        assert found is None if reason is None else reason in found

    def test_float_inputs_are_those_without_a_pair_of_their_own_or_of_all(self):
        maker = GraphMaker("a", "b", "c")
        maker.add("Add", "sum", "a", "b", "c")
        entries = {"sum": {"quantization_index": [2]}, "a": {"quantize_input": False, "quantize_output": True}}
        assert asked(maker.graph("sum"), "float_inputs", "sum", **entries) == [1]

    def test_what_one_reader_reads_through_a_pair_another_reads_as_floats(self):
        maker = GraphMaker()
        maker.add("Conv2D", "one", "image")
        maker.add("Conv2D", "other", "image")
        facts = facts_of(maker.graph("one", "other"), "tensorrt", other={"quantize_input": False})
        assert [facts.float_inputs(facts.graph.node(name)) for name in ("one", "other")] == [[], [0]]
        assert facts.is_paired("image")
        assert not facts.has_one_pair("image")


class TestOnePair:
    def readers(self, *outputs, **entries):
        maker = GraphMaker()
        maker.add("ReLU", "relu", "image")
        maker.add("Conv2D", "one", "relu")
        maker.add("Conv2D", "other", "relu")
        return facts_of(maker.graph(*outputs), "tensorrt", **entries).has_one_pair("relu")

    def test_of_all_readers(self):
        assert self.readers("one", "other")

    def test_not_with_two_grids(self):
        four = {"quantize_config": LayerQuantizeConfig(activation={"num_bits": 4})}
        assert not self.readers("one", "other", other=four)

    def test_not_where_all_readers_read_floats(self):
        off = {"quantize_input": False}
        assert not self.readers("one", "other", one=off, other=off)

    def test_an_output_of_the_model_is_a_reader_without_a_pair(self):
        assert not self.readers("one", "other", "relu")
        assert self.readers("one", "other", "relu", relu={"quantize_output": True})

    def test_not_where_nothing_reads_it(self):
        maker = GraphMaker()
        maker.add("ReLU", "relu", "image")
        maker.add("ReLU", "end", "image")
        assert not facts_of(maker.graph("end")).has_one_pair("relu")


class TestPairBehind:
    def behind(self, *kinds, outputs=("next",), **entries):
        maker = GraphMaker()
        last = maker.add("ReLU", "relu", "image")
        for number, kind in enumerate(kinds):
            last = maker.add(kind, f"step{number}", last)
        maker.add("Conv2D", "next", last)
        facts = facts_of(maker.graph(*outputs), "tensorrt", **entries)
        return facts.pair_for_all("relu")

    def test_layers_that_vanish_are_passed(self):
        quantized = {"step1": {"quantize_input": False, "quantize_output": True}}
        assert self.behind("Dropout", "GaussianNoise", **quantized).tensor == "step1"
        assert self.behind("ReLU", "Dropout", **quantized) is None

    def test_not_with_another_use_on_the_way(self):
        quantized = {"step0": {"quantize_input": False, "quantize_output": True}}
        assert self.behind("Dropout", **quantized).tensor == "step0"
        assert self.behind("Dropout", outputs=("next", "relu"), **quantized) is None

    def test_a_pair_of_one_reader_is_not_that_of_all(self):
        assert self.behind("Dropout") is None


class TestScales:
    def test_of_one_group(self):
        graph = chain(CONV, ("MaxPooling2D", "pool"), ("Conv2D", "next"))
        assert asked(graph, "same_scale", "pool")
        assert not asked(graph, "same_scale", "next")
        assert not asked(graph, "same_scale", "pool", pool={"quantize_input": False})

    def test_pairs_without_a_group_share_nothing(self):
        assert not asked(chain(("ReLU", "relu")), "same_scale", "relu", relu={"quantize_output": True})

    def test_what_reads_nothing_shares_nothing(self):
        facts = facts_of(chain(CONV, ("MaxPooling2D", "pool"), ("Conv2D", "next")))
        assert not facts.same_scale(facts.graph.node("image"))


class TestAxes:
    def along(self, axis, shape=(3, 3, 4, 4), kind="Conv2D", **more):
        maker = GraphMaker()
        maker.add(kind, "conv", "image", weights=(Weight("kernel", shape),))
        config = LayerQuantizeConfig(weight={"per_axis": True, "axis": axis, **more})
        return asked(maker.graph("conv"), "why_axis", "conv", conv={"quantize_config": config})

    @pytest.mark.parametrize("axis", [0, 2, -2])
    def test_a_kernel_sums_up_over_all_axes_but_that_of_its_outputs(self, axis):
        reason, remedy = self.along(axis)
        assert f"scales of its weight 'kernel' lie along axis {axis % 4}, over which" in reason
        assert "one per output channel (axis 3)" in remedy

    @pytest.mark.parametrize("axis", [3, -1])
    def test_the_axis_of_the_outputs_is_right(self, axis):
        assert self.along(axis) == ("", "")

    def test_an_axis_of_one_element_has_one_scale(self):
        assert self.along(2, (3, 3, 1, 4)) == ("", "")
        assert self.along(2, (3, 3, 2, 4)) != ("", "")

    def test_without_an_axis_there_is_one_scale(self):
        assert asked(chain(CONV), "why_axis", "conv", conv={"quantize_weight": False}) == ("", "")

    def test_blocks_lie_along_the_sum_on_purpose(self):
        assert self.along(0, (32, 4), "Dense", block_size=16, num_bits=4) == ("", "")


class TestWeights:
    def test_those_of_more_than_8_bits_and_the_tensors_around_them(self):
        wide = LayerQuantizeConfig(weight={"num_bits": 9}, activation={"num_bits": 16})
        graph = chain(CONV, ("Conv2D", "next"))
        assert asked(graph, "wide_grids", "next", next={"quantize_config": wide}) == ["conv", "next/kernel"]
        assert asked(graph, "wide_grids", "conv", next={"quantize_config": wide}) == ["conv"]
        assert asked(graph, "wide_grids", "conv") == []

    @pytest.mark.parametrize(("opset", "packed"), [(20, 0), (21, 1), (None, 0)])
    def test_few_bits_are_packed_from_opset_21_on(self, opset, packed):
        few = LayerQuantizeConfig(weight={"num_bits": 4})
        facts = facts_of(chain(CONV), opset=opset, conv={"quantize_config": few})
        assert len(facts.packed_weights(facts.graph.node("conv"))) == packed

    def test_float_weights_are_the_known_ones_that_the_plan_leaves(self):
        assert asked(chain(CONV), "float_weights", "conv") == []
        assert asked(chain(CONV), "float_weights", "conv", conv={"quantize_weight": False}) == ["kernel"]
        assert asked(chain(("Mystery", "m")), "float_weights", "m") == []

    def test_costs_of_weights_are_counted_at_the_first_call(self):
        maker = GraphMaker()
        maker.add("Conv2D", "conv", "image")
        maker.add("Conv2D", "conv#1", "conv", layer="conv")
        facts = facts_of(maker.graph("conv#1"), "tensorrt")
        first, second = (facts.cost(facts.graph.node(name)) for name in ("conv", "conv#1"))
        assert first[1:] == (4 * (144 + 4), 4 * 144)
        assert second == (first[0], 0, 0)
        off = facts_of(maker.graph("conv#1"), "tensorrt", conv={"quantize_weight": False})
        assert off.cost(off.graph.node("conv"))[1:] == (4 * (144 + 4), 0)


class TestFolding:
    def why(self, *layers, **entries):
        return asked(chain(*layers, ("BatchNormalization", "norm")), "why_not_folded", "norm", **entries)

    def test_what_it_follows_is_named(self):
        assert self.why(("ReLU", "relu")) == "it follows ReLU 'relu', into which it cannot be folded"
        assert "'conv' applies relu before it" in self.why(("Conv2D", "conv", {"activation": "relu"}))

    def test_a_pair_in_between(self):
        assert "the pair on 'conv' stands between 'conv' and it" in self.why(CONV, norm={})
        assert "the pair on 'dense' stands between 'dense' and it" in self.why(("Dense", "dense"), norm={})

    def test_a_second_reader(self):
        maker = GraphMaker()
        maker.add("Conv2D", "conv", "image")
        maker.add("BatchNormalization", "norm", "conv")
        graph = maker.graph("norm", "conv")
        assert "'conv' is needed elsewhere too" in asked(graph, "why_not_folded", "norm")

    def test_scales_along_another_axis(self):
        config = LayerQuantizeConfig(weight={"per_axis": True, "axis": 2})
        found = self.why(CONV, conv={"quantize_config": config})
        assert found == "the scales of the weights of 'conv' lie along another axis than its channels"

    def test_a_shared_layer(self):
        maker = GraphMaker()
        maker.add("Conv2D", "conv", "image")
        maker.add("BatchNormalization", "norm", "conv")
        maker.add("Conv2D", "conv#1", "norm", layer="conv")
        assert "is called several times" in asked(maker.graph("conv#1"), "why_not_folded", "norm")

    def test_another_axis(self):
        maker = GraphMaker()
        maker.add("Conv2D", "conv", "image")
        maker.add("BatchNormalization", "norm", "conv", settings={"axis": 1})
        assert "or it normalizes another axis" in asked(maker.graph("norm"), "why_not_folded", "norm")


def test_parts_of_a_product_are_listed_in_computing_order():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("BatchNormalization", "norm", "conv")
    maker.add("Add", "shift", "norm", is_operation=True, settings={"constant_shape": [4]})
    maker.add("ReLU", "relu", "shift")
    facts = facts_of(maker.graph("relu"), conv={"quantize_weight": True})
    conv = facts.graph.node("conv")
    assert facts.merged_into(conv) == ["norm", "shift"]
    assert [facts.absorber(facts.graph.node(name)).name for name in ("shift", "norm", "relu")] == [
        "conv",
        "conv",
        "relu",
    ]
    assert facts.behind(conv, frozenset()) == "shift"
    assert facts.behind(conv, frozenset({"relu"})) == "relu"
    assert facts.owns_bias(conv)
    assert not facts.owns_bias(facts.graph.node("norm"))
