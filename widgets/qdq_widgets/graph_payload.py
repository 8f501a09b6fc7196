"""The data for the graph pane: the graph once, the plan as short texts, then only changes.

Everything is in arrays with one entry per node, in the graph's order, and in tables for repeated values.
EfficientNetB7 (816 nodes) takes about 60 KB this way.

Tensors are numbered: number `i` is the first output of node `i`; the numbers of further outputs follow after those of
the nodes.

A node's state is one text, `<inputs>:<weights>:<output>`:
  inputs   one character per input: `0` float, `1` quantized for this node, `2` by the pair on the tensor itself;
  weights  how many of its weights are quantized;
  output   `1` if its output has a pair for all readers, else `0`.
A fourth part lists widths other than 8 bits and block sizes: `:i0=4,w=4,b=32,o=16` (inputs by number, weights, block
size of the weights, output).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from qdq_widgets.graph_tables import node_places, tensor_numbers
from qdq_workbench import ModelGraph, PlacementPlan, QuantizationSpec, plan_placement

SITES = ("input", "weight", "output")
USUAL_BITS = 8
_WRONG_KERNEL = "a pair there would make {} form an integer kernel that computes wrong numbers"


class _Table:
    """A list of distinct values, and their positions."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self._positions: dict[str, int] = {}

    def index(self, value: str) -> int:
        """Return the position of `value`, which is appended if it is new."""
        position = self._positions.setdefault(value, len(self.values))
        if position == len(self.values):
            self.values.append(value)
        return position


