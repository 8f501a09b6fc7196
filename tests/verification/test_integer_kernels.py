"""Counting integer kernels: what ONNX Runtime makes of files that we know."""

from __future__ import annotations

import dataclasses

import keras
import onnx
import pytest
from keras import layers
from qdq_files import integer_share

from qdq_workbench.errors import VerificationError
from qdq_workbench.placement.targets import get_target
from qdq_workbench.verification.integer_kernels import count_integer_kernels
from tests.export.cutting import Cutter
from tests.export.running import build, needs_opset, random_data


def network(
    target: str, *, opset: int | None = None, output_pairs: bool = True, bias: str | None = None
) -> onnx.ModelProto:
    keras.utils.set_random_seed(0)
    chosen = get_target(target)
    cut = Cutter(dataclasses.replace(chosen, bias=bias) if bias else chosen)

    def behind(tensor):
        return cut.pair(tensor) if output_pairs else tensor

    x = keras.Input((8, 8, 4))
    skip = cut.pair(x)
    h = cut.layer(layers.Conv2D(4, 3, padding="same", activation="relu", name="first"), skip)
    h = behind(cut.layer(layers.Conv2D(4, 3, padding="same", name="second"), cut.pair(h)))
    h = behind(layers.Activation("relu")(layers.Add(name="sum")([h, skip])))
    h = layers.MaxPooling2D(name="pool")(h)
    h = behind(layers.GlobalAveragePooling2D(name="mean")(behind(h)))
    net = cut.finish(
        x,
        layers.Softmax(name="softmax")(cut.layer(layers.Dense(3, name="dense"), h if output_pairs else cut.pair(h))),
    )
    net.calibrate(random_data(net))
    return build(net, opset=opset)


@pytest.mark.parametrize("opset", [13, 17, 21, 24])
def test_a_file_for_onnxruntime_runs_on_integers(opset):
    needs_opset(opset)
    kernels = count_integer_kernels(network("onnxruntime", opset=opset))
    assert kernels.counts == {
        "Add": (1, 1),
        "Conv": (2, 2),
        "Gemm": (1, 1),
        "GlobalAveragePool": (1, 1),
        "MaxPool": (1, 1),
        "Softmax": (0, 1),
    }
    assert kernels.float_nodes == ("softmax/Softmax",)
    assert integer_share(kernels, "Conv", "Gemm") == 1.0
    assert integer_share(kernels) == pytest.approx(6 / 7)


def test_symmetric_activations_without_output_pairs_stay_float():
    kernels = count_integer_kernels(network("tensorrt", output_pairs=False))
    assert kernels.counts["Conv"] == (0, 2)
    assert {name.partition("/")[0] for name in kernels.float_nodes} >= {"first", "second", "sum"}


def test_a_path_counts_as_its_model(tmp_path):
    model = network("onnxruntime")
    onnx.save(model, tmp_path / "model.onnx")
    assert count_integer_kernels(tmp_path / "model.onnx") == count_integer_kernels(model)


def test_a_float_model_has_none():
    x = keras.Input((6, 6, 3))
    net = Cutter().finish(x, layers.Conv2D(2, 3, name="conv")(x))
    kernels = count_integer_kernels(build(net))
    assert kernels.counts == {"Conv": (0, 1)}
    assert kernels.integer_nodes == ()
    assert [name.partition("/")[0] for name in kernels.float_nodes] == ["conv"]
    assert integer_share(kernels) == 0.0
    assert integer_share(kernels, "Gemm") == 1.0


def test_concat_of_shapes_is_no_computation():
    keras.utils.set_random_seed(0)
    cut = Cutter("onnxruntime")
    x = keras.Input((None, 4))
    net = cut.finish(x, keras.ops.reshape(cut.layer(layers.Dense(4), cut.pair(x)), (-1, keras.ops.shape(x)[1] or 1, 4)))
    net.calibrate_by_hand(-1.0, 1.0)
    assert "Concat" not in count_integer_kernels(build(net)).counts


def test_a_refused_file_is_an_error(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(onnx.ModelProto(ir_version=8).SerializeToString())
    with pytest.raises(VerificationError, match="refuses the file"):
        count_integer_kernels(tmp_path / "broken.onnx")
