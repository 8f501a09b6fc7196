"""What targets add to the user's decisions, by graphs made by hand; the usual cases are in `test_planner.py`."""

import pytest
from mock_graphs import GraphMaker, chain

from qdq_workbench import LayerQuantizeConfig
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.spec import QuantizationSpec


def planned(graph, target="onnxruntime", mode="full", **entries):
    spec = QuantizationSpec()
    for name, settings in entries.items():
        spec.add(name, **settings)
    return make_plan(graph, decide(graph, mode, spec, []), mode, target)


def outputs(plan):
    """Return the author of every pair for all readers of a tensor."""
    return {placement.tensor: placement.author for placement in plan.placements if placement.site == "output"}


def groups(plan):
    return {pair.name: pair.scale_group for pair in plan.tensors if pair.scale_group}


class TestIntegerKernels:
    def test_a_product_that_may_return_floats_gets_a_pair_where_integers_are_read(self):
        assert outputs(planned(chain(("Dense", "one"), ("Dense", "two")))) == {"one": "target"}

    def test_a_pair_of_the_user_stays_the_users(self):
        graph = chain(("Conv2D", "conv"), ("Conv2D", "next"))
        assert outputs(planned(graph, conv={"quantize_output": True})) == {"conv": "spec[0]", "next": "target"}

    def test_a_multiplication_by_three_operands_gets_none(self):
        maker = GraphMaker("a", "b", "c")
        maker.add("Multiply", "two", "a", "b")
        maker.add("Multiply", "three", "a", "b", "c")
        plan = planned(maker.graph("two", "three"), two={}, three={})
        assert outputs(plan) == {"two": "target"}

    @pytest.mark.parametrize(("target", "pair"), [("onnxruntime", None), ("litert", "target")])
    def test_an_activation_between_pairs_gets_one_behind_it_where_no_mixed_graph_runs(self, target, pair):
        graph = chain(("Conv2D", "conv"), ("Activation", "act", {"activation": "sigmoid"}))
        assert outputs(planned(graph, target)).get("act") == pair

    def test_an_activation_without_an_integer_kernel_gets_none(self):
        graph = chain(("Conv2D", "conv"), ("Activation", "act", {"activation": "mish"}))
        assert outputs(planned(graph, "litert")) == {"conv": "target"}

    def test_the_settings_for_an_output_hold_for_the_pair_of_the_target(self):
        settings = LayerQuantizeConfig(output={"num_bits": 6, "quantizer": "lsq"})
        graph = chain(("Conv2D", "conv"), ("ReLU", "relu"), ("Conv2D", "next"))
        plan = planned(
            graph, conv={"quantize_config": settings}, relu={"quantize_input": False, "quantize_config": settings}
        )
        pair = plan.output_placement("relu")
        assert (pair.author, pair.quantizer.num_bits, pair.method.name) == ("target", 6, "lsq")
        assert plan.output_placement("next").quantizer.num_bits == 8
        assert plan.output_placement("conv") is None

    def test_the_reason_names_the_runtime_the_class_and_the_call(self):
        plan = planned(chain(("Conv2D", "conv"), ("ReLU", "relu"), ("MaxPooling2D", "pool"), ("Conv2D", "next")))
        told = {placement.tensor: placement.reason for placement in plan.placements if placement.author == "target"}
        assert "ONNX Runtime" in told["relu"]
        assert "runs Conv2D 'conv' on integers only when its output is quantized too" in told["relu"]
        assert "runs MaxPooling2D 'pool' on integers only when its input and output share one scale" in told["pool"]


