"""Two pairs in a row stay two in ONNX Runtime, which would merge them and leave the bias behind them as it was."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from mock_graphs import GraphMaker
from pass_graphs import model_of
from runtimes_agreement import compare

import qdq_workbench as qdq
from qdq_workbench.export.passes.keep_pairs_apart import keep_pairs_apart
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.verification.integer_kernels import optimized_graph
from qdq_workbench.verification.rows_of_pairs import row_differences
from qdq_workbench.verification.typed_file import TypedFile

GENERATOR = np.random.default_rng(0)
ROWS = {
    "overlap": ((-1.0, 3.0), (-2.0, 2.0)),
    "wider": ((-1.0, 3.0), (-2.0, 4.0)),
    "narrower": ((-4.0, 4.0), (-1.0, 1.0)),
}


def fixed(ends):
    return {"quantizer": "fixed", "init_min": ends[0], "init_max": ends[1]}


def quantized(product, shape, row):
    """A product with a large bias behind two pairs in a row, only a Dropout between them."""
    keras.utils.set_random_seed(0)
    x = keras.Input(shape, name="x")
    y = layers.Dropout(0.5, name="drop")(layers.LeakyReLU(0.5, name="leaky")(x))
    model = keras.Model(x, product(y))
    spec = qdq.QuantizationSpec()
    spec.add("leaky", quantize_output=True, quantize_config=qdq.LayerQuantizeConfig(output=fixed(row[0])))
    spec.add("product", quantize_config=qdq.LayerQuantizeConfig(activation=fixed(row[1])))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    data = GENERATOR.normal(size=(8, *shape)).astype("float32")
    qdq.calibrate(q_model, data, verbose=False)
    return q_model, data


def clips_between(path):
    return [node.name for node in onnx.load(path).graph.node if node.op_type == "Clip"]


@pytest.mark.parametrize("row", ROWS)
def test_a_product_behind_two_pairs_adds_its_bias(row, tmp_path):
    product = layers.Dense(3, bias_initializer=keras.initializers.RandomNormal(stddev=30.0), name="product")
    q_model, data = quantized(product, (7,), ROWS[row])
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert clips_between(tmp_path / "model.onnx") == ["drop/QuantizeLinear/in_float"]
    report = qdq.verify_onnx(tmp_path / "model.onnx", q_model, data)
    assert report.passed, report.summary()
    assert report.figures["integer_kernels"]["Gemm"] == [1, 1]


@pytest.mark.parametrize("row", ROWS)
def test_a_convolution_behind_two_pairs_runs_on_integers(row, tmp_path):
    product = layers.Conv2D(3, 3, bias_initializer="normal", name="product")
    q_model, _ = quantized(lambda x: layers.Conv2D(2, 1, name="last")(product(x)), (6, 6, 3), ROWS[row])
    assert qdq.explain(q_model).for_layer("product").status == "int8"
    compared, differing = compare(q_model, tmp_path / "model.onnx")
    assert (compared, differing) == (3, [])


def test_no_clip_stands_where_the_runtime_merges_nothing(tmp_path):
    product = layers.Dense(3, bias_initializer="normal", name="product")
    q_model, _ = quantized(product, (7,), (ROWS["wider"][0], ROWS["wider"][0]))
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert clips_between(tmp_path / "model.onnx") == []  # the two pairs are equal
    q_model, _ = quantized(product, (7,), ROWS["wider"])
    qdq.export_onnx(q_model, tmp_path / "other.onnx", target="openvino")
    assert clips_between(tmp_path / "other.onnx") == []


#: Two pairs between a sine and a cosine.
ROW = [
    ("Sin", "x", "sine"),
    ("QuantizeLinear", "sine,s,z", "first/Q"),
    ("DequantizeLinear", "first/Q,s,z", "first/DQ"),
    ("QuantizeLinear", "first/DQ,t,u", "second/Q"),
    ("DequantizeLinear", "second/Q,t,u", "second/DQ"),
    ("Cos", "second/DQ", "y"),
]
S, T, Z, U = np.float32(0.01), np.float32(0.0073), np.uint8(100), np.uint8(128)
HALF = [("Sin", "x", "single"), ("Cast", "single", "sine", {"to": onnx.TensorProto.FLOAT16}), *ROW[1:5]]
#: What is changed in the row: all rows instead of it, rows behind it, or other constants; and whether it is merged.
VARIED = {
    "alone": ({}, True),
    "int8": ({"z": np.int8(3), "u": np.int8(9)}, True),
    "uint16": ({"z": np.uint16(30000), "u": np.uint16(20000)}, True),
    "int16": ({"z": np.int16(3), "u": np.int16(-9)}, True),
    "one scale": ({"t": S}, True),
    "one zero point": ({"u": Z}, True),
    "two types": ({"z": np.int8(3)}, False),
    "channels first": ({"s": np.float32([1, 2, 3]), "z": np.uint8([4, 5, 6])}, False),
    "channels last": ({"t": np.float32([1, 2, 3]), "u": np.uint8([4, 5, 6])}, False),
    "half": ({"rows": [*HALF, ("Cos", "second/DQ", "y")], "s": np.float16(S), "t": np.float16(T)}, False),
    "integers": ({"rows": [("Cast", "x", "first/Q", {"to": onnx.TensorProto.UINT8}), *ROW[2:]]}, False),
    "first read twice": ({"more": [("DequantizeLinear", "first/Q,s,z", "a"), ("Tan", "a", "w")]}, False),
    "first read as integers": ({"more": [("Cast", "first/Q", "w", {"to": 1})]}, False),
    "pair read twice": ({"more": [("Tan", "first/DQ", "w")]}, False),
    "second read twice": ({"more": [("DequantizeLinear", "second/Q,t,u", "a"), ("Tan", "a", "w")]}, True),
    "second read as integers": ({"more": [("Cast", "second/Q", "w", {"to": 1})]}, False),
    "result read twice": ({"more": [("Tan", "second/DQ", "w")]}, True),
    "no zero points": (
        {"rows": [(op, ",".join(reads.split(",")[:2]), writes) for op, reads, writes in ROW], "s": S},
        False,
    ),
}


def told(proto, target="onnxruntime"):
    maker = GraphMaker(shape=(None, 3))
    maker.add("ReLU", "relu", "image", shape=(None, 3))
    return list(row_differences(TypedFile(qdq.plan_placement(maker.graph("relu"), target=target), proto)))


@pytest.mark.parametrize("case", VARIED)
def test_which_rows_the_runtime_merges(case, tmp_path):
    """The pass and the verification say what ONNX Runtime does."""
    changes, is_merged = VARIED[case]
    rows, more = changes.get("rows", ROW), changes.get("more", [])
    constants = {"s": S, "z": Z, "t": T, "u": U, **changes}
    used = {name for row in (*rows, *more) for name in row[1].split(",")}
    constants = {name: value for name, value in constants.items() if name in used}
    proto = model_of([*rows, *more], {"x": (2, 3)}, "y,w" if more else "y", constants, opset=21)
    if case == "half":
        proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    optimized = optimized_graph(proto.SerializeToString(), tmp_path / "optimized.onnx")
    written = sum(node.op_type == "QuantizeLinear" for node in proto.graph.node)
    assert (sum(node.op_type == "QuantizeLinear" for node in optimized.graph.node) < written) is is_merged

    graph = Graph(proto)
    keep_pairs_apart(graph)
    assert [node.name for node in graph.nodes if node.op == "Clip"] == ["second/Q/in_float"] * is_merged
    text = "'first' and 'second' are two pairs in a row, which ONNX Runtime merges, and the bias behind them does not"
    assert told(proto) == [f"{text} change"] * is_merged
    assert told(proto, "openvino") == []
