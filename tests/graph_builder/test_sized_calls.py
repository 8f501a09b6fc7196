"""Operations of a composite layer with sizes that are known only at run time."""

import keras
import numpy as np
import pytest
from composite_layers import STEPS, shaken
from keras import layers, ops
from small_models import flat

import qdq_workbench as qdq
from qdq_workbench.graph_builder.sized_calls import SizedCall, sized_call


def of(function):
    """Return a composite layer whose result is a function of a product and of its input."""

    class Own(layers.Layer):
        def build(self, shape):
            self.dense = layers.Dense(8)
            self.dense.build(shape)

        def call(self, x):
            return function(self.dense(x), ops.shape(x)[1])

    return Own(name="own")


def filled(y, steps):
    return ops.broadcast_to(ops.mean(y, axis=1, keepdims=True), (ops.shape(y)[0], steps, 8))


CALLS = {
    "the first steps": lambda y, steps: y[:, : steps - 2],
    "the last steps": lambda y, steps: y[:, steps - 2 :],
    "every second step of some, on a new axis": lambda y, steps: y[..., None, 1:steps:2, :][:, 0],
    "padded": lambda y, steps: ops.pad(y, ((0, 0), (steps - 4, 1), (0, 0)), constant_values=2.0),
    "broadcast": filled,
    "a slice": lambda y, steps: ops.slice(y, (0, 1, 0), (ops.shape(y)[0], steps - 1, 8)),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_computes_the_same_in_the_copy_in_a_loaded_model_and_in_the_file(name, tmp_path):
    x = keras.Input((None, 8), name="x")
    model = shaken(keras.Model(x, layers.Dense(3, name="head")(of(CALLS[name])(x))))
    graph = qdq.build_graph(model)
    assert graph.blocks
    assert "SizedCall" in {node.class_name for node in graph.nodes}
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, STEPS, verbose=False)
    for data in (STEPS, STEPS[:, :5]):
        np.testing.assert_array_equal(flat(qdq.strip(q_model)(data))[0], flat(model(data))[0])
    q_model.save(tmp_path / "q.keras")
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "q.keras")(STEPS), q_model(STEPS))
    report = qdq.export_onnx(q_model, tmp_path / "q.onnx")
    assert qdq.verify_onnx(report.path, q_model, STEPS).passed


def test_known_axes_stay_known():
    x = keras.Input((6, 8, 4))
    size = keras.ops.convert_to_tensor(3)
    assert sized_call("get_item", x, [(Ellipsis, slice(None, size), slice(1, 3))]).shape == (None, 6, None, 2)
    assert sized_call("get_item", x, [(slice(None), 0, None, slice(size, None))]).shape == (None, 1, None, 4)
    assert sized_call("pad", x, [((0, 0), (1, 2), (size, 0), (0, 0)), "constant", None]).shape == (None, 9, None, 4)
    assert sized_call("broadcast_to", x, [(size, 6, 8, 4)]).shape == (None, 6, 8, 4)
    assert sized_call("slice", x, [(0, 0, size, 0), (1, 6, 2, 4)]).shape == (1, 6, 2, 4)
    assert sized_call("get_item", x, [(slice(0, 2),)]) is None


def test_other_functions_are_refused():
    with pytest.raises(ValueError, match=r"A SizedCall is a call of .* Received: exec"):
        SizedCall("exec", [], ())
