"""What the tests of NVIDIA's tensorflow-quantization assert and no other test of ours does (docs/peer_tests.md)."""

import keras
import onnx
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.errors import SpecError


def convolved(tensor, name, activation=True, filters=4, size=3):
    hidden = layers.Conv2D(filters, size, padding="same", name=f"{name}_conv")(tensor)
    hidden = layers.BatchNormalization(name=f"{name}_norm")(hidden)
    return layers.ReLU(name=f"{name}_relu")(hidden) if activation else hidden


def two_blocks():
    """An identity block, and one with a convolution on its shortcut, between a stem and a classifier."""
    image = keras.Input((12, 12), name="image")
    stem = convolved(layers.Reshape((12, 12, 1), name="reshape")(image), "stem")
    branch = convolved(convolved(stem, "a1"), "a2", activation=False)
    hidden = layers.ReLU(name="a_out")(layers.Add(name="a_add")([branch, stem]))
    branch = convolved(convolved(hidden, "b1"), "b2", activation=False)
    shortcut = convolved(hidden, "b3", activation=False, size=1)
    hidden = layers.ReLU(name="b_out")(layers.Add(name="b_add")([branch, shortcut]))
    hidden = layers.Flatten(name="flatten")(layers.MaxPooling2D(2, name="pool")(hidden))
    hidden = layers.ReLU(name="hidden_relu")(layers.Dense(6, name="hidden")(hidden))
    return keras.Model(image, layers.Dense(3, name="head")(hidden), name="two_blocks")


CONVOLUTIONS = ["stem_conv", "a1_conv", "a2_conv", "b1_conv", "b2_conv", "b3_conv"]


def quantized_layers(plan):
    """Return the layers with a pair in front or on a weight, in the model's order, each with its quantized inputs."""
    found = {layer: plan.for_layer(layer) for layer in plan.graph.layers}
    return {name: list(one.input_indices) for name, one in found.items() if one.quantize_input or one.quantize_weight}


def spec_of(*entries):
    spec = qdq.QuantizationSpec()
    for entry in entries:
        spec.add(**entry)
    return spec


def test_convolutions_and_dense_layers_are_quantized_by_default():
    with keras.StatelessScope(initialize_variables=False):
        plan = qdq.plan_placement(two_blocks())
    assert sorted(quantized_layers(plan)) == sorted([*CONVOLUTIONS, "hidden", "head"])


@pytest.mark.parametrize(
    ("mode", "entries", "expected"),
    [
        ("full", [{"name": "a_add", "quantization_index": [1]}], [*CONVOLUTIONS, "a_add", "hidden", "head"]),
        ("partial", [{"name": "a_add", "quantize_weight": False, "quantization_index": [1]}], ["a_add"]),
        ("partial", [{"name": "Conv2D", "is_keras_class": True}], CONVOLUTIONS),
    ],
)
def test_an_add_by_its_index_and_convolutions_by_their_class(mode, entries, expected):
    with keras.StatelessScope(initialize_variables=False):
        plan = qdq.plan_placement(two_blocks(), mode, spec_of(*entries))
    found = quantized_layers(plan)
    assert sorted(found) == sorted(expected)
    assert found.get("a_add", [1]) == [1]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "wrong_layer"}, "'wrong_layer'"),
        ({"name": "a_add", "quantization_index": [3]}, "has 2 inputs"),
    ],
)
def test_names_and_indices_that_are_not_there_are_errors(entry, message):
    """The toolkit warns of a wrong name; of a wrong index its own test is skipped."""
    with keras.StatelessScope(initialize_variables=False):
        model = two_blocks()
    with pytest.raises(SpecError, match=message):
        qdq.plan_placement(model, "partial", spec_of({"name": "hidden"}, entry))


