"""Plans and explanations as short readable text, one line per layer, for golden files."""

from __future__ import annotations

import collections
import hashlib
import re
from collections.abc import Iterable

import qdq_workbench as qdq

# Initials as headings of columns: tensorrt, onnxruntime, openvino, litert.
TARGETS = {"T": "tensorrt", "O": "onnxruntime", "V": "openvino", "L": "litert"}


def grid_text(quantizer):
    """A grid in a few letters: s8n/3 is signed, 8 bits, narrow, one scale per slice of axis 3; ~ is asymmetric."""
    sign, narrow = "s" if quantizer.signed else "u", "n" if quantizer.narrow_range else ""
    axis = "" if quantizer.axis is None else f"/{quantizer.axis}"
    return f"{sign}{quantizer.num_bits}{narrow}{'' if quantizer.symmetric else '~'}{axis}"


def _place_text(placement):
    """Which place of its layer a placement is, its grid, and who decided where it was not the default."""
    call = placement.node.removeprefix(placement.layer)
    place = {"input": f"i{placement.input_index}", "output": "o"}.get(placement.site, placement.weight)
    group = f"@{placement.scale_group}" if placement.scale_group and placement.scale_group != placement.tensor else ""
    author = "" if placement.author == "default" else f"({placement.author})"
    method = f"[{placement.method.name}]" if placement.method else ""
    return f"{call}{place}:{grid_text(placement.quantizer)}{group}{method}{author}"


def layer_texts(plan, explanation):
    """Per layer: its places, and what the target makes of it."""
    places = collections.defaultdict(list)
    for placement in plan.placements:
        places[placement.layer].append(_place_text(placement))
    explained = {entry.layer: entry for entry in explanation.layers}
    texts = {}
    for layer in plan.graph.layers:
        entry = explained.get(layer)
        verdict = f"= {entry.status} {entry.rule}{' fix' if entry.fix else ''}" if entry else ""
        texts[layer] = " ".join([*places[layer], verdict]).strip()
    return texts


def _plans(graph, spec, make_cases):
    return {
        initial: qdq.plan_placement(graph, quantization_spec=spec, custom_qdq_cases=make_cases(name), target=name)
        for initial, name in TARGETS.items()
    }


def _columns(by_target):
    """One text of what the targets say: those that say the same stand together."""
    together = collections.defaultdict(list)
    for initial, text in by_target.items():
        together[text].append(initial)
    return "  |  ".join(f"{''.join(initials)}: {text}" for text, initials in together.items())


def model_lines(model, spec=None):
    """Lines of a model: per layer what each target plans and computes, then what AutoQDQCase makes different."""
    graph = qdq.build_graph(model)
    plans = _plans(graph, spec, lambda _: [])
    explanations = {initial: qdq.explain(plan) for initial, plan in plans.items()}
    classes = {node.layer: node.class_name for node in plans["T"].graph.nodes}
    plain = {initial: layer_texts(plan, explanations[initial]) for initial, plan in plans.items()}
    auto = {
        initial: layer_texts(plan, qdq.explain(plan))
        for initial, plan in _plans(graph, spec, lambda name: [qdq.AutoQDQCase(name)]).items()
    }
    lines = [f"{layer} {classes[layer]}  {_columns({i: plain[i][layer] for i in TARGETS})}" for layer in classes]
    for layer in classes:
        changed = {i: auto[i][layer] for i in TARGETS if auto[i][layer] != plain[i][layer]}
        if changed:
            lines.append(f"auto {layer}  {_columns(changed)}")
    pairs = [f"{initial} {len(plan.tensors)}" for initial, plan in plans.items()]
    coverage = [f"{i} {explanation.coverage['layers']:.4g}" for i, explanation in explanations.items()]
    return [*lines, f"pairs: {', '.join(pairs)}; layers in INT8: {', '.join(coverage)}"]


def summarized(lines: Iterable[str]) -> list[str]:
    """Lines of a large network: layers whose names differ in numbers only become one line; then a digest of all."""
    lines = list(lines)
    counts = collections.Counter(re.sub(r"^(auto )?\S+|@\S+", _without_numbers, line) for line in lines)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return [f"{count} x {line}" if count > 1 else line for line, count in counts.items()] + [f"digest {digest}"]


def _without_numbers(match: re.Match[str]) -> str:
    return re.sub(r"\d+", "#", match.group())
