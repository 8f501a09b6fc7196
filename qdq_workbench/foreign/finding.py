"""What a rule of `lint_onnx` says about a node."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a file.

    Args:
        rule: Id of the rule, such as `QDQ-DANGLING`.
        node: Name of the node; that of what it writes, where it has none.
        message: What is wrong, and what to do.
    """

    rule: str
    node: str
    message: str
