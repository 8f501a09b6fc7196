"""A weight that the plan leaves in float is computed in float by ONNX Runtime with its default options."""

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from keras import layers
from pass_graphs import varied
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.export.passes.keep_weights_in_float import keep_weights_in_float
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.onnx_graph.qdq_graph import keeps_in_float
from qdq_workbench.verification.forms import form_differences, with_shapes

IMAGE, ROW, STEPS, FRAMES = (8, 8, 4), (6,), (8, 4), (3, 8, 8, 4)


def folded(x):
    """A convolution into which a normalization is folded."""
    return layers.BatchNormalization(name="norm")(layers.Conv2D(4, 3, name="x")(x))


def normalized(x):
    """A product without a bias, into which a normalization is folded."""
    return layers.BatchNormalization(name="norm")(layers.Dense(4, use_bias=False, name="x")(x))


def moved(x):
    """A convolution whose result is moved in front of the pair behind it."""
    return layers.Reshape((4, 16, 4), name="turned")(layers.Conv2D(4, 1, name="x")(x))


def scaled(x):
    """A convolution whose result is multiplied by constants, which ONNX Runtime multiplies into a float weight."""
    return layers.Conv2D(4, 3, name="x")(x) * np.linspace(0.5, 2, 4, dtype="float32")


def shared_norm(x):
    """A convolution whose normalization is not folded, because it is called twice."""
    norm = layers.BatchNormalization(name="norm")
    return layers.Add(name="both")([norm(layers.Conv2D(4, 3, name="x")(x)), norm(layers.Conv2D(4, 3, name="y")(x))])


CASES = {
    "conv": (IMAGE, lambda: layers.Conv2D(4, 3, name="x")),
    "no bias": (IMAGE, lambda: layers.Conv2D(4, 3, use_bias=False, name="x")),
    "relu": (IMAGE, lambda: layers.Conv2D(4, 3, activation="relu", name="x")),
    "depthwise": (IMAGE, lambda: layers.DepthwiseConv2D(3, name="x")),
    "transposed": (IMAGE, lambda: layers.Conv2DTranspose(4, 3, name="x")),
    "folded": (IMAGE, lambda: folded),
    "moved": (IMAGE, lambda: moved),
    "scaled": (IMAGE, lambda: scaled),
    "shared norm": (IMAGE, lambda: shared_norm),
    "dense": (ROW, lambda: layers.Dense(4, name="x")),
    "dense relu": (ROW, lambda: layers.Dense(4, activation="relu", name="x")),
    "dense norm": (ROW, lambda: normalized),
    "steps of one axis": (STEPS, lambda: layers.Conv1D(4, 2, name="x")),
    "transposed, of one axis": (STEPS, lambda: layers.Conv1DTranspose(4, 2, activation="relu", name="x")),
    "depthwise, of one axis": (STEPS, lambda: layers.DepthwiseConv1D(2, name="x")),
    "steps": (FRAMES, lambda: layers.TimeDistributed(layers.Conv2D(4, 3), name="x")),
}


def partly_float(case, *, quantize_input=True):
    """Return a calibrated model whose layers `x` and `y` have float weights, between pairs."""
    keras.utils.set_random_seed(0)
    shape, middle = CASES[case]
    data = keras.Input(shape, name="data")
    first, last = (layers.Dense(shape[-1], name=name) for name in ("first", "last"))
    model = keras.Model(data, last(middle()(first(data))))
    for weight in model.trainable_weights:
        weight.assign(np.random.default_rng(0).uniform(-1, 1, weight.shape))
    spec = qdq.QuantizationSpec()
    for name in {"x", "y"}.intersection(layer.name for layer in model.layers):
        spec.add(name, quantize_input=quantize_input, quantize_weight=False)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    return q_model


def run(path, data, disabled=()):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, disabled_optimizers=list(disabled))
    return session.run(None, {session.get_inputs()[0].name: data})[0]


@pytest.mark.parametrize("case", CASES)
def test_onnx_runtime_computes_a_float_weight_in_float(case, tmp_path):
    q_model = partly_float(case)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    data = samples(q_model)

    report = qdq.verify_onnx(path, q_model)
    assert report.passed, report.summary()
    assert not report.form_remark
    assert qdq.explain(q_model).for_layer("x").status == "float"
    found, wanted = run(path, data), run(path, data, ["WeightBiasQuantization"])
    # The bound is far below the step of an int8 weight, and above that of one flipped rounding at the last pair.
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("case", ["conv", "relu", "dense", "transposed", "steps"])
def test_without_the_clip_onnx_runtime_quantizes_it(case, tmp_path):
    """Where this fails, a newer ONNX Runtime needs no Clip any more."""
    q_model = partly_float(case)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    model, data = onnx.load(path), samples(q_model)
    clips = [node for node in model.graph.node if keeps_in_float(node)]
    for clip in clips:
        for node in model.graph.node:
            node.input[:] = [clip.input[0] if name == clip.output[0] else name for name in node.input]
        model.graph.node.remove(clip)
    onnx.save(model, tmp_path / "bare.onnx")

    assert len(clips) == 1
    assert np.abs(run(tmp_path / "bare.onnx", data) - run(path, data)).max() > 0
    assert any("between two pairs" in each for each in form_differences(q_model.plan, with_shapes(model)))
    graph = Graph(with_shapes(model))
    keep_weights_in_float(graph)
    assert sum(node.op == "Clip" for node in graph.nodes) == sum(n.op_type == "Clip" for n in model.graph.node) + 1