class TestOneScale:
    def test_a_pool_that_nothing_on_integers_reads_gets_no_second_pair(self):
        plan = planned(chain(("Conv2D", "conv"), ("MaxPooling2D", "pool"), ("Softmax", "scores")))
        assert outputs(plan) == {"conv": "target"}
        assert groups(plan) == {}

    @pytest.mark.parametrize("between", [["Dropout"], ["Dropout", "GaussianNoise"]])
    @pytest.mark.parametrize(("reader", "grouped"), [("Conv2D", {"conv", "1"}), ("Softmax", set())])
    def test_what_has_no_operator_in_the_file_hides_no_reader(self, between, reader, grouped):
        gone = [(kind, str(len(between) - index)) for index, kind in enumerate(between)]
        plan = planned(chain(("Conv2D", "conv"), ("MaxPooling2D", "pool"), *gone, (reader, "last")))
        assert set(groups(plan)) == grouped

    def test_a_pair_of_the_user_behind_a_pool_shares_its_scale_all_the_same(self):
        graph = chain(("Conv2D", "conv"), ("MaxPooling2D", "pool"), ("Softmax", "scores"))
        assert groups(planned(graph, pool={"quantize_output": True})) == {"conv": "conv", "pool": "conv"}

    def test_several_in_a_row_have_the_name_of_the_first(self):
        kinds = ("MaxPooling2D", "Permute", "Flatten")
        graph = chain(("Conv2D", "conv"), *((kind, kind.lower()) for kind in kinds), ("Dense", "head"))
        assert groups(planned(graph)) == dict.fromkeys(("conv", "maxpooling2d", "permute", "flatten"), "conv")

    def padded(self, *between, fill="ZeroPadding2D"):
        row = [
            ("Conv2D", "conv"),
            ("ReLU", "relu"),
            (fill, "pad"),
            *between,
            ("MaxPooling2D", "pool"),
            ("Conv2D", "next"),
        ]
        return chain(*row)

    @pytest.mark.parametrize("between", [(), (("Dropout", "drop"),), (("Dropout", "drop"), ("Dropout", "more"))])
    def test_a_pool_that_takes_a_padding_shares_the_scale_in_front_of_it(self, between):
        plan = planned(self.padded(*between))
        assert groups(plan) == {"relu": "relu", "pool": "relu"}
        assert {"pad", "drop"}.isdisjoint(pair.tensor for pair in plan.tensors)

    def test_a_pool_whose_padding_stays_shares_none(self):
        plan = planned(
            chain(("Conv2D", "conv"), ("ZeroPadding2D", "pad"), ("MaxPooling2D", "pool"), ("Conv2D", "next"))
        )
        assert groups(plan) == {}  # zeros would change a maximum of negative values

    def test_a_padding_behind_floats_shares_none(self):
        graph = chain(("ReLU", "relu"), ("ZeroPadding2D", "pad"), ("MaxPooling2D", "pool"), ("Conv2D", "next"))
        assert groups(planned(graph)) == {}

    def test_a_file_that_keeps_the_padding_has_a_pair_behind_it(self):
        assert groups(planned(self.padded(), "litert")) == dict.fromkeys(("relu", "pad", "pool"), "relu")
        plan = planned(self.padded(), "litert", pad={"quantize_input": False})
        assert (outputs(plan), groups(plan)) == ({"relu": "target", "next": "target"}, {})


def joined(first, second, *, behind="Conv2D"):
    maker = GraphMaker()
    maker.add("Conv2D", "a", "image")
    maker.add("Conv2D", "b", "image")
    maker.add(first, "c", "a")
    maker.add(second, "d", "b")
    maker.add("Concatenate", "concat", "c", "d")
    maker.add(behind, "next", "concat")
    return maker.graph("next")


class TestBranches:
    def test_the_branches_of_a_named_concatenation_share_one_scale_with_its_result(self):
        assert groups(planned(joined("ReLU", "ReLU"), concat={})) == dict.fromkeys(("c", "d", "concat"), "c")

    def test_without_an_integer_reader_the_result_has_no_part_in_it(self):
        graph = joined("ReLU", "ReLU", behind="Softmax")
        assert groups(planned(graph, "tensorrt", concat={})) == dict.fromkeys(("c", "d"), "c")

    def test_a_tensor_shares_no_scale_with_itself(self):
        maker = GraphMaker()
        maker.add("Concatenate", "concat", "image", "image")
        plan = planned(maker.graph("concat"), "tensorrt", concat={})
        assert [(pair.name, pair.scale_group) for pair in plan.tensors] == [("image", None)]

    def test_a_concatenation_that_nobody_named_joins_nothing(self):
        plan = planned(joined("ReLU", "ReLU"))
        assert outputs(plan)["concat"] == "target"
        assert groups(plan) == {}

    def test_a_concatenation_whose_output_alone_was_named_joins_nothing(self):
        assert groups(planned(joined("ReLU", "ReLU"), concat={"quantize_input": False, "quantize_output": True})) == {}

    @pytest.mark.parametrize(("target", "shared"), [("onnxruntime", False), ("tensorrt", True)])
    def test_a_branch_with_negative_values_shares_none_where_zero_must_be_the_lowest_integer(self, target, shared):
        plan = planned(joined("ReLU", "AveragePooling2D"), target, concat={})
        assert (groups(plan) != {}) is shared

    def test_branches_that_are_all_negative_share_one_where_zero_must_be_the_lowest_integer(self):
        graph = joined("AveragePooling2D", "AveragePooling2D")
        assert set(groups(planned(graph, concat={}))) == {"c", "d", "concat"}

    def test_what_shares_a_branchs_scale_counts_too(self):
        """The second concatenation would join the first one's signed branches to a ReLU."""
        maker = GraphMaker()
        maker.add("ReLU", "relu", "image")
        maker.add("Concatenate", "first", "image", "image")
        maker.add("Concatenate", "second", "relu", "relu")
        maker.add("Concatenate", "both", "first", "second")
        plan = planned(maker.graph("both"), first={}, second={}, both={})
        assert groups(plan) == {"image": "image", "first": "image", "relu": "relu", "second": "relu"}


