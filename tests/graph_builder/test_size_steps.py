import keras
import numpy as np
import pytest
import tensorflow as tf

from qdq_workbench.graph_builder import size_steps
from qdq_workbench.graph_builder.between_layers import COMPUTE
from qdq_workbench.graph_builder.size_steps import SizeSteps, constant_of
from qdq_workbench.graph_builder.trace_scope import TraceScope

ROWS = np.zeros((2, 5, 3), np.float32)


def found(build, compute_dtype="float32"):
    """Return what is found about a tensor that is built in a graph, of a scope and two symbolic tensors."""
    x, y = keras.KerasTensor((None, None, 3)), keras.KerasTensor((None, 4))
    results = []

    def run():
        scope = TraceScope()
        tensor = build(scope, x, y)
        results.append(SizeSteps(tf.compat.v1.get_default_graph(), scope, compute_dtype).found(tensor))

    tf.function(run, autograph=False).get_concrete_function()
    return results[0], x, y


def test_a_tensor_of_sizes_is_computed_anew_from_the_sizes():
    result, x, y = found(lambda s, x, y: tf.stack([s.size(x, 0) * 2, s.size(y, 0), s.size(x, 1) + 1]))
    assert [each is one for each, one in zip(result.measured, (x, y), strict=True)] == [True, True]
    assert result.form["sizes"] == [[0, 0], [1, 0], [0, 1]]
    layer = result.layer("float32")
    np.testing.assert_array_equal(layer([ROWS, np.zeros((7, 4))]), [4, 7, 6])
    assert (result.form["shape"], result.form["result_dtype"], result.constant) == ((3,), "int32", None)


def test_a_step_that_is_read_twice_is_made_once():
    def build(scope, x, y):
        once = scope.size(x, 1) + 1
        return once * once

    result, _, _ = found(build)
    assert [step["op"] for step in result.form["steps"]] == ["Const", "AddV2", "Mul"]
    assert int(result.layer("float32")([ROWS])) == 36


def test_the_value_of_a_variable_is_an_argument():
    variable = keras.Variable(np.float32([1, 2]), name="v")
    result, _, _ = found(lambda s, x, y: s.value(variable) * tf.cast(s.size(x, 1), tf.float32))
    assert result.variables == [variable]
    np.testing.assert_array_equal(result.layer("float32")([ROWS], weights=[variable]), [5, 10])
    alone, _, _ = found(lambda s, x, y: s.value(variable) + 1)
    assert (alone.constant, alone.measured, alone.variables) == (None, [], [variable])


def test_what_depends_on_nothing_is_a_constant():
    result, _, _ = found(lambda s, x, y: tf.range(3) + 1)
    np.testing.assert_array_equal(result.constant, [1, 2, 3])
    assert hasattr(result.constant, "numpy")
    assert (result.measured, result.form) == ([], {})


def test_one_of_several_results_of_an_operation():
    def build(scope, x, y):
        return tf.raw_ops.Cumsum(
            x=tf.stack([scope.size(x, 1), scope.size(x, 1)]), axis=0, exclusive=True, reverse=False
        )

    np.testing.assert_array_equal(found(build)[0].layer("float32")([ROWS]), [0, 5])


def test_a_tensor_of_the_program_around_is_a_constant_of_the_layer():
    outside, variable = tf.constant([3, 4]), tf.Variable(1)
    result, _, _ = found(lambda s, x, y: s.size(x, 1) + outside)
    np.testing.assert_array_equal(result.layer("float32")([ROWS]), [8, 9])
    with pytest.raises(ValueError, match="ReadVariableOp is computed outside of layers"):
        found(lambda s, x, y: s.size(x, 1) + variable)


def test_impure_operations_are_refused():
    with pytest.raises(ValueError, match="RandomUniform is computed outside of layers"):
        found(lambda s, x, y: tf.random.uniform([s.size(x, 1)]))


def test_constants_that_no_configuration_can_hold_are_refused(monkeypatch):
    monkeypatch.setattr(size_steps, "_LARGEST", 6)
    cut = {count: tf.constant(np.arange(count, dtype=np.int32)) for count in (6, 7)}
    kept = found(lambda s, x, y: tf.constant(np.arange(6, dtype=np.int32))[: s.size(x, 1)])[0]
    np.testing.assert_array_equal(kept.layer("float32")([ROWS]), [0, 1, 2, 3, 4])
    with pytest.raises(ValueError, match="a constant of 7 elements is cut to an open size"):
        found(lambda s, x, y: tf.constant(np.arange(7, dtype=np.int32))[: s.size(x, 1)])
    assert constant_of(cut[6], "float32")([ROWS]).numpy().tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="a result is a constant of 7 elements"):
        constant_of(cut[7], "float32")


def test_a_constant_result_keeps_its_dtype():
    made = constant_of(tf.constant([[1.5]], tf.float16), "float32")
    assert (made([ROWS]).dtype, made.compute_output_spec([]).shape) == (tf.float16, (1, 1))


@pytest.mark.parametrize(("compute", "expected"), [("float16", COMPUTE), ("float32", "float16")])
def test_half_precision_is_that_of_the_copys_policy(compute, expected):
    result, _, _ = found(lambda s, x, y: tf.cast(s.size(x, 1), tf.float16) * tf.constant(0.5, tf.float16), compute)
    assert result.form["result_dtype"] == expected
    cast = next(step for step in result.form["steps"] if step["op"] == "Cast")
    assert cast["attributes"]["DstT"] == {"dtype": expected}
    assert cast["attributes"]["Truncate"] is False


def test_in_float32_nothing_follows_the_policy():
    result, _, _ = found(lambda s, x, y: tf.cast(s.size(x, 1), tf.float32))
    assert result.form["result_dtype"] == "float32"
