"""Every pass of the export keeps its contract, works on some model, and is where the order says."""

import dataclasses

import keras
import numpy as np
import onnx
import pytest
from keras import layers, ops
from pass_contracts import contracts_watched
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.export import show_passes
from qdq_workbench.export.passes import fold_pads, order
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.onnx_graph.snapshot import difference, snapshot

PASSES = {graph_pass.name: graph_pass for stage in order.STAGES for graph_pass in stage.passes}


def images():
    """A model on whose file every pass for images works."""
    image = keras.Input((9, 9, 3), name="image")
    x = layers.ZeroPadding2D(1, name="pad")(image)
    x = layers.BatchNormalization(name="bn")(layers.Conv2D(4, 3, name="conv")(x)) + np.arange(4, dtype="float32")
    x = layers.Activation("swish", name="swish")(x)
    x = layers.UpSampling2D(2, name="up")(x)
    x = layers.Resizing(11, 13, interpolation="nearest", name="resized")(x)
    x = layers.Conv2DTranspose(4, 1, strides=3, name="spread")(x)
    x = layers.ReLU(0.5, name="relu")(layers.Conv2D(4, 3, name="last")(x))
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    gate = layers.Reshape((1, 1, 4), name="gate")(x)
    y = layers.Conv2D(2, 1, name="gated")(gate)
    return keras.Model(image, [layers.Dense(3, name="head")(x), y])


def sequences():
    """A model on whose file every pass for sequences works."""
    tokens = keras.Input((8, 6), name="tokens")
    x = layers.Conv1D(6, 3, padding="same", name="conv")(tokens)
    x = layers.Dense(6, name="dense")(x)
    x = layers.EinsumDense("abc,cd->abd", output_shape=(None, 6), name="projection")(x)
    x = ops.einsum("abc,adc->abd", x, tokens)
    return keras.Model(tokens, layers.Reshape((4, 16), name="reshaped")(x))


def looping():
    """A model in whose file a loop reads a tensor that was dequantized and moved."""
    frames = keras.Input((3, 5, 5, 2), name="frames")
    return keras.Model(frames, layers.ConvLSTM2D(2, 3, name="conv_lstm")(frames))


def export(make, folder):
    keras.utils.set_random_seed(0)
    model = make()
    for weight in model.trainable_weights:  # biases of 0 would be left out
        weight.assign(np.random.default_rng(0).uniform(0.1, 0.5, weight.shape))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    return qdq.export_onnx(q_model, folder / "model.onnx")


def test_every_pass_keeps_its_contract_and_works_on_some_model(tmp_path):
    with contracts_watched() as seen:
        for make in (images, sequences, looping):
            export(make, tmp_path)
    assert PASSES.keys() - seen.working == set()


@pytest.mark.parametrize("name", PASSES)
def test_a_contract_is_told_in_sentences(name):
    graph_pass = PASSES[name]
    assert graph_pass.run.__module__ == f"qdq_workbench.export.passes.{name}"
    for sentence in (graph_pass.summary, graph_pass.needs, graph_pass.holds, graph_pass.refuses):
        assert sentence.endswith(".")
        assert len(sentence) < 300


def padded():
    """A graph with one Pad in front of one convolution."""
    make = onnx.helper.make_node
    constants = {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "w": np.zeros((2, 2, 3, 3), np.float32)}
    graph = onnx.helper.make_graph(
        [make("Pad", ["x", "pads"], ["p"], "pad"), make("Conv", ["p", "w"], ["y"], "conv")],
        "padded",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 2, 4, 4))],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 2, 4, 4))],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return Graph(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]))


def test_what_denies_a_contract_is_named_until_the_pass_has_run():
    graph = padded()
    before = snapshot(graph)
    assert [node.name for node in fold_pads.PASS.denied_by(graph)] == ["pad"]
    fold_pads.PASS.run(graph)
    assert list(fold_pads.PASS.denied_by(graph)) == []
    assert difference(before, snapshot(graph)) == "-1 Pad; changed conv"
    assert difference(before, before) == "nothing"


def nothing(_):
    """A pass that does nothing."""


def one_more(graph):
    """A pass that finds something to do each time."""
    graph.set_output(graph.producer("y"), graph.fresh("inner"))
    graph.add("Relu", ["inner"], "more", output="y")


def behind_the_index(graph):
    """A pass that changes a node without telling the graph."""
    graph.producer("y").inputs[0] = "nowhere"


@pytest.mark.parametrize(
    ("run", "breach"),
    [
        (nothing, "fold: nothing: Pad pad denies"),
        (one_more, r"fold: one_more: a second run changes \+1 Relu"),
        (behind_the_index, "conv reads nowhere, which nothing writes"),
    ],
)
def test_a_broken_contract_is_noticed(run, breach):
    stage = order.Stage("fold", "padded", (dataclasses.replace(fold_pads.PASS, run=run),))
    with pytest.raises(AssertionError, match=breach), contracts_watched():
        order.run_stage(padded(), stage)


def test_the_tool_lists_contracts_and_says_what_changed(tmp_path, capsys):
    assert show_passes.main([]) == 0
    told = capsys.readouterr().out
    assert all(f"\n  {name}\n" in told for name in PASSES)
    keras.utils.set_random_seed(0)
    images().save(tmp_path / "model.keras")
    assert show_passes.main([str(tmp_path / "model.keras"), "--target", "tensorrt"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "joined: fold_pads: -1 Pad; changed " in "\n".join(lines)
    assert "float: restore_batched_matmul: nothing" in lines
    assert not any(line.startswith("int32 biases") for line in lines)  # TensorRT wants float biases
