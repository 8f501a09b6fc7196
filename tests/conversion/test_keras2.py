"""Translation of single entries of a configuration; whole files are in `test_load_model.py`."""

import pytest

from qdq_workbench.conversion.files.keras2 import translate, unwrap_single_ends
from qdq_workbench.errors import UnsupportedModelError


def layer(kind, **config):
    return {"class_name": kind, "config": {"name": "layer", **config}}


def operation(function, *calls, kind="TFOpLambda", name="made"):
    return {"class_name": kind, "config": {"name": name, "function": function}, "inbound_nodes": [*calls]}


@pytest.mark.parametrize(
    ("kind", "key", "says_nothing", "says_something"),
    [
        ("LSTM", "time_major", False, True),
        ("ConvLSTM2D", "time_major", False, True),
        ("MultiHeadAttention", "softmax_robust_masking", False, True),
        ("Attention", "score_mode", "dot", "concat"),
        ("SeparableConv1D", "groups", 1, 2),
        ("Conv3DTranspose", "groups", 1, 2),
    ],
)
def test_a_key_that_keras_3_refuses_is_dropped_only_with_the_value_it_has_there(
    kind, key, says_nothing, says_something
):
    assert translate(layer(kind, **{key: says_nothing})) == layer(kind)
    assert translate(layer(kind, **{key: says_something})) == layer(kind, **{key: says_something})


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("SeparableConv2D", ("kernel_initializer", "kernel_regularizer", "kernel_constraint")),
        ("MultiHeadAttention", ("query_shape", "key_shape", "value_shape")),
    ],
)
def test_keys_that_say_nothing_in_keras_3_are_dropped_with_any_value(kind, keys):
    assert translate(layer(kind, units=3, **{key: [None, 4] for key in keys})) == layer(kind, units=3)


def test_a_key_is_kept_in_layers_that_have_it():
    assert translate(layer("Conv2D", groups=1)) == layer("Conv2D", groups=1)
    assert translate(layer("Dense", kernel_initializer="zeros")) == layer("Dense", kernel_initializer="zeros")


def test_the_generator_of_random_layers_is_dropped():
    assert translate(layer("RandomFlip", rng_type="stateful", mode="vertical")) == layer("RandomFlip", mode="vertical")


@pytest.mark.parametrize("key", ["activation", "recurrent_activation"])
def test_both_activations_of_a_recurrent_layer_keep_their_hard_sigmoid(key):
    found = translate(layer("LSTM", **{key: "hard_sigmoid"}))["config"]
    assert found[key]["registered_name"] == "qdq_workbench>hard_sigmoid_of_keras_2"
    assert translate(layer("LSTM", **{key: "sigmoid"})) == layer("LSTM", **{key: "sigmoid"})


def test_a_thresholded_relu_has_the_default_of_keras_2():
    assert translate(layer("ThresholdedReLU")) == layer("ReLU", threshold=1.0)


def test_a_policy_without_a_name_is_left_as_it_is():
    assert translate({"class_name": "PolicyV1", "config": {"name": "float16"}}) == "float16"
    unknown = {"class_name": "Policy", "config": {"loss_scale": 1}}
    assert translate(unknown) == unknown


A, B = ["a", 0, 0], ["b", 1, 0]


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ("math.add", "Add"),
        ("math.subtract", "Subtract"),
        ("math.multiply", "Multiply"),
        ("math.maximum", "Maximum"),
        ("math.minimum", "Minimum"),
    ],
)
def test_operations_on_two_tensors_become_layers(function, kind):
    found = translate(operation(function, [*A, {"y": B, "name": None}], [*B, {"y": A}]))
    assert found["class_name"] == kind
    assert found["config"] == {"name": "made", "trainable": True, "dtype": "float32"}
    assert found["inbound_nodes"] == [[[*A, {}], [*B, {}]], [[*B, {}], [*A, {}]]]


@pytest.mark.parametrize(
    ("function", "activation"),
    [
        ("nn.relu6", "relu6"),
        ("nn.elu", "elu"),
        ("nn.selu", "selu"),
        ("nn.silu", "silu"),
        ("nn.swish", "silu"),
        ("nn.softplus", "softplus"),
        ("math.sigmoid", "sigmoid"),
        ("math.tanh", "tanh"),
    ],
)
def test_functions_of_one_tensor_become_activations(function, activation):
    found = translate(operation(function, [*A, {}]))
    assert (found["class_name"], found["config"]["activation"]) == ("Activation", activation)
    assert found["inbound_nodes"] == [[[*A, {}]]]


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        ("math.add", [[*A, {}]]),  # one tensor only
        ("math.add", []),  # never called
        ("math.add", [[*A, {"y": B}], [*A, {}]]),  # called in two ways
        ("math.add", [[*A, {"y": ["_CONSTANT_VALUE", -1, 2.0]}]]),
        ("math.add", [[*A, {"y": B, "axis": 1}]]),
        ("nn.relu", [[*A, {"y": B}]]),
        ("nn.relu", []),
        ("nn.relu", [[A, {}]]),  # a list of tensors
    ],
)
def test_a_call_that_no_layer_makes_is_refused(function, calls):
    with pytest.raises(UnsupportedModelError, match=rf"cannot load: made \({function}\)\."):
        translate(operation(function, *calls))


