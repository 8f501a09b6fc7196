"""Decisions of a `FrameworkInfo` about the layers that neither the specification nor a case names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from qdq_workbench._warned_line import warn_caller
from qdq_workbench.graph.folds import find_folds
from qdq_workbench.graph.kinds import ACTIVATION_LAYERS
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.defaults import find_default
from qdq_workbench.spec.framework_info import FrameworkInfo

AUTHOR = "framework_info"


class FrameworkDecisions:
    """Decisions about the nodes of one graph by one `FrameworkInfo`.

    The outputs of kernel and activation layers are quantized. If an activation layer follows a kernel layer, directly
    or after a batch normalization that is folded, only the activation's output is quantized. A kernel layer that reads
    a quantized tensor through layers without quantization (max pooling, reshaping) gets a pair on its input as well,
    because an inference runtime looks for it there.

    Args:
        graph: The model.
        info: The user's information; it is only read.
        decided: The decisions about earlier nodes, by any author; the caller adds to it.
    """

    def __init__(self, graph: ModelGraph, info: FrameworkInfo, decided: Mapping[str, Decision]) -> None:
        self._graph = graph
        self._info = info
        # No placement is known yet, so every normalization that can be folded counts as folded.
        self._folded = {fold.batch_norm.name: fold.layer for fold in find_folds(graph)}
        self._problems: list[str] = []
        self._decided = decided

    def decide(self, node: Node) -> Decision:
        """Return the decision about a node; call it in the graph's order."""
        if node.name in self._folded:
            layer = self._folded[node.name]
            quantized = self._info.in_kernel_ops(layer) and not self._is_fused(node)
            reason = f"the batch normalization is folded into {layer.layer!r}"
            return self._decision(f"{reason}, whose output is quantized" if quantized else reason, output=quantized)
        if self._info.in_no_quantization_ops(node):
            return self._decision(f"framework_info lists {node.class_name} among those that are not quantized")
        if self._info.in_kernel_ops(node):
            return self._kernel(node)
        if self._info.in_activation_ops(node):
            known = self._range(node)
            if known is None:
                return self._decision(f"framework_info does not know the activation {node.activation_name!r}")
            reason = f"framework_info lists {node.class_name} among those whose output is quantized"
            return self._decision(reason, output=True, settings=_fixed(known))
        self._problems.append(f"no list names {node.class_name} ({node.layer!r})")
        return self._decision(f"framework_info does not list {node.class_name}")

    def completed(self, node: Node, decision: Decision) -> Decision:
        """Return a decision of the spec or a case, with the axes of the weights added if its settings omit weights."""
        if not decision.quantize_weight or "weights" in (decision.settings or {}):
            return decision
        settings = {**(decision.settings or {}), **(self._axes(node) or {})}
        return dataclasses.replace(decision, settings=settings or None)

    def _axes(self, node: Node) -> dict[str, Any] | None:
        """Return the axes of a layer's weights as settings; None if the library's defaults apply."""
        if not self._info.in_kernel_ops(node) or self._info.kernel_channels_mapping is None:
            return None
        axis = self._info.kernel_axis(node)
        site = {"per_axis": False} if axis is None else {"per_axis": True, "axis": axis}
        return {"weights": {name: dict(site) for name in self._weights(node)}}

    def warn(self) -> None:
        """Warn once of all nodes that stay in float because the information does not cover them."""
        if self._problems:
            found = list(dict.fromkeys(self._problems))
            shown = "; ".join(found[:8]) + ("; ..." if len(found) > 8 else "")
            warn_caller(
                UserWarning(
                    "The framework_info does not know all of the model; what it does not know stays in float: "
                    f"{shown}. Add the class to one of its lists, or the activation to its activation_min_max_mapping.",
                )
            )

    def _kernel(self, node: Node) -> Decision:
        settings = self._axes(node) or {}
        weights = bool(self._weights(node))
        if not weights:
            self._problems.append(f"{node.class_name} ({node.layer!r}) has no weight that is known to be its kernel")
        known = self._range(node)
        # Behind a folded normalization or an activation layer the pair is that of the last of them.
        output = known is not None and not self._is_fused(node) and not self._is_absorbing(node)
        if output:
            settings = {**settings, **(_fixed(known) or {})}
        if find_default(node) is None and weights and "weights" not in settings:
            settings["weights"] = {name: {} for name in self._weights(node)}
        reason = f"framework_info lists {node.class_name} among those with a kernel to quantize"
        indices = tuple(index for index, tensor in enumerate(node.inputs) if self._is_moved(tensor))
        return self._decision(reason, indices, weight=weights, output=output, settings=settings or None)

    def _weights(self, node: Node) -> list[str]:
        default = find_default(node)
        names = default.weights if default is not None and default.weights else ("kernel",)
        return [weight.name for weight in node.weights if weight.name in names]

    def _range(self, node: Node) -> tuple[float | None, float | None] | None:
        """Return minimum and maximum of a node's output, each None if unknown; None if the activation is unknown."""
        own = self._info.layer_range(node)
        if own is not None:
            return own
        if node.class_name in ACTIVATION_LAYERS and node.class_name != "Activation":
            return None, None  # a class of its own, which the lists name
        name = node.activation_name
        if name == "linear" and not self._info.activation_has_min_max(name):
            return None, None
        if node.is_operation:
            return self._info.activation_range(name) or (None, None)
        known = self._info.activation_range(name)
        if known is None:
            self._problems.append(f"activation {name!r} ({node.layer!r}) has no entry")
        return known

    def _is_fused(self, node: Node) -> bool:
        """Return whether the only reader of the node's output is an activation layer with its own pair."""
        readers = self._graph.readers(node.outputs[0])
        if not self._graph.has_one_use(node.outputs[0]):
            return False
        reader = readers[0][0]
        return reader.is_activation and self._info.in_activation_ops(reader)

    def _is_absorbing(self, node: Node) -> bool:
        return any(layer.name == node.name for layer in self._folded.values())

    def _is_moved(self, tensor: str) -> bool:
        """Return whether a tensor is a quantized one, moved or selected by layers without quantization."""
        steps = 0
        node = self._graph.producer(tensor)
        while self._info.in_no_quantization_ops(node) and len(node.inputs) == 1:
            node = self._graph.producer(node.inputs[0])
            steps += 1
        decision = self._decided.get(node.name)
        # Without a step the pair of the producer is on this tensor itself.
        return steps > 0 and decision is not None and decision.quantize_output

    def _decision(
        self,
        reason: str,
        indices: tuple[int, ...] = (),
        *,
        weight: bool = False,
        output: bool = False,
        settings: dict[str, Any] | None = None,
    ) -> Decision:
        return Decision(indices, weight, output, AUTHOR, reason, settings=settings)


def _fixed(known: tuple[float | None, float | None] | None) -> dict[str, Any] | None:
    """Return the settings of an output with two known bounds; None if one is unknown."""
    if known is None or known[0] is None or known[1] is None:
        return None
    return {"output": {"quantizer": "fixed", "init_min": float(known[0]), "init_max": float(known[1])}}
