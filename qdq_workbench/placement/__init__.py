"""Placement of Q/DQ pairs: the decisions, the plan and the targets."""
