"""What a verification found."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from qdq_workbench._pages import page
from qdq_workbench.errors import VerificationError
from qdq_workbench.runtimes.other_target import other_target_remark
from qdq_workbench.verification.saturation import processor_remark

_ADVICE = f"What each check means, and what to do: {page('howto/verification_failed.md')}"


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that was checked.

    Args:
        name: Short name, such as "structure".
        passed: Whether it holds.
        detail: What was found, in a sentence or a few lines.
    """

    name: str
    passed: bool
    detail: str


@dataclasses.dataclass(frozen=True)
class VerificationReport:
    """What `verify_onnx` found.

    Args:
        path: The file.
        checks: What was checked, in order.
        figures: Counts and measurements, JSON-compatible. "pairs": Q/DQ pairs in the file. Where these were reached:
            "lsb": integers compared, how many are one step off, and the most steps that one is off. "agreement": the
            share of samples, 0 to 1, with the same largest output, the least of all outputs; None where no output has
            classes. "outputs": every output of both runs, differences in its own units. "integer_kernels": by operator
            how many nodes are integer, of how many ("operators" in a LiteRT file). "float_nodes": names of the others.
        target: The target that the file was exported for; None where it does not tell.
    """

    path: pathlib.Path
    checks: tuple[Check, ...]
    figures: dict[str, Any]
    target: str | None = None

    @property
    def passed(self) -> bool:
        """Whether every check holds."""
        return all(check.passed for check in self.checks)

    @property
    def target_remark(self) -> str:
        """That the file was exported for another target than ONNX Runtime, which ran it, and what to do; or empty."""
        return other_target_remark(self.target)

    @property
    def processor_remark(self) -> str:
        """That ONNX Runtime's integer kernels saturate on this processor, by how much, and what to do; or empty.

        The checks judge the file by exact sums, as processors with VNNI compute them.
        """
        return processor_remark(self.figures.get("saturation"))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-compatible dictionary."""
        checks = [dataclasses.asdict(check) for check in self.checks]
        found = {"path": str(self.path), "passed": self.passed, "checks": checks, "figures": self.figures}
        remarks = {"target_remark": self.target_remark, "processor_remark": self.processor_remark}
        return {**found, "target": self.target, **remarks}

    def summary(self) -> str:
        """Return the report as text, one line per check."""
        lines = [f"{'ok  ' if check.passed else 'FAIL'}  {check.name}: {check.detail}" for check in self.checks]
        lines += [f"note  {remark}" for remark in (self.target_remark, self.processor_remark) if remark]
        advice = [] if self.passed else [_ADVICE]
        return "\n".join([f"{self.path}: {'verified' if self.passed else 'NOT verified'}", *lines, *advice])

    def raise_if_failed(self) -> VerificationReport:
        """Return the report itself, or raise where a check failed.

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
