import keras
import pytest
from keras import layers
from mock_graphs import GraphMaker, chain, residual
from small_models import residual_net

import qdq_workbench as qdq
from qdq_workbench.errors import SpecError
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.runtimes import explain_plan


def explained(graph, target, **entry):
    spec = qdq.QuantizationSpec()
    if entry:
        spec.add(**entry)
    return explain_plan(make_plan(graph, decide(graph, "full", spec, []), "full", target))


CONV_NET = (
    ("Conv2D", "conv"),
    ("BatchNormalization", "norm"),
    ("ReLU", "relu"),
    ("MaxPooling2D", "pool"),
    ("Dense", "head"),
)


class TestOnnxRuntime:
    def test_a_plain_network_runs_on_integers(self):
        found = explained(chain(*CONV_NET), "onnxruntime")
        assert {entry.layer: entry.rule for entry in found.layers} == {
            "conv": "ORT-INTEGER",
            "norm": "ORT-FUSED",
            "relu": "ORT-FUSED",
            "pool": "ORT-INTEGER",
            "head": "ORT-INTEGER",
        }
        assert found.counts == {"int8": 5, "partial": 0, "float": 0}

    @pytest.mark.parametrize(
        ("flags", "rule"),
        [({"quantize_weight": False}, "ORT-WEIGHT"), ({"quantize_input": False}, "ORT-INPUT")],
    )
    def test_what_the_user_switched_off_is_named_and_can_be_mended(self, flags, rule):
        graph = chain(*CONV_NET[:3])
        found = explained(graph, "onnxruntime", name="conv", **flags)
        assert found.for_layer("conv").rule == rule
        assert found.for_layer("relu").status == found.for_layer("norm").status == "float"
        fix = found.for_layer("conv").fix[0]
        assert explained(graph, "onnxruntime", **fix).for_layer("conv").status == "int8"

    def test_a_float_weight_between_quantized_tensors_stays_in_float(self):
        graph = chain(("Conv2D", "conv"), ("Dense", "head"))
        found = explained(graph, "onnxruntime", name="conv", quantize_weight=False, quantize_output=True)
        assert (found.for_layer("conv").status, found.for_layer("conv").rule) == ("float", "ORT-WEIGHT")

    def test_activations(self):
        silu = chain(("Conv2D", "conv", {"activation": "silu"}))
        assert explained(silu, "onnxruntime").for_layer("conv").rule == "ORT-ACTIVATION"
        apart = chain(("Conv2D", "conv"), ("Activation", "act", {"activation": "silu"}))
        found = explained(apart, "onnxruntime")
        assert (found.for_layer("conv").status, found.for_layer("act").status) == ("int8", "float")

    def test_sums_of_three(self):
        maker = GraphMaker()
        for name in "abc":
            maker.add("Conv2D", name, "image")
        maker.add("Add", "sum", "a", "b", "c")
        assert explained(maker.graph("sum"), "onnxruntime").for_layer("sum").rule == "ORT-OPERANDS"

    def test_a_shared_layer_whose_calls_differ_is_partial(self):
        maker = GraphMaker()
        maker.add("UpSampling2D", "up", "image")
        maker.add("Conv2D", "conv", "up")
        maker.add("UpSampling2D", "up#1", "conv", layer="up")
        maker.add("Conv2D", "last", "up#1")
        found = explained(maker.graph("last"), "onnxruntime")
        assert found.for_layer("up").status == "partial"

    def test_what_nobody_knows(self):
        found = explained(chain(("Mystery", "mystery")), "onnxruntime").for_layer("mystery")
        assert (found.status, found.rule, found.fix) == ("float", "ORT-NO-KERNEL", ())
        assert found.documentation.startswith("https://onnxruntime.ai/")


