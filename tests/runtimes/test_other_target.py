"""What is said where a runtime runs a file that was made for another one."""

import pytest

from qdq_workbench.runtimes.other_target import other_target_remark


@pytest.mark.parametrize(
    ("target", "engine"),
    [
        ("onnxruntime", "ONNX Runtime"),
        ("openvino", "OpenVINO"),
        (None, "OpenVINO"),
        ("tensorrt", "an engine of a file"),
    ],
)
def test_a_file_for_the_runtime_and_one_that_does_not_tell_have_no_remark(target, engine):
    assert other_target_remark(target, engine) == ""


@pytest.mark.parametrize(
    ("target", "engine", "own"),
    [
        ("tensorrt", "ONNX Runtime", "onnxruntime"),
        ("onnxruntime", "OpenVINO", "openvino"),
        ("mine", "OpenVINO", "openvino"),
    ],
)
def test_a_file_for_another_runtime_has_one_line_with_both_and_what_to_do(target, engine, own):
    said = other_target_remark(target, engine, "net.onnx")
    assert said.startswith(f"net.onnx was exported for {target}. {engine} runs it as it is")
    assert f"export with target={own!r} (--target {own})" in said
    assert "\n" not in said
