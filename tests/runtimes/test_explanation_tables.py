"""What an explanation prints: the fixes beside the reasons, within a terminal's width."""

import keras
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench._tables import WIDTH


def network():
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(4, 3, activation="gelu", name="a_convolution_with_a_long_name")(image)
    x = layers.Add(name="sum")([x, layers.Conv2D(4, 1, padding="same", name="shortcut")(x)])
    x = layers.SeparableConv2D(4, 3, name="separable")(x)
    return keras.Model(image, layers.Softmax(name="scores")(layers.Flatten()(x)), name="net")


@pytest.mark.parametrize("target", qdq.target_names())
def test_every_fix_is_shown_and_no_line_is_too_long(target):
    found = qdq.explain(network(), target)
    text = found.summary()
    assert max(map(len, text.splitlines())) <= WIDTH
    flat, page = " ".join(text.split()), found._repr_html_()
    fixable = [entry for entry in found.layers if entry.fix_text]
    assert fixable
    for entry in fixable:
        assert f"{entry.reason} fix: {entry.fix_text}" in flat
        assert entry.fix_text.replace("'", "&#x27;") in page
    count = sum(bool(entry.fix) for entry in found.layers)
    assert f"a specification helps {count} layer{'s' * (count != 1)}; " in flat


def test_what_helps_but_is_no_entry_of_a_specification_stands_apart_from_the_reason():
    found = qdq.explain(network(), "onnxruntime")
    entry = found.for_layer("a_convolution_with_a_long_name")
    assert (entry.fix, entry.fix_text) == ((), "quantize split_activations(model) to make that tensor visible")
    assert "split_activations" not in entry.reason
    assert found.for_layer("separable").advice.startswith("quantize split_separable_convolutions(model)")
    assert found.to_dict()["layers"][0]["advice"] == entry.advice


def test_the_plan_fits_into_a_terminal_too():
    text = qdq.plan_placement(network()).summary()
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "9 places, which share 8 pairs" in text or "a pair for each" in text


def test_it_is_said_where_there_is_nothing_to_fix():
    image = keras.Input((4,), name="image")
    good = qdq.explain(keras.Model(image, layers.Dense(2, name="head")(image)), "tensorrt")
    assert "Every layer runs in INT8 on tensorrt; there is nothing to fix." in good.summary()
    opaque = layers.Lambda(lambda x: x, name="lam")(layers.Dense(2, name="head")(image))
    bad = qdq.explain(keras.Model(image, opaque), "tensorrt")
    text = " ".join(bad.summary().split())
    assert "No specification brings more layers to INT8 (in float or partial: 1)" in text
    assert "a change of the model helps 1 of them" in text


def test_names_are_escaped():
    image = keras.Input((4,), name="image")
    graph = qdq.build_graph(keras.Model(image, layers.Dense(2, name="a_b")(image)))
    assert "<script>" not in qdq.explain(qdq.plan_placement(graph))._repr_html_()
