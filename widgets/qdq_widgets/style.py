"""The style sheet of the bench: JupyterLab's theme variables, with fallbacks for other notebooks."""

from __future__ import annotations

from typing import Any

from qdq_widgets.errors import BenchError
from qdq_widgets.plain_numbers import whole

GRAPH_HEIGHT = 560  # of the graph, in CSS pixels
LEAST_HEIGHT = 160


def checked_height(height: Any) -> int:
    """Return a height of the graph in CSS pixels, checked.

    Raises:
        BenchError: If it is not a whole number of 160 or more.
    """
    height = whole(height)
    # True is an int, and less than any height.
    if not isinstance(height, int) or height < LEAST_HEIGHT:
        raise BenchError(f"height must be a whole number of pixels, {LEAST_HEIGHT} or more. Received: {height!r}")
    return height


_STYLE = """
<style>
.qdq-bench { --qdq-int8: #007a5a; --qdq-part: #e69f00; --qdq-float: #6b727d; --qdq-bad: #c62828; --qdq-ok: #007a5a;
  --qdq-text: var(--jp-ui-font-color1, #222); --qdq-soft: var(--jp-ui-font-color2, #666);
  --qdq-line: var(--jp-border-color2, #ddd); --qdq-ground: var(--jp-layout-color1, #fff);
  --qdq-raised: var(--jp-layout-color2, #f5f5f5);
  border: 1px solid var(--qdq-line); border-radius: 6px; background: var(--qdq-ground); color: var(--qdq-text);
  overflow: hidden; font-size: 13px; }
.jp-OutputArea-child:has(.qdq-bench) + .jp-OutputArea-child:has(> .jp-RenderedSVG) { display: none; }
.qdq-bench .qdq-bar { padding: 6px 10px; background: var(--qdq-raised); border-bottom: 1px solid var(--qdq-line); }
.qdq-bench .qdq-bar > .qdq-flows, .qdq-bench .qdq-flows > .widget-html-content { display: contents; }
.qdq-bench .widget-hbox > .jupyter-button { flex-shrink: 0; max-width: 100%; }
.qdq-bench .qdq-notice { padding: 4px 10px; border-left: 4px solid var(--qdq-part); background: var(--qdq-raised); }
.qdq-bench .qdq-gone-banner { padding: 8px 12px; border-left: 4px solid var(--qdq-bad); line-height: 1.45;
  background: var(--qdq-raised); border-bottom: 1px solid var(--qdq-line); white-space: normal; }
.qdq-bench.qdq-gone .qdq-foot, .qdq-bench.qdq-gone .qdq-notice { display: none !important; }
.qdq-bench.qdq-gone :is(button, input, select):disabled { opacity: .45; cursor: not-allowed; }
.qdq-bench.jupyter-widgets-disconnected::before,
.qdq-bench .jupyter-widgets-disconnected::before { content: none !important; display: none !important; }
.qdq-bench .qdq-foot { padding: 4px 10px; background: var(--qdq-raised); border-top: 1px solid var(--qdq-line);
  min-height: 34px; }
.qdq-bench .widget-html-content { line-height: 1.45; overflow-wrap: anywhere; }
.qdq-bench .qdq-pane { padding: 8px 10px; gap: 8px; }
.qdq-bench .qdq-pane:empty::before {
  content: "The kernel fills a pane when it is first opened."; opacity: 0; animation: qdq-late 0s 2s forwards;
}
@keyframes qdq-late { to { opacity: 1; } }
.qdq-bench .qdq-pane > *, .qdq-bench .qdq-pane .widget-html-content { min-width: 0; max-width: 100%; }
.qdq-bench .qdq-muted, .qdq-bench .qdq-muted summary { color: var(--qdq-soft); font-size: 12px; }
.qdq-bench .qdq-rows > * { flex: 0 0 auto; }
.qdq-bench .qdq-title { font-size: 15px; font-weight: 600; overflow-wrap: anywhere; }
.qdq-bench .qdq-heading { font-weight: 600; margin: 8px 0 2px; color: var(--qdq-text); }
.qdq-bench .qdq-brand { font-weight: 700; letter-spacing: .02em; }
.qdq-bench .qdq-chip { display: inline-block; padding: 0 8px; margin-right: 6px; border-radius: 10px; font-size: 11px;
  line-height: 18px; border: 1px solid var(--qdq-line); background: var(--qdq-ground); white-space: nowrap; }
.qdq-bench .qdq-bar .qdq-chip { margin-right: 0; }
.qdq-bench .qdq-chip.qdq-int8 { color: #fff; background: var(--qdq-int8); border-color: var(--qdq-int8); }
.qdq-bench .qdq-chip.qdq-partial { color: #000; background: var(--qdq-part); border-color: var(--qdq-part); }
.qdq-bench .qdq-chip.qdq-float { color: #fff; background: var(--qdq-float); border-color: var(--qdq-float); }
.qdq-bench .qdq-scores { padding: 0; }
.qdq-bench .qdq-scores > span { display: inline-block; padding: 0 8px; font-variant-numeric: tabular-nums; }
.qdq-bench .qdq-scores > span + span { border-left: 1px solid var(--qdq-line); }
.qdq-bench .qdq-scores :is(small, .qdq-same) { color: var(--qdq-soft); font-size: 11px; }
.qdq-bench .qdq-scores i { font-style: normal; }
.qdq-bench .qdq-scores .qdq-former :is(b, i) { color: var(--qdq-soft); font-weight: normal; }
.qdq-bench .qdq-effect { border-color: var(--qdq-ok); }
.qdq-bench .qdq-effect.qdq-estimate { border: 1px dashed var(--qdq-part); }
.qdq-bench .qdq-effect i { color: var(--qdq-soft); }
.qdq-bench .qdq-effect span { margin-left: 6px; font-variant-numeric: tabular-nums; }
.qdq-bench .qdq-chip .qdq-better { color: var(--qdq-ok); font-weight: 600; }
.qdq-bench .qdq-chip .qdq-worse { color: var(--qdq-bad); font-weight: 600; }
[data-jp-theme-light="false"] .qdq-bench .qdq-chip .qdq-better { color: #4cc9a0; }
[data-jp-theme-light="false"] .qdq-bench .qdq-chip .qdq-worse { color: #ff8a80; }
.qdq-bench .qdq-verdict { border-left: 4px solid var(--qdq-soft); padding: 5px 10px; background: var(--qdq-raised);
  border-radius: 0 4px 4px 0; }
.qdq-bench .qdq-verdict.qdq-int8 { border-left-color: var(--qdq-ok); }
.qdq-bench .qdq-verdict.qdq-partial { border-left-color: var(--qdq-part); }
.qdq-bench .qdq-verdict.qdq-float { border-left-color: var(--qdq-float); }
.qdq-bench .qdq-verdict.qdq-failed { border-left-color: var(--qdq-bad); }
.qdq-bench .qdq-verdict div { white-space: pre-line; }
.qdq-bench .qdq-verdict ul { margin: 2px 0 0 16px; padding: 0; }
.qdq-bench a { color: var(--jp-content-link-color, #1976d2); }
.qdq-bench a:hover { text-decoration: underline; }
.qdq-bench .qdq-scroll { overflow-x: auto; max-height: 320px; overflow-y: auto; border: 1px solid var(--qdq-line);
  border-radius: 4px; }
.qdq-bench table.qdq-table { border-collapse: collapse; width: 100%; font-size: 12px; margin: 0; }
.qdq-bench table.qdq-table th, .qdq-bench table.qdq-table td { text-align: left; padding: 3px 6px;
  border-bottom: 1px solid var(--qdq-line); vertical-align: top; overflow-wrap: anywhere;
  color: var(--qdq-text); }
.qdq-bench table.qdq-table td { min-width: 7em; }
.qdq-bench .qdq-side table.qdq-table :is(th, td) { padding: 3px 5px; }
.qdq-bench .qdq-side table.qdq-table td:not(:empty, .qdq-short) { min-width: 5em; }
.qdq-bench table.qdq-table td:empty,
.qdq-bench table.qdq-table td.qdq-short { min-width: 0; white-space: nowrap; }
.qdq-bench table.qdq-table th { position: sticky; top: 0; background: var(--qdq-raised); font-weight: 600;
  overflow-wrap: normal; }
.qdq-bench table.qdq-table thead td { padding: 0; border: none; }
.qdq-bench .qdq-error { border-left: 4px solid var(--qdq-bad); background: var(--qdq-raised); padding: 4px 8px;
  align-items: flex-start; border-radius: 0 4px 4px 0; }
.qdq-bench .qdq-error p { margin: 2px 0; }
.qdq-bench .qdq-error > :first-child { flex: 1 1 auto; }
.qdq-bench .qdq-ghost { background: transparent; }
.qdq-bench .qdq-warning { color: var(--qdq-bad); }
.qdq-bench pre { font-size: 11px; max-height: 260px; overflow: auto; background: var(--qdq-raised); padding: 6px;
  color: var(--qdq-text); }
.qdq-bench .qdq-code textarea { font-family: var(--jp-code-font-family, monospace); font-size: 12px; }
.qdq-bench .qdq-badge-i.mod-active { background: #0072B2 !important; color: #fff !important; }
.qdq-bench .qdq-badge-w.mod-active { background: #c25400 !important; color: #fff !important; }
.qdq-bench .qdq-badge-o.mod-active { background: #7b4fa3 !important; color: #fff !important; }
.qdq-bench .qdq-values { margin: 4px 0 8px; max-width: 460px; }
.qdq-bench .qdq-values svg { display: block; width: 100%; fill: var(--qdq-float); }
.qdq-bench .qdq-values .qdq-grid { fill: var(--qdq-int8); }
.qdq-bench .qdq-values text { font-size: 11px; fill: var(--qdq-soft); }
.qdq-bench .qdq-values figcaption { font-size: 12px; color: var(--qdq-soft); overflow-wrap: anywhere; }
.qdq-bench .qdq-room, .qdq-bench .qdq-room button { width: auto; flex: none; margin: 0; }
.qdq-bench .qdq-site { display: inline-block; width: 62px; }
.qdq-bench .qdq-setting select { font-size: 12px; padding-right: 18px; }
.qdq-bench .widget-checkbox label { display: flex; align-items: center; gap: 6px; }
.qdq-bench .widget-checkbox input[type="checkbox"] { margin: 0; }
.qdq-bench .qdq-main { border-bottom: 1px solid var(--qdq-line); }
.qdq-bench { container: qdq-bench / inline-size; }
.qdq-bench .qdq-graph { flex: 1 1 420px; min-width: 320px; }
.qdq-bench .qdq-side { flex: 1 1 420px; min-width: 320px; max-width: 100%; border-left: 1px solid var(--qdq-line); }
.qdq-bench .qdq-handle { display: none; touch-action: none; flex: none; background: var(--qdq-raised); }
.qdq-bench .qdq-handle:is(:hover, :focus-visible) { background: var(--jp-brand-color1, #1976d2); outline: none; }
.qdq-bench .qdq-across { width: 6px; cursor: col-resize; }
.qdq-bench .qdq-down { height: 6px; cursor: row-resize; }
@container (min-width: 700px) {
  .qdq-bench .qdq-main { flex-flow: row nowrap !important; }
  .qdq-bench .qdq-across { display: block; }
  .qdq-bench .qdq-graph { flex: 0 0 calc(var(--qdq-split, 50%) - 3px); }
  .qdq-bench .qdq-side { flex: 1 1 0; min-width: 0; border-left: none; }
}
@container (min-width: 1060px) {
  .qdq-bench .qdq-graph.qdq-graph-pair { flex-basis: max(calc(var(--qdq-split, 50%) - 3px), 60%); }
}
@container (min-width: 1260px) {
  .qdq-bench .qdq-graph.qdq-graph-pair { flex-basis: max(calc(var(--qdq-split, 50%) - 3px), 66%); }
}
.qdq-bench .qdq-side .qdq-pane { container-type: inline-size; }
@container (max-width: 460px) {
  .qdq-bench .qdq-side table.qdq-table { font-size: 11px; }
  .qdq-bench .qdq-side table.qdq-table :is(th, td) { padding: 3px; }
  .qdq-bench .qdq-side table.qdq-table .qdq-least { display: none; }
  .qdq-bench .qdq-side table.qdq-table td.qdq-short { white-space: normal; overflow-wrap: normal; }
  .qdq-bench .qdq-side table.qdq-table td:not(:empty, .qdq-short) { min-width: 4em; }
}
@container qdq-bench (max-width: 1060px) {
  .qdq-bench .qdq-bar { padding: 2px 10px; grid-gap: 2px 6px !important; }
  .qdq-bench .qdq-bar > .widget-dropdown { width: 190px !important; }
  .qdq-bench .qdq-bar > .widget-dropdown + .widget-dropdown { width: 170px !important; }
  .qdq-bench .qdq-bar .jupyter-button { padding: 0 6px; }
}
@container qdq-bench (max-width: 1300px) {
  .qdq-bench .qdqw-foot { gap: 0 10px; min-height: 0; padding: 1px 8px; font-size: 11px; }
  .qdq-bench .qdqw-foot .qdqw-legend { gap: 0 6px; }
  .qdq-bench .qdqw-foot .qdqw-legend span { gap: 3px; }
}
.qdq-bench.qdq-full { position: fixed; inset: 0; width: 100vw; height: 100vh; max-width: none; max-height: none;
  margin: 0; padding: 0; border: none; border-radius: 0; flex-flow: column nowrap; overflow: clip; }
.qdq-bench.qdq-full > * { flex: none; }
.qdq-bench.qdq-full > .qdq-main { flex: calc(var(--qdq-upper, .62)) 1 0px; min-height: 160px; overflow: clip; }
.qdq-bench.qdq-full > .qdq-down { display: block; }
.qdq-bench.qdq-full > .qdq-work { flex: calc(1 - var(--qdq-upper, .62)) 1 0px; min-height: 28px; overflow: auto; }
.qdq-bench.qdq-full .qdq-foot { min-height: 0; padding: 2px 10px; }
.qdq-bench.qdq-full .qdq-graph > * { flex: 1 1 0; min-height: 0; }
.qdq-bench.qdq-full .qdqw-root { height: 100% !important; resize: none; }
.qdq-bench.qdq-full .qdq-side .widget-tab-contents { max-height: none; }
.qdq-bench.qdq-full .qdq-side { height: 100%; overflow: clip; }
.qdq-bench .qdq-side .widget-tab-contents { overflow: auto; max-height: SIDE_HEIGHT; }
.qdq-bench .jupyter-widget-tab > .widget-tab-contents, .qdq-bench .widget-tab > .widget-tab-contents { border: none;
  padding: 4px 0; }
.qdq-bench .lm-TabBar-tab, .qdq-bench .p-TabBar-tab { flex: 0 1 auto !important; min-width: 60px !important; }
[data-jp-theme-light="false"] .qdq-bench { color-scheme: dark; --jp-widgets-dropdown-arrow: url("data:image/svg+xml,\
%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 18 18'%3E%3Cpath fill='none' stroke='%23ddd' stroke-width='2' \
d='M5 7l4 4 4-4'/%3E%3C/svg%3E"); }
@media (forced-colors: active) { .qdq-bench .qdq-chip { border: 1px solid CanvasText; } }
</style>
"""


def style_sheet(height: int) -> str:
    """Return the style sheet of a bench whose graph and side panes have a height in CSS pixels."""
    # Less the 24 px of the tabs (--jp-widgets-horizontal-tab-height), so that graph and panes end together.
    return _STYLE.replace("SIDE_HEIGHT", f"{height - 24}px")
