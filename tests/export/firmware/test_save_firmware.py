"""The file for firmware: the numbers of the exported ONNX file, a topology to follow, and what is refused."""

import dataclasses
import json
import zipfile

import keras
import numpy as np
import onnx
import pytest
from firmware_nets import NETS, calibrated, differing, document, run_file
from keras import layers, ops
from onnx import numpy_helper

import qdq_workbench as qdq
from qdq_workbench.errors import ExportError, NotQuantizedError, OutputPathError, TargetError, UncalibratedError
from qdq_workbench.export.firmware import interpreter


def read_onnx(path):
    """Return the constants of an ONNX file by name, and per pair the constants of its QuantizeLinear."""
    proto = onnx.load(path)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    quantizes = {node.output[0]: node for node in proto.graph.node if node.op_type == "QuantizeLinear"}
    return constants, {
        name: (float(constants[node.input[1]]), int(constants[node.input[2]]), constants[node.input[2]].dtype)
        for name, node in quantizes.items()
    }


@pytest.mark.parametrize("target", ["onnxruntime", "litert"])
@pytest.mark.parametrize("name", NETS)
def test_its_numbers_are_those_of_the_onnx_file(name, target, tmp_path):
    q_model = calibrated(name, target)
    qdq.files.save_firmware(q_model, tmp_path / "model.npz")
    qdq.export_onnx(q_model, tmp_path / "model.onnx")

    held, arrays = document(tmp_path / "model.npz"), interpreter.read(tmp_path / "model.npz")

    constants, grids = read_onnx(tmp_path / "model.onnx")
    for tensor, (scale, zero_point, dtype) in grids.items():
        # These are the integers of another tensor, moved.
        moved = ("flat", "drop", "pad_most", *(["pad"] if name == "stepped_net" else []))
        if tensor.removesuffix("/quantized") not in moved:
            found = held["tensors"][tensor]
            assert (found["scale"], found["zero_point"], found["dtype"]) == (scale, zero_point, str(dtype))
    orders = {"OHWI": (0, 3, 1, 2), "1HWO": (3, 0, 1, 2), "OI": (1, 0)}
    products = [node for node in held["nodes"] if "weights" in node["arrays"]]
    for node in products:
        layer, names = node["layers"][0], node["arrays"]
        weight = arrays[names["weights"]].transpose(orders[held["arrays"][names["weights"]]["axes"]])
        written = constants[f"{names['weights']}/quantized"]
        np.testing.assert_array_equal(weight, written)
        scale = np.broadcast_to(constants[f"{names['weights']}/scale"], arrays[names["weight_scale"]].shape)
        np.testing.assert_array_equal(arrays[names["weight_scale"]], scale)
        if name != "shared_net":  # the calls of a shared layer have biases of other scales, numbered in the file
            bias = next(value for key, value in constants.items() if key == f"{names['weights'][:-6]}bias/quantized")
            np.testing.assert_array_equal(arrays[names["bias"]], bias)
        assert arrays[names["bias"]].dtype == np.int32, layer
    assert {key.removesuffix("/quantized") for key in constants if key.endswith("kernel/quantized")} == {
        node["arrays"]["weights"] for node in products
    }
    if name == "shared_net":
        ours = sorted(arrays[node["arrays"]["bias"]].tolist() for node in products)
        theirs = sorted(value.tolist() for key, value in constants.items() if "bias" in key and "/quantized" in key)
        assert ours == theirs


def test_its_topology_can_be_followed_from_the_inputs_to_the_outputs(tmp_path):
    report = qdq.files.save_firmware(calibrated("padded_net", "onnxruntime"), tmp_path / "model.npz")

    with zipfile.ZipFile(tmp_path / "model.npz") as archive:
        held = json.loads(archive.read("model.json"))
    arrays = interpreter.read(tmp_path / "model.npz")
    known = set(held["inputs"])
    for node in held["nodes"]:
        assert set(node["inputs"]) <= known
        known |= set(node["outputs"])
    assert set(held["outputs"].values()) <= known == set(held["tensors"])
    assert set(arrays) - {"model.json"} == set(held["arrays"])
    for name, said in held["arrays"].items():
        assert (said["shape"], said["dtype"]) == (list(arrays[name].shape), str(arrays[name].dtype))
        assert len(said["axes"]) == arrays[name].ndim
    by_name = {node["name"]: node for node in held["nodes"]}
    grouped = by_name["grouped"]
    assert grouped["layers"] == ["pad", "grouped", "grouped_norm", "grouped_relu"]
    assert (grouped["padding"], grouped["groups"], grouped["strides"]) == ([[1, 0], [2, 1]], 2, [1, 1])
    assert by_name["dilated"]["dilation"] == [2, 2]
    assert by_name["dilated"]["padding"] == [[2, 2], [2, 2]]
    assert by_name["deep"]["depth_multiplier"] == 2
    assert grouped["clamp"][0] == held["tensors"]["grouped_relu/quantized"]["zero_point"]
    assert report.operators == {
        "Quantize": 1,
        "Conv2D": 2,
        "MaxPool": 2,
        "DepthwiseConv2D": 1,
        "Reshape": 1,
        "Dense": 1,
    }
    costs = qdq.analysis.layer_costs(calibrated("padded_net", "onnxruntime").plan)
    assert report.multiply_accumulates == sum(cost.macs for cost in costs.values())


