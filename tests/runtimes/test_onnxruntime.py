"""The verdicts that `test_explain.py` and the comparisons with the runtime itself do not reach one by one."""

import pytest
from mock_graphs import IMAGE, GraphMaker, chain

from qdq_workbench import LayerQuantizeConfig
from qdq_workbench.graph.model_graph import Weight
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.runtimes import explain_plan
from qdq_workbench.spec import QuantizationSpec

CONV, NEXT = ("Conv2D", "conv"), ("Conv2D", "next")
OFF = {"quantize_input": False, "quantize_weight": False}
OUTPUT = {"quantize_input": False, "quantize_output": True}


def explained(graph, opset=None, **entries):
    spec = QuantizationSpec()
    for name, settings in entries.items():
        spec.add(name, **settings)
    return explain_plan(make_plan(graph, decide(graph, "full", spec, []), "full", "onnxruntime"), opset=opset)


def verdict(graph, layer, **entries):
    found = explained(graph, **entries).for_layer(layer)
    return found.rule.removeprefix("ORT-"), found.status


def operation(kind, *, constant, before=CONV, **entries):
    """Judge an operation with a constant behind a layer, with a ReLU behind it."""
    maker = GraphMaker()
    maker.add(*before, "image")
    maker.add(kind, "made", before[1], is_operation=True, settings={"constant_shape": constant})
    maker.add("ReLU", "relu", "made")
    found = explained(maker.graph("relu"), **entries)
    return [found.for_layer(name).rule.removeprefix("ORT-") for name in (before[1], "made", "relu")]


class TestParts:
    def test_what_is_folded_follows_its_layer(self):
        row = (CONV, ("BatchNormalization", "norm"), ("ReLU", "relu"))
        assert verdict(chain(*row), "norm") == ("FUSED", "int8")
        found = explained(chain(*row), conv=OFF).for_layer("norm")
        assert (found.rule, found.reason) == ("ORT-FOLD", "folded into 'conv', which runs in float")

    def test_a_constant_per_channel_is_a_part_of_the_bias(self):
        assert operation("Add", constant=[4]) == ["INTEGER", "FUSED", "FUSED"]
        assert operation("Add", constant=[4], conv=OFF) == ["WEIGHT", "FOLD", "ACTIVATION"]

    def test_a_constant_of_other_sizes_is_a_sum_of_its_own(self):
        assert operation("Add", constant=[8, 8, 1])[1] == "OPERANDS"

    def test_the_reason_names_what_keeps_a_relu_in_float(self):
        found = explained(chain(("Softmax", "soft"), ("ReLU", "relu"))).for_layer("relu")
        assert found.reason == "no integer kernel stands before it that could absorb it"
        assert "ELU" in explained(chain(("ELU", "elu"))).for_layer("elu").class_name
        assert "computed in float; only ReLU is fused" in explained(chain(("ELU", "elu"))).for_layer("elu").reason


