import dataclasses
import json

import pytest

from qdq_workbench.cli.demo.figures import DemoFigures

GOOD = DemoFigures(
    fp32=0.986,
    ptq=0.984,
    ptq_onnxruntime=0.984,
    control=0.987,
    qat=0.989,
    onnxruntime=0.989,
    qdq_pairs=23,
    integer_kernels=9,
    heavy_nodes=9,
    size_ratio=0.31,
    speed_ratio=1.42,
    test_images=5000,
    verified={"onnxruntime": True, "tensorrt": True},
    seconds=100.0,
)


def test_the_verdict_is_one_line_with_all_figures():
    assert GOOD.verdict() == (
        "VERDICT good: FP32 98.6 %  PTQ 98.4 %  QAT 98.9 %  ONNX Runtime 98.9 %  | 23 Q/DQ pairs | "
        "9/9 integer kernels | size 0.31x | speed 1.42x"
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"verified": {"onnxruntime": True, "tensorrt": False}}, "the tensorrt file does what"),
        ({"ptq_onnxruntime": 0.9829}, "after calibration alone"),
        ({"onnxruntime": 0.9839}, "fine-tuned alike"),
        ({"integer_kernels": 8}, "runs on integers"),
        ({"integer_kernels": 0, "heavy_nodes": 0}, "runs on integers"),
        ({"size_ratio": 1.0}, "smaller"),
    ],
    ids=["verification", "PTQ accuracy", "QAT accuracy", "kernels", "no kernels", "size"],
)
def test_each_failing_check_makes_a_bad_verdict_that_names_it(change, says):
    bad = dataclasses.replace(GOOD, **change)

    assert not bad.passed
    assert bad.verdict().startswith("VERDICT bad")
    assert says in bad.verdict().split("FAILED: ")[1]


def test_the_allowed_loss_is_three_tenths_of_a_point():
    assert dataclasses.replace(GOOD, ptq_onnxruntime=0.9831).passed


def test_on_few_images_two_of_them_may_change_sides():
    assert dataclasses.replace(GOOD, test_images=100, ptq_onnxruntime=0.967).passed
    assert not dataclasses.replace(GOOD, test_images=100, ptq_onnxruntime=0.965).passed


def test_a_slow_processor_does_not_make_the_file_wrong():
    assert dataclasses.replace(GOOD, speed_ratio=0.5).passed


def test_figures_go_through_json():
    assert json.loads(json.dumps(GOOD.to_dict()))["verdict"] == GOOD.verdict()


def test_exact_sums_are_told_in_the_verdict_and_on_the_card():
    exact = dataclasses.replace(GOOD, exact_sums=True)
    assert "no VNNI" not in GOOD.verdict()
    assert exact.verdict().startswith(f"{GOOD.verdict()} | session.x64quantprecision=1: this processor has no VNNI")
    assert any("no VNNI" in figure.note for figure in exact.cards())