class TestTensorRT:
    def test_the_skip_branch_decides_about_the_add(self):
        graph = residual("Conv2D", "BatchNormalization")
        assert explained(graph, "tensorrt").for_layer("add").rule == "TRT-FLOAT"
        fix = explained(graph, "tensorrt").for_layer("add").fix[0]
        assert fix["quantization_index"] == [1]
        assert explained(graph, "tensorrt", **fix).for_layer("add").rule == "TRT-SKIP"

    def test_both_operands_quantized_is_not_fused(self):
        found = explained(residual("Conv2D"), "tensorrt", name="add", quantize_output=True).for_layer("add")
        assert found.rule == "TRT-BOTH-SIDES"
        assert "kernel of its own" in found.reason

    @pytest.mark.parametrize(
        ("config", "expected"),
        [
            ({"activation": {"symmetric": False}}, '"symmetric": True'),
            ({"activation": {"signed": False}}, '"signed": True'),
            ({"activation": {"num_bits": 16}}, '"num_bits": 8'),
            ({"weight": {"symmetric": False}}, '"symmetric": True'),
            ({"weight": {"num_bits": 12}}, '"num_bits": 8'),
        ],
    )
    def test_a_grid_that_its_parser_refuses_is_named_with_the_setting_to_change(self, config, expected):
        graph = chain(("Conv2D", "conv"), ("ReLU", "relu"))
        found = explained(graph, "tensorrt", name="conv", quantize_config=qdq.LayerQuantizeConfig(**config))
        conv = found.for_layer("conv")
        assert (conv.rule, conv.status) == ("TRT-GRID", "float")
        assert expected in conv.advice
        fine = qdq.LayerQuantizeConfig(weight={"num_bits": 4}, activation={"narrow_range": True})
        fine = explained(graph, "tensorrt", name="conv", quantize_config=fine)
        assert [fine.for_layer(name).rule for name in ("conv", "relu")] == ["TRT-GEMM", "TRT-FUSED"]

    @pytest.mark.parametrize("class_name", ["Add", "Multiply", "Subtract"])
    def test_a_constant_has_no_pair_so_what_computes_with_it_is_float(self, class_name):
        maker = GraphMaker()
        maker.add("ReLU", "relu", "image")
        maker.add(class_name, "scaled", "relu", is_operation=True)
        maker.add("Conv2D", "conv", "scaled")
        found = explained(maker.graph("conv"), "tensorrt", name="scaled", quantize_output=True).for_layer("scaled")
        assert (found.rule, found.status) == ("TRT-OPERANDS", "float")
        assert "constant" in found.reason


def sequences() -> keras.Model:
    steps = keras.Input((4, 6, 6, 3), name="steps")
    x = layers.TimeDistributed(layers.Conv2D(4, 3), name="conv")(steps)
    x = layers.TimeDistributed(layers.SeparableConv2D(2, 3), name="apart")(x)
    x = layers.TimeDistributed(layers.Flatten(), name="flat")(x)
    x = layers.TimeDistributed(keras.Sequential([layers.Dense(4), layers.Dense(3)]), name="each")(x)
    x = layers.LSTM(4, return_sequences=True, name="lstm")(x)
    x = layers.Bidirectional(layers.RNN(layers.GRUCell(2), return_sequences=True), name="both")(x)
    return keras.Model(steps, layers.TimeDistributed(layers.Dense(3), name="head")(x))


class TestTensorRTOnSequences:
    def test_the_one_product_inside_a_time_distributed_layer_is_judged_as_if_it_stood_alone(self):
        found = qdq.explain(sequences(), "tensorrt")
        assert [(found.for_layer(name).rule, found.for_layer(name).status) for name in ("conv", "head")] == [
            ("TRT-GEMM", "int8")
        ] * 2
        assert found.for_layer("conv").reason == "the Conv2D inside: input and weights are quantized"

    def test_its_fix_helps(self):
        spec = qdq.QuantizationSpec()
        spec.add("conv", quantize_input=False)
        plan = qdq.plan_placement(sequences(), quantization_spec=spec, target="tensorrt")
        found = qdq.explain(plan)
        assert (found.for_layer("conv").rule, found.for_layer("conv").status) == ("TRT-INPUT", "float")
        plan = qdq.plan_placement(sequences(), quantization_spec=found.apply_fixes(), target="tensorrt")
        assert qdq.explain(plan).for_layer("conv").rule == "TRT-GEMM"

    def test_several_products_inside_have_no_pairs_between_them(self):
        found = qdq.explain(sequences(), "tensorrt")
        for name in ("apart", "each"):
            entry = found.for_layer(name)
            assert (entry.rule, entry.status, entry.fix) == ("TRT-INSIDE", "float", ())
            assert "give each of its convolutions and products a TimeDistributed of its own" in entry.advice
        assert "SeparableConv2D 'layer'" in found.for_layer("apart").reason

    def test_recurrent_layers_are_float_and_the_importers_own_table_says_so(self):
        found = qdq.explain(sequences(), "tensorrt")
        for name in ("lstm", "both"):
            entry = found.for_layer(name)
            assert (entry.rule, entry.status) == ("TRT-RECURRENT", "float")
            assert entry.documentation.endswith("operators.md")

    def test_what_becomes_of_float_parts_is_said_per_version(self):
        """The flag for FP16 went with weak typing: an advice without its version is of no use in 11."""
        reason = qdq.explain(sequences(), "tensorrt").for_layer("lstm").reason
        of_10, of_11 = reason.split("TensorRT 10.x", 1)[1].split("TensorRT 11", 1)
        assert "BuilderFlag.FP16" in of_10
        assert "deprecated since 10.12" in of_10
        assert "no such flag" in of_11
        assert "float32 runs in float32" in of_11


