"""The traced function of a cut model: names of its ends, scopes of its calls, sizes of its inputs."""

from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from qdq_workbench.conversion.engine.recurrent import Recurrent, RecurrentCall, RecurrentCell
from qdq_workbench.errors import ExportError
from qdq_workbench.export.keras_side.cut_model import CutModel
from qdq_workbench.export.keras_side.trace import _INLINED_FUNCTIONS, CallEnds, EndNames, _tensor_spec, trace


@pytest.fixture(scope="module")
def cut():
    """A dense layer and a dropout, called twice each, cut between the calls; one input is an output too."""
    keras.utils.set_random_seed(0)
    x, meta = keras.Input((3,), name="x"), keras.Input((2,), name="meta", dtype="int32")
    dense, drop = layers.Dense(3, name="dense"), layers.Dropout(0.5, name="drop")
    source = drop(dense(x))
    placeholder = keras.Input((3,), name="p")
    y = drop(dense(placeholder))
    pairs = {"drop": (source, placeholder)}
    return CutModel({"a/x": x, "meta": meta}, {"y": y, "same": meta}, pairs, {"dense/kernel": dense.kernel})


def test_ends_are_numbered_in_their_order(cut):
    ends = EndNames.of(cut)
    assert ends.inputs == {"a/x": "qdq_input_0", "meta": "qdq_input_1"}
    assert ends.outputs == {"y": "qdq_output_0", "same": "qdq_output_1"}
    assert ends.sources == {"drop": "qdq_source_0"}
    assert ends.placeholders == {"drop": "qdq_placeholder_0"}
    assert ends.weights == {"dense/kernel": "qdq_weight_0"}
    assert ends.calls == ()
    assert ends.all_inputs() == {"qdq_input_0", "qdq_input_1", "qdq_placeholder_0", "qdq_weight_0"}


def test_constants_are_numbered_behind_the_weights_and_calls_by_their_states_and_outputs():
    calls = [
        RecurrentCall("one", None, "x", ("h", "c"), ("y",)),
        RecurrentCall("two", None, "x", (), ("y", "h")),
    ]
    ends = EndNames.of(CutModel({}, {}, weights={"w": 1}, recurrent=calls, constants={"k": 2, "b": 3}))
    assert ends.weights == {"w": "qdq_weight_0", "k": "qdq_weight_1", "b": "qdq_weight_2"}
    assert ends.calls == (
        CallEnds(("qdq_argument_0_0", "qdq_argument_0_1", "qdq_argument_0_2"), ("qdq_result_0_0",)),
        CallEnds(("qdq_argument_1_0",), ("qdq_result_1_0", "qdq_result_1_1")),
    )
    results = {"qdq_result_0_0", "qdq_result_1_0", "qdq_result_1_1"}
    assert ends.all_inputs() == {*ends.weights.values(), *results}


@pytest.fixture(scope="module")
def traced(cut):
    return trace(cut, EndNames.of(cut), dynamic_batch=False)


def test_a_function_takes_and_returns_its_ends_by_name(cut, traced):
    function, _ = traced
    assert [t.name.split(":")[0] for t in function.inputs][:4] == [
        *("qdq_input_0", "qdq_input_1", "qdq_placeholder_0", "qdq_weight_0")
    ]
    x, kernel = np.float32([[1, 2, 3]]), np.eye(3, dtype=np.float32) * 2
    meta = np.array([[5, 6]], np.int32)
    values = {"qdq_input_0": x, "qdq_input_1": meta, "qdq_placeholder_0": 10 * x, "qdq_weight_0": kernel}
    found = function(**{name: tf.constant(value) for name, value in values.items()})
    # The given kernel is used in place of the variable, and Dropout does nothing.
    np.testing.assert_allclose(found["qdq_source_0"], 2 * x, rtol=1e-6)
    np.testing.assert_allclose(found["qdq_output_0"], 20 * x, rtol=1e-6)
    np.testing.assert_array_equal(found["qdq_output_1"], meta)
    assert set(found) == {"qdq_source_0", "qdq_output_0", "qdq_output_1"}


def test_every_call_has_a_scope_of_its_own(traced):
    function, scopes = traced
    assert sorted(scopes.values()) == ["dense", "dense", "drop", "drop"]
    assert list(scopes) == [f"qdq_op_{index}" for index in range(4)]
    products = [op.name for op in function.graph.get_operations() if op.type == "MatMul"]
    assert sorted(scopes[name.split("/")[0]] for name in products) == ["dense", "dense"]
    assert len({name.split("/")[0] for name in products}) == 2


@pytest.mark.parametrize(
    ("shape", "dynamic", "expected"),
    [
        ((None, 3, None), False, [1, 3, None]),
        ((None, 3, None), True, [None, 3, None]),
        ((4, None), False, [4, None]),
        ((), False, []),
    ],
)
def test_only_an_open_batch_becomes_one_sample(shape, dynamic, expected):
    spec = _tensor_spec(keras.KerasTensor(shape, "int32"), "x", dynamic_batch=dynamic)
    assert (spec.shape.as_list(), spec.dtype, spec.name) == (expected, tf.int32, "x")


class Grown(layers.Layer):
    """Says that its result has the shape of its input, and gives it one axis more."""

    def call(self, x):
        return x[..., None]

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, x.dtype)


