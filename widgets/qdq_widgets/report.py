"""The whole bench as one HTML file that needs no network; names in it are untrusted, so all text is escaped.

What a reader decides by comes first: summary, scores, the layers that matter, the files. Long tables are folded.
"""

from __future__ import annotations

import html
import pathlib
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.figures.curves import curves_figure
from qdq_widgets.figures.live import QUIET_CONFIG
from qdq_widgets.figures.ranges import ranges_figure
from qdq_widgets.folds import FOLD_STYLE, OPENED_FOR_PRINT, folded
from qdq_widgets.graph_page import graph_html
from qdq_widgets.main_layers import main_layers_html
from qdq_widgets.metrics import LIVE
from qdq_widgets.pane import table_html
from qdq_widgets.panes.export import verdict_html
from qdq_widgets.panes.training import other_plan, scores_table
from qdq_widgets.panes.variants import variants_table
from qdq_widgets.state import site_text
from qdq_widgets.style import style_sheet
from qdq_widgets.targets import layer_counts, pair_counts, target_title, verdicts
from qdq_widgets.variants import coverage

_PAGE_STYLE = """<style>
body { margin: 0 auto; max-width: 1080px; padding: 24px; font-family: system-ui, sans-serif; background: #fff; }
.qdq-bench { border: none; } .qdq-bench .qdq-scroll { max-height: none; } h2 { margin-top: 28px; }
@media (prefers-color-scheme: dark) { body { background: #16181c; }
  .qdq-bench { --jp-ui-font-color1: #eee; --jp-ui-font-color2: #aaa; --jp-border-color2: #444;
    --jp-layout-color1: #16181c; --jp-layout-color2: #22252b; } }
</style>"""


def write_report(bench: Any, path: pathlib.Path) -> pathlib.Path:
    """Write the report atomically, and return its path.

    Raises:
        OutputPathError: If the file cannot be written.
    """
    page = report_html(bench)
    return qdq.write_atomically(path, lambda file: file.write_text(page, encoding="utf-8"))


def report_html(bench: Any) -> str:
    """Return the report as an HTML page."""
    name = html.escape(bench.graph.name)
    explanation, unknown = verdicts(bench)
    graph = f"<h2>Graph</h2>{graph_html(bench.plan, None if unknown else explanation)}"
    parts = [_summary(bench), *_scores(bench), main_layers_html(bench), *_files(bench), graph, *_calibration(bench)]
    parts += [*_rankings(bench), *_plan(bench), *_decisions(bench)]
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{name}: QDQ Workbench</title>'
        f"{style_sheet(bench.height)}{_PAGE_STYLE}{FOLD_STYLE}</head>"
        f'<body class="qdq-bench"><h1>{name}</h1>{"".join(parts)}{OPENED_FOR_PRINT}</body></html>'
    )


def _summary(bench: Any) -> str:
    whole, computing = coverage(bench.plan)
    explanation, unknown = verdicts(bench)
    pairs, kinds = pair_counts(bench.plan)
    rows = [
        ("target", target_title(bench.plan.target)),
        ("mode", bench.plan.mode),
        ("Q/DQ pairs", f"{pairs}: {kinds}"),
        ("computing layers quantized", f"{whole} of {computing}"),
        ("on the target", "" if unknown else layer_counts(bench.graph, explanation)),
        ("state", bench.stage),
    ]
    return table_html(("", ""), rows)


def _scores(bench: Any) -> list[str]:
    parts = []
    if bench.curves.fp32 is not None or bench.curves.runs:
        figure = curves_figure(bench.curves, bench.scored_samples).to_html(
            full_html=False, include_plotlyjs=True, config=QUIET_CONFIG
        )
        parts += ["<h2>Accuracy and loss</h2>", figure, scores_table(bench.curves, other_plan(bench))]
    if bench.variants:
        parts += ["<h2>Variants</h2>", variants_table(bench.variants, bench.curves)]
    return parts


def _files(bench: Any) -> list[str]:
    if not bench.exports:
        return []
    return ["<h2>Exported files</h2>", *(verdict_html(done) for done in reversed(bench.exports))]


def _calibration(bench: Any) -> list[str]:
    if bench.calibration is None:
        return []
    # plotly's script, of some megabytes, comes with the first figure of the page only: see `_scores`.
    has_plotly = bench.curves.fp32 is not None or bool(bench.curves.runs)
    figure = ranges_figure(bench.calibration, bench.plan)
    text = f"{bench.calibration.method} on {bench.calibration.samples} samples"
    drawn = figure.to_html(full_html=False, include_plotlyjs=not has_plotly, config=QUIET_CONFIG)
    return ["<h2>Activation ranges</h2>", f"<p>{html.escape(text)}</p>", drawn]


def _rankings(bench: Any) -> list[str]:
    found = [metric for metric in bench.metrics.values() if metric.name not in LIVE]
    parts = []
    for metric in found:
        stale = " (of an earlier plan)" if bench.is_stale(metric) else ""
        rows = [(name, f"{value:.6g} {metric.unit}") for name, value in metric.ranked()]
        table = table_html(("layer", metric.name), rows, empty="No layer has a figure.")
        parts.append(folded(f"{metric.name}{stale}", len(rows), table))
    return parts


def _plan(bench: Any) -> list[str]:
    rows = [(p.layer, site_text(p), p.tensor, p.quantizer.label, p.author, p.reason) for p in bench.plan.placements]
    floats = [(item.layer, item.what, item.reason) for item in bench.plan.unquantized]
    pairs = table_html(("layer", "site", "tensor", "grid", "author", "reason"), rows)
    stays = table_html(("layer", "value", "reason"), floats, empty="Nothing.")
    return [
        folded("Q/DQ pairs by layer", len(rows), pairs),
        folded("What stays in float, and why", len(floats), stays),
    ]


def _decisions(bench: Any) -> list[str]:
    steps = [(index, step.label, step.change) for index, step in enumerate(bench.history.steps)]
    code = bench.to_code()
    return [
        folded("History", len(steps), table_html(("", "step", "plan"), steps)),
        folded("As Python, in lines", len(code.splitlines()), f"<pre>{html.escape(code)}</pre>"),
    ]