def test_a_file_written_again_is_the_same(tmp_path):
    for name in "ab":
        qdq.files.save_firmware(calibrated("stepped_net", "litert"), tmp_path / f"{name}.npz")

    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_result_that_is_read_twice_is_computed_once(tmp_path):
    image = keras.Input((4,), name="image")
    scores = layers.Dense(3, name="head")(image)
    model = keras.Model(image, [scores, layers.Softmax(name="soft")(scores), scores])
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, np.eye(4, dtype=np.float32), verbose=False)

    report = qdq.files.save_firmware(q_model, tmp_path / "model.npz")

    assert report.operators == {"Quantize": 1, "Dense": 1, "Softmax": 1}
    assert set(document(tmp_path / "model.npz")["outputs"].values()) == {"head", "soft"}


def test_another_target_replans_the_model(tmp_path):
    q_model = calibrated("mobile_net", "onnxruntime")
    before = [np.array(weight) for weight in q_model.weights]

    report = qdq.files.save_firmware(q_model, tmp_path / "model.npz", target="litert")

    assert report.target == document(tmp_path / "model.npz")["target"] == "litert"
    assert "Planned anew for litert" in report.summary()
    assert json.loads(json.dumps(report.to_dict()))["path"] == str(tmp_path / "model.npz")
    assert document(tmp_path / "model.npz")["tensors"]["image/quantized"]["dtype"] == "int8"
    for weight, values in zip(q_model.weights, before, strict=True):
        np.testing.assert_array_equal(np.array(weight), values)


def quantized(make, spec=None, size=(8, 8, 2), **options):
    """Return a calibrated model of one input."""
    keras.utils.set_random_seed(0)
    image = keras.Input(size, name="image")
    q_model = qdq.quantize_model(
        keras.Model(image, make(image)), quantization_spec=spec, target="onnxruntime", **options
    )
    data = np.random.default_rng(0).normal(size=(8, *size)).astype(np.float32)
    qdq.calibrate(q_model, data, verbose=False)
    return q_model


def spec_of(name, **settings):
    spec = qdq.QuantizationSpec()
    spec.add(name, **settings)
    return spec


def conv(name="conv", **settings):
    return layers.Conv2D(4, 3, padding="same", name=name, **settings)


def sixteen_bits(**parts):
    return spec_of("conv", quantize_config=qdq.spec.LayerQuantizeConfig(**parts))


def test_the_clamp_holds_the_activation_where_the_grid_goes_on(tmp_path):
    q_model = quantized(lambda x: conv("second")(layers.ReLU(6.0, name="relu")(conv("first")(x))))
    (behind,) = (layer for layer in q_model.activation_quantizers if layer.tensor == "relu")
    behind.set_range(-1.0, 9.0)
    qdq.files.save_firmware(q_model, tmp_path / "model.npz")
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    images = 40 * np.random.default_rng(1).normal(size=(4, 8, 8, 2)).astype(np.float32)

    found = interpreter.run(tmp_path / "model.npz", {"image": images})["relu/quantized"]

    grid = document(tmp_path / "model.npz")["tensors"]["relu/quantized"]
    (node,) = (node for node in document(tmp_path / "model.npz")["nodes"] if node["name"] == "first")
    top = round(6.0 / grid["scale"]) + grid["zero_point"]
    assert node["clamp"] == [grid["zero_point"], top]
    assert (found.min(), found.max()) == (grid["zero_point"], top)
    theirs = run_file(tmp_path / "model.onnx", {"image": images}, ["relu/quantized"], optimized=False)["relu/quantized"]
    assert differing(found, theirs) <= 2  # it sums in float32


