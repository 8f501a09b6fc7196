"""A merge of masked tensors chooses values by the mask: the graph tells so wherever the mask arrives at run time."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import qdq_workbench as qdq
from qdq_workbench.graph.op_kinds import MASKED

# Keras says so of reshapes, and of models, although at run time it hands the masks on to what is inside.
pytestmark = pytest.mark.filterwarnings("ignore:.*does not support masking:UserWarning")

WORDS = np.array([[1, 2, 0, 3, 0], [0, 0, 4, 5, 6]])


def embedded():
    """An input of words and their vectors, which carry a mask."""
    words = keras.Input((5,), dtype="int32", name="words")
    return words, layers.Embedding(9, 4, mask_zero=True, name="embedding")(words)


def inside(part, name="part"):
    """A model of one layer that computes `part`, called with whatever it is given."""
    given = keras.Input((5, 4))
    return keras.Model(given, part(given), name=name)


def merged(*tensors):
    return layers.Multiply(name="merge")(list(tensors))


MASKS = {
    "its own input": merged,
    "one of two inputs": lambda x: merged(layers.Reshape((5, 4))(x), x),
    "a layer that hands masks on": lambda x: merged(layers.Dense(4)(layers.Dropout(0.1)(x))),
    "a nested model, given to it": inside(merged),
    "a nested model, behind a layer": inside(lambda x: merged(layers.ReLU()(x))),
    "two nested models": inside(inside(merged)),
    "a nested model, out of it": lambda x: merged(inside(layers.ReLU(), "first")(x)),
    "a sum of two masked ones in a nested model": inside(lambda x: merged(layers.Add()([x, layers.ReLU()(x)]))),
    "a join in a nested model": inside(lambda x: merged(layers.Concatenate()([x, layers.Reshape((5, 4))(x)]))),
    "a recurrent layer that returns all steps": inside(lambda x: merged(layers.GRU(4, return_sequences=True)(x))),
}
NO_MASKS = {
    "a layer that drops masks": lambda x: merged(layers.Reshape((5, 4))(x)),
    "an operation": lambda x: merged(ops.relu(x)),
    "the last step of a recurrent layer": inside(lambda x: merged(layers.GRU(4)(x))),
    "an operation in a nested model": inside(lambda x: merged(ops.relu(x))),
    "a sum with one that has none in a nested model": inside(lambda x: merged(layers.Add()([x, ops.relu(x)]))),
}


def built(part):
    words, vectors = embedded()
    return keras.Model(words, part(vectors))


def masks_at_run_time(model):
    """Whether the merge of a model is called with tensors that carry masks, as Keras runs it."""
    found, called = [], layers.Multiply._merge_function

    def note(self, inputs):
        found.append(any(getattr(tensor, "_keras_mask", None) is not None for tensor in inputs))
        return called(self, inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers.Multiply, "_merge_function", note)
        model(WORDS)
    return found


@pytest.mark.parametrize("case", [*MASKS, *NO_MASKS])
def test_the_graph_tells_what_keras_does(case):
    model = built({**MASKS, **NO_MASKS}[case])
    graph = qdq.build_graph(model)
    (merge,) = [node for node in graph.nodes if node.class_name == "Multiply"]
    assert masks_at_run_time(model) == [case in MASKS]
    assert merge.settings.get(MASKED, False) is (case in MASKS)
    assert [node.name for node in graph.nodes if MASKED in node.settings] == [merge.name] * (case in MASKS)


def test_nothing_is_noted_in_the_model():
    model = built(MASKS["two nested models"])
    before = [(len(layer._inbound_nodes), len(layer._outbound_nodes)) for layer in model._flatten_layers()]
    qdq.build_graph(model)
    assert [(len(layer._inbound_nodes), len(layer._outbound_nodes)) for layer in model._flatten_layers()] == before


@pytest.mark.parametrize("kind", [layers.Add, layers.Average, layers.Concatenate])
def test_merges_that_read_all_values_are_what_they_are_without_a_mask(kind):
    graph = qdq.build_graph(built(lambda x: kind(name="merge")([x, x])))
    assert MASKED not in graph.node("merge").settings
