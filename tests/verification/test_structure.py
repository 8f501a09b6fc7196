"""Reading a file's quantizers back, and noticing every way in which a file may have been changed."""

from __future__ import annotations

import copy
import dataclasses
import json

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from onnx import helper, numpy_helper
from qdq_files import FileMaker

from qdq_workbench.export import BiasEncoding, encode_bias
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from qdq_workbench.verification.structure import (
    FileStructure,
    compare_structure,
    expected_structure,
    read_structure,
)
from tests.export.cutting import Cutter
from tests.export.running import build, random_data


@pytest.fixture(scope="module", params=["onnxruntime", "tensorrt"])
def net(request):
    keras.utils.set_random_seed(0)
    cut = Cutter(request.param)
    x = keras.Input((8, 8, 4))
    skip = cut.pair(x, "input")
    h = cut.layer(layers.Conv2D(4, 3, padding="same", activation="relu", name="conv"), skip)
    h = cut.layer(layers.DepthwiseConv2D(3, padding="same", depth_multiplier=1, name="depth"), cut.pair(h, "relu"))
    h = layers.Add()([cut.pair(h, "narrow", QuantizerSpec(num_bits=6)), skip])
    h = cut.layer(layers.Dense(4, name="dense"), cut.pair(layers.GlobalAveragePooling2D()(h), "pooled"))
    net = cut.finish(x, h)
    net.calibrate(random_data(net))
    return net


@pytest.fixture(scope="module")
def model(net):
    return build(net)


@pytest.fixture(scope="module")
def expectations(net, model):
    return {"encodings": expected_structure(net.activations, net.weights), "file": read_structure(build(net))}


def encoded_biases(net):
    biases = {}
    for layer, pair in (("conv", "input"), ("depth", "relu"), ("dense", "pooled")):
        bias = np.asarray(next(v for v in net.variables if v.path == f"{layer}/bias"))
        found = encode_bias(bias, net.activations[pair], net.weights[f"{layer}/kernel"])
        if layer == "depth":  # cut to 6 bits, it has no integer kernel: steps of its own make the bias exact
            found = BiasEncoding(np.abs(bias) / np.float32(2**30), np.int32(2**30) * np.sign(bias).astype(np.int32))
        biases[f"{layer}/bias"] = found
    return biases


def test_biases_are_those_that_encode_bias_gives(net, model):
    if net.cutter.target.bias == "float":
        pytest.skip("this target keeps its biases in float")
    expected = expected_structure(net.activations, net.weights, encoded_biases(net))
    assert compare_structure(expected, read_structure(model)) == []
    changed = write(model, "conv/bias/quantized", lambda codes: codes + np.int32(1))
    assert "bias 'conv/bias'" in str(compare_structure(expected, read_structure(changed)))


def test_a_bias_of_zeros_may_be_left_out():
    zero = {"conv/bias": BiasEncoding(np.float32(0.5), np.zeros(3, np.int32))}
    assert compare_structure(expected_structure({}, {}, zero), FileStructure({}, {}, {})) == []


def test_structures_survive_json(net, model):
    found = read_structure(model)
    written = json.loads(json.dumps(found.to_dict()))
    assert FileStructure.from_dict(written) == found
    assert compare_structure(written, found) == []


def both(expectations, changed):
    found = read_structure(changed)
    return {kind: compare_structure(expected, found) for kind, expected in expectations.items()}


def tensor(model, name):
    return next(tensor for tensor in model.graph.initializer if tensor.name == name)


def node(model, name):
    return next(node for node in model.graph.node if node.name == name)


def write(model, name, change):
    """Return a copy of a model with one constant changed."""
    changed = copy.deepcopy(model)
    proto = tensor(changed, name)
    proto.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(proto).copy()), name))
    return changed


def test_an_untouched_file_has_no_differences(expectations, model):
    assert both(expectations, model) == {"encodings": [], "file": []}


def test_the_structure_says_what_the_file_holds(net, model):
    found = read_structure(model)
    assert set(found.pairs) == {"input", "relu", "narrow", "pooled"}
    assert set(found.weights) == {"conv/kernel", "depth/kernel", "dense/kernel"}
    assert {name: weight.axis for name, weight in found.weights.items()} == {
        "conv/kernel": 0,
        "depth/kernel": 0,
        "dense/kernel": 1,
    }
    assert set(found.biases) == (
        {"conv/bias", "depth/bias", "dense/bias"} if net.cutter.target.bias == "int32" else set()
    )
    assert found.pairs["narrow"].bounds is not None
    assert found.pairs["input"].bounds is None
    assert found.strays == ()
    assert json.loads(json.dumps(found.to_dict()))["pairs"]["input"]["scale"] == found.pairs["input"].scale


