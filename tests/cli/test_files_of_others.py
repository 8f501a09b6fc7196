"""`compare`, `import` and `certify`: what a shell user asks of ONNX files, their own and others'."""

import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import qdq_workbench as qdq


@pytest.fixture
def other_target(cli, workplace, q_model):
    """Return the name of the same network for another target."""
    if not (workplace / "other.onnx").exists():
        assert cli("export", q_model, "-o", "other.onnx", "--target", "tensorrt")[0] == 0
    return "other.onnx"


@pytest.fixture
def changed(workplace, onnx_file):
    """Return the name of the file with the scale of its first pair a hundred times as large."""
    file = onnx.load(workplace / onnx_file)
    name = next(node.input[1] for node in file.graph.node if node.op_type == "QuantizeLinear")
    (scale,) = [item for item in file.graph.initializer if item.name == name]
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(100), name))
    onnx.save(file, workplace / "parted.onnx")
    return "parted.onnx"


def test_compare_finds_a_file_equal_to_itself_at_another_opset(cli, q_model, onnx_file):
    assert cli("export", q_model, "-o", "opset21.onnx", "--opset", "21")[0] == 0

    code, out, errors = cli("compare", onnx_file, "opset21.onnx", "--data", "images.npy", "--json")

    result = json.loads(out)
    assert (code, result["passed"], result["first_divergence"]) == (0, True, None), errors
    assert len(result["tensors"]) >= 5


def test_compare_exits_with_1_where_placement_or_numbers_differ(cli, onnx_file, other_target, changed):
    code, out, _ = cli("compare", onnx_file, other_target)
    assert code == 1
    assert "quantized only in the first file" in out
    code, out, _ = cli("compare", onnx_file, changed)
    assert code == 1
    assert "they part first at" in out


def test_compare_reads_two_plans(cli, workplace):
    for target in ("onnxruntime", "tensorrt"):
        assert cli("plan", "model.keras", "--target", target, "-o", f"plan_{target}.json")[0] == 0
    one, other = (qdq.PlacementPlan.from_dict(json.loads((workplace / f"plan_{target}.json").read_text()))
                  for target in ("onnxruntime", "tensorrt"))  # fmt: skip
    difference = qdq.compare(one, other)

    code, out, _ = cli("compare", "plan_onnxruntime.json", "plan_tensorrt.json", "--json")
    result = json.loads(out)
    assert code == 1
    assert [item["tensor"] for item in result["removed"]] == [item.tensor for item in difference.removed]
    assert len(result["changed"]) == len(difference.changed) > 0
    text = cli("compare", "plan_onnxruntime.json", "plan_tensorrt.json")[1]
    assert "only in the first" in text
    assert "unsigned 8 bits by default, then signed 8 bits by default" in text
    assert cli("compare", "plan_tensorrt.json", "plan_tensorrt.json")[0] == 0


def test_import_writes_a_spec_that_places_the_same_pairs(cli, workplace, q_model, onnx_file):
    code, out, errors = cli("import", onnx_file, "--model", "model.keras", "-o", "imported.yaml", "--json")

    result = json.loads(out)
    expected = qdq.import_qdq(workplace / onnx_file, qdq.load_model(workplace / "model.keras"))
    assert (code, result["unmatched"]) == (0, []), errors
    assert qdq.QuantizationSpec.load(workplace / "imported.yaml") == expected.spec
    assert {name: tuple(ends) for name, ends in result["ranges"].items()} == dict(expected.ranges)
    made = ("quantize", "model.keras", "--mode", "partial", "--spec", "imported.yaml", "--target", "onnxruntime")
    assert cli(*made, "-o", "again.keras")[0] == 0
    pairs = [
        {tensor.name for tensor in qdq.load_model(workplace / name).plan.tensors} for name in (q_model, "again.keras")
    ]
    assert pairs[0] == pairs[1]


def test_import_reads_a_file_alone_and_exits_with_1_where_pairs_found_no_place(cli, workplace, onnx_file):
    import keras

    assert cli("import", onnx_file)[0] == 0
    image = keras.Input((8, 8, 2), name="image")
    keras.Model(image, keras.layers.Conv2D(5, 2, name="stem")(image)).save(workplace / "unlike.keras")

    code, out, _ = cli("import", onnx_file, "--model", "unlike.keras")

    assert code == 1
    assert "not recognised" in out


def test_certify_writes_the_certificate_and_its_page(cli, workplace, q_model, onnx_file):
    code, out, errors = cli("certify", onnx_file, "--model", q_model, "--data", "images.npy", "-o", "certified.json")

    assert code == 0, errors
    assert "Wrote certified.json and certified.html" in out
    assert "ok    tensor by tensor" in out
    written = qdq.Certificate.load(workplace / "certified.json")
    assert written.passed
    assert written.lsb["elements"] > 0
    assert written.sha256 in (workplace / "certified.html").read_text()
    assert (
        cli("verify", onnx_file, "--model", q_model, "--data", "images.npy", "--certificate", "certified.json")[0] == 0
    )


def test_certify_exits_with_1_where_a_check_fails(cli, q_model, changed):
    code, out, _ = cli("certify", changed, "--model", q_model)

    assert code == 1
    assert "FAIL  structure" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("compare net.onnx none.onnx", "no such file"),
        ("compare net.onnx model.keras", "not an ONNX model"),
        ("compare net.onnx plan.json", "not one of each"),
        ("compare net.onnx net.onnx --data model.keras", "holds no array"),
        ("import model.keras", "not an ONNX model"),
        ("import net.onnx -o spec.yaml", "--model"),
        ("import net.onnx --model net.onnx", "is an ONNX model"),
        ("import net.onnx --model model.keras -o spec.txt", "must end in .yaml"),
        ("certify model.keras", "not an ONNX model"),
        ("certify net.onnx -o certificate.txt", "must end in .json"),
        ("verify net.onnx --certificate broken.json", "not valid JSON"),
    ],
)
def test_bad_usage_exits_with_2(cli, workplace, onnx_file, arguments, says):
    (workplace / "broken.json").write_text("{")

    code, out, errors = cli(*arguments.split())

    assert (code, out) == (2, "")
    assert says in errors
    assert "not foreseen" not in errors


@pytest.mark.parametrize("content", [b"", b"no model", b"\x08\x07"], ids=["empty", "text", "cut off"])
def test_verify_and_lint_agree_about_what_is_no_model(cli, workplace, content):
    (workplace / "wrong.onnx").write_bytes(content)

    codes = {command: cli(command, "wrong.onnx")[0] for command in ("verify", "lint", "certify", "import", "profile")}

    assert codes == dict.fromkeys(codes, 2)


def test_import_says_that_a_float_file_has_nothing_to_import(cli, workplace):
    assert cli("export", "model.keras", "-o", "alone.onnx", "--float")[0] == 0

    code, out, _ = cli("import", "alone.onnx", "--model", "model.keras", "-o", "empty.yaml")

    assert code == 0
    assert "note: nothing was read that is quantized" in out
