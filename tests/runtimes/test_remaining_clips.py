"""A ReLU that the pair behind it does not make unnecessary stays: ONNX Runtime computes in float what is in front."""

import keras
import numpy as np
import pytest
from keras import layers
from runtimes_agreement import compare
from small_models import samples

import qdq_workbench as qdq

#: What stands in front of the reader's pair, by name, and the layer whose kernel would absorb the ReLU.
PRODUCERS = {
    "conv": lambda x, n: layers.ReLU(name=n("relu"))(layers.Conv2D(3, 3, name=n("x"))(x)),
    "own": lambda x, n: layers.Conv2D(3, 3, activation="relu", name=n("x"))(x),
    "folded": lambda x, n: layers.ReLU(name=n("relu"))(
        layers.BatchNormalization(moving_mean_initializer="ones", name=n("norm"))(layers.Conv2D(3, 3, name=n("x"))(x))
    ),
    "pooled": lambda x, n: layers.MaxPooling2D(2, name=n("pool"))(
        layers.ReLU(name=n("relu"))(layers.DepthwiseConv2D(3, name=n("x"))(x))
    ),
    "dropped": lambda x, n: layers.Dropout(0.5, name=n("drop"))(
        layers.ReLU(name=n("relu"))(layers.Dense(3, use_bias=False, name=n("x"))(x))
    ),
    "dense": lambda x, n: layers.ReLU(name=n("relu"))(layers.Dense(3, use_bias=False, name=n("x"))(x)),
    "own in steps of a convolution": lambda x, n: layers.TimeDistributed(
        layers.Conv1D(3, 2, activation="relu"), name=n("x")
    )(x),
    "row": lambda x, n: layers.ReLU(name=n("relu"))(layers.Dense(3, name=n("x"))(x)),
    "add": lambda x, n: layers.ReLU(name=n("relu"))(
        layers.Add(name=n("x"))([x, layers.Conv2D(3, 3, padding="same", name=n("first"))(x)])
    ),
    "mean": lambda x, n: layers.ReLU(name=n("relu"))(layers.AveragePooling2D(2, name=n("x"))(x)),
}
WITH_MAXIMUM = {
    "own in steps": lambda x, n: layers.TimeDistributed(
        layers.Dense(3, use_bias=False, activation="relu6"), name=n("x")
    )(x),
    "conv6": lambda x, n: layers.ReLU(6.0, name=n("relu"))(layers.Conv2D(3, 3, name=n("x"))(x)),
    "own6": lambda x, n: layers.Conv2D(3, 3, activation="relu6", name=n("x"))(x),
    "dense2": lambda x, n: layers.ReLU(2.0, name=n("relu"))(layers.Dense(3, use_bias=False, name=n("x"))(x)),
    "add6": lambda x, n: layers.ReLU(6.0, name=n("relu"))(
        layers.Add(name=n("x"))([x, layers.Conv2D(3, 3, padding="same", name=n("first"))(x)])
    ),
}


def fixed(low, high):
    return {"quantizer": "fixed", "symmetric": False, "init_min": low, "init_max": high}


