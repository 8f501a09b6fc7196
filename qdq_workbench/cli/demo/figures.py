"""The figures of a demo run, the checks on them, and the one-line verdict."""

from __future__ import annotations

import dataclasses
from typing import Any

from qdq_workbench.report import Check, Figure

# The accuracy that quantization may cost, but at least two test images, because less is within the noise.
_ALLOWED_LOSS = 0.003
_ALLOWED_IMAGES = 2
_EXACT = "session.x64quantprecision=1: this processor has no VNNI (weights of 7 bits run at full speed on it)"


@dataclasses.dataclass(frozen=True)
class DemoFigures:
    """The measurements of a demo run.

    Args:
        fp32: Accuracy of the float model in Keras; accuracies are from 0 to 1, on the test images.
        ptq: Accuracy of the quantized model after calibration alone, in Keras.
        ptq_onnxruntime: The same model's exported file in ONNX Runtime.
        control: The float model after the same fine-tuning as `qat`.
        qat: The quantized model after quantization-aware training, in Keras.
        onnxruntime: Its exported file in ONNX Runtime.
        qdq_pairs: Q/DQ pairs in that file, activations and weights.
        integer_kernels: Number of its heavy nodes that ONNX Runtime runs on integers.
        heavy_nodes: Number of its heavy nodes: convolutions, matrix products, additions.
        size_ratio: Bytes of the INT8 file / bytes of the FP32 file.
        speed_ratio: Time of the FP32 file / time of the INT8 file, in ONNX Runtime on this machine.
        test_images: Number of test images for the accuracies.
        verified: Target -> whether its file passed the verification.
        seconds: Duration of the whole run.
        exact_sums: Whether ONNX Runtime used the option for exact sums, because the processor has no VNNI.
    """

    fp32: float
    ptq: float
    ptq_onnxruntime: float
    control: float
    qat: float
    onnxruntime: float
    qdq_pairs: int
    integer_kernels: int
    heavy_nodes: int
    size_ratio: float
    speed_ratio: float
    test_images: int
    verified: dict[str, bool]
    seconds: float
    exact_sums: bool = False

    def checks(self) -> list[Check]:
        """Return the checks of the run.

        Speed is not checked: without INT8 instructions a correct INT8 file may be slower than the float file.
        """
        allowed = max(_ALLOWED_LOSS, _ALLOWED_IMAGES / self.test_images)
        files = [
            Check(f"the {target} file does what its plan and Keras say", passed, "see its verification below")
            for target, passed in self.verified.items()
        ]
        return [
            *files,
            _no_worse("INT8 keeps the accuracy after calibration alone", self.ptq_onnxruntime, self.fp32, allowed),
            _no_worse("INT8 keeps up with a float model fine-tuned alike", self.onnxruntime, self.control, allowed),
            Check(
                "every convolution, matrix product and addition runs on integers",
                self.integer_kernels == self.heavy_nodes > 0,
                f"{self.integer_kernels} of {self.heavy_nodes}",
            ),
            Check("the INT8 file is the smaller one", self.size_ratio < 1, f"{self.size_ratio:.2f}x FP32"),
        ]

    @property
    def passed(self) -> bool:
        """Whether all checks passed."""
        return all(check.passed for check in self.checks())

    def verdict(self) -> str:
        """Return the one-line verdict: the figures and the failed checks."""
        failed = [check.name for check in self.checks() if not check.passed]
        line = (
            f"VERDICT {'bad' if failed else 'good'}: FP32 {_percent(self.fp32)}  PTQ {_percent(self.ptq)}  "
            f"QAT {_percent(self.qat)}  ONNX Runtime {_percent(self.onnxruntime)}  | {self.qdq_pairs} Q/DQ pairs | "
            f"{self.integer_kernels}/{self.heavy_nodes} integer kernels | size {self.size_ratio:.2f}x | "
            f"speed {self.speed_ratio:.2f}x"
        )
        line += f" | {_EXACT}" if self.exact_sums else ""
        return f"{line} | FAILED: {'; '.join(failed)}" if failed else line

    def cards(self) -> list[Figure]:
        """Return the figures for the report's first row."""
        images = f"on {self.test_images} test images"
        exact = f", with {_EXACT}" if self.exact_sums else ""
        return [
            Figure("FP32", _percent(self.fp32), f"Keras, {images}"),
            Figure("PTQ", _percent(self.ptq), f"after calibration; its file {_percent(self.ptq_onnxruntime)}"),
            Figure("QAT", _percent(self.qat), f"float fine-tuned alike {_percent(self.control)}"),
            Figure("ONNX Runtime", _percent(self.onnxruntime), f"the exported INT8 file after QAT{exact}"),
            Figure("Q/DQ pairs", str(self.qdq_pairs), "activations and weights"),
            Figure("Integer kernels", f"{self.integer_kernels}/{self.heavy_nodes}", "in ONNX Runtime's graph"),
            Figure("File size", f"{self.size_ratio:.2f}x", "of the FP32 file"),
            Figure("Speed", f"{self.speed_ratio:.2f}x", "FP32 / INT8 time, median of interleaved rounds"),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the figures, the checks and the verdict as a JSON-compatible dictionary."""
        checks = [dataclasses.asdict(check) for check in self.checks()]
        return {**dataclasses.asdict(self), "checks": checks, "passed": self.passed, "verdict": self.verdict()}


def _no_worse(name: str, value: float, reference: float, allowed: float) -> Check:
    detail = f"{100 * value:.2f} % against {100 * reference:.2f} %, {100 * allowed:.2f} points allowed"
    return Check(name, value >= reference - allowed, detail)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
