import pytest

from qdq_workbench.graph.model_graph import Node, Part, Weight
from qdq_workbench.placement import defaults
from qdq_workbench.placement.defaults import (
    LayerDefault,
    class_name_of,
    default_inputs,
    find_default,
    find_named_default,
    has_own_wrapper,
    is_bias,
    register_default,
)


@pytest.fixture
def registry(monkeypatch):
    for name in ("_DEFAULTS", "_REGISTERED", "_HISTORY"):  # copies: the other tests keep their defaults
        monkeypatch.setattr(defaults, name, getattr(defaults, name).copy())


def node(class_name, *weights, **fields):
    held = tuple(Weight(name, shape) for name, shape in weights)
    return Node("layer", "layer", class_name, inputs=("x",), outputs=("layer",), weights=held, **fields)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("AvgPool1D", "AveragePooling1D"),
        ("MaxPool3D", "MaxPooling3D"),
        ("GlobalAvgPool2D", "GlobalAveragePooling2D"),
        ("GlobalAveragePool1D", "GlobalAveragePooling1D"),
        ("SeparableConvolution1D", "SeparableConv1D"),
        ("Convolution3DTranspose", "Conv3DTranspose"),
        ("DepthwiseConvolution2D", "DepthwiseConv2D"),
        ("GroupQueryAttention", "GroupedQueryAttention"),
        ("MyMaxPool2D", "MyMaxPool2D"),
        ("MaxPool2DLike", "MaxPool2DLike"),
        ("MyConvolution2D", "MyConvolution2D"),
        ("Convolution2DBlock", "Convolution2DBlock"),
        ("Convolution4D", "Convolution4D"),
    ],
)
def test_only_the_aliases_of_keras_are_replaced(alias, name):
    assert class_name_of(alias) == name


def test_an_axis_is_counted_from_the_front_by_the_shape():
    assert find_default(node("Conv2D", ("kernel", (3, 3, 4, 5)))).weights == {"kernel": 3}
    assert find_default(node("Conv1D", ("kernel", (3, 4, 5)))).weights == {"kernel": 2}
    assert find_default(node("Dense", ("kernel", ()))).weights == {"kernel": None}


@pytest.mark.parametrize(
    ("equation", "shape", "axis"),
    [
        ("abc,cd->abd", (4, 5), 1),
        ("abc,cde->abde", (4, 2, 5), 2),  # the longest of two
        ("abc,cde->abde", (4, 5, 2), 1),
        ("abc,cde->abde", (4, 5, 5), 2),  # the last of equal ones
        ("abc,bc->ab", (4, 5), 0),
        ("ab,c->abc", (7,), 0),
        ("abc,cd->abd", (4, 5, 6), None),  # another number of axes than letters
        ("ab,b->a", (4,), None),  # nothing of the kernel is left
    ],
)
def test_the_scales_of_an_einsum_lie_along_the_longest_axis_of_the_result(equation, shape, axis):
    found = find_default(node("EinsumDense", ("kernel", shape), settings={"equation": equation}))
    assert found.weights == {"kernel": axis}


def test_an_embedding_has_indices_as_input_unless_it_multiplies():
    table = ("embeddings", (10, 4))
    assert not find_default(node("Embedding", table)).quantize_input
    assert find_default(node("Embedding", table, settings={"reverse": True})).quantize_input


def test_the_kernel_of_a_wrapped_layer_is_found_by_the_end_of_its_path():
    found = find_default(node("Dense", ("layer/kernel", (2, 3)), ("layer/kernel~2", (2, 3)), ("kernels", (2, 3))))
    assert found.weights == {"layer/kernel": 1}
    both = find_default(node("Dense", ("kernel", (2, 3)), ("layer/kernel", (2, 3))))
    assert both.weights == {"kernel": 1}  # the exact name is the layer's own


HOLDER = "TimeDistributed"


def test_a_holder_has_the_defaults_of_the_layers_inside():
    parts = (Part("layer", "Conv2D"), Part("layer/more", "Dense"), Part("mystery", "Mystery"))
    weights = (("layer/kernel", (3, 3, 4, 5)), ("layer/more/kernel", (2, 3)), ("mystery/kernel", (2, 2)))
    found = find_default(node(HOLDER, *weights, parts=parts))
    assert (found.quantize_input, found.quantize_weight) == (True, True)
    assert found.weights == {"layer/kernel": 3, "layer/more/kernel": 1}


def test_a_holder_quantizes_its_input_if_a_layer_inside_does():
    slopes = find_default(node(HOLDER, ("layer/alpha", (2, 2)), parts=(Part("layer", "PReLU"),)))
    assert (slopes.quantize_input, slopes.quantize_weight, slopes.weights) == (False, False, {})
    table = find_default(node(HOLDER, ("layer/embeddings", (9, 4)), parts=(Part("layer", "Embedding"),)))
    assert (table.quantize_input, table.quantize_weight) == (False, True)
    both = find_default(node(HOLDER, parts=(Part("table", "Embedding"), Part("dense", "Dense"))))
    assert both.quantize_input