#: Settings of the reader's pair, with the beginning of the advice; "" where no ReLU stays.
GRIDS = {
    "own grid": (None, ""),
    "signed": ({"signed": True}, ""),
    "symmetric": ({"symmetric": True}, 'set {"symmetric": False} in the quantizer settings of '),
    "signed symmetric": ({"signed": True, "symmetric": True}, 'set {"symmetric": False} in the quantizer settings of '),
    "from 0": (fixed(0.0, 1.5), ""),
    "above 0": (fixed(0.5, 1.5), ""),
    "half a step below 0": (fixed(-0.002, 1.5), ""),
    "a step below 0": (fixed(-0.006, 1.5), "let the range of "),
    "below 0": (fixed(-1.0, 1.5), "let the range of "),
}
#: The same for a ReLU with a maximum of 2 or 6.
LONG = {
    "own grid": (None, ""),
    "up to 1": (fixed(0.0, 1.0), ""),
    "up to 9": (fixed(0.0, 9.0), "let the range of "),
    "from -1 to 1": (fixed(-1.0, 1.0), "let the range of "),
}
#: The same for one ReLU with a maximum of 6: what the rounding of its ends decides.
AROUND_6 = {
    "up to 6": (fixed(0.0, 6.0), ""),
    "half a step above 6": (fixed(0.0, 6.01), ""),
    "a step above 6": (fixed(0.0, 6.02), "let the range of "),
    "most of a step below 0": (fixed(-0.02, 6.0), "let the range of "),
}
CASES = [
    *((kind, grid, GRIDS[grid]) for kind in PRODUCERS for grid in GRIDS),
    *((kind, grid, LONG[grid]) for kind in WITH_MAXIMUM for grid in LONG),
    *(("conv6", grid, AROUND_6[grid]) for grid in AROUND_6),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The explanation of every ReLU in front of every grid, and the layers where the runtime disagrees."""
    keras.utils.set_random_seed(0)
    image, row = keras.Input((6, 6, 3), name="image"), keras.Input((7,), name="row")
    outputs, spec = [], qdq.QuantizationSpec()
    for kind, grid, (settings, _) in CASES:
        n = f"{kind}.{grid}.{{}}".format
        result = {**PRODUCERS, **WITH_MAXIMUM}[kind](row if kind == "row" else image, n)
        outputs.append(layers.Dense(2, name=n("last"))(result))
        if kind.startswith(("add", "mean")):
            spec.add(n("x"), quantize_output=False)
        if settings is not None:
            spec.add(n("last"), quantize_config=qdq.LayerQuantizeConfig(activation=settings))
    model = keras.Model([image, row], outputs)
    for variable in model.variables:
        if variable.path.endswith("bias"):  # a bias of zeros vanishes in the file
            variable.assign(np.random.default_rng(0).normal(size=variable.shape))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    compared, differing = compare(q_model, tmp_path_factory.mktemp("clips") / "model.onnx")
    assert compared >= 2 * len(CASES)
    return qdq.explain(q_model), differing


@pytest.mark.parametrize(("kind", "grid", "expected"), CASES, ids=[f"{kind}, {grid}" for kind, grid, _ in CASES])
def test_what_is_in_front_of_a_remaining_relu(kind, grid, expected, found):
    explanation, differing = found
    n = f"{kind}.{grid}.{{}}".format
    assert [entry for entry in differing if entry[0].startswith(n(""))] == []
    layer, advice = explanation.for_layer(n("x")), expected[1]
    assert (layer.status, layer.rule) == (("float", "ORT-RELU") if advice else ("int8", "ORT-INTEGER"))
    assert layer.fix_text.startswith(advice)
    if not kind.startswith("own"):
        relu = explanation.for_layer(n("relu"))
        assert (relu.status, relu.rule) == (("float", "ORT-RELU") if advice else ("int8", "ORT-FUSED"))


@pytest.mark.parametrize(("maxima", "is_joined"), [((6.0, 6.0), True), ((None, None), True), ((6.0, None), False)])
def test_a_relu_shares_no_range_that_may_exceed_its_maximum(maxima, is_joined, tmp_path):
    image = keras.Input((6, 6, 3), name="image")
    wide = keras.initializers.RandomNormal(stddev=3.0)
    convolutions = [layers.Conv2D(3, 3, kernel_initializer=wide, name=f"conv_{index}") for index in range(len(maxima))]
    parts = [
        layers.ReLU(maximum, name=f"relu_{index}")(convolutions[index](image)) for index, maximum in enumerate(maxima)
    ]
    model = keras.Model(image, layers.Conv2D(2, 1, name="last")(layers.Concatenate(name="join")(parts)))
    spec = qdq.QuantizationSpec()
    spec.add("join")
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    groups = {placement.scale_group for placement in q_model.plan.placements if placement.tensor.startswith("relu_")}
    assert (groups != {None}) == is_joined
    compared, differing = compare(q_model, tmp_path / "model.onnx")
    assert (compared, differing) == (6, [])
    assert {entry.status for entry in qdq.explain(q_model).layers} == {"int8"}
