"""The rules for OpenVINO, against the precisions in its own execution graph; needs the optional extra `openvino`."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import layers
from mock_graphs import GraphMaker, chain
from small_models import residual_net, samples
from target_models import inception_net, zoo_net

import qdq_workbench as qdq
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.runtimes import explain_plan


def explained(graph, **entry):
    spec = qdq.QuantizationSpec()
    if entry:
        spec.add(**entry)
    return explain_plan(make_plan(graph, decide(graph, "full", spec, []), "full", "openvino"))


@pytest.mark.parametrize(
    ("chained", "entry", "layer", "rule"),
    [
        ((("Conv2D", "c"), ("BatchNormalization", "b"), ("ReLU", "r")), {}, "c", "GEMM"),
        ((("Conv2D", "c"), ("BatchNormalization", "b"), ("ReLU", "r")), {}, "r", "FUSED"),
        ((("Conv2DTranspose", "c"),), {}, "c", "ZERO-POINT"),
        ((("ReLU", "r"), ("Conv2DTranspose", "c")), {}, "c", "GEMM"),
        ((("ReLU", "r"), ("MaxPooling2D", "p"), ("Conv2DTranspose", "c")), {}, "c", "GEMM"),
        ((("Softmax", "s"), ("Conv2DTranspose", "c")), {}, "c", "GEMM"),
        ((("AveragePooling2D", "p"),), {}, "p", "POOL"),
        ((("MaxPooling2D", "p"), ("Conv2D", "c")), {}, "p", "INPUT"),
        ((("Flatten", "f"),), {"name": "f"}, "f", "MOVES"),
        ((("Conv2D", "c"),), {"name": "c", "quantize_weight": False}, "c", "WEIGHT"),
        ((("ReLU", "r"),), {"name": "r"}, "r", "ZERO-POINT"),
        ((("ReLU", "r"),), {"name": "r", "quantize_output": True}, "r", "ZERO-POINT"),
        ((("ReLU", "a"), ("LeakyReLU", "r")), {"name": "r"}, "r", "OUTPUT"),
        ((("ReLU", "a"), ("LeakyReLU", "r")), {"name": "r", "quantize_output": True}, "r", "ELEMENTWISE"),
        ((("Dropout", "d"),), {}, "d", "VANISHES"),
        ((("Conv2D", "c"), ("Softmax", "s")), {}, "s", "NO-KERNEL"),
    ],
)
def test_rows(chained, entry, layer, rule):
    found = explained(chain(*chained), **entry).for_layer(layer)
    assert found.rule == f"OV-{rule}"
    assert found.documentation.startswith("https://docs.openvino.ai/")


@pytest.mark.parametrize(
    ("shape", "constant", "rule"),
    [
        ((None, 8, 8, 4), [], "ELEMENTWISE"),
        ((None, 8, 8, 4), [4], "ELEMENTWISE"),
        ((None, 8, 8, 4), [8, 8, 4], "CONSTANT"),
        ((None, 4), [4], "ELEMENTWISE"),
        ((None, 8, 4), [1], "ELEMENTWISE"),
        ((None, 8, 4), [4], "CONSTANT"),  # of sequences the file holds no channels first
    ],
)
def test_a_constant_that_is_added_is_a_part_of_the_pair_behind_it_if_it_has_one_value_per_channel(
    shape, constant, rule
):
    maker = GraphMaker(shape=shape)
    before = maker.add("ReLU", "r", "image", shape=shape)
    settings = {"constant_shape": constant}
    graph = maker.graph(maker.add("Add", "sum", before, shape=shape, is_operation=True, settings=settings))
    assert explained(graph, name="sum", quantize_output=True).for_layer("sum").rule == f"OV-{rule}"


def test_a_range_that_is_shared_with_negative_values_does_not_start_at_0():
    maker = GraphMaker("image", "other")
    joined = maker.add("Concatenate", "join", maker.add("ReLU", "r", "image"), "other")
    graph = maker.graph(maker.add("Conv2DTranspose", "c", "r"), joined)
    assert explained(graph).for_layer("c").rule == "OV-GEMM"
    assert explained(graph, name="join").for_layer("c").rule == "OV-ZERO-POINT"


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        (None, "GEMM"),
        ({"quantizer": "fixed", "init_min": 0.0, "init_max": 2.0}, "GEMM"),
        ({"quantizer": "fixed", "init_min": -0.001, "init_max": 2.0}, "GEMM"),
        ({"quantizer": "fixed", "init_min": -1.0, "init_max": 2.0}, "ZERO-POINT"),
        ({"narrow_range": True}, "ZERO-POINT"),
        ({"symmetric": True}, "ZERO-POINT"),
        ({"signed": True}, "ZERO-POINT"),
        ({"signed": True, "symmetric": True}, "GEMM"),
    ],
)
def test_a_zero_point_follows_from_the_settings_of_a_pair(settings, rule, tmp_path):
    """The tensor is never negative."""
    keras.utils.set_random_seed(0)
    image = keras.Input((6, 6, 4), name="image")
    x = layers.ReLU(name="relu")(layers.Conv2D(4, 1, name="first")(image))
    model = keras.Model(image, layers.Conv2DTranspose(4, 3, name="last")(x))
    spec = qdq.QuantizationSpec()
    spec.add("last", quantize_config=qdq.LayerQuantizeConfig(activation=settings))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="openvino")
    assert qdq.explain(q_model).for_layer("last").rule == f"OV-{rule}"
    assert computed_on_integers(q_model, {"last"}, tmp_path) == {"last": rule == "GEMM"}


def grid_net():
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 4), name="image")
    x = layers.ReLU(name="relu")(layers.Conv2D(8, 3, name="first")(image))
    return keras.Model(image, layers.Conv2D(4, 3, name="last")(x))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"activation": {"num_bits": 16}}, '"num_bits": 8'),
        ({"weight": {"signed": False}}, '"signed": True'),
        ({"weight": {"symmetric": False}}, '"symmetric": True'),
        ({"weight": {"num_bits": 12}}, '"num_bits": 8'),
        ({"weight": {"num_bits": 4}}, ""),
        ({"activation": {"signed": True, "symmetric": True}}, ""),
        ({"output": {"num_bits": 16}}, ""),
    ],
)
def test_a_grid_without_a_kernel_is_named_with_the_setting_to_change(config, expected, tmp_path):
    spec = qdq.QuantizationSpec()
    spec.add("last", quantize_output="output" in config, quantize_config=qdq.LayerQuantizeConfig(**config))
    q_model = qdq.quantize_model(grid_net(), quantization_spec=spec, target="openvino")
    found = qdq.explain(q_model).for_layer("last")
    assert (found.rule, found.status) == (("OV-GRID", "float") if expected else ("OV-GEMM", "int8"))
    assert expected in found.advice
    assert computed_on_integers(q_model, {"last"}, tmp_path) == {"last": not expected}


def test_a_grid_is_no_reason_where_there_is_no_kernel_for_any():
    found = explained(
        chain(("LayerNormalization", "norm")),
        name="norm",
        quantize_config=qdq.LayerQuantizeConfig(activation={"num_bits": 16}),
    )
    assert found.for_layer("norm").rule == "OV-NO-KERNEL"


@pytest.mark.parametrize(
    ("kind", "activation", "integer"),
    [("Multiply", "relu", True), ("Multiply", None, False), ("Maximum", "relu", False), ("Minimum", "relu", False)],
)
def test_a_maximum_between_pairs_is_computed_in_float(kind, activation, integer, tmp_path):
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 4), name="image")
    both = [layers.Conv2D(8, 3, activation=activation, name=name)(image) for name in ("left", "right")]
    joined = getattr(layers, kind)(name="joined")(both)
    spec = qdq.QuantizationSpec()
    for layer in ("left", "right", "joined"):
        spec.add(layer, quantize_output=True)
    model = keras.Model(image, layers.Conv2D(4, 3, name="last")(joined))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="openvino")
    assert (qdq.explain(q_model).for_layer("joined").status == "int8") is integer
    assert computed_on_integers(q_model, {"joined"}, tmp_path) == {"joined": integer}


def elementwise_net():
    """Return a network of operations on tensors that are never negative, or may be, and which run on integers."""
    keras.utils.set_random_seed(0)
    image = keras.Input((6, 6, 4), name="image")
    values = np.random.default_rng(0).normal(size=(1, 6, 6, 8)).astype("float32")
    before = {name: layers.Conv2D(8, 1)(image) for name in ("low", "other", "high")}
    before["high"] = layers.ReLU()(before["high"])
    low, other, high = (layers.MaxPooling2D(1, name=name)(x) for name, x in before.items())
    transposed = keras.ops.transpose(high, (0, 1, 3, 2))
    found = [
        (layers.Multiply()([low, high]), True),
        (layers.Multiply()([high, other, low]), True),
        (layers.Add()([low, other]), True),
        (layers.Subtract()([low, other]), True),
        (high * values, True),
        (low * values, False),
        (high + values, False),
        (low + values, False),
        (layers.LeakyReLU()(high), True),
        (layers.LeakyReLU()(low), False),
        (layers.Activation("sigmoid")(high), True),
        (layers.Activation("tanh")(low), False),
        (keras.ops.matmul(high, transposed), False),
    ]
    integer = {tensor._keras_history.operation.name: expected for tensor, expected in found}
    heads = [layers.Conv2D(2, 1, name=f"head_{index}")(tensor) for index, (tensor, _) in enumerate(found)]
    return keras.Model(image, heads), integer


def test_what_reads_a_zero_point_between_pairs_is_computed_in_float(tmp_path):
    model, integer = elementwise_net()
    spec = qdq.QuantizationSpec()
    spec.add(["low", "other", "high"], quantize_output=True)
    spec.add(list(integer), quantize_output=True)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="openvino")
    explanation = qdq.explain(q_model)
    assert {layer: explanation.for_layer(layer).status == "int8" for layer in integer} == integer
    assert computed_on_integers(q_model, integer, tmp_path) == integer


PLAIN, SIGNED = {"signed": False, "symmetric": False}, {"signed": True, "symmetric": True}


@pytest.mark.parametrize(
    ("operation", "never_negative", "grids", "integer"),
    [
        ("matmul", True, (PLAIN, SIGNED), True),
        ("matmul", False, (SIGNED, SIGNED), True),
        ("matmul", False, (PLAIN, SIGNED), False),
        ("matmul", True, (SIGNED, PLAIN), False),
        ("transposed", False, (SIGNED,), True),
        ("transposed", True, ({"signed": True, "symmetric": False},), False),
        ("transposed", True, ({"signed": False, "symmetric": True},), False),
        ("add", False, (SIGNED,), True),
    ],
)
def test_the_grid_says_where_the_zero_point_is(operation, never_negative, grids, integer, tmp_path):
    keras.utils.set_random_seed(0)
    image = keras.Input((6, 6, 4), name="image")
    operands = []
    for index, _ in enumerate(grids):
        x = layers.Conv2D(6, 1, activation="relu" if never_negative else None, name=f"conv_{index}")(image)
        operands.append(layers.MaxPooling2D(1, name=f"pool_{index}")(x))
    values = np.random.default_rng(0).normal(size=(6, 6, 6)).astype("float32")
    make = {
        "matmul": lambda: keras.ops.matmul(*operands),
        "transposed": lambda: layers.Conv2DTranspose(6, 2)(operands[0]),
        "add": lambda: operands[0] + values,
    }
    joined = make[operation]()
    name = joined._keras_history.operation.name
    spec = qdq.QuantizationSpec()
    spec.add(name, quantize_output=operation == "add")
    for index, grid in enumerate(grids):
        config = qdq.LayerQuantizeConfig(output=grid)
        spec.add(f"pool_{index}", quantize_input=False, quantize_output=True, quantize_config=config)
    q_model = qdq.quantize_model(keras.Model(image, layers.Conv2D(2, 1)(joined)), "full", spec, target="openvino")
    assert (qdq.explain(q_model).for_layer(name).status == "int8") is integer
    assert computed_on_integers(q_model, {name}, tmp_path) == {name: integer}


@pytest.mark.parametrize("opset", [17, 21])
def test_weights_of_4_bits_are_integers_unless_the_file_holds_int4(opset, tmp_path):
    spec = qdq.QuantizationSpec()
    narrow = {"weight": {"num_bits": 4}, "activation": {"num_bits": 4}}
    spec.add(["first", "last"], quantize_config=qdq.LayerQuantizeConfig(**narrow))
    q_model = qdq.quantize_model(grid_net(), quantization_spec=spec, target="openvino")
    found = {name: qdq.explain(q_model, opset=opset).for_layer(name) for name in ("first", "last")}
    assert {entry.status for entry in found.values()} == {"int8" if opset == 17 else "float"}
    assert computed_on_integers(q_model, set(found), tmp_path, opset=opset) == dict.fromkeys(found, opset == 17)


def computed_on_integers(q_model, names, folder, **options):
    """Return which layers of a model's file OpenVINO computes on integers; without it, the test ends here."""
    pytest.importorskip("openvino", reason="needs the optional extra openvino")
    qdq.calibrate(q_model, samples(q_model), verbose=False)
    return integer_layers(qdq.export_onnx(q_model, folder / "model.onnx", **options).path, names)[1]


