"""Two conversions of one model that differ in order, names and the converter's hash become the same LiteRT file."""

import keras
import numpy as np
import pytest
from export.test_same_file import quantized
from keras import layers, ops
from litert_parts import LiteMaker
from tensorflow.lite.python import schema_py_generated as schema

import qdq_workbench as qdq
from qdq_workbench.export.litert.tflite_file import INT8, INT32, TFLiteFile
from qdq_workbench.export.litert.tflite_order import in_stable_order


def ordered(maker):
    """The bytes of a file in its stable order."""
    file = TFLiteFile(maker.content())
    in_stable_order(file)
    return file.content()


def halves(turned):
    """A split whose results become floats and are added to one constant; `turned` is the other order of it all."""
    maker = LiteMaker()
    names = ["codes", "first", "second", "first_float", "second_float"]
    made = {}
    for name in reversed(names) if turned else names:
        floats = name.endswith("float")
        made[name] = maker.tensor(f"model/split/{name}", (2,), *(() if floats else (INT8, None, 0.5)))
    axis = maker.tensor("arith.constant7" if turned else "arith.constant2", (), INT32, np.int32(0))
    shift = maker.tensor("arith.constant" if turned else "model/add_1/Add", (2,), data=np.float32([0, 0]))
    maker.tensor("tfl.quantize" if turned else "unread", (2,), data=np.float32([1, 2]))
    # The constant has taken the name of a result.
    sums = [maker.tensor(name, (2,)) for name in ("model/add/Add", f"model/add_1/Add{'' if turned else 1}")]
    nameless = maker.tensor("tfl.quantize1" if turned else "tfl.quantize", (2,), INT8, scales=0.25)
    maker.tensor("model/split/second", (2,))
    result = maker.tensor("PartitionedCall:0", (2,))
    maker.operator("SPLIT", [axis, made["codes"]], [made["first"], made["second"]])
    dequantized = [("DEQUANTIZE", [made[name]], [made[f"{name}_float"]]) for name in ("first", "second")]
    for each in reversed(dequantized) if turned else dequantized:
        maker.operator(*each)
    added = [
        ("ADD", [made[f"{name}_float"], shift], [end]) for name, end in zip(("first", "second"), sums, strict=True)
    ]
    for each in reversed(added) if turned else added:
        maker.operator(*each)
    maker.operator("NEG", [made["first_float"]], [maker.tensor("model/unread/Neg", (2,))])
    maker.operator("QUANTIZE", [sums[0]], [nameless])
    dequantized_again = maker.tensor("model/sub/floats", (2,))
    maker.operator("DEQUANTIZE", [nameless], [dequantized_again])
    maker.operator("SUB", [sums[1], dequantized_again], [result])
    maker.graph.inputs, maker.graph.outputs = [made["codes"]], [result]
    signature = schema.SignatureDefT()
    signature.signatureKey, signature.inputs, signature.outputs = "serving_default", [], []
    for entries, name, index in ((signature.inputs, "x", made["codes"]), (signature.outputs, "y", result)):
        entry = schema.TensorMapT()
        entry.name, entry.tensorIndex = name, index
        entries.append(entry)
    maker.model.signatureDefs = [signature]
    return maker


def test_order_and_names_follow_from_the_outputs_alone():
    written = ordered(halves(turned=False))
    assert ordered(halves(turned=True)) == written
    file = TFLiteFile(written)
    (graph,) = file.graphs
    assert [file.name_of(each) for each in graph.operators] == [
        *("SPLIT", "DEQUANTIZE", "ADD", "DEQUANTIZE", "ADD", "QUANTIZE", "DEQUANTIZE", "SUB")
    ]
    names = [tensor.name.decode() for tensor in graph.tensors]
    assert names == [
        "model/split/codes",
        "model/split/constant",
        "model/split/first",
        "model/split/second",
        "model/split/second_float",
        "model/add_1/constant",
        "model/add_1/Add",
        "model/split/first_float",
        "model/add/Add",
        "tfl.quantize",
        "model/sub/floats",
        "PartitionedCall:0",
    ]
    (signature,) = file.signatures
    ends = {each.name.decode(): names[each.tensorIndex] for each in (*signature.inputs, *signature.outputs)}
    assert ends == {"x": "model/split/codes", "y": "PartitionedCall:0"}
    assert [names[index] for index in (*graph.inputs, *graph.outputs)] == list(ends.values())
    np.testing.assert_array_equal(file.values(graph.tensors[names.index("model/add_1/constant")]), [0, 0])


def test_what_is_written_once_stays_as_it_is():
    written = ordered(halves(turned=False))
    file = TFLiteFile(written)
    in_stable_order(file)
    assert file.content() == written


def test_operators_stay_where_one_of_them_has_no_result():
    maker = LiteMaker()
    x, y, z = (maker.tensor(name, (2,)) for name in "xyz")
    maker.operator("NEG", [x], [z])
    maker.operator("CALL_ONCE", [], [])
    maker.operator("ABS", [x], [y])
    maker.graph.inputs, maker.graph.outputs = [x], [y]
    file = TFLiteFile(ordered(maker))
    assert [file.name_of(each) for each in file.graphs[0].operators] == ["NEG", "CALL_ONCE", "ABS"]
    assert [tensor.name for tensor in file.graphs[0].tensors] == [b"x", b"z", b"y"]


def both_ways():
    x = keras.Input((5, 4), name="x")
    gru = layers.GRU(3, return_sequences=True, return_state=True)
    return keras.Model(x, layers.Bidirectional(gru, merge_mode=None, name="both")(x), name="model")


def chosen():
    x = keras.Input((4, 6), name="x")
    values, _ = ops.top_k(layers.Dense(6, name="dense")(x), 2)
    return keras.Model(x, [values, *ops.unstack(ops.relu(x), axis=1), *ops.split(ops.maximum(x, x), 3, axis=2)])


MODELS = [both_ways, chosen]


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_every_export_writes_the_same_bytes(make, tmp_path, fresh):
    q_model = quantized(make)
    written = set()
    for number in range(3):
        report = qdq.export_tflite(q_model, tmp_path / f"{number}.tflite", batch=1)
        written.add(report.path.read_bytes())
    q_model.save(tmp_path / "model.keras")
    done = fresh.run(IN_ANOTHER.format(model=str(tmp_path / "model.keras"), file=str(tmp_path / "there.tflite")))
    assert not done.returncode, done.stderr
    assert written == {(tmp_path / "there.tflite").read_bytes()}
    verified = qdq.files.verify_tflite(tmp_path / "there.tflite", q_model)
    assert verified.passed, verified.summary()


IN_ANOTHER = """
import qdq_workbench as qdq
qdq.export_tflite(qdq.files.load_model({model!r}), {file!r}, batch=1)
"""