class TestBehindDropout:
    row = (("Conv2D", "conv"), ("Dropout", "drop"), ("Conv2D", "next"))

    def test_two_pairs_with_nothing_between_them_become_one_behind(self):
        plan = planned(chain(*self.row))
        pairs = [pair.name for pair in plan.tensors if pair.kind == "activation"]
        assert pairs == ["image", "drop", "next"]
        moved = plan.output_placement("drop")
        assert (moved.author, moved.layer, moved.node) == ("target", "drop", "drop")

    def test_behind_several(self):
        graph = chain(("Conv2D", "conv"), ("Dropout", "drop"), ("GaussianNoise", "noise"), ("Conv2D", "next"))
        assert outputs(planned(graph)) == {"noise": "target", "next": "target"}

    def test_a_pair_of_the_user_does_not_move(self):
        plan = planned(chain(*self.row), conv={"quantize_output": True})
        assert outputs(plan) == {"conv": "spec[0]", "next": "target"}
        assert plan.input_placement("next", 0) is not None

    @pytest.mark.parametrize("config", [{"num_bits": 4}, {"quantizer": "lsq"}])
    def test_pairs_with_other_grids_or_methods_both_stay(self, config):
        plan = planned(chain(*self.row), next={"quantize_config": LayerQuantizeConfig(activation=config)})
        assert outputs(plan) == {"conv": "target", "next": "target"}
        assert plan.input_placement("next", 0).tensor == "drop"

    def test_a_dropout_whose_own_input_is_quantized_keeps_the_pair_in_front(self):
        assert outputs(planned(chain(*self.row), drop={})) == {"conv": "target", "next": "target"}

    @pytest.mark.parametrize("between", [["drop"], ["drop", "more"]])
    @pytest.mark.parametrize("other", [(), ("head",)])
    def test_a_pair_on_the_dropouts_own_input_is_the_one_that_a_reader_behind_it_reads(self, between, other):
        maker, last = GraphMaker(), "image"
        for name in between:
            maker.add("Dropout", name, last)
            last = name
        maker.add("MaxPooling2D", "pool", last)
        maker.add("Conv2D", "next", "pool")
        for name in other:  # its pair stands between the Dropout and this reader alone
            maker.add("Dense", name, last)
        plan = planned(maker.graph("next", *other), drop={})
        assert groups(plan) == {"image": "image", "pool": "image"}

    def test_a_tensor_that_is_read_elsewhere_too_keeps_its_pair(self):
        maker = GraphMaker()
        maker.add("Conv2D", "conv", "image")
        maker.add("Dropout", "drop", "conv")
        maker.add("Conv2D", "next", "drop")
        assert outputs(planned(maker.graph("next", "conv"))) == {"conv": "target", "next": "target"}

    def test_the_group_of_a_pair_that_moves_follows(self):
        maker = GraphMaker()
        maker.add("ReLU", "a", "image")
        maker.add("ReLU", "b", "image")
        maker.add("Concatenate", "concat", "a", "b")
        maker.add("Dropout", "drop", "concat")
        maker.add("Conv2D", "next", "drop")
        plan = planned(maker.graph("next"), concat={})
        assert groups(plan) == dict.fromkeys(("a", "b", "drop"), "a")
        assert {plan.range_owners[name] for name in ("a", "b", "drop")} == {"a"}


class TestModes:
    def test_in_partial_mode_what_is_named_is_completed_alone(self):
        graph = chain(("Conv2D", "conv"), ("MaxPooling2D", "pool"), ("Conv2D", "next"))
        both = {"conv": {}, "next": {}}
        assert outputs(planned(graph, mode="partial", **both)) == {"conv": "target", "next": "target"}
        assert "pool" in outputs(planned(graph, mode="partial", **both, pool={}))
        assert "pool" in outputs(planned(graph, **both))

    def test_what_was_named_to_stay_in_float_stays(self):
        graph = chain(("Conv2D", "conv"), ("MaxPooling2D", "pool"), ("Conv2D", "next"))
        assert "pool" not in outputs(planned(graph, pool={"quantize_input": False}))