def test_an_operation_without_a_function_is_named_by_its_class():
    with pytest.raises(UnsupportedModelError, match=r"cannot load: made \(SlicingOpLambda\)\."):
        translate(operation(None, [*A, {}], kind="SlicingOpLambda"))


@pytest.mark.parametrize(("count", "ending"), [(5, "e4 (math.abs)."), (6, "e4 (math.abs), ....")])
def test_five_operations_are_named(count, ending):
    with pytest.raises(UnsupportedModelError) as caught:
        translate([operation("math.abs", [*A, {}], name=f"e{index}") for index in range(count)])
    assert f"{ending} Build the network again" in str(caught.value)


def called(kind, *call):
    return {**layer(kind), "inbound_nodes": [[*call]]}


def test_arguments_beside_tensors_by_keyword_stay():
    found = translate(called("Attention", [*A, {"value": B, "training": False}]))["inbound_nodes"][0]
    assert [item["config"]["keras_history"] for item in found["args"]] == [A]
    assert found["kwargs"]["value"]["config"]["keras_history"] == B
    assert found["kwargs"]["training"] is False


@pytest.mark.parametrize(
    "call",
    [
        ([*A, {}],),
        ([*A, {"training": False, "mask": None}],),
        ([*A, {"scale": ["_CONSTANT_VALUE", -1, 2.0]}],),
        ([*A, {"value": B}], [*B, {}]),  # Keras 2 writes keywords of two tensors with the first
    ],
)
def test_other_calls_are_left_as_they_are(call):
    assert translate(called("Layer", *call))["inbound_nodes"] == [[*call]]


def model(*held, outputs, **more):
    return {"layers": [*held], "output_layers": outputs, **more}


def part(name="part", kind="Functional"):
    return {"class_name": kind, "name": name, "config": {"name": name}}


def test_only_calls_of_nested_models_are_counted_anew():
    dense = {"class_name": "Dense", "name": "dense", "config": {}, "inbound_nodes": [[["part", 2, 1, {"a": 1}]]]}
    found = translate(model(part(), dense, outputs=[["part", 1, 0], ["dense", 1, 0], ["part", 0, 0]]))
    assert found["output_layers"] == [["part", 0, 0], ["dense", 1, 0], ["part", 0, 0]]
    assert found["layers"][1]["inbound_nodes"] == [[["part", 1, 1, {"a": 1}]]]


def test_the_name_of_a_nested_model_counts_in_the_model_that_holds_it_only():
    """Inside of the other nested model it is the name of a layer, which is called twice."""
    twice = {
        "class_name": "Dense",
        "name": "part",
        "config": {},
        "inbound_nodes": [[["x", 0, 0, {}]], [["part", 0, 0, {}]]],
    }
    inner = {**part("inner"), "config": model(twice, outputs=[["part", 1, 0]])}
    found = translate(model(part(), inner, outputs=[["inner", 1, 0], ["part", 1, 0]]))
    assert found["output_layers"] == [["inner", 0, 0], ["part", 0, 0]]
    assert found["layers"][1]["config"]["output_layers"] == [["part", 1, 0]]


def test_tensors_by_keyword_of_a_nested_model_are_counted_too():
    attention = {
        "class_name": "Attention",
        "name": "att",
        "config": {},
        "inbound_nodes": [[["x", 0, 0, {"value": ["part", 2, 0]}]]],
    }
    call = translate(model(part(), attention, outputs=[["att", 0, 0]]))["layers"][1]["inbound_nodes"][0]
    assert call["kwargs"]["value"]["config"]["keras_history"] == ["part", 1, 0]


def test_the_settings_of_a_layer_may_be_called_layers():
    mine = layer("Mine", layers=[3, 4])
    assert translate(mine) == mine


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([["x", 0, 0]], ["x", 0, 0]),
        ([["x", 0, 0], ["y", 0, 0]], [["x", 0, 0], ["y", 0, 0]]),
        (["x", 0, 0], ["x", 0, 0]),
        ({"logits": ["x", 0, 0]}, {"logits": ["x", 0, 0]}),
        (["x"], ["x"]),
        ([], []),
    ],
)
def test_a_single_end_is_no_list(given, expected):
    for key in ("input_layers", "output_layers"):
        inner = {"layers": [], key: given}
        found = unwrap_single_ends({"layers": [{"config": inner}], key: given})
        assert found == {"layers": [{"config": {"layers": [], key: expected}}], key: expected}


def test_lists_of_the_same_name_outside_of_models_stay():
    given = {"output_layers": [["x", 0, 0]]}
    assert unwrap_single_ends(given) == given
