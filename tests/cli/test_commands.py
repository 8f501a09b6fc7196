"""The commands in the order of the walk, each on the file that the one before wrote."""

import json

import keras
import pytest

import qdq_workbench as qdq


def test_plan_shows_and_writes_the_plan(cli, workplace):
    arguments = ("--case", "ResNetV1QDQCase", "-o", "plan.json", "--html", "graph.html", "--picture", "graph.svg")
    code, out, _ = cli("plan", "model.keras", *arguments)

    plan = qdq.PlacementPlan.from_dict(json.loads((workplace / "plan.json").read_text()))
    assert code == 0
    assert plan.for_layer("add").author == "ResNetV1QDQCase"
    assert plan.summary() in out
    assert plan.for_layer("add").reason in (workplace / "graph.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("beside", ["--beside other.json", "--beside exported.onnx", "--kernels exported.onnx"])
def test_plan_draws_what_is_beside_it(cli, workplace, q_model, beside):
    assert cli("plan", "model.keras", "--case", "ResNetV1QDQCase", "-o", "other.json")[0] == 0
    assert cli("export", q_model, "-o", "exported.onnx")[0] == 0

    code, out, errors = cli("plan", "model.keras", "--target", "onnxruntime", "--html", "two.html", *beside.split())

    assert (code, "Wrote two.html" in out) == (0, True), errors
    assert '"left"' in (workplace / "two.html").read_text(encoding="utf-8")


def test_what_is_beside_a_plan_needs_a_page(cli, workplace):
    code, _, errors = cli("plan", "model.keras", "--beside", "other.json")
    assert code == 2
    assert "--html graph.html. Received: 'other.json'" in errors


def test_the_default_target_is_named_as_such(cli):
    for command in (("plan", "model.keras"), ("quantize", "model.keras", "-o", "default.keras")):
        code, out, errors = cli(*command)
        assert code == 0, errors
        assert "for tensorrt (the default, for NVIDIA GPUs; --target chooses another runtime: litert, onnx" in out
        assert "--target chooses" not in cli(*command, "--target", "tensorrt")[1]


def test_plan_follows_spec_and_mode(cli, workplace):
    spec = qdq.QuantizationSpec()
    spec.add("stem")
    spec.save(workplace / "spec.yaml")

    code, out, _ = cli("plan", "model.keras", "--spec", "spec.yaml", "--mode", "partial", "--json")

    assert code == 0
    assert {placement["layer"] for placement in json.loads(out)["placements"]} == {"stem"}


def test_quantize_makes_a_calibrated_model(cli, workplace, q_model):
    import keras

    model = keras.models.load_model(workplace / q_model)

    assert model.target == "onnxruntime"
    assert set(model.recorded_ranges) >= {"image", "stem_relu", "pool"}


def test_quantize_without_data_says_that_ranges_are_missing(cli):
    code, out, _ = cli("quantize", "model.keras", "-o", "uncalibrated.keras", "--json")

    assert (code, json.loads(out)["calibrated"]) == (0, False)
    code, _, errors = cli("export", "uncalibrated.keras", "-o", "never.onnx")
    assert code == 2
    assert errors.startswith("UncalibratedError")


@pytest.mark.parametrize("method", ["moving_average", "percentile"])
def test_quantize_takes_the_calibration_method(cli, method):
    code, out, errors = cli(
        "quantize", "model.keras", "-o", f"{method}.keras", "--calibration-data", "images.npz", "--method", method
    )

    assert code == 0, errors
    assert "Inputs were calibrated on image -" in out  # who reads 0 to 255 there sees what went wrong
    assert out.endswith("is that how the model was trained?\n")


def test_export_writes_the_file_of_the_models_own_target(cli, workplace, onnx_file):
    import onnx

    onnx.checker.check_model(str(workplace / onnx_file), full_check=True)


def test_export_takes_the_type_of_floats(cli, workplace, q_model):
    import onnx

    code, out, _ = cli(
        "export", q_model, "-o", "half.onnx", "--target", "tensorrt", "--float-type", "float16", "--json"
    )

    assert code == 0
    found = json.loads(out)
    assert (found["float_type"], found["opset"]) == ("float16", 19)
    assert found["half_nodes"] > 0
    held = {tensor.data_type for tensor in onnx.load(workplace / "half.onnx").graph.initializer}
    assert onnx.TensorProto.FLOAT16 in held
    assert cli("verify", "half.onnx", "--model", q_model)[0] == 0
    assert cli("export", q_model, "-o", "ends.onnx", "--float-type", "float16", "--half-io")[0] == 0
    ends = onnx.load(workplace / "ends.onnx").graph
    assert {value.type.tensor_type.elem_type for value in (*ends.input, *ends.output)} == {onnx.TensorProto.FLOAT16}
    assert cli("verify", "ends.onnx", "--model", q_model)[0] == 0
    assert cli("profile", "ends.onnx", "--rounds", "2")[0] == 0
    code, _, errors = cli("export", q_model, "-o", "ends.onnx", "--half-io")
    assert (code, "--float-type float16 --half-io" in errors) == (2, True)
    code, _, errors = cli("export", q_model, "-o", "half.tflite", "--float-type", "float16")
    assert code == 2
    assert "holds its floats in float32" in errors


def test_the_command_line_writes_weights_for_hybrid_kernels(cli, tmp_path):
    inputs = keras.Input((8,), name="inputs")
    model = keras.Model(inputs, keras.layers.Dense(4, name="head")(inputs))
    spec = qdq.correction.weights_alone(model, num_bits=8, block_size=None)
    qdq.quantize_model(model, "partial", spec, target="litert").save(tmp_path / "alone.keras")
    path, file = str(tmp_path / "alone.keras"), str(tmp_path / "alone.tflite")
    code, out, errors = cli("plan", "model.keras", "--weights-alone", "8", "--target", "litert", "--json")
    assert code == 0, errors  # without blocks, which the target does not take
    assert "blocks of" not in out
    code, out, errors = cli("export", path, "-o", file, "--fixed-batch", "--dynamic-range")
    assert code == 0, errors
    assert "hybrid kernels read: 'head/kernel'" in out
    code, _, errors = cli("export", path, "-o", str(tmp_path / "alone.onnx"), "--dynamic-range")
    assert code == 2
    assert "--dynamic-range is about LiteRT" in errors


def test_export_takes_target_opset_and_batch(cli, workplace, q_model):
    import onnx

    code, out, _ = cli(
        "export", q_model, "-o", "trt.onnx", "--target", "tensorrt", "--opset", "17", "--fixed-batch", "--json"
    )

    file = onnx.load(workplace / "trt.onnx")
    assert (code, json.loads(out)["target"]) == (0, "tensorrt")
    assert next(item.version for item in file.opset_import if item.domain in {"", "ai.onnx"}) == 17
    assert file.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1


@pytest.mark.parametrize("source", ["float", "quantized"])
def test_export_writes_the_float_file_to_compare_with(cli, workplace, q_model, source):
    import onnx

    code, out, errors = cli("export", {"float": "model.keras", "quantized": q_model}[source], "-o", "f.onnx", "--float")

    assert code == 0, errors
    assert "f.onnx, in FP32" in out
    operators = {node.op_type for node in onnx.load(workplace / "f.onnx").graph.node}
    assert "Conv" in operators
    assert not operators & {"QuantizeLinear", "DequantizeLinear"}


@pytest.mark.parametrize("more", [["--float-type", "float16"], ["-o", "f.tflite"]])
def test_the_float_file_is_an_onnx_file_in_float32(cli, more):
    code, _, errors = cli("export", "model.keras", "-o", "never.onnx", "--float", *more)

    assert code == 2
    assert "one FP32 .onnx file" in errors


def test_verify_passes_an_exported_file(cli, q_model, onnx_file):
    code, out, errors = cli("verify", onnx_file, "--model", q_model, "--data", "images.npy", "--json")

    assert (code, json.loads(out)["passed"]) == (0, True), errors


def test_verify_exits_with_1_when_a_scale_was_changed(cli, workplace, q_model, onnx_file):
    import onnx
    from onnx import numpy_helper

    file = onnx.load(workplace / onnx_file)
    scale_name = next(node.input[1] for node in file.graph.node if node.op_type == "QuantizeLinear")
    (scale,) = [item for item in file.graph.initializer if item.name == scale_name]
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * 1.01, scale_name))
    onnx.save(file, workplace / "changed.onnx")

    code, out, _ = cli("verify", "changed.onnx", "--model", q_model, "--data", "images.npy")

    assert code == 1
    assert "scale" in out


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt"])
def test_explain_reads_models_and_plans(cli, target):
    assert cli("plan", "model.keras", "--target", target, "-o", f"{target}.json")[0] == 0

    from_plan = cli("explain", f"{target}.json", "--target", target)
    from_model = cli("explain", "model.keras", "--target", target)

    assert from_plan[0] == from_model[0] == 0
    assert "stem" in from_plan[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plan", "modle.keras"], "Did you mean 'model.keras'"),
        (["plan", "images.npy"], "Keras cannot read the model"),
        (["plan", "model.keras", "--case", "ResNetQDQCase"], "ResNetV1QDQCase"),
        (["plan", "model.keras", "--spec", "none.yaml"], "none.yaml"),
        (["plan", "model.keras", "--mode", "partial"], "SpecError"),
        (["plan", "model.keras", "-o", "missing/plan.json"], "missing/plan.json"),
        (["plan", "model.keras", "--html", "graph.json"], "graph.json"),
        (["plan", "model.keras", "--picture", "graph.png"], "graph.png"),
        (["export", "model.keras", "-o", "x.onnx"], "NotQuantizedError"),
        (["quantize", "model.keras", "-o", "missing/q.keras"], "missing/q.keras"),
        (["quantize", "model.keras", "-o", "q2.keras", "--calibration-data", "model.keras"], "DataError"),
        (["quantize", "modle.keras", "-o", "model.keras"], "Did you mean 'model.keras'"),
        (["verify", "none.onnx"], "none.onnx"),
        (["lint", ""], "The path is empty; give a file. Received: path=''"),
        (["plan", ""], "The path is empty"),
        (["certify", ""], "The path is empty"),
        (["import", ""], "The path is empty"),
        (["profile", ""], "The path is empty"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_usage_exits_with_2_and_says_what_to_do(cli, arguments, says):
    code, out, errors = cli(*arguments)

    assert code == 2, errors
    assert out == ""
    assert says in errors
    assert "Traceback" not in errors


def test_nothing_is_written_when_a_command_fails(cli, workplace):
    before = set(workplace.iterdir())

    cli("quantize", "model.keras", "-o", "half.keras", "--calibration-data", "model.keras")
    cli("export", "model.keras", "-o", "half.onnx")

    assert set(workplace.iterdir()) == before


def test_profile_measures_both_files_and_writes_report_and_page(cli, workplace, q_model, onnx_file):
    code, out, errors = cli(
        "profile", onnx_file, "--baseline", onnx_file, "--threads", "1", "--rounds", "1", "-o", "latency.json",
        "--figure", "latency.html", "--json",
    )  # fmt: skip

    result = json.loads(out)
    assert (code, result["written"]) == (0, ["latency.json", "latency.html"]), errors
    report = qdq.LatencyReport.load(workplace / "latency.json")
    assert qdq.LatencyReport.from_dict(result) == report
    assert report.baseline.path == report.path
    assert "plotly" in (workplace / "latency.html").read_text()
    code, out, errors = cli("explain", q_model, "--latency", "latency.json", "--json")
    assert (code, [len(island["layers"]) > 0 for island in json.loads(out)["islands"]]) == (0, [True]), errors
    assert cli("explain", q_model, "--latency", "latency.html")[0] == 2
    code, out, _ = cli("profile", onnx_file, "--data", "images.npy", "--batch-size", "2", "--rounds", "1")
    assert (code, "batch 2" in out, "outside the kernels" in out) == (0, True, True)
    assert cli("profile", "none.onnx")[0] == 2