def test_a_weight_of_a_deeper_layer_is_not_that_of_the_layer_around_it():
    parts = (Part("layer", "Dense"), Part("layer/more", "Mystery"))
    assert find_default(node(HOLDER, ("layer/more/kernel", (2, 3)), parts=parts)).weights == {}


def test_a_holder_of_unknown_layers_only_has_no_default():
    assert find_default(node(HOLDER, ("layer/kernel", (2, 2)), parts=(Part("layer", "Mystery"),))) is None
    assert find_default(node(HOLDER)) is None
    assert find_default(node("Mystery", parts=(Part("layer", "Dense"),))) is None  # not known to hold others


def test_a_class_of_the_users_own_has_the_default_of_its_parents_until_it_is_registered(registry):
    mine = {"opaque": "a layer of the user's own", "bases": ("Embedding",)}
    named_alike = node("Dense", ("kernel", (2, 3)), ("embeddings", (9, 4)), **mine)
    assert find_default(named_alike).weights == {
        "embeddings": find_default(node("Embedding", ("embeddings", (9, 4)))).weights["embeddings"]
    }
    register_default("Mine", LayerDefault(quantize_input=True))
    assert find_default(node("Mine", ("embeddings", (9, 4)), **mine)).weights == {}


def test_a_named_layer_of_an_unknown_class_quantizes_its_matrices():
    weights = (
        Weight("kernel", (2, 3)),
        Weight("scale", (3,)),
        Weight("table", (2, 3), dtype="int32"),
        Weight("mean", (2, 3), trainable=False),
        Weight("gate/bias", (2, 3)),
        Weight("half", (2, 3, 4), dtype="bfloat16"),
    )
    found = find_named_default(Node("l", "l", "Mystery", weights=weights))
    assert (found.quantize_input, found.quantize_weight) == (True, True)
    assert found.weights == {"kernel": None, "half": None}
    bare = find_named_default(Node("l", "l", "Mystery", weights=weights[1:3]))
    assert (bare.quantize_weight, bare.weights) == (False, {})


def test_weights_of_known_layers_inside_are_those_that_their_class_quantizes():
    parts = (Part("norm", "BatchNormalization"), Part("hold", "Mystery"), Part("hold/dense", "Dense"))
    parts += (Part("norm/dense", "Dense"),)
    names = (
        "norm/gamma",
        "norm/dense/table",
        "hold/table",
        "hold/dense/kernel",
        "hold/dense/table",
        "hold/dense/deep/table",
        "normal/w",
    )
    weights = tuple(Weight(name, (2, 3)) for name in names)
    found = find_named_default(Node("l", "l", "Mystery", weights=weights, parts=parts))
    assert list(found.weights) == ["hold/table", "hold/dense/kernel", "hold/dense/deep/table", "normal/w"]


def test_an_unknown_operation_has_no_default_even_if_it_is_named():
    assert find_named_default(Node("o", "o", "Mystery", is_operation=True)) is None
    assert find_named_default(node("Dense", ("kernel", (2, 3)))) == find_default(node("Dense", ("kernel", (2, 3))))


@pytest.mark.parametrize(
    ("name", "expected"), [("gate_bias", True), ("a/bias~3", True), ("bias_of", False), ("", False)]
)
def test_biases_are_told_by_the_last_part_of_the_path(name, expected):
    assert is_bias(name) is expected


def test_masks_and_initial_states_are_no_inputs_by_default():
    arguments = ("query", "value", "key_mask", "attention_mask", "initial_state", "mask", "masked")
    inputs = tuple(arguments)
    assert default_inputs(Node("n", "n", "Attention", inputs=inputs, arguments=arguments)) == (0, 1, 6)
    assert default_inputs(Node("n", "n", "Add", inputs=("a", "b"))) == (0, 1)
    assert default_inputs(Node("n", "n", "InputLayer")) == ()


def test_a_wrapper_changes_no_default_of_the_ten_classes(registry):
    before = find_default(node("Dense", ("kernel", (2, 3))))
    register_default("Dense", LayerDefault(quantize_input=False))
    assert find_default(node("Dense", ("kernel", (2, 3)))) == before
    assert not has_own_wrapper("Dense")
    register_default("MaxPool2D", LayerDefault(quantize_input=False))  # an alias of one of them
    assert not has_own_wrapper("MaxPooling2D")


def test_a_wrapper_keeps_the_axes_of_known_weights(registry):
    conv = node("Conv1D", ("kernel", (3, 4, 5)))
    assert find_default(conv).quantize_input
    register_default("Convolution1D", LayerDefault(quantize_input=False, quantize_weight=True, weights={"kernel": 0}))
    assert has_own_wrapper("Conv1D")
    assert (find_default(conv).quantize_input, find_default(conv).weights) == (False, {"kernel": 2})
    unknown = node("Mystery", ("kernel", (3, 4)))
    assert find_default(unknown) is None
    register_default("Mystery", LayerDefault(quantize_input=True, quantize_weight=True, weights={"kernel": -2}))
    assert find_default(unknown).weights == {"kernel": 0}
