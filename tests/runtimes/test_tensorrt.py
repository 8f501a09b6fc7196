"""The verdicts that `test_explain.py` does not reach one by one."""

import pytest
from mock_graphs import GraphMaker, chain

from qdq_workbench import LayerQuantizeConfig
from qdq_workbench.graph.model_graph import Part, Weight
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.runtimes import explain_plan
from qdq_workbench.spec import QuantizationSpec

CONV = ("Conv2D", "conv")
OUTPUT = {"quantize_input": False, "quantize_output": True}


def explained(graph, opset=None, **entries):
    spec = QuantizationSpec()
    for name, settings in entries.items():
        spec.add(name, **settings)
    return explain_plan(make_plan(graph, decide(graph, "full", spec, []), "full", "tensorrt"), opset=opset)


def rules(graph, **entries):
    return {entry.layer: entry.rule.removeprefix("TRT-") for entry in explained(graph, **entries).layers}


class TestFusing:
    @pytest.mark.parametrize(
        ("activation", "rule"),
        [("relu", "FUSED"), ("silu", "FUSED"), ("leaky_relu", "FUSED"), ("sigmoid", "FUSED"), ("mish", "FLOAT")],
    )
    def test_the_activations_that_the_builder_fuses(self, activation, rule):
        assert rules(chain(CONV, ("Activation", "act", {"activation": activation})))["act"] == rule

    def test_a_chain_behind_an_integer_kernel(self):
        row = (CONV, ("BatchNormalization", "norm"), ("ReLU", "relu"))
        found = explained(chain(*row))
        assert [entry.rule for entry in found.layers] == ["TRT-GEMM", "TRT-FUSED", "TRT-FUSED"]
        assert found.for_layer("relu").reason == "fused into the kernel of 'norm'"
        assert rules(chain(*row), conv={"quantize_weight": False}) == {
            "conv": "INPUT",
            "norm": "FLOAT",
            "relu": "FLOAT",
        }

    def test_a_pair_or_another_reader_in_between_breaks_it(self):
        maker = GraphMaker()
        maker.add("Conv2D", "conv", "image")
        maker.add("ReLU", "relu", "conv")
        assert rules(maker.graph("relu"), relu={})["relu"] == "FLOAT"
        assert rules(maker.graph("relu", "conv"))["relu"] == "FLOAT"
        assert rules(maker.graph("relu"))["relu"] == "FUSED"

    def test_a_layer_that_is_no_activation_is_not_fused(self):
        assert rules(chain(CONV, ("LayerNormalization", "norm")))["norm"] == "FLOAT"


class TestProducts:
    def test_what_is_missing_is_named(self):
        found = explained(chain(CONV), conv={"quantize_weight": False}).for_layer("conv")
        assert found.reason == "its weight 'kernel' stays in float"
        found = explained(chain(CONV), conv={"quantize_input": False}).for_layer("conv")
        assert (found.rule, found.reason) == ("TRT-INPUT", "its input is not quantized")
        assert found.fix == ({"name": "conv", "quantize_input": True, "quantize_weight": True},)

    @pytest.mark.parametrize(("opset", "rule"), [(20, "TRT-GEMM"), (21, "TRT-INT4")])
    def test_weights_of_few_bits_are_int4_from_opset_21_on(self, opset, rule):
        few = {"quantize_config": LayerQuantizeConfig(weight={"num_bits": 3})}
        assert explained(chain(CONV), opset, conv=few).for_layer("conv").rule == rule
        no_input = {**few, "quantize_input": False}
        assert explained(chain(CONV), opset, conv=no_input).for_layer("conv").rule == "TRT-INPUT"

    def test_weights_in_blocks_are_dequantized(self):
        maker = GraphMaker(shape=(None, 64))
        maker.add("Dense", "dense", "image", weights=(Weight("kernel", (64, 8)),), shape=(None, 8))
        blocks = LayerQuantizeConfig(weight={"num_bits": 4, "per_axis": True, "axis": 0, "block_size": 64})
        found = explained(maker.graph("dense"), dense={"quantize_input": False, "quantize_config": blocks})
        assert (found.for_layer("dense").rule, found.for_layer("dense").status) == ("TRT-BLOCKS", "float")

    def product(self, *inputs, **entries):
        maker = GraphMaker("a", "b")
        maker.add("Matmul", "product", *inputs, is_operation=True)
        return explained(maker.graph("product"), **entries).for_layer("product")

    def test_both_operands_of_a_product_of_tensors(self):
        assert self.product("a", "b", product={}).rule == "TRT-GEMM"
        one = self.product("a", "b", product={"quantization_index": [0]})
        assert (one.rule, one.reason) == ("TRT-INPUT", "inputs [1] are not quantized")
        assert one.fix == ({"name": "product", "quantize_input": True, "quantize_weight": False},)
        constant = self.product("a", product={})
        assert (constant.rule, constant.reason, constant.fix) == (
            "TRT-INPUT",
            "one of its operands is a constant in float",
            (),
        )

    def test_inside_a_layer_that_holds_others(self):
        def held(*parts):
            maker = GraphMaker()
            weights = tuple(Weight(f"{part.name}/kernel", (3, 3, 4, 4)) for part in parts)
            maker.add("TimeDistributed", "held", "image", parts=parts, weights=weights)
            return explained(maker.graph("held")).for_layer("held")

        one = held(Part("layer", "Conv2D"))
        assert (one.rule, one.reason) == ("TRT-GEMM", "the Conv2D inside: input and weights are quantized")
        two = held(Part("layer", "Conv2D"), Part("more", "Dense"))
        assert (two.rule, two.status) == ("TRT-INSIDE", "float")
        assert "where Conv2D 'layer' and Dense 'more' is computed" in two.reason
        assert "a TimeDistributed of its own" in two.advice
        recurrent = held(Part("layer", "LSTM", ("RNN",)), Part("layer/cell", "Dense"))
        assert recurrent.rule == "TRT-RECURRENT"


