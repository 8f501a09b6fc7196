"""The finding of a rule of `lint_onnx`."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Finding:
    """One fault of a file.

    Args:
        rule: Id of the rule, such as `QDQ-DANGLING`.
        node: Name of the node, or of its first output if it has no name.
        message: What is wrong, and what to do.
    """

    rule: str
    node: str
    message: str