def two_readers(x):
    x = conv("stem")(x)
    return layers.Add(name="sum")([conv("left")(x), conv("right")(x)])


REFUSED = {
    "other layers, by name": (
        lambda x: layers.LeakyReLU(name="leak")(layers.Conv2DTranspose(2, 3, name="up")(conv()(x))),
        None,
        ["'up' (Conv2DTranspose)", "'leak' (LeakyReLU, leaky_relu)", "Leave that part outside", "It has: Conv2D"],
    ),
    "an activation inside": (
        conv(activation="silu"),
        None,
        ["'conv' (Conv2D with activation silu)"],
    ),
    "a normalization that is not folded": (
        lambda x: conv()(layers.BatchNormalization(name="norm")(x)),
        None,
        ["'norm' (BatchNormalization that no layer in front of it takes up)"],
    ),
    "an operation with a constant": (lambda x: ops.maximum(conv()(x), 0.5), None, ["Maximum"]),
    "a constant that becomes a bias": (
        lambda x: layers.ReLU(name="relu")(conv()(x) + np.float32(1)),
        None,
        ["adds a constant", "the bias of the layer in front"],
    ),
    "a float layer": (
        lambda x: layers.Dense(2, name="head")(layers.Flatten()(conv()(x))),
        spec_of("head", quantize_weight=False),
        ["'head'", "its weight stays in float", "quantize_weight=True"],
    ),
    "16 bits": (conv(), sixteen_bits(activation={"num_bits": 16}), ["8 bits", "num_bits=16"]),
    "weights with zero points": (
        conv(),
        sixteen_bits(weight={"symmetric": False}),
        ["'conv'", "zero points other than 0", "symmetric=True"],
    ),
    "a tensor on two grids": (
        two_readers,
        spec_of("left", quantize_config=qdq.spec.LayerQuantizeConfig(activation={"symmetric": True})),
        ["'stem'", "read in two forms", "quantize the output of the layer"],
    ),
    "a sum of three": (
        lambda x: layers.Add(name="sum")([conv("a")(x), conv("b")(x), conv("c")(x)]),
        None,
        ["'sum'", "two tensors of one shape at a time"],
    ),
    "products along several axes": (
        lambda x: layers.Dense(2, name="head")(conv()(x)),
        None,
        ["'head'", "Flatten in front of it"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_integer_form_is_refused_by_name(case, tmp_path):
    make, spec, messages = REFUSED[case]
    q_model = quantized(make, spec)

    with pytest.raises(ExportError) as caught:
        qdq.files.save_firmware(q_model, tmp_path / "model.npz")

    expected = (*messages, "qdq-workbench docs firmware", "Received:")
    assert [text for text in expected if text not in str(caught.value)] == []
    assert list(tmp_path.iterdir()) == []


def test_an_open_size_is_refused(tmp_path):
    image = keras.Input((None, None, 2), name="image")
    q_model = qdq.quantize_model(keras.Model(image, conv()(image)), target="onnxruntime")
    qdq.calibrate(q_model, np.ones((2, 8, 8, 2), np.float32), verbose=False)

    with pytest.raises(ExportError, match="Build the model with a fixed size"):
        qdq.files.save_firmware(q_model, tmp_path / "model.npz")


def test_a_target_with_float_biases_is_refused(tmp_path):
    q_model = calibrated("mobile_net", "onnxruntime")
    own = dataclasses.replace(qdq.targets.get_target("onnxruntime"), name="own", bias="float")

    for target in ("tensorrt", own):
        with pytest.raises(TargetError, match="one of 'litert', 'onnxruntime'"):
            qdq.files.save_firmware(q_model, tmp_path / "model.npz", target=target)


def test_models_and_paths_are_checked_before_anything_is_written(tmp_path):
    q_model = calibrated("mobile_net", "onnxruntime")
    image = keras.Input((2,), name="image")
    model = keras.Model(image, layers.Dense(1)(image))
    with pytest.raises(NotQuantizedError):
        qdq.files.save_firmware(model, tmp_path / "model.npz")
    with pytest.raises(UncalibratedError):
        qdq.files.save_firmware(qdq.quantize_model(model, target="litert"), tmp_path / "model.npz")
    for wrong in ({"path": "model.zip"}, {"c_header": "weights.c"}, {"interpreter": "run"}, {"c_header": "no/w.h"}):
        paths = {key: tmp_path / name for key, name in {"path": "model.npz", **wrong}.items()}
        with pytest.raises(OutputPathError):
            qdq.files.save_firmware(q_model, **paths)
    assert list(tmp_path.iterdir()) == []