def test_models_plans_and_unknown_layers():
    model = residual_net()
    assert qdq.explain(model).target == "onnxruntime"
    plan = qdq.plan_placement(model, target="tensorrt")
    assert qdq.explain(plan).target == "tensorrt"
    assert qdq.explain(plan, "onnxruntime").for_layer("conv").status == "int8"
    assert qdq.explain(qdq.quantize_model(model), "tensorrt").for_layer("conv").status == "int8"
    assert "Conv2D" in qdq.explain(model).summary()
    assert qdq.explain(model).to_dict()["counts"]["int8"] > 0
    with pytest.raises(SpecError, match="'conv'"):
        qdq.explain(model).for_layer("cnv")


@pytest.mark.parametrize("target", ["onnxruntime", "openvino", "tensorrt"])
def test_what_joins_a_constant_in_float_is_float(target):
    maker = GraphMaker()
    conv = maker.add("Conv2D", "conv", "image")
    for name, settings in (("joined", {"joins_constants": True}), ("plain", {})):
        maker.add("Concatenate", name, conv, is_operation=True, settings={"axis": -1, **settings})
    found = explained(maker.graph("joined", "plain"), target, name=["joined", "plain"], quantize_output=True)
    assert (found.for_layer("joined").status, found.for_layer("plain").status) == ("float", "int8")
    assert "joins constants" in found.for_layer("joined").reason


@pytest.fixture(scope="module")
def found():
    """What TensorRT does with a layer in INT8, and some that float16 suits, and some that it does not."""
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(4, 3, name="conv")(image)
    x = layers.LayerNormalization(name="norm")(layers.Activation("elu", name="bend")(x))
    x = layers.Reshape((6, 24), name="rows")(x)
    model = keras.Model(image, layers.Softmax(name="scores")(layers.LSTM(3, name="lstm")(x)))
    return qdq.explain(model, target="tensorrt")


class TestTensorrtBuilds:
    def test_versions_say_which_layers_are_int8_half_and_float32(self, found):
        flags, brain_flags, plain, half, brain = found.builds
        rest = ("bend", "norm", "rows", "lstm", "scores")
        assert (flags.version, flags.int8, flags.half, flags.float32) == ("10.x", ("conv",), rest, ())
        assert (plain.version, plain.int8, plain.half, plain.float32) == ("11.x", ("conv",), (), rest)
        assert (half.float_type, half.int8, half.half) == ("float16", ("conv",), ("bend", "rows"))
        assert half.float32 == tuple(half.reasons) == ("norm", "lstm", "scores")
        assert "state" in half.reasons["lstm"]
        for one, other in ((flags, brain_flags), (half, brain)):
            assert (one.version, one.int8, one.half, one.float32, one.reasons) == (
                other.version, other.int8, other.half, other.float32, other.reasons,
            )  # fmt: skip
        assert (brain_flags.float_type, brain.float_type) == ("float32", "bfloat16")

    def test_the_summary_tells_how_to_build(self, found):
        lines = found.summary().splitlines()
        lines = lines[next(i for i, line in enumerate(lines) if line.startswith("TensorRT")) - 1 :]
        assert lines[1].endswith("trtexec --onnx=model.onnx --int8 --fp16  ->  1 INT8, 5 half")
        assert lines[2].endswith("trtexec --onnx=model.onnx --int8 --bf16  ->  1 INT8, 5 half")
        assert lines[4].endswith("file in float16: trtexec --onnx=model.onnx  ->  1 INT8, 2 half, 3 float32")
        assert lines[5].startswith("  float32: norm: a normalization")
        assert "TensorRT 11.x, file in bfloat16: trtexec --onnx=model.onnx  ->  1 INT8, 2 half, 3 float32" in lines
        assert [build["version"] for build in found.to_dict()["builds"]] == ["10.x"] * 2 + ["11.x"] * 3

    def test_other_targets_have_none(self, found):
        other = qdq.explain(found.plan, target="onnxruntime")
        assert other.builds == ()
        assert "builds" not in other.to_dict()
        assert "trtexec" not in other.summary()
