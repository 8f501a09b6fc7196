import keras
import numpy as np
import pytest
from keras import layers
from mock_graphs import GraphMaker, chain, residual
from small_models import nested_net, residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.errors import SpecError
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.runtimes import explain_plan
from qdq_workbench.verification import count_integer_kernels


def explained(graph, target, **entry):
    spec = qdq.QuantizationSpec()
    if entry:
        spec.add(**entry)
    return explain_plan(make_plan(graph, decide(graph, "full", spec, []), "full", target), target)


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
        graph = chain(*CONV_NET)
        found = explained(graph, "onnxruntime", name="conv", **flags)
        assert found.for_layer("conv").rule == rule
        assert found.for_layer("relu").status == found.for_layer("norm").status == "float"
        fix = found.for_layer("conv").fix[0]
        assert explained(graph, "onnxruntime", **fix).for_layer("conv").status == "int8"

    def test_a_float_weight_between_quantized_tensors_is_rounded_by_the_runtime(self):
        graph = chain(("Conv2D", "conv"), ("Dense", "head"))
        found = explained(graph, "onnxruntime", name="conv", quantize_weight=False, quantize_output=True)
        assert (found.for_layer("conv").status, found.for_layer("conv").rule) == ("int8", "ORT-OWN-WEIGHT")

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
        maker.add("MaxPooling2D", "pool", "image")
        maker.add("Conv2D", "conv", "pool")
        maker.add("MaxPooling2D", "pool#1", "conv", layer="pool")
        maker.add("Conv2D", "last", "pool#1")
        found = explained(maker.graph("last"), "onnxruntime")
        assert found.for_layer("pool").status == "partial"

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


def branching_net():
    image = keras.Input((8, 8, 4), name="image")
    left = layers.DepthwiseConv2D(3, padding="same", name="depthwise")(image)
    left = layers.ReLU(max_value=6.0, name="relu6")(left)
    right = layers.MaxPooling2D(3, strides=1, padding="same", name="pool")(image)
    right = layers.Conv2D(4, 1, activation="silu", name="silu_conv")(right)
    joined = layers.Concatenate(name="concat")([left, right])
    scaled = layers.Multiply(name="scale")([joined, layers.Conv2D(8, 1, name="gate")(joined)])
    mean = layers.AveragePooling2D(2, name="mean")(scaled)
    return keras.Model(image, layers.Dense(3, name="head")(layers.Flatten(name="flatten")(mean)), name="branching")


KERNELS = (
    "Conv2D",
    "DepthwiseConv2D",
    "Dense",
    "Add",
    "Multiply",
    "Concatenate",
    "AveragePooling2D",
    "GlobalAveragePooling2D",
)


def disagreements(q_model, path):
    """Return the layers whose explanation differs from ONNX Runtime's optimized graph."""
    qdq.export_onnx(q_model, path)
    kernels = count_integer_kernels(path)
    found = []
    for entry in qdq.explain(q_model.plan).layers:
        name = entry.layer.replace("/", ".")
        runs = {
            status
            for status, nodes in (("int8", kernels.integer_nodes), ("float", kernels.float_nodes))
            if any(node == name or node.startswith(f"{name}/") for node in nodes)
        }
        expected = {"int8", "float"} if entry.status == "partial" else {entry.status}
        if entry.class_name in KERNELS and runs and runs != expected:
            found.append((entry.layer, entry.status, entry.rule, runs))
    return found


@pytest.mark.parametrize("make", [residual_net, branching_net, nested_net])
def test_the_explanation_equals_what_onnx_runtime_does(make, tmp_path):
    """Random toggles; every verdict about a layer with kernels of its own is looked up in the optimized graph."""
    model = make()
    generator = np.random.default_rng(7)
    names = [node.layer for node in qdq.build_graph(model).nodes if node.class_name in KERNELS]
    for attempt in range(5):
        spec = qdq.QuantizationSpec()
        for name in dict.fromkeys(names):
            if attempt and generator.random() < 0.4:
                flags = {key: bool(generator.random() < 0.6) for key in ("quantize_input", "quantize_weight")}
                spec.add(name, **flags, quantize_output=bool(generator.random() < 0.3))
        q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
        qdq.calibrate(q_model, samples(model), verbose=False)
        assert disagreements(q_model, tmp_path / "model.onnx") == [], spec
