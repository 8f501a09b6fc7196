"""Faults of the exporter that building the file again would repeat: what the plan and the model say finds them."""

import dataclasses
import importlib

import keras
import numpy as np
import pytest
from keras import layers
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.export.insert_qdq import QDQWriter
from qdq_workbench.quantizers.blocks import spread

build_onnx = importlib.import_module("qdq_workbench.export.build_onnx")
onnx_export = importlib.import_module("qdq_workbench.export.onnx_export")


def quantized(target):
    """A block with a skip connection, whose convolution has a folded normalization; one layer reads in float."""
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 3), name="image")
    stem = layers.Conv2D(8, 3, padding="same", use_bias=False, name="stem")(image)
    stem = layers.ReLU(name="skip")(layers.BatchNormalization(name="norm")(stem))
    body = layers.Conv2D(8, 3, padding="same", name="body")(stem)
    summed = layers.Add(name="sum")([body, stem])
    pooled = layers.GlobalAveragePooling2D(name="pool")(summed)
    model = keras.Model(image, [layers.Dense(4, name="head")(pooled), layers.Softmax(name="loud")(stem)], name="block")
    model.get_layer("norm").set_weights(np.random.default_rng(1).uniform(0.5, 1.5, (4, 8)) * [[-1], [1], [1], [1]])
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target=target)
    qdq.calibrate(q_model, samples(model), verbose=False)
    return q_model


@pytest.fixture(scope="module")
def q_models():
    return {target: quantized(target) for target in ("onnxruntime", "tensorrt")}


def encoded(monkeypatch, function, name, **changes):
    """Let the exporter encode one pair or weight in another way."""
    encode = getattr(onnx_export, function)

    def wrong(*arguments):
        found = encode(*arguments)
        fields = {field: change(getattr(found[name], field)) for field, change in changes.items()}
        return {**found, name: dataclasses.replace(found[name], **fields)}

    monkeypatch.setattr(onnx_export, function, wrong)


def one_code_off(codes):
    changed = np.array(codes)
    changed.reshape(-1)[5] += 1 if changed.reshape(-1)[5] < 100 else -1
    return changed


def reads_moved(monkeypatch, pair, operator, *, into_float):
    """Let one node read the source of a pair in place of the pair, or the other way round."""
    join = QDQWriter.join_pair

    def wrong(self, name, encoding, source, placeholder):
        if name == pair:
            before, after = (placeholder, source) if into_float else (source, placeholder)
            node = next(node for node in self._graph.readers(before) if node.op == operator)
            self._graph.replace_reads(before, after, [node])
        join(self, name, encoding, source, placeholder)

    monkeypatch.setattr(QDQWriter, "join_pair", wrong)


def not_joined(monkeypatch, pair):
    """Let the exporter leave out a pair, and its own check of what it wrote."""
    join = QDQWriter.join_pair

    def wrong(self, name, encoding, source, placeholder):
        if name == pair:
            self._graph.replace_reads(placeholder, source)
            del self._graph.inputs[placeholder]
        else:
            join(self, name, encoding, source, placeholder)

    monkeypatch.setattr(QDQWriter, "join_pair", wrong)
    monkeypatch.setattr(build_onnx, "check_written", lambda *_: None)


def in_float(monkeypatch, weight):
    """Let the exporter write a weight in float, and leave out its own check of what it wrote."""
    write = QDQWriter.write_weight

    def wrong(self, name, encoding, source):
        if name == weight:
            values = encoding.codes.astype(np.float32) * spread(encoding.scale, encoding.codes.shape, encoding.spec)
            self._graph.replace_reads(source, self._graph.add_constant(f"{name}/float", values))
            del self._graph.inputs[source]
        else:
            write(self, name, encoding, source)

    monkeypatch.setattr(QDQWriter, "write_weight", wrong)
    monkeypatch.setattr(build_onnx, "check_written", lambda *_: None)