def test_pairs_of_a_partly_quantized_model_are_the_only_ones_of_the_file(tmp_path):
    model = two_blocks()
    q_model = qdq.quantize_model(model, "partial", spec_of({"name": "b3_conv", "quantize_weight": False}))
    qdq.calibrate(q_model, keras.random.normal((4, 12, 12)), verbose=False)
    graph = onnx.load(qdq.export_onnx(q_model, tmp_path / "model.onnx").path).graph
    made = {output: node for node in graph.node for output in node.output}
    pairs = [node for node in graph.node if node.op_type == "QuantizeLinear"]
    assert len(pairs) == 1
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    behind = [node for node in convolutions if made.get(node.input[0], node).op_type == "DequantizeLinear"]
    assert len(convolutions) == len(CONVOLUTIONS)
    assert len(behind) == 1
    assert behind[0].input[1] not in made  # its weight is a float of the file


def test_the_case_of_resnet_marks_the_skip_of_every_sum():
    with keras.StatelessScope(initialize_variables=False):
        small = two_blocks()
        large = keras.applications.ResNet50(weights=None, input_shape=(32, 32, 3))
    case = qdq.ResNetV1QDQCase()
    assert {entry.name: entry.quantization_index for entry in case.case(small, None).layers} == {
        "a_add": [1],
        "b_add": [1],
    }
    found = {entry.name: entry.quantization_index for entry in case.case(large, None).layers}
    sums = [layer.name for layer in large.layers if isinstance(layer, layers.Add)]
    assert list(found) == sums
    assert len(sums) == 16
    # Where both branches end in a convolution either may keep its pair; in identity blocks it is the skip.
    assert {name: index for name, index in found.items() if "block1_" not in name} == {
        name: [0] for name in sums if "block1_" not in name
    }


def test_the_case_of_resnet_v2_adds_normalizations_and_pooling():
    with keras.StatelessScope(initialize_variables=False):
        model = keras.applications.ResNet50V2(weights=None, input_shape=(32, 32, 3))
    found = {entry.name: entry.quantization_index for entry in qdq.ResNetV2QDQCase().case(model, None).layers}
    by_class = {
        kind: [layer.name for layer in model.layers if type(layer) is kind]
        for kind in (layers.Add, layers.BatchNormalization, layers.MaxPooling2D)
    }
    norms = [name for name in by_class[layers.BatchNormalization] if "preact" in name or name == "post_bn"]
    assert set(found) == {*by_class[layers.Add], *norms, *by_class[layers.MaxPooling2D]}
    assert (len(by_class[layers.Add]), len(norms), len(by_class[layers.MaxPooling2D])) == (16, 17, 4)
    assert {found[name][0] for name in by_class[layers.Add] if "block1_" not in name} == {0}


def test_neighbours_in_the_graph_are_named_in_order():
    with keras.StatelessScope(initialize_variables=False):
        graph = qdq.plan_placement(two_blocks()).graph
    producers = {tensor: node.layer for node in graph.nodes for tensor in node.outputs}
    (add,) = graph.calls("b_add")
    assert [producers[tensor] for tensor in add.inputs] == ["b2_norm", "b3_norm"]
    (relu,) = graph.calls("a_out")
    assert [node.layer for node, _ in graph.readers(relu.outputs[0])] == ["b1_conv", "b3_conv"]
    assert list(graph.layers)[:4] == ["image", "reshape", "stem_conv", "stem_norm"]


@pytest.mark.parametrize(
    "served",
    [
        "Conv2D", "Dense", "DepthwiseConv2D", "AveragePooling2D", "GlobalAveragePooling2D", "MaxPooling2D",
        "BatchNormalization", "Multiply", "Concatenate", "Add",
    ],
)  # fmt: skip
def test_every_wrapper_of_the_toolkit_is_here_and_serves_its_layer(served):
    settings = {"Conv2D": (2, 3), "Dense": (2,), "DepthwiseConv2D": (3,), "AveragePooling2D": (2,)}
    layer = getattr(layers, served)(*settings.get(served, ()), name="layer")
    ends = [keras.Input((6, 6, 2), name=name) for name in "ab"]
    several = served in {"Multiply", "Concatenate", "Add"}
    model = keras.Model(ends, [layer(ends), *ends] if several else [layer(ends[0]), *ends])
    q_model = qdq.quantize_model(model, "partial", spec_of({"name": "layer"}))
    (wrapper,) = q_model.wrappers
    kind = getattr(qdq.wrappers, f"{served}QuantizeWrapper")
    assert issubclass(kind, qdq.BaseQuantizeWrapper)
    assert type(wrapper) is kind
