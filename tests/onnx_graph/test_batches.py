"""A file is run on any number of samples: at once where it can be, else batch by batch."""

import keras
import numpy as np
import pytest
from onnx import TensorProto, helper

import qdq_workbench as qdq
from qdq_workbench.onnx_graph.batches import first_batch, run_session
from qdq_workbench.onnx_graph.sessions import RunError, make_session

RANDOM = np.random.default_rng(0)
TABLE, X = RANDOM.normal(size=(3, 2)).astype("float32"), RANDOM.normal(size=(7, 4, 2)).astype("float32")


def proto(inputs, outputs, nodes, shape=()):
    ends = (
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in each.items()] for each in (inputs, outputs)
    )
    constants = [helper.make_tensor("shape", TensorProto.INT64, [len(shape)], shape)] if shape else []
    graph = helper.make_graph([helper.make_node(*node) for node in nodes], "net", *ends, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def run(model, inputs, **kwargs):
    return run_session(make_session(model, optimized=False), inputs, **kwargs)


@pytest.mark.parametrize("batch", ["N", 2, 8])
def test_a_table_in_front_of_the_samples_is_the_same_for_all_of_them(batch):
    nodes = [("Transpose", ["table"], ["turned"]), ("MatMul", ["x", "turned"], ["y"]), ("Relu", ["table"], ["kept"])]
    model = proto({"table": [3, 2], "x": [batch, 4, 2]}, {"y": [batch, 4, 3], "kept": [3, 2]}, nodes)
    found = run(model, {"table": TABLE, "x": X})
    np.testing.assert_allclose(found["y"], X @ TABLE.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["kept"], np.maximum(TABLE, 0))
    part = first_batch(model, {"table": TABLE, "x": X})
    assert (part["table"].shape, len(part["x"])) == ((3, 2), 7 if batch == "N" else batch)


@pytest.mark.parametrize("batch", ["N", 2, 3, 8])
def test_batch_and_time_in_one_axis_are_all_of_the_samples(batch):
    model = proto({"x": [batch, 4, 2]}, {"y": ["M", 2]}, [("Reshape", ["x", "shape"], ["y"])], (-1, 2))
    np.testing.assert_array_equal(run(model, {"x": X})["y"], X.reshape(-1, 2))


def test_an_output_that_mixes_samples_is_refused_where_the_batch_is_fixed():
    nodes = [("Transpose", ["x"], ["turned"]), ("Relu", ["x"], ["rectified"])]  # (2, 4, batch)
    ends = {"turned": [2, 4, 3], "rectified": [3, 4, 2]}
    model = proto({"x": [3, 4, 2]}, ends, nodes)
    with pytest.raises(RunError, match=r"'turned' cannot be divided into samples.*batch of 3.*shape \(2, 4, 3\)"):
        run(model, {"x": X})
    assert run(model, {"x": X[:3]})["turned"].shape == (2, 4, 3)
    assert run(model, {"x": X}, strict=False)["turned"].shape == (6, 4, 3)


def test_time_and_batch_in_one_axis_are_refused_also_where_all_values_are_of_one_size():
    nodes = [("Transpose", ["x"], ["turned"]), ("Reshape", ["turned", "shape"], ["y"])]
    model = proto({"x": [2, 4, 2]}, {"y": ["M", 2]}, nodes, (-1, 2))
    model.graph.node[0].attribute.append(helper.make_attribute("perm", [1, 0, 2]))
    with pytest.raises(RunError, match="'y' cannot be divided into samples"):
        run(model, {"x": RANDOM.uniform(1.0, 1.5, (3, 4, 2)).astype("float32")})


def test_inputs_of_different_batches_are_refused():
    model = proto({"a": [2, 4, 2], "b": [3, 4, 2]}, {"y": ["N", 4, 2]}, [("Concat", ["a", "b"], ["y"])])
    model.graph.node[0].attribute.append(helper.make_attribute("axis", 0))
    with pytest.raises(RunError, match="cannot be divided into the file's batches"):
        run(model, {"a": X, "b": X})


def test_equal_results_of_samples_are_still_those_of_samples():
    model = proto({"x": [1, 4, 2]}, {"y": [1, 4, 2]}, [("Relu", ["x"], ["y"])])
    assert run(model, {"x": -np.abs(X)})["y"].shape == X.shape


def test_keras_models_with_such_ends_are_verified(tmp_path):
    keras.utils.set_random_seed(0)
    steps = keras.Input((4, 2), name="steps")
    table = keras.Input(batch_shape=(3, 2), name="a_table")
    hidden = keras.layers.Dense(2, name="hidden")(steps)
    scores = keras.ops.matmul(hidden, keras.ops.transpose(table))
    model = keras.Model([table, steps], keras.ops.reshape(scores, (-1, 3)))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    data = [(([TABLE, part]),) for part in (X[:4], X[4:])]
    qdq.calibrate(q_model, data, verbose=False)
    qdq.export_onnx(q_model, tmp_path / "net.onnx")
    report = qdq.verify_onnx(tmp_path / "net.onnx", q_model, data)
    assert report.passed, report.summary()
