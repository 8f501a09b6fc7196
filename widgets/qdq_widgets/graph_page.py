"""The graph of a plan as one HTML file that needs neither Python nor a network: the notebook's own bundle draws it.

Layer names are untrusted: the page gets them as JSON and inserts them into the document as text only.
"""

from __future__ import annotations

import contextlib
import html
import json
import pathlib
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.graph_colors import NO_COLORS, graph_colors
from qdq_widgets.graph_payload import disabled_reasons, graph_payload, plan_state
from qdq_widgets.side_pairs import comparison_traits, make_sides
from qdq_widgets.targets import execution_values, layer_counts, pair_counts, reason_text, target_title

_BUNDLE = pathlib.Path(__file__).parent / "static" / "graph_view.js"

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ margin: 0 auto; max-width: 1400px; padding: 16px 24px; font: 14px/1.45 system-ui, sans-serif; color: #1f1f1f;
  background: #fff; }}
h1 {{ font-size: 20px; margin: 0; }} p {{ margin: 4px 0 12px; color: #5f5f5f; }}
@media (prefers-color-scheme: dark) {{ body {{ color: #eee; background: #16181c; }} p {{ color: #aaa; }} }}
</style></head>
<body><h1>{title}</h1><p>{summary}</p>{graph}</body></html>
"""

_FRAGMENT = """<style>
.qdq-graph-both {{ display: flex; flex-wrap: wrap; gap: 8px 24px; }}
.qdq-graph-page {{ flex: 3 1 640px; min-width: 0; --jp-layout-color0: #fff; }}
.qdq-graph-notes {{ flex: 1 1 320px; min-width: 0; overflow-wrap: anywhere; }}
.qdq-graph-notes h2 {{ font-size: 15px; margin: 0 0 4px; }}
.qdq-graph-notes table {{ border-collapse: collapse; margin-bottom: 16px; }}
.qdq-graph-notes td {{ border-top: 1px solid rgba(128, 128, 128, .3); padding: 4px 12px 4px 0; vertical-align: top; }}
.qdq-graph-notes td:first-child {{ min-width: 8em; }}
.qdq-graph-notes td:nth-child(2) {{ white-space: nowrap; }}
@media (prefers-color-scheme: dark) {{ .qdq-graph-page {{ --jp-layout-color0: #16181c; --jp-layout-color1: #22252b;
  --jp-layout-color2: #2c3038; --jp-border-color1: #5a5f68; --jp-border-color2: #444; --jp-ui-font-color1: #eee;
  --jp-ui-font-color2: #aaa; --jp-brand-color1: #64b5f6; color-scheme: dark; }} }}
</style>
<div class="qdq-graph-both"><div class="qdq-graph-page"></div><div class="qdq-graph-notes"></div></div>
<script type="application/json" class="qdq-graph-data">{data}</script>
<script type="module">
const data = JSON.parse(document.querySelector(".qdq-graph-data").textContent);
const address = URL.createObjectURL(new Blob([data.bundle], {{ type: "text/javascript" }}));
const {{ showPage }} = await import(address);
showPage(data, document.querySelector(".qdq-graph-page"), document.querySelector(".qdq-graph-notes"));
</script>
<noscript><p>The graph is drawn by the script in this page, which this browser does not run.</p></noscript>
"""


def write_graph_page(plan: qdq.PlacementPlan, path: str | pathlib.Path, *, beside: Any = None) -> pathlib.Path:
    """Write the graph of a plan as one HTML file that needs neither Python nor a network.

    It is the graph of the notebook: blocks open and close, layers are found by name, and a selected layer shows its
    placements with their reasons. Layers are coloured by how the target runs them.

    Args:
        plan: The plan.
        path: The file, in an existing folder; an existing file is replaced.
        beside: A second side, drawn beside the plan with the differences marked: another plan of the model, or the
            result of `qdq_workbench.files.read_layers` or `qdq_workbench.profiling.read_kernels`. None for the plan
            alone.

    Returns:
        The path.

    Raises:
        SpecError: If `plan` is not a plan, or `beside` is none of these or of another model.
        BenchError: If the file that `read_kernels` read carries no plan.
        OutputPathError: If the file cannot be written.

    Example:
        >>> import keras, qdq_workbench as qdq
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, name="conv")(image), name="small")
        >>> write_graph_page(qdq.plan_placement(model), "graph.html").name
        'graph.html'
    """
    explanation = explained(plan)
    summary = html.escape("; ".join(summary_lines(plan, explanation)))
    title = html.escape(plan.graph.name)
    graph = graph_html(plan, explanation, beside=beside)
    page = _PAGE.format(title=title, summary=summary, graph=graph)
    return qdq.write_atomically(path, lambda file: file.write_text(page, encoding="utf-8"))


def explained(plan: qdq.PlacementPlan) -> qdq.Explanation | None:
    """Return the explanation of a plan for its target; None if the target has no rules.

    Raises:
        SpecError: If `plan` is not a plan.
    """
    if not isinstance(plan, qdq.PlacementPlan):
        raise qdq.SpecError(
            "A page or picture shows a PlacementPlan: write_graph_page(plan_placement(model), path). "
            f"Received: plan of type {type(plan).__name__}"
        )
    with contextlib.suppress(qdq.errors.TargetError):
        return qdq.explain(plan)
    return None


def graph_html(
    plan: qdq.PlacementPlan, explanation: qdq.Explanation | None, height: int = 620, beside: Any = None
) -> str:
    """Return the graph as an HTML fragment, which a page can hold once: its script finds it by class.

    None as `explanation` colours the layers by the plan instead of their status on the target; the height is in CSS
    pixels; `beside` is as for `write_graph_page`.
    """
    disabled = disabled_reasons(plan)
    if beside is None:
        shown = {"plan_state": plan_state(plan), "colors": _colors(plan, explanation)}
    else:
        shown = comparison_traits(*make_sides(plan, beside))
    traits = {
        "graph": graph_payload(plan.graph, disabled),
        **shown,
        "selection": [],
        "height": height,
        "editable": False,
        "can_undo": False,
        "can_redo": False,
        "svg_text": "",
    }
    # The script is a part of the data, so that its text is escaped with them; the page imports it from a blob.
    bundle = _BUNDLE.read_text(encoding="utf-8")
    data = json.dumps({"traits": traits, "details": _details(plan, explanation), "bundle": bundle}, allow_nan=False)
    for sign in "<>&'":  # so that no text in the data is markup: "</script>" would end the element
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    return _FRAGMENT.format(data=data)


def _colors(plan: qdq.PlacementPlan, explanation: qdq.Explanation | None) -> dict[str, Any]:
    """Return colours by status on the target; without an explanation, by what the plan quantizes."""
    if explanation is None:
        return dict(NO_COLORS)
    return graph_colors(plan.graph, "precision", execution_values(explanation))


def summary_lines(plan: qdq.PlacementPlan, explanation: qdq.Explanation | None) -> tuple[str, str]:
    """Return target, mode and the layers by status in one line, and the pairs in another one."""
    parts = [f"for {target_title(plan.target)}", f"{plan.mode} quantization"]
    if explanation is not None:
        parts.append(layer_counts(plan.graph, explanation))
    pairs, kinds = pair_counts(plan)
    return "; ".join(parts), f"{pairs} Q/DQ pairs: {kinds}"


def _details(plan: qdq.PlacementPlan, explanation: qdq.Explanation | None) -> dict[str, list[tuple[str, str, str]]]:
    """Return rows (what, status or grid, reason) by node: the status on the target, placements, values in float."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    calls = {layer: [call.name for call in plan.graph.calls(layer)] for layer in plan.graph.layers}

    def note(nodes: list[str], what: str, grid: str, reason: str) -> None:
        for node in nodes:
            found.setdefault(node, []).append((what, grid, reason))

    for entry in explanation.layers if explanation is not None else ():
        note(calls.get(entry.layer, []), f"on {plan.target}", entry.status, reason_text(entry))
    for placement in plan.placements:
        of_layer = placement.site == "weight"
        nodes = calls[placement.layer] if of_layer else [placement.node]
        what = f"{placement.site} {placement.weight if of_layer else placement.tensor}"
        note(nodes, what, placement.quantizer.label, f"{placement.author}: {placement.reason}")
    for item in plan.unquantized:
        note(calls.get(item.layer, []), item.what, "float", item.reason)
    return found