def graph_payload(graph: ModelGraph, reasons: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """Return the data of the graph, which never change.

    `GraphPayload` in `widgets/src/traits.ts` describes the JSON-compatible result; `reasons` are those of
    `disabled_reasons`.
    """
    numbers, positions = graph.once(tensor_numbers), graph.once(node_places)
    classes, shapes, refusals = _Table(), _Table(), _Table()
    further = [[positions[node.name], k] for node in graph.nodes for k in range(1, len(node.outputs))]
    return {
        "name": graph.name,
        "names": [node.name for node in graph.nodes],
        "calls": [
            [index, positions[graph.calls(node.layer)[0].name]]
            for index, node in enumerate(graph.nodes)
            if graph.calls(node.layer)[0] is not node
        ],
        "class_of": [classes.index(node.class_name) for node in graph.nodes],
        "classes": classes.values,
        "shape_of": [shapes.index(_shape_text(graph, node.outputs)) for node in graph.nodes],
        "shapes": shapes.values,
        "parameters": [sum(math.prod(w.shape) for w in node.weights) for node in graph.nodes],
        "inputs": [[numbers[tensor] for tensor in node.inputs] for node in graph.nodes],
        "further_outputs": further,
        "model_inputs": [numbers[tensor] for tensor in graph.inputs],
        "model_outputs": [numbers[tensor] for tensor in graph.outputs],
        "operations": [index for index, node in enumerate(graph.nodes) if node.is_operation],
        "opaque": [index for index, node in enumerate(graph.nodes) if node.opaque],
        "refused": {
            site: [refusals.index(reasons.get((node.name, site), "")) for node in graph.nodes] for site in SITES
        },
        "refusals": refusals.values,
        # Masks and indices, at nodes whose other inputs can be quantized.
        "unreal": [
            [position, index]
            for position, node in enumerate(graph.nodes)
            if (node.name, "input") not in reasons
            for index, tensor in enumerate(node.inputs)
            if not graph.tensors[tensor].is_float
        ],
    }


def _shape_text(graph: ModelGraph, outputs: Iterable[str]) -> str:
    """Return the shapes of a node's outputs without the batch, such as `56x56x64`."""
    texts = []
    for tensor in outputs:
        dimensions = graph.tensors[tensor].shape[1:]
        texts.append("×".join("?" if size is None else str(size) for size in dimensions) or "scalar")  # noqa: RUF001
    return ", ".join(texts)


def plan_state(plan: PlacementPlan) -> dict[str, Any]:
    """Return the data of a plan, which a click changes: state and reason of every node, and the pairs on tensors.

    Returns:
        A JSON-compatible dictionary; `PlanState` in `widgets/src/traits.ts` describes it.
    """
    inputs, outputs, weights = _places(plan)
    widths = _widths(plan)
    from_target = {placement.node for placement in plan.placements if placement.author == "target"}
    reasons = _Table()
    states, why = [], []
    for node in plan.graph.nodes:
        name = node.name
        codes = [
            "1" if (name, index) in inputs else "2" if tensor in outputs else "0"
            for index, tensor in enumerate(node.inputs)
        ]
        output = "0" if outputs.isdisjoint(node.outputs) else "1"
        state = f"{''.join(codes)}:{weights.get(node.layer, 0)}:{output}"
        text = _width_text(node, widths) if widths else ""
        states.append(f"{state}:{text}" if text else state)
        why.append(reasons.index(_why(plan, name, has_target_pair=name in from_target)))
    return {
        "revision": 0,
        "target": plan.target,
        "mode": plan.mode,
        "states": states,
        "why": why,
        "reasons": reasons.values,
        "pairs": _pairs(plan),
    }


def _places(plan: PlacementPlan) -> tuple[set[tuple[str, int | None]], set[str], dict[str, int]]:
    """Return quantized inputs by node and index, tensors with a pair for all readers, and quantized weights per layer.

    It makes one pass over the placements: a query of the plan per node would be the slowest part of a click.
    """
    inputs, outputs, weights = set(), set(), dict[str, int]()
    for placement in plan.placements:
        if placement.site == "input":
            inputs.add((placement.node, placement.input_index))
        elif placement.site == "output":
            outputs.add(placement.tensor)
        else:
            weights[placement.layer] = weights.get(placement.layer, 0) + 1
    return inputs, outputs, weights


def _widths(plan: PlacementPlan) -> dict[tuple[str, str, int | None], int]:
    """Return the widths that are not 8 bits: by ("i", node, input), ("w", layer, None), and ("o", tensor, None).

    Block sizes have the key ("b", layer, None).
    """
    found: dict[tuple[str, str, int | None], int] = {}
    for placement in plan.placements:
        bits = placement.quantizer.num_bits
        if placement.quantizer.block_size is not None:
            found["b", placement.layer, None] = placement.quantizer.block_size
        if bits == USUAL_BITS:
            continue
        if placement.site == "input":
            found["i", placement.node, placement.input_index] = bits
        elif placement.site == "output":
            found["o", placement.tensor, None] = bits
        else:
            found["w", placement.layer, None] = bits
    return found


def _width_text(node: Any, widths: Mapping[tuple[str, str, int | None], int]) -> str:
    parts = []
    for index, tensor in enumerate(node.inputs):
        bits = widths.get(("i", node.name, index)) or widths.get(("o", tensor, None))
        parts += [f"i{index}={bits}"] if bits else []
    if ("w", node.layer, None) in widths:
        parts.append(f"w={widths['w', node.layer, None]}")
    if ("b", node.layer, None) in widths:
        parts.append(f"b={widths['b', node.layer, None]}")
    given = [widths["o", tensor, None] for tensor in node.outputs if ("o", tensor, None) in widths]
    parts += [f"o={given[0]}"] if given else []
    return ",".join(parts)


def _why(plan: PlacementPlan, name: str, *, has_target_pair: bool) -> str:
    """Return author and reason of the decision about a node."""
    wish = plan.decisions.get(name)
    # `for_layer` is slower, and needed only if the target's own pair decides or there is no decision.
    decision = plan.for_layer(name) if wish is None or (has_target_pair and wish.is_float) else wish
    replaced = f" (instead of {', '.join(decision.replaced)})" if decision.replaced else ""
    return f"{decision.author}: {decision.reason}{replaced}"


def _pairs(plan: PlacementPlan) -> dict[str, list[str]]:
    """Return the grids of its pairs, nearly always one, per tensor number."""
    numbers = plan.graph.once(tensor_numbers)
    pairs: dict[str, list[str]] = {}
    for tensor in plan.tensors:
        if tensor.kind == "activation":
            shared = f", one scale with {tensor.scale_group}" if tensor.scale_group not in (None, tensor.tensor) else ""
            pairs.setdefault(str(numbers[tensor.tensor]), []).append(_grid_text(tensor.quantizer) + shared)
    return pairs


def _grid_text(quantizer: Any) -> str:
    sign = "int" if quantizer.signed else "uint"
    symmetry = "symmetric" if quantizer.symmetric else "asymmetric"
    return f"{sign}{quantizer.num_bits} {symmetry}"


def state_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes from one `plan_state` to another one of the same graph.

    Returns:
        `states` and `why` by node number, `pairs` by tensor number (an empty list removes a pair), target and mode.
    """
    # Every state numbers its reasons anew, so texts are compared and not numbers.
    before, after = old["reasons"], new["reasons"]
    pairs = {key: grids for key, grids in new["pairs"].items() if old["pairs"].get(key) != grids}
    gone: dict[str, list[str]] = {key: [] for key in old["pairs"] if key not in new["pairs"]}
    return {
        "target": new["target"],
        "mode": new["mode"],
        "states": {str(i): s for i, s in enumerate(new["states"]) if old["states"][i] != s},
        "why": {str(i): after[w] for i, w in enumerate(new["why"]) if before[old["why"][i]] != after[w]},
        "pairs": pairs | gone,
    }


def disabled_reasons(plan: PlacementPlan) -> dict[tuple[str, str], str]:
    """Return why sites cannot be quantized, by node name and site; sites that can be quantized are absent.

    They follow from a plan for the same target that requests every site.
    """
    graph = plan.graph
    wish = QuantizationSpec()
    wish.add("*", match="glob", quantize_output=True)
    granted = plan_placement(graph, "full", wish, target=plan.target)
    inputs = {placement.node for placement in granted.placements if placement.site == "input"}
    weights = {placement.layer for placement in granted.placements if placement.site == "weight"}
    outputs = {placement.node for placement in granted.placements if placement.site == "output"}
    refusals = {(item.layer, item.what): item.reason for item in granted.unquantized}
    reasons: dict[tuple[str, str], str] = {}
    for node in graph.nodes:
        if node.name not in inputs:
            reasons[node.name, "input"] = _no_input(plan, node)
        if node.layer not in weights:
            named = [refusals[node.layer, w.name] for w in node.weights if (node.layer, w.name) in refusals]
            reasons[node.name, "weight"] = named[0] if named else f"{node.class_name} has no weights"
        if node.name not in outputs:
            reasons[node.name, "output"] = _no_output(plan, node)
    return reasons


def _no_input(plan: PlacementPlan, node: Any) -> str:
    if node.is_model_input:
        return "an input of the model: quantize the input of the layers that read it"
    if _is_real(plan, node.inputs):
        return _WRONG_KERNEL.format(plan.target)
    return "it reads no tensor of real numbers" if node.inputs else "it has no input"


def _no_output(plan: PlacementPlan, node: Any) -> str:
    if node.is_model_input:
        return "an input of the model: quantize the input of the layers that read it"
    if _is_real(plan, node.outputs):
        return _WRONG_KERNEL.format(plan.target)
    return "its output is not a tensor of real numbers"


def _is_real(plan: PlacementPlan, tensors: Iterable[str]) -> bool:
    return any(plan.graph.tensors[name].is_float for name in tensors)