class TestProducts:
    def dense(self, shape, *, bias=True, activation="relu", **entries):
        weights = (Weight("kernel", (4, 4)), *([Weight("bias", (4,))] if bias else []))
        maker = GraphMaker(shape=shape)
        maker.add("Dense", "dense", "image", weights=weights, shape=shape)
        maker.add("Activation", "act", "dense", settings={"activation": activation}, shape=shape)
        maker.add("Dense", "next", "act", weights=weights, shape=shape)
        return explained(maker.graph("next"), **entries)

    @pytest.mark.parametrize("shape", [(None, 4), (None, 7, 4)])
    @pytest.mark.parametrize("bias", [False, True])
    def test_a_float_weight_leaves_a_product_and_its_activation_in_float(self, shape, bias):
        found = self.dense(shape, bias=bias, dense={"quantize_weight": False}, act=OUTPUT)
        assert (found.for_layer("dense").rule, found.for_layer("dense").status) == ("ORT-WEIGHT", "float")
        assert found.for_layer("act").status == "float"

    def test_a_float_input_leaves_the_weights_to_be_read(self):
        found = explained(chain(("Dense", "dense")), dense={"quantize_input": False}).for_layer("dense")
        assert (found.rule, found.status) == ("ORT-WEIGHT-ONLY", "float")
        assert found.fix == ({"name": "dense", "quantize_input": True, "quantize_weight": True},)

    @pytest.mark.parametrize(
        ("bias", "reason"),
        [(True, "the bias of 'dense' is added to them"), (False, "the kernel of 'dense' returns them")],
    )
    def test_a_relu_behind_floats_says_whose(self, bias, reason):
        found = self.dense((None, 7, 4), bias=bias, next=OFF).for_layer("act")
        assert found.rule == "ORT-ACTIVATION"
        assert found.reason == f"it follows floats: {reason}"

    def test_few_bits_are_packed_by_the_opset(self):
        few = {"quantize_config": LayerQuantizeConfig(weight={"num_bits": 4})}
        for layer in (CONV, ("Dense", "conv")):
            found = [explained(chain(layer, NEXT), opset, conv=few).for_layer("conv").rule for opset in (20, 21)]
            assert found == ["ORT-INTEGER", "ORT-GRID"]

    @pytest.mark.parametrize(("kind", "name"), [("Conv2D", "conv"), ("Dense", "dense")])
    def test_more_than_8_bits_have_no_kernel(self, kind, name):
        wide = {"quantize_config": LayerQuantizeConfig(weight={"num_bits": 9})}
        found = explained(chain((kind, name)), **{name: wide}).for_layer(name)
        assert (found.rule, found.reason) == (
            "ORT-GRID",
            f"'{name}/kernel' has more than 8 bits, for which there are no integer kernels",
        )


class TestBlocks:
    def dense(self, size, rows=64, *, calls=1, bits=4, quantize_input=False):
        maker = GraphMaker(shape=(None, rows))
        weights, last = (Weight("kernel", (rows, rows)),), "image"
        for number in range(calls):
            name = f"dense#{number}" if number else "dense"
            last = maker.add("Dense", name, last, layer="dense", weights=weights, shape=(None, rows))
        config = LayerQuantizeConfig(weight={"num_bits": bits, "per_axis": True, "axis": 0, "block_size": size})
        found = explained(maker.graph(last), dense={"quantize_input": quantize_input, "quantize_config": config})
        return found.for_layer("dense")

    @pytest.mark.parametrize("size", [16, 32])
    def test_the_kernel_takes_powers_of_two_from_16_on(self, size):
        found = self.dense(size)
        assert (found.rule, found.status) == ("ORT-BLOCKS", "int8")
        assert "its weights are read as int4/blocks" in found.reason

    def test_it_takes_float_inputs_of_one_product(self):
        assert self.dense(32, quantize_input=True).rule == "ORT-BLOCKS-INPUT"
        shared = self.dense(32, calls=2)
        assert (shared.rule, shared.status) == ("ORT-BLOCKS-SHARED", "float")
        assert "called 2 times" in shared.reason

    def test_one_block_of_up_to_4_bits_is_a_block(self):
        assert self.dense(64).rule == "ORT-BLOCKS"
        assert self.dense(64, bits=8).rule == "ORT-WEIGHT-ONLY"  # a scale per output


class TestActivations:
    def between(self, activation, shape=IMAGE, **entries):
        maker = GraphMaker(shape=shape)
        maker.add("ReLU", "first", "image", shape=shape)
        maker.add("Activation", "act", "first", settings={"activation": activation}, shape=shape)
        return explained(maker.graph("act"), **entries).for_layer("act")

    @pytest.mark.parametrize("name", ["sigmoid", "leaky_relu", "softmax"])
    def test_kernels_between_pairs(self, name):
        both = {"act": {"quantize_output": True}}
        assert self.between(name, **both).rule == "ORT-INTEGER"
        assert self.between("tanh", **both).rule == "ORT-ACTIVATION"
        behind = self.between(name, act=OUTPUT)
        assert (behind.rule, "its input is not quantized" in behind.reason) == ("ORT-ACTIVATION", True)
        before = self.between(name, act={"quantize_input": True})
        assert "its output has no pair that all readers share" in before.reason
        assert before.fix == ({"name": "act", "quantize_weight": False, "quantize_output": True},)

    def test_a_softmax_of_one_element_has_a_wrong_kernel(self):
        one = (None, 4, 1)
        found = self.between("softmax", one, act={"quantize_output": True})
        assert "along an axis of one element is always 1" in found.reason
        assert self.between("sigmoid", one, act={"quantize_output": True}).rule == "ORT-INTEGER"

    def test_wide_tensors_have_none(self):
        wide = LayerQuantizeConfig(activation={"num_bits": 16})
        found = self.between("sigmoid", act={"quantize_output": True, "quantize_config": wide})
        assert (found.rule, found.reason) == ("ORT-GRID", "'first' has more than 8 bits")