class TestMovements:
    def test_pairs_move_through_from_either_side(self):
        assert rules(chain(("MaxPooling2D", "pool")), pool={})["pool"] == "COMMUTES"
        assert rules(chain(CONV, ("MaxPooling2D", "pool")), pool=OUTPUT)["pool"] == "COMMUTES"
        assert rules(chain(("Flatten", "flat")), flat=OUTPUT)["flat"] == "FLOAT"  # no integer kernel before it
        neither = explained(chain(CONV, ("MaxPooling2D", "pool"))).for_layer("pool")
        assert (neither.rule, neither.reason) == ("TRT-FLOAT", "neither its input nor its output is quantized")
        assert neither.fix == ({"name": "pool", "quantize_input": True, "quantize_weight": False},)

    def test_other_layers_need_both_sides(self):
        both = {"pool": {"quantize_output": True}}
        graph = chain(("AveragePooling2D", "pool"))
        assert rules(graph, **both)["pool"] == "BOTH-SIDES"
        behind, before = (explained(graph, pool=entry).for_layer("pool") for entry in (OUTPUT, {}))
        assert (behind.rule, behind.reason) == ("TRT-FLOAT", "its inputs are not all quantized")
        assert (before.rule, before.reason) == ("TRT-FLOAT", "its output has no pair")
        assert before.fix == ({"name": "pool", "quantize_output": True},)

    def test_a_layer_that_is_not_visible_has_no_fix(self):
        maker = GraphMaker()
        maker.add("Mine", "mine", "image", opaque="a layer of the user's own")
        found = explained(maker.graph("mine")).for_layer("mine")
        assert (found.rule, found.reason, found.fix) == ("TRT-FLOAT", "a layer of the user's own", ())


class TestSums:
    def summed(self, *branch, skip=("ReLU",), extra=(), **entries):
        maker = GraphMaker()
        ends = []
        for prefix, kinds in (("a", branch), ("b", skip), *(("c", kinds) for kinds in extra)):
            last = "image"
            for kind in kinds:
                last = maker.add(kind, f"{prefix}_{kind.lower()}", last)
            ends.append(last)
        maker.add("Add", "add", *ends)
        return explained(maker.graph("add"), **entries).for_layer("add")

    def test_beside_a_convolution_the_other_operand_needs_a_pair(self):
        fused = self.summed("Conv2D", add={"quantization_index": [1]})
        assert (fused.rule, fused.reason) == ("TRT-SKIP", "added inside the convolution that makes input 0")
        other = self.summed("ReLU", skip=("Conv2D",), add={"quantization_index": [0]})
        assert other.reason == "added inside the convolution that makes input 1"
        wrong = self.summed("Conv2D", add={"quantization_index": [0]})
        assert (wrong.rule, wrong.reason) == (
            "TRT-FLOAT",
            "inputs [1] are not quantized, so the sum is computed in float",
        )

    def test_the_fix_quantizes_all_operands_but_the_convolutions(self):
        for branch, skip, index in ((("Conv2D",), ("ReLU",), 1), (("ReLU",), ("Conv2D",), 0)):
            fix = self.summed(*branch, skip=skip).fix
            assert fix == ({"name": "add", "quantize_weight": False, "quantization_index": [index]},)

    def test_without_a_convolution_both_sides_are_quantized(self):
        found = self.summed("ReLU", skip=("Softmax",))
        assert found.fix == ({"name": "add", "quantize_weight": False, "quantize_output": True},)
        inputs = self.summed("ReLU", skip=("Softmax",), add={})
        assert (inputs.rule, inputs.reason) == ("TRT-FLOAT", "its inputs are quantized and its output is not")
        assert inputs.fix == ({"name": "add", "quantize_weight": False, "quantize_output": True},)
        both = self.summed("ReLU", skip=("Softmax",), add={"quantize_output": True})
        assert (both.rule, both.status) == ("TRT-BOTH-SIDES", "int8")

    def test_three_operands(self):
        found = self.summed("ReLU", extra=[("Softmax",)], add={"quantize_output": True})
        assert (found.rule, found.reason) == ("TRT-OPERANDS", "it has 3 tensor operands, the kernel takes two")

    def test_a_constant_that_the_bias_absorbs_follows_its_layer(self):
        maker = GraphMaker()
        maker.add("Conv2D", "conv", "image")
        maker.add("Add", "shift", "conv", is_operation=True, settings={"constant_shape": [4]})
        assert rules(maker.graph("shift"))["shift"] == "FUSED"
        off = explained(maker.graph("shift"), conv={"quantize_input": False}).for_layer("shift")
        assert (off.rule, off.reason) == ("TRT-FLOAT", "inputs [0] are not quantized, so the sum is computed in float")
