"""The Q/DQ pairs of placements: which placements share a pair, the names of pairs, and which pairs share a range."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from qdq_workbench.placement.placement import Placement
from qdq_workbench.spec.quantizer_method import QuantizerMethod
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

if TYPE_CHECKING:
    from qdq_workbench.placement.plan import PlacementPlan


@dataclasses.dataclass(frozen=True)
class PlannedTensor:
    """One Q/DQ pair of the quantized model and of its file.

    Args:
        name: Name of the pair: that of the tensor, or `<layer>/<weight>`. If readers of one tensor have
            different quantizers, the further pairs are named `<tensor>@2`, `<tensor>@3`...
        kind: "activation" or "weight".
        quantizer: The grid.
        scale_group: The group whose range it shares, if any.
        tensor: Name of the tensor.
        method: The method that finds the range; None for the default.
    """

    name: str
    kind: Literal["activation", "weight"]
    quantizer: QuantizerSpec
    scale_group: str | None = None
    tensor: str = ""
    method: QuantizerMethod | None = None


def planned_tensors(placements: Iterable[Placement], known: Container[str]) -> dict[tuple[Any, ...], PlannedTensor]:
    """Return the distinct Q/DQ pairs by `Placement.pair_key`, in the order in which they are first needed.

    A further pair of a tensor gets no name in `known`, the names of the graph's tensors.
    """
    found: dict[tuple[Any, ...], PlannedTensor] = {}
    taken: set[str] = set()
    for placement in placements:
        key = placement.pair_key
        if key in found:
            continue
        name, number = placement.tensor, 1
        # The first pair is named as its tensor. A further one must not get the name of another tensor.
        while name in taken or (number > 1 and name in known):
            number += 1
            name = f"{placement.tensor}@{number}"
        taken.add(name)
        kind: Literal["activation", "weight"] = "weight" if placement.site == "weight" else "activation"
        found[key] = PlannedTensor(
            name, kind, placement.quantizer, placement.scale_group, placement.tensor, placement.method
        )
    return found


def range_owners(tensors: Iterable[PlannedTensor]) -> Mapping[str, str]:
    """Return, by the name of each activation pair, the name of the pair whose range it has.

    Pairs of one scale group share a range if they have the same grid and method.
    """
    groups: dict[tuple[Any, ...], list[PlannedTensor]] = {}
    for tensor in tensors:
        if tensor.kind == "activation":
            key = (tensor.scale_group or tensor.tensor, tensor.quantizer, tensor.method)
            groups.setdefault(key, []).append(tensor)
    owners = {}
    for (leader, _, _), members in groups.items():
        # The leader may have no pair on this grid: readers may have others, and pairs move behind a Dropout.
        owner = next((member for member in members if member.tensor == leader), members[0])
        owners.update({member.name: owner.name for member in members})
    return owners


def counted_changes(
    added: Collection[Placement], removed: Collection[Placement], plans: tuple[PlacementPlan, PlacementPlan] | None
) -> list[str]:
    """Return the numbers of pairs and inputs that differ between two plans, each as a phrase.

    Without the plans placements are counted, because the pairs that they share are unknown.
    """
    changes = (*added, *removed)
    if plans is None:
        return _counted((len(added), "place", "more"), (len(removed), "place", "less"))
    old, new = ({pair.name: pair.tensor for pair in plan.tensors} for plan in plans)
    kept = set(old.values()) & set(new.values())
    inputs = sum(one.site == "input" and one.tensor in kept for one in changes)
    counts = _counted(
        (len(new.keys() - old.keys()), "pair", "more"),
        (len(old.keys() - new.keys()), "pair", "less"),
        (inputs, "input", "changed"),
    )
    return counts or _counted((len(changes), "place", "changed"))


def _counted(*found: tuple[int, str, str]) -> list[str]:
    return [f"{count} {what}{'s' * (count > 1)} {how}" for count, what, how in found if count]
