"""The inference runtimes that a plan can be made for, as targets."""

from __future__ import annotations

from qdq_workbench.placement.targets.target import Target, get_target, target_names

__all__ = ["Target", "get_target", "target_names"]