def test_the_clip_has_the_limits_of_its_pair(tmp_path):
    q_model = partly_float("conv")
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    model = onnx.load(path)
    clip = next(node for node in model.graph.node if keeps_in_float(node))
    constants = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    pair = next(
        node for node in model.graph.node if node.op_type == "DequantizeLinear" and clip.input[0] in node.output
    )
    scale, zero = constants[pair.input[1]], constants[pair.input[2]]

    low, high = (constants[name] for name in clip.input[1:])
    assert low == np.float32(0 - int(zero)) * scale
    assert high == np.float32(255 - int(zero)) * scale


def test_layers_that_read_floats_and_files_for_others_get_no_clip(tmp_path):
    q_model = partly_float("conv")
    others = {name: qdq.retarget(q_model, name) for name in ("tensorrt", "openvino")}
    others["floats"] = partly_float("conv", quantize_input=False)
    for name, other in others.items():
        path = qdq.export_onnx(other, tmp_path / f"{name}.onnx").path
        assert not any(keeps_in_float(node) for node in onnx.load(path).graph.node), name


PADDED = """moved = DequantizeLinear (codes, scale, zero)
pads = Constant <value = int64[4] {0, 0, 0, 0}> ()
none = Constant <value = float {0}> ()
value = Constant <value = float {-999}> ()"""


LINES = (
    "scale = Constant <value = float {0.5}> ()",
    "zero = Constant <value = uint8 {3}> ()",
    "weight = Constant <value = float[2, 2] {1, 2, 3, 4}> ()",
    "bias = Constant <value = float[2] {1, 2}> ()",
    "data = DequantizeLinear (codes, scale, zero)",
    "sum = Gemm (data, weight, bias)",
    "cut = Relu (sum)",
    "result = QuantizeLinear (cut, scale, zero)",
)


def between_pairs(text=""):
    """Return a Gemm and a ReLU between a DequantizeLinear and a QuantizeLinear, with other lines."""
    return varied("(uint8[2, 2] codes, float[2, 2] other) => (uint8[2, 2] result)", LINES, text)


@pytest.mark.parametrize(
    ("text", "clips"),
    [
        ("", 1),
        ("sum = Gemm (data, weight)", 1),
        ("cut = Clip (sum)", 1),
        ("cut = Mul (sum, bias)", 1),
        ("cut = Mul (sum, other)", 0),
        ("cut = Sigmoid (sum)", 0),
        ("cut = Add (sum, sum)", 0),
        ("sum = MatMul (data, weight)", 0),
        ("sum = MatMul (data, weight)\ncut = BatchNormalization (sum, bias, bias, bias, bias)", 1),
        ("data = Identity (other)", 0),
        ("moved = DequantizeLinear (codes, scale, zero)\ndata = Transpose (moved)", 1),
        ("moved = DequantizeLinear (codes, scale, zero)\ndata = Tanh (moved)", 0),
        ("cut = Transpose (sum)", 1),
        (f"{PADDED}\ndata = Pad (moved, pads)", 1),
        (f"{PADDED}\ndata = Pad (moved, pads, none)", 1),
        (f"{PADDED}\ndata = Pad (moved, pads, value)", 0),  # a Clip would cut it
        ("cut = Clip (sum)\nagain = Tanh (cut)\nresult = QuantizeLinear (again, scale, zero)", 0),
        ("weight = Identity (other)", 0),
        ("weight = Constant <value = double[2, 2] {1, 2, 3, 4}> ()", 0),
        ("bias = Reshape (scale, shape)\nshape = Constant <value = int64[1] {1}> ()", 1),
        ("lain = Constant <value = float[2, 2] {1, 3, 2, 4}> ()\nweight = Transpose (lain)", 1),
        ("bias = Squeeze (other)", 0),
        ("scale = Constant <value = float[2] {1, 2}> ()\nzero = Constant <value = uint8[2] {3, 4}> ()", 0),
    ],
)
def test_a_clip_stands_where_onnx_runtime_would_quantize_the_weight_and_nowhere_else(text, clips):
    graph = between_pairs(text)
    before = sum(node.op == "Clip" for node in graph.nodes)
    for _ in range(2):  # a second run changes nothing
        keep_weights_in_float(graph)
        assert sum(node.op == "Clip" for node in graph.nodes) - before == clips
