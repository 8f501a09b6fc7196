"""The rules for LiteRT, as rows and against the operators of converted files."""

import pytest
from mock_graphs import GraphMaker, chain
from small_models import nested_net, residual_net, samples
from target_models import inception_net, zoo_net

import qdq_workbench as qdq
from qdq_workbench.errors import ExportError
from qdq_workbench.export.litert.tflite_run import integer_operators
from qdq_workbench.graph.model_graph import Weight
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.runtimes import explain_plan
from qdq_workbench.runtimes.litert import RULES


def explained(graph, **entry):
    spec = qdq.QuantizationSpec()
    if entry:
        spec.add(**entry)
    return explain_plan(make_plan(graph, decide(graph, "full", spec, []), "full", "litert"))


@pytest.mark.parametrize(
    ("layers", "entry", "layer", "rule"),
    [
        ((("Conv2D", "c"), ("BatchNormalization", "b"), ("ReLU", "r")), {}, "c", "INTEGER"),
        ((("Conv2D", "c"), ("BatchNormalization", "b"), ("ReLU", "r")), {}, "b", "FUSED"),
        ((("Conv2D", "c"), ("BatchNormalization", "b"), ("ReLU", "r")), {}, "r", "FUSED"),
        ((("Conv2D", "c"), ("Softmax", "s")), {}, "s", "FIXED"),
        ((("Conv2D", "c"), ("Dropout", "d")), {}, "d", "VANISHES"),
        ((("Conv2D", "c"),), {"name": "c", "quantize_input": False}, "c", "WEIGHTS"),
        ((("Conv2D", "c"),), {"name": "c", "quantize_weight": False}, "c", "WEIGHT"),
        ((("Conv2D", "c", {"activation": "silu"}),), {}, "c", "ACTIVATION"),
        ((("Conv2D", "c"), ("Activation", "a", {"activation": "elu"})), {}, "a", "ACTIVATION"),
        ((("Conv2D", "c"), ("Activation", "a", {"activation": "silu"})), {}, "a", "INTEGER"),
        ((("Conv2D", "c"), ("MaxPooling2D", "m")), {}, "m", "SCALE"),
        ((("Conv2D", "c"), ("MaxPooling2D", "m"), ("Conv2D", "d")), {}, "m", "INTEGER"),
        ((("Mystery", "m"),), {}, "m", "NO-KERNEL"),
    ],
)
def test_rows(layers, entry, layer, rule):
    found = explained(chain(*layers), **entry).for_layer(layer)
    assert found.rule == f"LITERT-{rule}"
    assert found.documentation == RULES[found.rule].documentation


def test_an_embedding_reads_indices_not_floats():
    maker = GraphMaker("ids", shape=(None, 6), dtype="int32")
    graph = maker.graph(maker.add("Embedding", "words", "ids", weights=(Weight("embeddings", (20, 4)),)))
    found = explained(graph).for_layer("words")
    assert (found.rule, found.status) == ("LITERT-WEIGHTS", "float")
    assert found.reason == "its weights are integers in the file, its input holds indices of rows"


def test_a_sum_of_three_has_no_kernel():
    maker = GraphMaker()
    for name in "abc":
        maker.add("Conv2D", name, "image")
    maker.add("Add", "sum", "a", "b", "c")
    assert explained(maker.graph("sum")).for_layer("sum").rule == "LITERT-OPERANDS"


def test_branches_of_a_concatenation_share_one_scale_with_its_result():
    maker = GraphMaker()
    maker.add("Conv2D", "stem", "image")
    maker.add("Conv2D", "a", "stem")
    maker.add("MaxPooling2D", "b", "stem")
    maker.add("Concatenate", "joined", "a", "b")
    maker.add("Conv2D", "last", "joined")
    graph = maker.graph("last")
    plan = make_plan(graph, decide(graph, "full", None, []), "full", "litert")
    groups = {tensor.name: tensor.scale_group for tensor in plan.tensors if tensor.kind == "activation"}
    assert len({groups[name] for name in ("stem", "a", "b", "joined")}) == 1
    assert groups["last"] is None


OPERATORS = {
    "Conv2D": "CONV_2D",
    "DepthwiseConv2D": "DEPTHWISE_CONV_2D",
    "Conv2DTranspose": "TRANSPOSE_CONV",
    "Dense": "FULLY_CONNECTED",
    "Concatenate": "CONCATENATION",
    "MaxPooling2D": "MAX_POOL_2D",
    "AveragePooling2D": "AVERAGE_POOL_2D",
    "GlobalAveragePooling2D": "MEAN",
    "LeakyReLU": "LEAKY_RELU",
    "Softmax": "SOFTMAX",
}


def operators_on_integers(q_model, path):
    """Return, per operator, how many run in float and on integers: in the file, and by the explanation."""
    report = qdq.export_tflite(q_model, path)
    real = {operator: [0, 0] for operator in OPERATORS.values()}
    for operator, integer in integer_operators(report.path.read_bytes()):
        if operator in real:
            real[operator][integer] += 1
    said = {operator: [0, 0] for operator in OPERATORS.values()}
    explanation = qdq.explain(q_model)
    for node in q_model.plan.graph.nodes:
        if node.class_name in OPERATORS:
            said[OPERATORS[node.class_name]][explanation.for_layer(node.layer).status == "int8"] += 1
    return real, said


@pytest.mark.parametrize("make", [nested_net, zoo_net])
def test_the_explanation_equals_the_converted_file(make, tmp_path):
    model = make()
    q_model = qdq.quantize_model(model, target="litert")
    qdq.calibrate(q_model, samples(model), verbose=False)
    real, said = operators_on_integers(q_model, tmp_path / "model.tflite")
    assert real == said


def test_with_layers_switched_off_the_converter_does_at_least_what_is_said(tmp_path):
    """It quantizes weights by itself where both sides are quantized, so more may run on integers, never less."""
    model = residual_net()
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_weight=False)
    spec.add("head", quantize_input=False, quantize_weight=False)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="litert")
    qdq.calibrate(q_model, samples(model), verbose=False)
    real, said = operators_on_integers(q_model, tmp_path / "model.tflite")
    assert said["CONV_2D"][0] > 0
    assert all(real[operator][1] >= said[operator][1] for operator in said)


def test_a_concatenation_of_integers_and_floats_is_refused_by_name(tmp_path):
    model = inception_net()
    spec = qdq.QuantizationSpec()
    spec.add(["a_one", "b_three", "b_mean", "head"], quantize_input=False, quantize_weight=False)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="litert")
    qdq.calibrate(q_model, samples(model), verbose=False)
    with pytest.raises(ExportError, match=r"quantize all of its inputs(.|\n)*ConcatV2 at .*a_concat"):
        qdq.export_tflite(q_model, tmp_path / "model.tflite")