class TestMergesAndMovements:
    def merged(self, kind, inputs, *, settings=None, is_operation=False, **entries):
        maker = GraphMaker()
        for name in "abc":
            maker.add("ReLU", name, "image")
        maker.add(kind, "merge", *inputs, settings=settings or {}, is_operation=is_operation)
        maker.add("Conv2D", "next", "merge")
        return explained(maker.graph("next"), **entries).for_layer("merge")

    def test_every_operand_must_be_quantized(self):
        one = self.merged("Add", "ab", merge={"quantization_index": [0]})
        assert (one.rule, one.reason) == ("ORT-INPUT", "input 1 is not quantized")
        assert self.merged("Add", "ab", merge={}).rule == "ORT-INTEGER"
        assert self.merged("Concatenate", "abc", merge={}).rule == "ORT-INTEGER"
        assert self.merged("Multiply", "abc", merge={}).rule == "ORT-OPERANDS"

    def test_a_product_of_tensors_may_return_floats(self):
        found = self.merged("Matmul", "ab", is_operation=True, merge={}, next=OFF)
        assert (found.rule, found.reason) == ("ORT-INTEGER", "both operands are quantized; the result may be float")

    def test_the_scaled_sum_of_inception_has_a_kernel_where_the_scale_is_1(self):
        assert self.merged("CustomScaleLayer", "ab", settings={"scale": 0.5}, merge={}).rule == "ORT-NO-KERNEL"
        found = self.merged("CustomScaleLayer", "ab", settings={"scale": 1}, merge={"quantization_index": [0]})
        assert found.rule == "ORT-INPUT"

    def test_paddings_are_computed_in_float(self):
        found = verdict(chain(CONV, ("ZeroPadding2D", "pad"), ("Softmax", "soft")), "pad")
        assert found == ("NO-KERNEL", "float")

    def test_only_nearest_neighbours_are_chosen_from_integers(self):
        for interpolation, rule in (("nearest", "INTEGER"), ("bilinear", "NO-KERNEL")):
            graph = chain(CONV, ("UpSampling2D", "up", {"interpolation": interpolation}), NEXT)
            assert verdict(graph, "up")[0] == rule
        assert verdict(chain(CONV, ("UpSampling2D", "up"), NEXT), "up")[0] == "INTEGER"

    def test_a_pool_needs_a_quantized_input_and_one_scale(self):
        found = explained(chain(("Softmax", "soft"), ("MaxPooling2D", "pool"), NEXT), next=OFF).for_layer("pool")
        assert (found.rule, found.status) == ("ORT-INPUT", "float")
        assert found.fix == ({"name": "pool", "quantize_input": True, "quantize_weight": False},)
        behind = explained(chain(CONV, ("MaxPooling2D", "pool"), ("Softmax", "soft"))).for_layer("pool")
        assert behind.rule == "ORT-INTEGER"  # the DequantizeLinear moves behind it

    def test_what_is_not_visible_counts_as_float(self):
        maker = GraphMaker()
        maker.add("Conv2D", "conv", "image")
        maker.add("Mine", "mine", "conv", opaque="a layer of the user's own")
        found = explained(maker.graph("mine")).for_layer("mine")
        assert (found.rule, found.reason) == ("ORT-OPAQUE", "a layer of the user's own")