def test_a_file_on_disk_reads_the_same(model, tmp_path):
    onnx.save(model, tmp_path / "model.onnx")
    assert read_structure(tmp_path / "model.onnx") == read_structure(model)


@pytest.mark.parametrize(
    "name", ["input/scale", "relu/scale", "pooled/scale", "conv/kernel/scale", "dense/kernel/scale"]
)
def test_one_scale_changed_by_one_percent(expectations, model, name):
    def change(scale):
        scale.reshape(-1)[0] *= np.float32(1.01)
        return scale

    differences = both(expectations, write(model, name, change))
    assert all("scale" in str(found) for found in differences.values()), differences


@pytest.mark.parametrize("name", ["input/zero_point", "narrow/zero_point", "conv/kernel/zero_point"])
def test_a_zero_point_shifted_by_one(expectations, model, name):
    differences = both(expectations, write(model, name, lambda zero: zero + np.ones((), zero.dtype)))
    assert all("zero" in str(found) for found in differences.values()), differences


def test_a_zero_point_of_another_type(expectations, model):
    found = write(model, "input/zero_point", lambda zero: zero.astype(np.int16))
    assert all(both(expectations, found).values())


def test_one_code_changed(expectations, model):
    def change(codes):
        codes.reshape(-1)[5] ^= 1
        return codes

    assert all(both(expectations, write(model, "depth/kernel/quantized", change)).values())


def test_two_codes_of_a_channel_exchanged(expectations, model):
    def change(codes):
        row = codes[0].reshape(-1)
        row[[0, np.argmax(row != row[0])]] = row[[np.argmax(row != row[0]), 0]]
        return codes

    differences = both(expectations, write(model, "conv/kernel/quantized", change))
    assert "codes_sha256" in str(differences["file"])


@pytest.mark.parametrize("weight", ["conv/kernel", "dense/kernel"])
def test_a_wrong_axis_of_the_same_length(expectations, model, weight):
    changed = copy.deepcopy(model)
    attribute = node(changed, f"{weight}/DequantizeLinear").attribute[0]
    attribute.i = 1 - attribute.i
    assert all(both(expectations, changed).values())


def test_a_wrong_axis_of_another_length(expectations, model):
    changed = copy.deepcopy(model)
    node(changed, "depth/kernel/DequantizeLinear").attribute[0].i = 2
    differences = both(expectations, changed)
    assert all("do not fit axis 2" in str(found) for found in differences.values())


def test_a_changed_bias(net, expectations, model):
    if net.cutter.target.bias == "int32":
        changed = write(model, "conv/bias/quantized", lambda codes: codes + np.int32(1))
        assert both(expectations, changed)["file"]
    float_biases = [t.name for t in model.graph.initializer if "bias" in t.name.lower() and t.data_type == 1]
    float_biases = [name for name in float_biases if not name.endswith(("scale", "axes"))]
    assert bool(float_biases) == (net.cutter.target.bias == "float")
    for name in float_biases:
        assert both(expectations, write(model, name, lambda bias: bias + np.float32(1e-3)))["file"]


def test_a_changed_clip_bound(expectations, model):
    assert all(both(expectations, write(model, "narrow/clip_max", lambda bound: bound * np.float32(1.01))).values())


@pytest.mark.parametrize("pair", ["input", "relu", "pooled"])
def test_a_dropped_pair(expectations, model, pair):
    changed = copy.deepcopy(model)
    source = node(changed, f"{pair}/QuantizeLinear").input[0]
    gone = node(changed, f"{pair}/DequantizeLinear").output[0]
    for half in ("QuantizeLinear", "DequantizeLinear"):
        changed.graph.node.remove(node(changed, f"{pair}/{half}"))
    for reader in changed.graph.node:
        for index, name in enumerate(reader.input):
            if name == gone:
                reader.input[index] = source
    differences = both(expectations, changed)
    assert all(f"pair '{pair}' is missing" in found for found in differences.values())


