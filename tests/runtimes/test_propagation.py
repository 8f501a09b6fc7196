"""What `runtimes/propagation.py` says of moving pairs, measured on graphs of one operation in ONNX Runtime."""

import keras
import numpy as np
import pytest
from agreement.fast_export import FastExport
from agreement.statuses import compared_layers
from keras import layers
from mock_graphs import GraphMaker
from onnx import TensorProto, helper, numpy_helper

import qdq_workbench as qdq
from qdq_workbench.verification.integer_kernels import _as_file, _integer_tensors, optimized_graph

OPERATIONS = {
    "MaxPool": ({"kernel_shape": [2, 2]}, ()),
    "Reshape": ({}, (np.array([-1, 4, 64]),)),
    "Transpose": ({"perm": [0, 2, 3, 1]}, ()),
}
# Readers of the result: F in float, S through a pair with the scale of the input, D with another, O output of the model
READERS = ("F", "S", "D", "O", "FF", "SF", "SS", "SD", "SO")
INPUT_QUANTIZED = dict.fromkeys(READERS, False) | dict.fromkeys(("F", "S", "O", "FF", "SS"), True)
INPUT_FLOAT = dict.fromkeys(READERS, False) | dict.fromkeys(("S", "D", "SS"), True)


def passes_integers(operation, readers, folder, *, quantized, fan_out):
    """Return whether ONNX Runtime lets one operation move integers."""
    attributes, more = OPERATIONS[operation]
    constants = {"S": np.float32(0.1), "D": np.float32(0.2), "zero": np.uint8(3)}
    constants.update({f"argument_{index}": value for index, value in enumerate(more)})
    nodes, outputs = [helper.make_node("Tanh", ["x"], ["t"], "tanh")], []

    def pair(source, name, scale):
        nodes.append(helper.make_node("QuantizeLinear", [source, scale, "zero"], [f"{name}_q"], f"{name}_q"))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", scale, "zero"], [name], name))
        return name

    source = pair("t", "t_pair", "S") if quantized else "t"
    arguments = [f"argument_{index}" for index in range(len(more))]
    nodes.append(helper.make_node(operation, [source, *arguments], ["p"], "moves", **attributes))
    if fan_out:
        nodes.append(helper.make_node("Sin", [source], ["beside"], "beside"))
        outputs.append("beside")
    for index, reader in enumerate(readers):
        if reader == "O":
            outputs.append("p")
            continue
        tensor = "p" if reader == "F" else pair("p", f"read_{index}", reader)
        nodes.append(helper.make_node("Cos", [tensor], [f"out_{index}"], f"cos_{index}"))
        outputs.append(f"out_{index}")
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    _, path = _as_file(model, folder)
    optimized = optimized_graph(path, folder / "optimized.onnx")
    node = next(node for node in optimized.graph.node if node.name == "moves")
    return node.input[0] in _integer_tensors(optimized)


@pytest.mark.parametrize("operation", OPERATIONS)
class TestPassing:
    def test_integers_arrive(self, operation, tmp_path):
        for fan_out in (False, True):
            found = {
                readers: passes_integers(operation, readers, tmp_path, quantized=True, fan_out=fan_out)
                for readers in INPUT_QUANTIZED
            }
            assert found == INPUT_QUANTIZED

    def test_floats_arrive_and_the_pair_behind_moves_in_front(self, operation, tmp_path):
        found = {
            readers: passes_integers(operation, readers, tmp_path, quantized=False, fan_out=False)
            for readers in INPUT_FLOAT
        }
        assert found == INPUT_FLOAT

    def test_floats_that_are_read_elsewhere_too_stay(self, operation, tmp_path):
        assert not any(
            passes_integers(operation, readers, tmp_path, quantized=False, fan_out=True) for readers in INPUT_FLOAT
        )


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_two_pairs_in_a_row_stay_two_whatever_their_ranges(rate, tmp_path):
    """The pool's pair has the scale of its input; behind a Dropout follows that of a concatenation."""
    image = keras.Input((8, 8, 3), name="image")
    pooled = layers.MaxPooling2D(2, name="pool")(layers.Conv2D(4, 3, padding="same", name="conv")(image))
    kept = layers.Dropout(rate, name="drop")(pooled) if rate else pooled
    wide = layers.Conv2D(4, 3, strides=2, padding="same", name="wide")(image)
    model = keras.Model(image, layers.Conv2D(2, 1, name="last")(layers.Concatenate(name="concat")([kept, wide])))
    spec = qdq.QuantizationSpec()
    spec.add("pool", quantize_input=True, quantize_output=True)
    if rate:
        spec.add("drop", quantize_input=True, quantize_weight=False)
    export = FastExport(model)
    cases = [qdq.AutoQDQCase("onnxruntime")]
    plan = qdq.plan_placement(export.graph, "full", spec, cases, target="onnxruntime")
    explanation = qdq.explain(plan)
    seen = set()
    for seed in range(6):
        file = export.build(plan, seed=seed)
        runs = {entry.layer: found for entry, found in compared_layers(explanation, file, tmp_path)}
        seen |= runs["pool"]
    assert explanation.for_layer("pool").status == "int8"
    assert seen == {"int8"}