def integer_layers(path, names):
    """Return the layers that OpenVINO computes on integers, among those that its execution graph names."""
    openvino = pytest.importorskip("openvino", reason="needs the optional extra openvino")
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    verdicts = {}
    for operation in compiled.get_runtime_model().get_ordered_ops():
        info = operation.get_rt_info()
        for original in info["originalLayersNames"].astype(str).split(","):
            layer, _, rest = original.partition("/")
            if layer in names and "Quantize" not in rest and info["layerType"].astype(str) in COMPUTE:
                integer = info["runtimePrecision"].astype(str) in ("u8", "i8")
                verdicts[layer] = verdicts.get(layer, False) or integer
    return compiled, verdicts


COMPUTE = {
    *("Convolution", "Deconvolution", "FullyConnected", "MatMul", "Pooling", "Reduce"),
    *("Concatenation", "Eltwise", "Interpolate", "Subgraph"),
}
KERNELS = (
    "Conv2D",
    "DepthwiseConv2D",
    "Conv2DTranspose",
    "Dense",
    "Multiply",
    "Concatenate",
    "UpSampling2D",
    "TimeDistributed",
)
POOLS = ("MaxPooling2D", "AveragePooling2D", "GlobalAveragePooling2D")


def steps_net():
    steps = keras.Input((3, 8, 8, 3), name="steps")
    x = layers.TimeDistributed(layers.Conv2D(4, 3, activation="relu"), name="conv")(steps)
    x = layers.TimeDistributed(layers.Flatten(), name="flat")(x)
    x = layers.TimeDistributed(layers.Dense(8), name="hidden")(x)
    return keras.Model(steps, layers.TimeDistributed(layers.Dense(3), name="head")(x))


