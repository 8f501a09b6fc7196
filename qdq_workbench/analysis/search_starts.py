"""The plans that a search starts from: the given plan, and the plans that insertion cases derive from it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from typing import Any

from qdq_workbench.analysis.levels import add_changes, meaning
from qdq_workbench.analysis.places import pairs_of
from qdq_workbench.cases import (
    AutoQDQCase,
    BNQDQCase,
    ConcatQDQCase,
    CustomQDQInsertionCase,
    EfficientNetQDQCase,
    MaxPoolQDQCase,
    ResidualConnectionQDQCase,
    ResNetV2QDQCase,
)
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.strip import strip
from qdq_workbench.errors import SpecError
from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.planning import decisions_by_spec, replace_cases
from qdq_workbench.spec.quantization_spec import QuantizationSpec

#: The cases that "auto" tries: the library's other cases are one of these under another name.
_SHIPPED = (
    AutoQDQCase,
    ResidualConnectionQDQCase,
    EfficientNetQDQCase,
    ResNetV2QDQCase,
    BNQDQCase,
    MaxPoolQDQCase,
    ConcatQDQCase,
)
DEFAULTS = "defaults"


@dataclasses.dataclass(frozen=True)
class Start:
    """A plan whose layers' levels a search changes.

    Args:
        name: Name of the case; "defaults" for none where the plan was made with some; empty for the plan as given.
        plan: The plan.
        key: Its key in the checkpoint: the name and a hash of its decisions.
    """

    name: str
    plan: PlacementPlan
    key: str = ""


def starts_of(plan: PlacementPlan, model: Any, cases: Any, spec: QuantizationSpec | None) -> list[Start]:
    """Return the plans to start from, without repeated sets of pairs: the given plan comes first.

    Raises:
        SpecError: If something is no case.
    """
    # The given plan has no key of its own: the mark of the checkpoint contains it.
    starts, seen = [Start("", plan)], {pairs_of(plan)}
    wanted = _wanted(cases)
    # Without cases, the given plan is that of the defaults already.
    if wanted and any(_is_of_case(decision) for decision in plan.decisions.values()):
        wanted = [(DEFAULTS, []), *wanted]
    for name, some in wanted:
        other = replace_cases(plan, model, some, spec)
        pairs = pairs_of(other)
        if pairs not in seen:
            seen.add(pairs)
            starts.append(Start(name, other, f"{name} {_digest(other)}"))
    return starts


def spec_alone(spec: QuantizationSpec | None, plan: PlacementPlan, model: Any) -> QuantizationSpec:
    """Return a copy of `spec` that leads to the decisions of a plan by itself: what cases decided becomes entries.

    `spec` is that of the plan, or a part of it; mode and target are not part of a specification.
    """

    def float_model() -> Any:
        return strip(model) if isinstance(model, QuantizedModel) and model.has_plan else model

    return add_changes(spec, plan, decisions_by_spec(plan, float_model, spec))


def _wanted(cases: Any) -> list[tuple[str, list[CustomQDQInsertionCase]]]:
    """Return the cases, each in a list of its own, with distinct names."""
    if cases is None:
        return []
    if isinstance(cases, str) and cases == "auto":
        cases = [case() for case in _SHIPPED]
    if isinstance(cases, str) or not isinstance(cases, Iterable):
        raise SpecError(
            'cases must be "auto", or a list of insertion cases, such as [AutoQDQCase()], each of which is tried. '
            f"Received: cases={cases!r}"
        )
    found: dict[str, list[CustomQDQInsertionCase]] = {}
    for case in cases:
        name = str(getattr(case, "name", None) or type(case).__name__)
        again = sum(other.split("#")[0] == name for other in found)
        found[f"{name}#{again + 1}" if again else name] = [case]
    return list(found.items())


def _is_of_case(decision: Decision) -> bool:
    return decision.author not in ("default", "search", "framework_info") and not decision.author.startswith("spec[")


def _digest(plan: PlacementPlan) -> str:
    said = {name: meaning(decision) for name, decision in plan.decisions.items()}
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:12]
