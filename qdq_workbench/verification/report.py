"""The report of a verification: its checks and figures."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from qdq_workbench._pages import page
from qdq_workbench.errors import VerificationError
from qdq_workbench.runtimes.other_target import other_target_remark
from qdq_workbench.verification.saturation import processor_remark

_SHOWN = 5  # problems in the detail of a check
_ADVICE = f"What each check means, and what to do: {page('howto/verification_failed.md')}"


@dataclasses.dataclass(frozen=True)
class Check:
    """The result of one check.

    Args:
        name: Short name, such as "structure".
        passed: Whether it passed.
        detail: The finding, as a sentence or a few lines.
    """

    name: str
    passed: bool
    detail: str


def check_of(name: str, problems: Sequence[str], finding: str) -> Check:
    """Return a check that fails with the first problems, or passes with a finding if there are none."""
    more = f" (and {len(problems) - _SHOWN} more)" if len(problems) > _SHOWN else ""
    return Check(name, passed=not problems, detail="; ".join(problems[:_SHOWN]) + more if problems else finding)


def first_few(sentences: Sequence[str]) -> str:
    """Return the first sentences, and the number of the others."""
    more = [f"and {len(sentences) - _SHOWN} more"] if len(sentences) > _SHOWN else []
    return "; ".join([*sentences[:_SHOWN], *more])


@dataclasses.dataclass(frozen=True)
class VerificationReport:
    """The result of `verify_onnx` or `verify_tflite`.

    Args:
        path: The file.
        checks: The checks, in order.
        figures: Counts and measurements, JSON-compatible. For ONNX: "pairs": number of pairs and integer weights. If
            the checks got that far: "lsb": integers compared, how many differ by one step, and the largest difference
            in steps, of those that no bias explains and of those that one does. "agreement": share of samples, 0 to 1,
            with the same argmax, the minimum over all outputs; None if no output has classes. "outputs": one entry per
            output and run, differences in the output's units. "saturation": the output with the largest error by
            saturating kernels, or None. "integer_kernels": by operator (nodes on integers, all nodes). "float_nodes":
            names of the compute nodes in float. For LiteRT: "operators" (as "integer_kernels"), "mean_difference",
            "mean_size", "top1_agreement" (None if no output has classes).
            "other_forms": where the form of a layer may not be that of the plan, one sentence each.
        target: The target that an ONNX file was exported for; None if the file does not carry it.
    """

    path: pathlib.Path
    checks: tuple[Check, ...]
    figures: dict[str, Any]
    target: str | None = None

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    @property
    def target_remark(self) -> str:
        """A warning, with advice, if the file was exported for another target than ONNX Runtime, which ran it."""
        return other_target_remark(self.target)

    @property
    def processor_remark(self) -> str:
        """A warning, with the error and advice, if ONNX Runtime's integer kernels saturate on this processor.

        The checks judge the file by exact sums, as processors with VNNI compute them.
        """
        return processor_remark(self.figures.get("saturation"))

    @property
    def form_remark(self) -> str:
        """A warning if layers have a form that computes the same but for which a runtime may lack an integer kernel."""
        found = self.figures.get("other_forms") or []
        if not found:
            return ""
        return (
            "Some layers have a form in which a runtime may compute them in float or more slowly: "
            f"{first_few(found)}. A profile tells (profile_onnx); if export_onnx writes them "
            "again, report it with the model"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-compatible dictionary."""
        checks = [dataclasses.asdict(check) for check in self.checks]
        found = {"path": str(self.path), "passed": self.passed, "checks": checks, "figures": self.figures}
        names = ("target_remark", "processor_remark", "form_remark")
        return {**found, "target": self.target, **{name: getattr(self, name) for name in names}}

    def summary(self) -> str:
        """Return the report as text, one line per check."""
        lines = [f"{'ok  ' if check.passed else 'FAIL'}  {check.name}: {check.detail}" for check in self.checks]
        remarks = (self.target_remark, self.processor_remark, self.form_remark)
        lines += [f"note  {remark}" for remark in remarks if remark]
        advice = [] if self.passed else [_ADVICE]
        return "\n".join([f"{self.path}: {'verified' if self.passed else 'NOT verified'}", *lines, *advice])

    def raise_if_failed(self) -> VerificationReport:
        """Return the report itself, or raise if a check failed.

        Raises:
            VerificationError: With the failed checks.
        """
        failed = [check for check in self.checks if not check.passed]
        if failed:
            details = "\n".join(f"{check.name}: {check.detail}" for check in failed)
            raise VerificationError(
                "The file does not do what its plan says; export the model again and do not deploy this file. "
                f"{_ADVICE}. "
                f"Received: path={str(self.path)!r}\n{details}"
            )
        return self