def exported(make, path, *, named, target):
    """Return the quantized form of a model, calibrated and exported, and its data."""
    model = make()
    spec = qdq.QuantizationSpec()
    for node in qdq.build_graph(model).nodes if named else ():
        if node.class_name in ("MaxPooling2D", "Concatenate", "Multiply", "UpSampling2D"):
            spec.add(node.layer)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    data = samples(model)
    qdq.calibrate(q_model, data, verbose=False)
    qdq.export_onnx(q_model, path)
    return q_model, data


NETWORKS = pytest.mark.parametrize("make", [residual_net, zoo_net, inception_net, steps_net])


@NETWORKS
@pytest.mark.parametrize("named", [False, True])
def test_the_explanation_equals_the_execution_graph(make, named, tmp_path):
    pytest.importorskip("openvino", reason="needs the optional extra openvino")
    q_model, _ = exported(make, tmp_path / "model.onnx", named=named, target="openvino")
    names = {node.layer for node in q_model.plan.graph.nodes if node.class_name in KERNELS + POOLS}
    real = integer_layers(tmp_path / "model.onnx", names)[1]
    assert len(real) > 2
    explanation = qdq.explain(q_model)
    assert real == {layer: explanation.for_layer(layer).status == "int8" for layer in real}


@NETWORKS
@pytest.mark.parametrize("named", [False, True])
def test_the_file_computes_what_keras_does(make, named, tmp_path):
    """With weights of 7 bits: processors without VNNI add two products in 16 bits, which those of 8 bits exceed."""
    pytest.importorskip("openvino", reason="needs the optional extra openvino")
    target = qdq.targets.get_target("openvino")
    target = dataclasses.replace(target, weight=target.weight.replace(num_bits=7))
    q_model, data = exported(make, tmp_path / "model.onnx", named=named, target=target)
    compiled, _ = integer_layers(tmp_path / "model.onnx", ())
    ours, theirs = np.asarray(q_model(data)), next(iter(compiled([data]).values()))
    assert np.abs(ours - theirs).mean() < np.ptp(ours) / 200
    assert (ours.argmax(-1) == theirs.argmax(-1)).mean() > 0.9


