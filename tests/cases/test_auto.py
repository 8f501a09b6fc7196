"""`AutoQDQCase` and `ConcatQDQCase`: by structure on hand-built graphs, and measured in ONNX Runtime."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from mock_graphs import GraphMaker, residual
from small_models import residual_net, samples
from target_models import dense_net, inception_net, zoo_net

import qdq_workbench as qdq
from qdq_workbench import cases
from qdq_workbench.errors import TargetError
from qdq_workbench.placement.targets import get_target, target_names
from qdq_workbench.planning import retarget_plan
from qdq_workbench.spec import QuantizationSpec
from qdq_workbench.verification import count_integer_kernels


def entries(case, graph, spec=None):
    found = case.case_for_graph(graph, spec or QuantizationSpec())
    return {entry.name: (entry.quantization_index, entry.quantize_output) for entry in found.layers}


def squeeze_and_excite(last="Conv2D"):
    """image -> conv -> scale by its own gate -> pool -> join with conv -> last"""
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("Conv2D", "squeeze", "conv")
    maker.add("Activation", "gate", "squeeze", settings={"activation": "sigmoid"})
    maker.add("Multiply", "scale", "conv", "gate")
    maker.add("MaxPooling2D", "pool", "scale")
    maker.add("Concatenate", "join", "pool", "conv")
    maker.add(last, "last", "join")
    return maker.graph("last")


class TestTensorRT:
    def test_the_skip_branch_only(self):
        assert entries(cases.AutoQDQCase("tensorrt"), residual("Conv2D")) == {"add": ([1], False)}

    def test_products_pooling_and_concatenations_that_lead_to_integers(self):
        everything = {"scale": (None, False), "pool": (None, False), "join": (None, False)}
        assert entries(cases.AutoQDQCase("tensorrt"), squeeze_and_excite()) == everything

    def test_where_nothing_reads_integers_a_product_gets_both_sides(self):
        found = entries(cases.AutoQDQCase("tensorrt"), squeeze_and_excite("Mystery"))
        assert found == {"scale": (None, True)}


class TestOnnxRuntime:
    def test_both_operands_and_activations_with_kernels(self):
        found = entries(cases.AutoQDQCase("onnxruntime"), squeeze_and_excite())
        assert found == {
            "gate": (None, True),
            "scale": (None, False),
            "pool": (None, False),
            "join": (None, False),
        }
        assert entries(cases.AutoQDQCase("onnxruntime"), residual("Conv2D")) == {"add": (None, False)}

    def test_a_sum_of_three_has_no_kernel(self):
        maker = GraphMaker()
        for name in "abc":
            maker.add("Conv2D", name, "image")
        maker.add("Add", "sum", "a", "b", "c")
        assert entries(cases.AutoQDQCase("onnxruntime"), maker.graph("sum")) == {}

    def test_integers_are_not_joined(self):
        maker = GraphMaker(dtype="int32")
        maker.add("Concatenate", "join", "image", "image", dtype="int32")
        assert entries(cases.AutoQDQCase("onnxruntime"), maker.graph("join")) == {}
        assert entries(cases.ConcatQDQCase(), maker.graph("join")) == {}


def test_the_users_layers_stay_the_users():
    spec = QuantizationSpec()
    spec.add(["add", "join", "scale", "pool", "gate"], quantize_input=False)
    for target in target_names():
        assert entries(cases.AutoQDQCase(target), squeeze_and_excite(), spec) == {}
        assert entries(cases.AutoQDQCase(target), residual("Conv2D"), spec) == {}
    assert entries(cases.ConcatQDQCase(), squeeze_and_excite(), spec) == {}


def test_without_a_target_it_follows_the_plan():
    case = cases.AutoQDQCase()
    assert case.for_target(get_target("litert")).target.name == "litert"
    assert cases.AutoQDQCase("tensorrt").for_target(get_target("litert")).target.name == "tensorrt"
    graph = residual("Conv2D")
    assert qdq.plan_placement(graph, custom_qdq_cases=[case]).for_layer("add").input_indices == (1,)
    plan = qdq.plan_placement(graph, custom_qdq_cases=[case], target="onnxruntime")
    assert plan.for_layer("add").input_indices == (0, 1)
    assert plan.for_layer("add").author == "AutoQDQCase"
    with pytest.raises(TargetError):
        cases.AutoQDQCase("tensorrtt")


def test_a_subclass_stays_itself_for_the_plans_target():
    class OnlyConvolutions(cases.AutoQDQCase):
        def case_for_graph(self, graph, qspec):
            found = QuantizationSpec()
            found.add("conv2d", quantize_output=self.target.name == "onnxruntime")
            return found

    plan = qdq.plan_placement(residual("Conv2D"), custom_qdq_cases=[OnlyConvolutions()], target="onnxruntime")
    assert {name for name, each in plan.decisions.items() if each.author == "OnlyConvolutions"} == {"conv2d"}
    assert plan.for_layer("conv2d").quantize_output


@pytest.mark.parametrize("target", target_names())
def test_it_says_what_it_does(target):
    assert get_target(target).title in cases.AutoQDQCase(target).info()
    assert "share" in cases.ConcatQDQCase().info()


def test_in_onnx_runtime_a_relu_shares_no_scale_with_negative_values():
    """It vanishes into the kernel before it only where 0 is the lowest integer."""
    maker = GraphMaker()
    maker.add("Conv2D", "left", "image")
    maker.add("ReLU", "relu", "left")
    maker.add("Conv2D", "right", "image")
    maker.add("Concatenate", "join", "relu", "right")
    maker.add("Conv2D", "last", "join")
    groups = {}
    for target in ("onnxruntime", "tensorrt"):
        plan = qdq.plan_placement(maker.graph("last"), custom_qdq_cases=[cases.ConcatQDQCase()], target=target)
        groups[target] = {tensor.name: tensor.scale_group for tensor in plan.tensors if tensor.kind == "activation"}
    assert groups["onnxruntime"]["relu"] is None
    assert groups["tensorrt"]["relu"] == groups["tensorrt"]["right"] == "relu"


@pytest.mark.parametrize("target", target_names())
def test_branches_of_a_concatenation_share_one_scale(target):
    graph = squeeze_and_excite()
    plan = qdq.plan_placement(graph, custom_qdq_cases=[cases.ConcatQDQCase()], target=target)
    groups = {tensor.name: tensor.scale_group for tensor in plan.tensors if tensor.kind == "activation"}
    assert groups["pool"] is not None
    assert groups["pool"] == groups["conv"] == groups["join"]
    assert groups["image"] is None


def sharing_net():
    """Products of two tensors, a layer that is called twice, a global maximum."""
    keras.utils.set_random_seed(5)
    image = keras.Input((8, 8, 4), name="image")
    shared = layers.Conv2D(4, 1, name="shared")
    left, right = shared(image), shared(layers.AveragePooling2D(3, strides=1, padding="same", name="mean")(image))
    joined = layers.Multiply(name="product")([left, right]) + left
    pooled = layers.GlobalMaxPooling2D(name="max")(layers.MaxPooling2D(2, name="pool")(joined))
    return keras.Model(image, layers.Dense(3, name="head")(pooled), name="sharing")


# What ONNX Runtime has integer kernels for on CPUs; the transposed convolution, Softmax and linear Resize have none.
WITH_KERNEL = (
    *("Conv", "Gemm", "MatMul", "Add", "Mul", "Concat", "AveragePool", "GlobalAveragePool", "MaxPool"),
    *("Sigmoid", "LeakyRelu"),
)


@pytest.mark.parametrize("make", [residual_net, zoo_net, inception_net, dense_net, sharing_net])
def test_every_operation_with_an_integer_kernel_gets_it(make, tmp_path):
    model = make()
    q_model = qdq.quantize_model(model, custom_qdq_cases=[cases.AutoQDQCase("onnxruntime")], target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    kernels = count_integer_kernels(path)
    operators = {node.name: node.op_type for node in onnx.load(path).graph.node}
    # A batch normalization that nothing absorbs is a product and a sum with constants, which have no integer kernel.
    alone = {layer.name for layer in model.layers if isinstance(layer, layers.BatchNormalization)}
    floats = [name for name in kernels.float_nodes if name.partition("/")[0] not in alone]
    assert [name for name in floats if operators[name] in WITH_KERNEL] == []
    assert len(kernels.integer_nodes) >= 5
    assert qdq.verify_onnx(path, q_model).passed
    statuses = {entry.layer: entry.status for entry in qdq.explain(q_model).layers}
    for name in kernels.float_nodes:
        assert statuses.get(name.partition("/")[0], "float") == "float"


def attention(*, mask=True, last="Softmax"):
    """x -> query, key -> scores + mask -> softmax"""
    maker = GraphMaker()
    maker.add("Dense", "query", "image")
    maker.add("Dense", "key", "image")
    maker.add("Matmul", "scores", "query", "key", is_operation=True)
    maker.add("Multiply", "mask", "image", "image", is_operation=True)
    maker.add("Add", "sum", "scores", "mask" if mask else "query", is_operation=True)
    maker.add("Cast", "cast", "sum", is_operation=True)
    maker.add(last, "last", "cast")
    return maker.graph("last")


@pytest.mark.parametrize("target", target_names())
def test_what_adds_a_mask_to_scores_stays_in_float(target):
    found = entries(cases.AutoQDQCase(target), attention())
    assert not {"mask", "sum"} & set(found)
    assert "sum" in entries(cases.AutoQDQCase("onnxruntime"), attention(last="Dense"))


def test_a_mask_of_large_numbers_takes_no_steps_from_the_scores():
    x, reach = keras.Input((6, 8), name="x"), keras.Input((6,), name="reach")
    query, key, value = (layers.Dense(8, name=name)(x) for name in ("query", "key", "value"))
    scores = keras.ops.matmul(query, keras.ops.transpose(key, (0, 2, 1)))
    seen = keras.ops.softmax(scores + (1.0 - reach[:, None]) * -1e9)
    model = keras.Model([x, reach], layers.Dense(4, name="head")(keras.ops.matmul(seen, value)))
    data = [samples(model, 8)[0], np.ones((8, 6), np.float32)]
    data[1][:, 4:] = 0
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="onnxruntime")
    qdq.calibrate(q_model, data, verbose=False)
    wanted = keras.ops.convert_to_numpy(model(data))
    noise = keras.ops.convert_to_numpy(q_model(data)) - wanted
    assert 10 * np.log10(np.square(wanted).sum() / np.square(noise).sum()) > 20


def padded_with_infinity():
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(4, 3, name="conv")(image)
    x = keras.ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    x = layers.MaxPooling2D(3, 2, name="pool")(x)
    return keras.Model(image, layers.Conv2D(4, 1, name="last")(x))


@pytest.mark.parametrize("case", [cases.AutoQDQCase, cases.MaxPoolQDQCase])
@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt"])
def test_what_is_padded_with_infinity_has_no_range(case, target, tmp_path):
    model = padded_with_infinity()
    q_model = qdq.quantize_model(model, custom_qdq_cases=[case()], target=target)
    assert "pad" not in {placement.tensor for placement in q_model.plan.placements}
    data = samples(model)
    qdq.calibrate(q_model, data, verbose=False)
    if target == "onnxruntime":
        report = qdq.export_onnx(q_model, tmp_path / "q.onnx")
        assert qdq.verify_onnx(report.path, q_model, data).passed


TARGETS = ["onnxruntime", "tensorrt", "openvino", "litert"]


@pytest.fixture(scope="module")
def decided():
    """The plan of one network with the case, for every target."""
    model = residual_net()
    return {
        target: qdq.plan_placement(model, custom_qdq_cases=[cases.AutoQDQCase()], target=target) for target in TARGETS
    }


@pytest.mark.parametrize("first", TARGETS)
def test_it_decides_again_for_another_target(decided, first):
    for target in TARGETS:
        assert retarget_plan(decided[first], target) == decided[target]
    assert decided["onnxruntime"].decisions != decided["tensorrt"].decisions


def test_explain_and_exports_for_another_target_are_those_of_its_own_plan(decided, tmp_path):
    model = residual_net()
    q_model = qdq.quantize_model(model, custom_qdq_cases=[cases.AutoQDQCase()], target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    assert qdq.explain(q_model, "tensorrt").layers == qdq.explain(decided["tensorrt"]).layers
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx", target="tensorrt")
    planned = [tensor.name for tensor in decided["tensorrt"].tensors if tensor.kind == "activation"]
    assert report.activations == len(planned)
    assert qdq.verify_onnx(report.path, q_model, samples(model)).passed


@pytest.mark.parametrize(
    "given",
    [
        [cases.AutoQDQCase("tensorrt")],
        [cases.AutoQDQCase(), cases.MaxPoolQDQCase()],
        [cases.ResidualConnectionQDQCase()],
    ],
    ids=["made for another target", "with another case", "another case"],
)
def test_what_others_decided_stays(given):
    plan = qdq.plan_placement(residual_net(), custom_qdq_cases=given, target="onnxruntime")
    assert retarget_plan(plan, "litert").decisions == plan.decisions


def test_what_the_user_decided_stays_beside_it():
    model, spec = residual_net(), QuantizationSpec()
    name = next(layer.name for layer in model.layers if isinstance(layer, layers.Add))
    spec.add(name, quantize_input=False, quantize_output=False)
    plans = [
        qdq.plan_placement(model, quantization_spec=spec, custom_qdq_cases=[cases.AutoQDQCase()], target=target)
        for target in ("onnxruntime", "tensorrt")
    ]
    assert retarget_plan(plans[0], "tensorrt") == plans[1]
    assert plans[1].decisions[name].is_float