class Turned(layers.Layer):
    """Says that its result has the shape of its input, and swaps two axes of it."""

    def call(self, x):
        return keras.ops.transpose(x, (0, 2, 1))

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, x.dtype)


def test_a_pair_of_another_size_than_keras_says_is_refused_by_its_name():
    x, placeholder = keras.Input((3, 4), name="x"), keras.Input((3, 4), name="p")
    cut = CutModel({"x": x}, {"y": layers.Dense(2)(placeholder)}, {"turned": (Turned()(x), placeholder)})
    with pytest.raises(ExportError, match=r"'turned' has another shape than Keras says.*\(1, 4, 3\), by Keras"):
        trace(cut, EndNames.of(cut), dynamic_batch=False)


def test_a_pair_of_another_rank_than_keras_says_is_refused_by_its_name():
    x, placeholder = keras.Input((3,), name="x"), keras.Input((3,), name="p")
    cut = CutModel({"x": x}, {"y": layers.ReLU()(placeholder)}, {"grown": (Grown()(x), placeholder)})
    with pytest.raises(
        ExportError, match=r"'grown' has another shape than Keras says.*compute_output_shape.*\(1, 3, 1\), by"
    ):
        trace(cut, EndNames.of(cut), dynamic_batch=False)


def test_the_kernels_of_a_call_that_was_taken_out_are_no_inputs_of_the_function():
    x, result = keras.Input((4, 3), name="x"), keras.Input((2,), name="result")
    state = keras.Input((2,), name="state")
    kernel, other = keras.Variable(np.zeros((3, 2))), keras.Variable(np.ones((2,)), name="other")
    recurrent = keras.Variable(np.zeros((2, 2)))
    cell = RecurrentCell("RNN", 2, kernel, recurrent, None, (("Tanh", None, None),))
    call = RecurrentCall("rnn", Recurrent(((cell,),)), x, (state,), (result,))
    cut = CutModel(
        {"x": x, "state": state},
        {"y": layers.ReLU()(result)},
        weights={"kernel": kernel, "recurrent": recurrent},
        recurrent=[call],
        constants={"other": other},
    )
    ends = EndNames.of(cut)
    function, _ = trace(cut, ends, dynamic_batch=True)
    names = [tensor.name.split(":")[0] for tensor in function.inputs]
    assert names == ["qdq_input_0", "qdq_input_1", "qdq_result_0_0", "qdq_weight_2"]
    outputs = {name: tensor.shape.as_list() for name, tensor in function.structured_outputs.items()}
    assert outputs == {"qdq_output_0": [None, 2], "qdq_argument_0_0": [None, 4, 3], "qdq_argument_0_1": [None, 2]}


def calls_in(function):
    """How many calls of other functions are in the graph of a function of one number."""
    traced = tf.function(function, autograph=False).get_concrete_function(tf.TensorSpec((), tf.float32))
    return sum("PartitionedCall" in operation.type for operation in traced.graph.get_operations())


class OfAMethod:
    @tf.function(jit_compile=True)
    def twice(self, x):
        return 2 * x


INNER = {
    "compiled": tf.function(lambda x: 2 * x, jit_compile=True),
    "plain": tf.function(lambda x: 2 * x),
    "of a method": OfAMethod().twice,
}


@pytest.mark.parametrize("inner", INNER)
def test_functions_are_traced_through_until_the_last_user_is_done(inner):
    usual, scope, function = type(tf.function(len)).__call__, _INLINED_FUNCTIONS, INNER[inner]
    assert calls_in(function) == 1
    with scope:
        with pytest.raises(KeyError), scope:
            raise KeyError
        assert calls_in(function) == 0
        assert float(function(tf.constant(3.0))) == 6.0
    assert calls_in(function) == 1
    assert type(tf.function(len)).__call__ is usual


@pytest.mark.parametrize("eager", [False, True])
def test_the_switch_of_the_process_stays_as_the_user_has_it(eager):
    try:
        tf.config.run_functions_eagerly(eager)
        with _INLINED_FUNCTIONS:
            assert tf.config.functions_run_eagerly() is eager
        assert tf.config.functions_run_eagerly() is eager
    finally:
        tf.config.run_functions_eagerly(run_eagerly=False)


def test_a_loaded_function_stays_what_it_is(tmp_path):
    """The file has its graph, and no function in Python."""
    module = tf.Module()
    module.twice = tf.function(lambda x: 2 * x, input_signature=[tf.TensorSpec((), tf.float32)])
    tf.saved_model.save(module, str(tmp_path / "module"))
    loaded = tf.saved_model.load(str(tmp_path / "module"))
    with _INLINED_FUNCTIONS:
        assert calls_in(loaded.twice) == 1


def test_another_thread_traces_as_ever_and_is_not_warned():
    """The warning about functions that run eagerly is an error in these tests."""
    with _INLINED_FUNCTIONS, ThreadPoolExecutor(1) as pool:
        assert pool.submit(calls_in, INNER["plain"]).result() == 1
        data = pool.submit(lambda: list(tf.data.Dataset.range(3).map(lambda x: 2 * x).as_numpy_iterator()))
        assert data.result() == [0, 2, 4]
        assert calls_in(INNER["plain"]) == 0