@pytest.mark.parametrize("symmetric", [True, False])
def test_weights_in_blocks_are_computed_as_keras_does(symmetric, tmp_path):
    """Without its own rounding of inputs; with it, a product is off by half a percent of its largest value."""
    openvino = pytest.importorskip("openvino", reason="needs the optional extra openvino")
    keras.utils.set_random_seed(0)
    rows = keras.Input((3, 64), name="rows")
    x = layers.EinsumDense("abc,cde->abde", output_shape=(3, 2, 32), name="heads")(rows)
    x = layers.EinsumDense("abde,dec->abc", output_shape=(3, 96), activation="relu", name="joined")(x)
    model = keras.Model(rows, layers.Dense(5, name="head")(x))
    spec = qdq.correction.weights_alone(model, 4, 32, symmetric=symmetric)
    q_model = qdq.quantize_model(model, "partial", spec, target="openvino")
    assert {entry.rule for entry in qdq.explain(q_model).layers} == {"OV-BLOCKS"}
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    samples_ = np.random.default_rng(0).normal(size=(4, 3, 64)).astype("float32")
    plain = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    found = next(iter(openvino.Core().compile_model(str(path), "CPU", plain)([samples_]).values()))
    np.testing.assert_allclose(found, q_model.predict(samples_, verbose=0), rtol=1e-4, atol=1e-5)
