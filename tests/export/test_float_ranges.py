"""A sigmoid, tanh or softmax that computes in float hands on floats in a LiteRT file, whatever moves them."""

import keras
import numpy as np
from export.test_barriers import exported
from keras import layers
from litert_parts import LiteMaker
from small_models import samples

from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.litert.float_ranges import FIXED_SCALES, with_floats_kept
from qdq_workbench.export.litert.tflite_file import INT8, TFLiteFile, scales_of
from qdq_workbench.export.litert.tflite_run import run_tflite
from qdq_workbench.spec.quantizer_spec import QuantizerSpec


def test_heads_that_compute_in_float_are_not_rounded(tmp_path):
    keras.utils.set_random_seed(0)
    image = keras.Input((4, 4, 3), name="image")
    # A Dense on positions is a product and, behind its activation, a Reshape.
    heads = [
        layers.Dense(3, activation=name, name=name)(image) for name in ("tanh", "sigmoid", "softmax", "log_softmax")
    ]
    model = keras.Model(image, heads)
    q_model, report, verified = exported(model, tmp_path)
    assert verified.passed, verified.summary()
    assert_same(q_model, report, model.output_names)


def test_a_pair_behind_a_tanh_in_float_has_its_own_grid(tmp_path):
    keras.utils.set_random_seed(0)
    image = keras.Input((4, 4, 3), name="image")
    small_values = keras.initializers.RandomUniform(-0.01, 0.01)
    small = layers.Conv2D(3, 1, activation="tanh", kernel_initializer=small_values, name="small")
    rows = layers.Dense(3, activation="tanh", kernel_initializer=small_values, name="rows")(image)
    moved = {
        "rows": layers.SpatialDropout2D(0.2)(rows),
        "reshaped": layers.Reshape((16, 3))(small(image)),
        "permuted": layers.Permute((2, 1, 3))(small(image)),
        "pooled": layers.MaxPooling2D(2)(small(image)),
    }
    # Each is read through a pair and by a product in float.
    ends = [layers.Rescaling(2.5, name=f"{name}_scaled")(tensor) for name, tensor in moved.items()]
    products = [layers.Dense(2, name=f"{name}_product")(tensor) for name, tensor in moved.items()]
    q_model, report, verified = exported(keras.Model(image, [*ends, *products]), tmp_path)
    assert verified.passed, verified.summary()
    assert_same(q_model, report, [f"{name}_scaled" for name in moved])
    assert report.mean_difference < 1e-3 * report.mean_size


def assert_same(q_model, report, names):
    """Some outputs of a file are those of the model, but for a float's rounding."""
    inputs = samples(q_model, seed=5)
    found = run_tflite(report.path.read_bytes(), {"image": inputs})
    ours = dict(zip(q_model.source_output_names, q_model(inputs, training=False), strict=True))
    for name in names:
        np.testing.assert_allclose(found[name], np.asarray(ours[name]), atol=1e-6, err_msg=name)


def test_an_integer_kernel_keeps_the_scale_that_it_writes(tmp_path):
    image = keras.Input((4, 4, 3), name="image")
    gate = layers.Activation("sigmoid", name="gate")(layers.Conv2D(3, 1, name="conv")(image))
    model = keras.Model(image, layers.Dense(2, name="head")(layers.Reshape((16, 3), name="rows")(gate)))
    _, report, verified = exported(model, tmp_path)
    assert verified.passed, verified.summary()
    assert report.operators["LOGISTIC"] == (1, 1)
    file = TFLiteFile(report.path.read_bytes())
    (written,) = (each.outputs[0] for each in file.graphs[0].operators if file.name_of(each) == "LOGISTIC")
    assert scales_of(file.graphs[0].tensors[written])[0] == FIXED_SCALES["LOGISTIC"]


def rounded(behind="RESHAPE", outputs=1):
    """A tanh in float that is rounded, moved and read as floats, which are the outputs of the file."""
    maker = LiteMaker()
    x, y = maker.tensor("x", (4,)), maker.tensor("y", (4,))
    codes, moved = (maker.tensor(name, (4,), INT8, scales=2.0**-7) for name in ("codes", "moved"))
    results = [maker.tensor(f"result_{number}", (4,)) for number in range(outputs)]
    maker.operator("TANH", [x], [y])
    maker.operator("QUANTIZE", [y], [codes])
    maker.operator(behind, [codes], [moved])
    for result in results:
        maker.operator("DEQUANTIZE", [moved], [result])
    maker.graph.inputs, maker.graph.outputs = [x], results
    return TFLiteFile(maker.content())


def chain_of(file):
    """The operators of a file, and the tensors from one to the next."""
    graph = file.graphs[0]
    names = [file.name_of(each) for each in graph.operators]
    return names, [(int(each.inputs[0]), int(each.outputs[0])) for each in graph.operators]


def test_the_rounding_is_removed_and_the_output_stays_the_output():
    file = rounded()
    assert with_floats_kept(file, [])
    assert chain_of(file) == (["TANH", "RESHAPE"], [(0, 1), (1, 4)])
    assert file.graphs[0].outputs == [4]


def test_what_cannot_be_told_from_a_pair_or_handed_on_as_floats_stays():
    own = Encoding(np.float32(2.0**-7), np.int32(0), QuantizerSpec())
    # A pair of the model with that scale, a kernel of integers, one tensor that is two outputs.
    for file, pairs in ((rounded(), [own]), (rounded("ABS"), []), (rounded(outputs=2), [])):
        before = chain_of(file)
        assert not with_floats_kept(file, pairs)
        assert chain_of(file) == before
