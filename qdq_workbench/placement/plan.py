"""The plan: every Q/DQ pair that a quantized model and its file will have, each with its author and reason."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping
from typing import Any, get_args

from qdq_workbench._files import rebuilt
from qdq_workbench.errors import SpecError, nearest_names
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.lowering import LoweredNode, Lowering, lower
from qdq_workbench.placement.pairs import PlannedTensor, counted_changes, planned_tensors, range_owners
from qdq_workbench.placement.placement import Placement, Site
from qdq_workbench.placement.tables import plan_as_html, plan_as_text
from qdq_workbench.placement.targets import Target, get_target, target_names

__all__ = ["LayerPlan", "Placement", "PlacementPlan", "PlanDiff", "PlannedTensor", "Site", "Unquantized"]

_content = operator.attrgetter("quantizer", "method", "scale_group", "author")  # not the reason, which is only a text


@dataclasses.dataclass(frozen=True)
class Unquantized:
    """A value of a weighted or merging layer that stays in float.

    Args:
        layer: Path of the layer.
        what: "input 0", "kernel"...
        tensor: Name of the value.
        reason: Why it stays in float.
    """

    layer: str
    what: str
    tensor: str
    reason: str


@dataclasses.dataclass(frozen=True)
class LayerPlan:
    """The part of a plan about one layer.

    Args:
        layer: Path of the layer.
        quantize_input: Whether any of its inputs is quantized.
        input_indices: Which inputs are.
        quantize_weight: Whether any of its weights is quantized.
        quantize_output: Whether its output tensor has a Q/DQ pair.
        reason: The reason, in one sentence.
        author: The author of the decision.
        replaced: The authors that were overruled.
    """

    layer: str
    quantize_input: bool
    input_indices: tuple[int, ...]
    quantize_weight: bool
    quantize_output: bool
    reason: str
    author: str
    replaced: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class PlacementPlan:
    """Where Q/DQ pairs go in one model, and why; made by `plan_placement`.

    Plans are immutable.

    Args:
        graph: The graph that was planned.
        mode: "full" or "partial".
        target: Name of the target whose needs the plan respects.
        placements: All placements, in computing order.
        decisions: The decisions of the spec, the cases and the defaults, per node, before the target's additions.
        unquantized: The values of weighted and merging layers that stay in float, with the reason.
        altered_target: The target itself, if it differs from the registered one of that name.

    Example:
        >>> import keras
        >>> from qdq_workbench import plan_placement
        >>> image = keras.Input((4,), name="image")
        >>> plan = plan_placement(keras.Model(image, keras.layers.Dense(2, name="head")(image)), target="onnxruntime")
        >>> [(pair.name, pair.quantizer.label) for pair in plan.tensors]
        [('image', 'uint8'), ('head/kernel', 'int8/axis 1')]
        >>> plan.placements[0].author, plan.placements[0].reason
        ('default', 'the default for Dense quantizes its input and its weights')
        >>> PlacementPlan.from_dict(plan.to_dict()) == plan
        True
    """

    graph: ModelGraph
    mode: str
    target: str
    placements: tuple[Placement, ...]
    decisions: Mapping[str, Decision] = dataclasses.field(default_factory=dict)
    unquantized: tuple[Unquantized, ...] = ()
    altered_target: Target | None = None

    @property
    def target_object(self) -> Target:
        """The target whose needs the plan respects."""
        return get_target(self.target) if self.altered_target is None else self.altered_target

    @property
    def target_label(self) -> str:
        """The target's name for tables and messages, marked if the target is not the registered one of that name."""
        return f"{self.target} (altered)" if self.altered_target and self.target in target_names() else self.target

    @functools.cached_property
    def tensors(self) -> tuple[PlannedTensor, ...]:
        """The distinct Q/DQ pairs: one per activation tensor and quantizer, one per weight."""
        return tuple(self._pairs.values())

    @functools.cached_property
    def _pairs(self) -> dict[tuple[Any, ...], PlannedTensor]:
        return planned_tensors(self.placements, self.graph.tensors)

    def pair_of(self, placement: Placement) -> PlannedTensor:
        """Return the Q/DQ pair of a placement; several placements may share it.

        Args:
            placement: A placement of this plan.
        """
        return self._pairs[placement.pair_key]

    @functools.cached_property
    def range_owners(self) -> Mapping[str, str]:
        """By the name of each activation pair, the name of the pair whose range it has: scale groups share one."""
        return range_owners(self.tensors)

    @functools.cached_property
    def lowering(self) -> Lowering:
        """The step of every node in the file: written, split, moved, folded, absorbed or vanishes.

        The exporters carry this out, explanations start from it, and verification compares files with it.
        """
        in_onnx = self.target_object.file == "onnx"
        return self.onnx_lowering if in_onnx else lower(self.graph, self.placements, in_onnx=False)

    @functools.cached_property
    def onnx_lowering(self) -> Lowering:
        """The step of every node in an ONNX file, also if the plan's target reads other files."""
        return lower(self.graph, self.placements)

    @functools.cached_property
    def _placements_by_layer(self) -> dict[str, list[Placement]]:
        by_layer: dict[str, list[Placement]] = {}
        for placement in self.placements:
            by_layer.setdefault(placement.layer, []).append(placement)
        return by_layer

    @functools.cached_property
    def _by_key(self) -> dict[tuple[str, str, int | str | None], Placement]:
        return {placement.key: placement for placement in self.placements}

    @functools.cached_property
    def _output_tensors(self) -> dict[str, Placement]:
        return {placement.tensor: placement for placement in self.placements if placement.site == "output"}

    def for_layer(self, name: str) -> LayerPlan:
        """Return the plan of one layer, over all its calls.

        Args:
            name: Path of the layer, or the name of one of its calls such as `conv#1`.

        Raises:
            SpecError: If the model has no such layer; the message shows the nearest names.
        """
        calls = self.graph.calls(name)
        names = {call.name for call in calls}
        placements = [p for p in self._placements_by_layer.get(calls[0].layer, []) if p.node in names or p.weight]
        inputs = sorted({p.input_index for p in placements if p.input_index is not None})
        decision = self.decisions.get(calls[0].name)
        from_target = next((p for p in placements if p.author == "target"), None)
        if decision is None or (decision.is_float and from_target is not None):
            author, reason = ("target", from_target.reason) if from_target else ("default", "an input of the model")
            replaced: tuple[str, ...] = ()
        else:
            author, reason, replaced = decision.author, decision.reason, decision.replaced
        return LayerPlan(
            layer=calls[0].layer,
            quantize_input=bool(inputs),
            input_indices=tuple(inputs),
            quantize_weight=any(p.site == "weight" for p in placements),
            quantize_output=any(p.site == "output" for p in placements),
            reason=reason,
            author=author,
            replaced=replaced,
        )

    def input_placement(self, node: str, index: int) -> Placement | None:
        """Return the placement that quantizes an input: its own, or the "output" placement of its tensor.

        Args:
            node: Name of the call that reads it.
            index: Which input of the call, from 0 on.

        Raises:
            SpecError: If the model has no such call (the message shows the nearest names), or the call no such input.
        """
        inputs = self.graph.node(node).inputs
        if not 0 <= index < len(inputs):
            raise SpecError(f"{node!r} has {len(inputs)} inputs, counted from 0. Received: index={index!r}")
        return self._by_key.get(("input", node, index)) or self._output_tensors.get(inputs[index])

    def output_placement(self, tensor: str) -> Placement | None:
        """Return the placement that quantizes a tensor for all its readers, if there is one.

        Args:
            tensor: Name of the tensor.
        """
        return self._output_tensors.get(tensor)

    def diff(self, other: PlacementPlan) -> PlanDiff:
        """Return the changes from this plan to `other`.

        Args:
            other: A plan of the same model.

        Raises:
            SpecError: If `other` is a plan of a model with other layers.
        """
        if not isinstance(other, PlacementPlan) or self.graph.layers != other.graph.layers:
            raise SpecError(
                "Two plans can be compared when they are plans of one model. "
                f"Received: {self.graph.name!r} and {getattr(getattr(other, 'graph', None), 'name', other)!r}"
            )
        mine, theirs = self._by_key, other._by_key
        both = ((p, theirs[key]) for key, p in mine.items() if key in theirs)
        return PlanDiff(
            added=tuple(p for key, p in theirs.items() if key not in mine),
            removed=tuple(p for key, p in mine.items() if key not in theirs),
            changed=tuple((one, new) for one, new in both if _content(one) != _content(new)),
            plans=(self, other),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the plan, with its graph, as a JSON-compatible dictionary."""
        return {
            "format": "qdq-workbench/placement-plan",
            "version": 1,
            "mode": self.mode,
            "target": self.target,
            **({} if self.altered_target is None else {"altered_target": self.altered_target.to_dict()}),
            "placements": [placement.to_dict() for placement in self.placements],
            "decisions": {name: decision.to_dict() for name, decision in self.decisions.items()},
            "unquantized": [dataclasses.asdict(item) for item in self.unquantized],
            "lowering": self.lowering.to_dict(),
            "graph": self.graph.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PlacementPlan:
        """Rebuild a plan from `to_dict`.

        Args:
            data: The dictionary of `to_dict`, also after a round trip through JSON.

        Raises:
            SpecError: If the dictionary is not a plan of this version.
        """

        def build(data: Mapping[str, Any]) -> PlacementPlan:
            plan = cls(
                graph=ModelGraph.from_dict(data["graph"]),
                mode=data["mode"],
                target=data["target"],
                placements=tuple(Placement.from_dict(item) for item in data["placements"]),
                decisions={name: Decision.from_dict(item) for name, item in data["decisions"].items()},
                unquantized=tuple(Unquantized(**item) for item in data["unquantized"]),
                altered_target=Target.from_dict(data["altered_target"]) if "altered_target" in data else None,
            )
            layers = set(plan.graph.layers)
            for placement in plan.placements:
                _check_place(plan.graph, layers, placement)
            return plan

        return rebuilt(data, build, what="placement plan", made_by="plan_placement(...)", error=SpecError)

    def summary(self) -> str:
        """Return the plan as a text table: what is quantized, and what is not, each with the reason."""
        return plan_as_text(self)

    def _repr_html_(self) -> str:
        return plan_as_html(self)

    def __repr__(self) -> str:
        return (
            f"PlacementPlan({self.graph.name!r}, mode={self.mode!r}, target={self.target_label!r}, "
            f"{len(self.tensors)} Q/DQ pairs)"
        )


@dataclasses.dataclass(frozen=True)
class PlanDiff:
    """The changes between two plans of one model.

    Args:
        added: Placements that only the second plan has.
        removed: Placements that only the first plan has.
        changed: Places that both have, with another grid, method, scale group or author.
        plans: The two plans, from which `lowered` is derived; None leaves it empty.
    """

    added: tuple[Placement, ...]
    removed: tuple[Placement, ...]
    changed: tuple[tuple[Placement, Placement], ...]
    plans: tuple[PlacementPlan, PlacementPlan] | None = dataclasses.field(default=None, repr=False, compare=False)

    @functools.cached_property
    def lowered(self) -> tuple[tuple[LoweredNode, LoweredNode], ...]:
        """The lowering of a node before and after, for the nodes whose step changes."""
        if self.plans is None:
            return ()
        mine, theirs = (plan.lowering.nodes for plan in self.plans)
        pairs = ((node, theirs[name]) for name, node in mine.items() if name in theirs)
        return tuple((a, b) for a, b in pairs if (a.step, a.into) != (b.step, b.into))

    @property
    def counts(self) -> str:
        """The difference as a phrase, such as `2 pairs more, 1 pair less, 1 input changed`.

        An input that joins or leaves a pair of other readers counts as a changed input, not as a pair.
        """
        counts = counted_changes(self.added, self.removed, self.plans)
        counts += [f"{len(self.changed)} with another grid or author"] * bool(self.changed)
        return ", ".join(counts) or "no difference"

    def summary(self) -> str:
        """Return the difference as text: a line per place with + or -, ~ for another grid or author, > for the file.

        Example:
            >>> import keras
            >>> from qdq_workbench import QuantizationSpec, plan_placement
            >>> image = keras.Input((8, 8, 3), name="image")
            >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, name="conv")(image))
            >>> spec = QuantizationSpec()
            >>> spec.add("conv", quantize_weight=False)
            >>> print(plan_placement(model).diff(plan_placement(model, quantization_spec=spec)).summary())
            1 pair less, 1 with another grid or author
            - conv/kernel (weight of conv): int8/axis 3, by default
            ~ image (input of conv): default -> spec[0]
        """
        lines = [self.counts]
        lines += [f"{sign} {_place_text(p)}" for sign, found in (("+", self.added), ("-", self.removed)) for p in found]
        lines += [f"~ {_change_text(one, other)}" for one, other in self.changed]
        lines += [f"> {one.node}: {_step_text(one)} -> {_step_text(other)}" for one, other in self.lowered]
        return "\n".join(lines)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def _place_text(placement: Placement) -> str:
    place = f"{placement.tensor} ({placement.site} of {placement.layer})"
    return f"{place}: {placement.quantizer.label}, by {placement.author}"


def _change_text(one: Placement, other: Placement) -> str:
    """Return the differences between two placements at one place, as text."""
    pairs = (
        (one.quantizer.label, other.quantizer.label),
        (one.author, other.author),
        (f"scale group {one.scale_group}", f"scale group {other.scale_group}"),
        (_method(one), _method(other)),
    )
    different = ", ".join(f"{before} -> {after}" for before, after in pairs if before != after)
    return f"{one.tensor} ({one.site} of {one.layer}): {different}"


def _method(placement: Placement) -> str:
    return "quantizer of the defaults" if placement.method is None else f"quantizer {placement.method.name}"


def _step_text(node: LoweredNode) -> str:
    return f"{node.step} into {', '.join(node.into)}" if node.into else node.step


def _check_place(graph: ModelGraph, layers: set[str], placement: Placement) -> None:
    """Raise an error unless the model has the place of a placement; plans may be edited by hand."""
    site, layer, tensor = placement.site, placement.layer, placement.tensor
    if site not in get_args(Site):
        raise SpecError(f"A site is one of {', '.join(get_args(Site))}. Received: site={site!r} of layer {layer!r}")
    node = graph.node(placement.node)
    if layer not in layers:
        raise SpecError(f"The model has no layer of that name. {nearest_names(layer, layers)} Received: {layer!r}")
    if site == "weight":
        return
    if tensor not in graph.tensors:
        raise SpecError(f"The model has no such tensor. {nearest_names(tensor, graph.tensors)} Received: {tensor!r}")
    if site == "input" and placement.input_index not in range(len(node.inputs)):
        raise SpecError(
            f"{node.name!r} has {len(node.inputs)} inputs, counted from 0. "
            f"Received: input_index={placement.input_index!r}"
        )