def test_a_dropped_quantize(expectations, model):
    changed = copy.deepcopy(model)
    dropped = node(changed, "relu/QuantizeLinear")
    node(changed, "relu/DequantizeLinear").input[0] = dropped.input[0]
    changed.graph.node.remove(dropped)
    assert all("pair 'relu' is missing" in found for found in both(expectations, changed).values())


def test_a_dropped_dequantize(expectations, model):
    changed = copy.deepcopy(model)
    dropped = node(changed, "relu/DequantizeLinear")
    for reader in changed.graph.node:
        for index, name in enumerate(reader.input):
            if name == dropped.output[0]:
                reader.input[index] = dropped.input[0]
    changed.graph.node.remove(dropped)
    assert all("pair 'relu' is missing" in found for found in both(expectations, changed).values())


def test_an_additional_pair(expectations, model):
    changed = copy.deepcopy(model)
    conv = next(n for n in changed.graph.node if n.op_type == "Conv")
    parameters = ["input/scale", "input/zero_point"]
    place = list(changed.graph.node).index(conv)
    added = [
        helper.make_node("QuantizeLinear", [conv.input[0], *parameters], ["more_q"], "more/QuantizeLinear"),
        helper.make_node("DequantizeLinear", ["more_q", *parameters], ["more_dq"], "more/DequantizeLinear"),
    ]
    conv.input[0] = "more_dq"
    for extra in reversed(added):
        changed.graph.node.insert(place, extra)
    assert all("pair 'more' was not expected" in found for found in both(expectations, changed).values())


def test_halves_with_different_parameters(expectations, model):
    changed = copy.deepcopy(model)
    node(changed, "relu/DequantizeLinear").input[1] = "pooled/scale"
    assert all("other parameters" in str(found) for found in both(expectations, changed).values())


def test_a_pair_moved_to_another_tensor(expectations, model):
    changed = copy.deepcopy(model)
    relu = node(changed, "relu/QuantizeLinear")
    before = next(n for n in changed.graph.node if relu.input[0] in n.output)
    relu.input[0] = before.input[0]
    assert "source" in str(both(expectations, changed)["file"])


def test_encodings_of_another_model(net, model):
    activations = dict(net.activations)
    first = next(iter(activations))
    activations[first] = dataclasses.replace(activations[first], scale=activations[first].scale * np.float32(1.01))
    assert len(compare_structure(expected_structure(activations, net.weights), read_structure(model))) == 1


@pytest.mark.parametrize("multiplier", [1, 2])
def test_scales_repeated_in_the_file_are_the_same_scales(multiplier):
    cut = Cutter("onnxruntime")
    x = keras.Input((6, 6, 3))
    net = cut.finish(x, cut.layer(layers.DepthwiseConv2D(3, depth_multiplier=multiplier), cut.pair(x), axis=2))
    net.calibrate(random_data(net))
    assert compare_structure(expected_structure(net.activations, net.weights), read_structure(build(net))) == []


def test_one_of_two_equal_constants_that_is_missing_is_noticed():
    both = FileStructure({}, {}, constants={"first": "same", "second": "same", "other": "another"})
    one = FileStructure({}, {}, constants={"first": "same", "other": "another"})
    assert compare_structure(both, both) == []
    assert [text for text in map(str, compare_structure(both, one)) if "missing" in text]
    assert [text for text in map(str, compare_structure(one, both)) if "not expected" in text]


def test_pairs_without_zero_points():
    """Integers are of the type that `output_dtype` names, else uint8; a DequantizeLinear has that of its integers."""
    f = FileMaker()
    scale, codes = f.constant("scale", np.float32(0.1)), f.constant("codes", np.ones((2, 2, 1, 1), np.int8))
    tensor = "x"
    for name, typed in (("plain", {}), ("typed", {"output_dtype": onnx.TensorProto.INT8})):
        quantized = f.node("QuantizeLinear", [tensor, scale], f"{name}/QuantizeLinear", **typed)
        tensor = f.node("DequantizeLinear", [quantized, scale], f"{name}/DequantizeLinear")
    weight = f.node("DequantizeLinear", [codes, scale], "weight/DequantizeLinear")
    found = read_structure(f.model(f.node("Conv", [tensor, weight], "conv")))
    assert found.strays == ()
    assert {pair.name: (pair.dtype, pair.zero_point) for pair in found.pairs.values()} == {
        "plain": ("uint8", 0),
        "typed": ("int8", 0),
    }
    assert (found.weights["weight"].dtype, found.weights["weight"].zero_point) == ("int8", (0,))