@pytest.mark.parametrize("pool", [layers.MaxPooling2D, layers.GlobalMaxPooling2D])
def test_a_maximum_has_the_range_of_the_first_of_two_pairs_in_front_of_it(pool, tmp_path):
    image = keras.Input((8, 8, 3), name="image")
    model = keras.Model(image, pool(name="pool")(layers.Dropout(0.5, name="drop")(image)))
    spec = qdq.QuantizationSpec()
    spec.add("drop", quantize_weight=False, quantize_output=True)
    spec.add("pool", quantize_weight=False, quantize_output=True)
    export = FastExport(model)
    plan = qdq.plan_placement(export.graph, quantization_spec=spec, target="onnxruntime")
    explanation = qdq.explain(plan)
    (runs,) = (
        found for entry, found in compared_layers(explanation, export.build(plan), tmp_path) if entry.layer == "pool"
    )
    assert explanation.for_layer("pool").status == "int8"
    assert runs == {"int8"}


@pytest.mark.parametrize("fan_out", [False, True])
def test_a_pair_moves_in_front_of_an_operation_that_alone_reads_floats(fan_out):
    """As in `INPUT_FLOAT`."""
    maker, spec = GraphMaker(), qdq.QuantizationSpec()
    maker.add("Activation", "first", "image", settings={"activation": "tanh"})
    maker.add("MaxPooling2D", "pool", "first")
    ends = ["pool"]
    if fan_out:
        ends.append(maker.add("Activation", "beside", "first", settings={"activation": "tanh"}))
    spec.add("pool", quantize_input=False, quantize_output=True)
    for name in ("first", *ends[1:]):
        spec.add(name, quantize_input=False, quantize_output=False)
    plan = qdq.plan_placement(maker.graph(*ends), quantization_spec=spec, target="onnxruntime")
    layer = qdq.explain(plan).for_layer("pool")
    assert (layer.status, layer.rule) == (("float", "ORT-INPUT") if fan_out else ("int8", "ORT-INTEGER"))


@pytest.mark.parametrize("symmetric", [False, True])
def test_no_pair_is_advised_whose_settings_would_not_be_those_of_a_reader(symmetric):
    maker, spec = GraphMaker(), qdq.QuantizationSpec()
    maker.add("Softmax", "first", "image")
    maker.add("Add", "sum", "image", "first")
    maker.add("Conv2D", "next", "sum")
    maker.add("Softmax", "beside", "sum")
    for name in ("first", "beside"):
        spec.add(name, quantize_input=False, quantize_output=False)
    own = qdq.LayerQuantizeConfig(output={"symmetric": symmetric})
    spec.add("sum", quantize_input=False, quantize_output=False, quantize_config=own)
    spec.add("next", quantize_config=qdq.LayerQuantizeConfig(activation={"symmetric": True}))
    plan = qdq.plan_placement(maker.graph("next", "beside"), quantization_spec=spec, target="onnxruntime")
    layer = qdq.explain(plan).for_layer("sum")
    assert layer.rule == "ORT-INPUT"
    assert list(layer.fix) == [{"name": "sum", "quantize_output": True}] * symmetric