FAULTS = {
    "a code of a weight": (
        lambda patch: encoded(patch, "encode_weights", "body/kernel", codes=one_code_off),
        "integers: weight 'body/kernel'",
    ),
    "a code of a weight with a folded normalization": (
        lambda patch: encoded(patch, "encode_weights", "stem/kernel", codes=one_code_off),
        "integers: weight 'stem/kernel'",
    ),
    "the scales of a weight": (
        lambda patch: encoded(patch, "encode_weights", "head/kernel", scale=lambda scale: scale * np.float32(1.0001)),
        "integers: weight 'head/kernel'",
    ),
    "the scale of a pair": (
        lambda patch: encoded(patch, "encode_activations", "skip", scale=lambda scale: scale * np.float32(1.0001)),
        "integers: pair 'skip': its scale is",
    ),
    "the zero point of a pair": (
        lambda patch: encoded(patch, "encode_activations", "image", zero_point=lambda zero: zero + 1),
        "integers: pair 'image': its zero point is",
    ),
    "a read beside the pair": (
        lambda patch: reads_moved(patch, "skip", "Add", into_float=True),
        "readers: 'sum' reads the tensor of the pair 'skip' in float, beside the pair",
    ),
    "a read of the pair": (
        lambda patch: reads_moved(patch, "skip", "Softmax", into_float=False),
        "readers: 'loud' reads the pair 'skip', and by the plan the tensor in float",
    ),
    "a pair of the model's input": (lambda patch: not_joined(patch, "image"), "readers: the pair 'image' is missing"),
    "a pair on a skip connection": (lambda patch: not_joined(patch, "skip"), "readers: the pair 'skip' is missing"),
    "a weight in float": (lambda patch: in_float(patch, "head/kernel"), "readers: the weight 'head/kernel' is missing"),
}


#: ONNX Runtime's kernels write integers, so that no layer reads that tensor in float there.
NOT_IN_ONNXRUNTIME = {"a read of the pair"}


@pytest.mark.filterwarnings("ignore:Planned but not in the file")  # the exporter reads what it wrote
@pytest.mark.parametrize(
    ("target", "fault"),
    [(target, fault) for target in ("onnxruntime", "tensorrt") for fault in FAULTS
     if target == "tensorrt" or fault not in NOT_IN_ONNXRUNTIME],
)  # fmt: skip
def test_a_fault_of_the_exporter_is_found_in_the_file_that_it_just_wrote(
    q_models, target, fault, monkeypatch, tmp_path
):
    plant, said = FAULTS[fault]
    plant(monkeypatch)
    q_model = q_models[target]
    report = qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, q_model)
    failed = [f"{check.name}: {check.detail}" for check in report.checks if not check.passed]
    assert any(said in each for each in failed), report.summary()
    assert {check.name: check.passed for check in report.checks}["structure"], "the exporter repeats its faults"


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt"])
def test_a_right_file_passes_and_its_pairs_and_weights_are_counted(q_models, target, tmp_path):
    q_model = q_models[target]
    report = qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, q_model).raise_if_failed()
    (check,) = [check for check in report.checks if check.name == "integers"]
    pairs = sum(tensor.kind == "activation" for tensor in q_model.plan.tensors)
    assert check.detail.startswith(f"the grids of {pairs} pairs and the values of 3 weights")


def test_readers_are_checked_without_the_model_too(q_models, monkeypatch, tmp_path):
    q_model = q_models["onnxruntime"]
    reads_moved(monkeypatch, "skip", "Add", into_float=True)
    report = qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path)
    assert [check.name for check in report.checks if not check.passed] == ["readers"]


def test_a_scale_that_a_bias_with_an_absorbed_constant_needs_is_right(tmp_path):
    """Of inputs of 1e-7 the steps of an int32 bias are so small that all weights become 0."""
    keras.utils.set_random_seed(0)
    image = keras.Input((4, 4, 3), name="image")
    model = keras.Model(image, keras.ops.relu6(layers.Conv2D(8, 1, name="gate")(image) + 3.0))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    data = np.random.default_rng(0).uniform(0, 1e-7, (8, 4, 4, 3)).astype("float32")
    qdq.calibrate(q_model, data, verbose=False)
    qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, q_model, data).raise_if_failed()


def test_a_layer_behind_another_that_moves_values_reads_that_ones_result(tmp_path):
    image = keras.Input((4, 6), name="image")
    rows = layers.Activation("tanh", name="rows")(layers.Dense(5)(image))
    model = keras.Model(image, keras.ops.matmul(rows, keras.ops.swapaxes(rows, 1, 2)))
    spec = qdq.QuantizationSpec()
    # By class: Keras counts the names of operations over all models of the process.
    spec.add("Swapaxes", is_keras_class=True, quantize_input=True, quantize_weight=False)
    spec.add("Matmul", is_keras_class=True, quantize_input=False, quantize_weight=False)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "m.onnx").path
    assert [each.tensor for each in q_model.plan.tensors if each.kind == "activation"] == ["image", "rows"]
    qdq.verify_onnx(path, q_model).raise_if_failed()
