// Style sheets. Neutral colours are JupyterLab's theme variables with fallbacks. Colours with a meaning are from the
// Okabe-Ito palette, darkened where white letters are drawn on them; a letter always repeats the meaning.

import { STRIPE } from "./node_draw";
import { NODE_WIDTH } from "./placed";

// What white letters stand on has a contrast of 4.5 to them, and of 3 to both themes; theme.test.ts checks it.
export const TOKENS: Record<string, string> = {
  "--q-bg": "var(--jp-layout-color0, #ffffff)",
  "--q-card": "var(--jp-layout-color1, #ffffff)",
  "--q-soft": "var(--jp-layout-color2, #eeeeee)",
  "--q-line": "var(--jp-border-color1, #bdbdbd)",
  "--q-faint": "var(--jp-border-color2, #e0e0e0)",
  "--q-text": "var(--jp-ui-font-color1, #1f1f1f)",
  "--q-muted": "var(--jp-ui-font-color2, #5f5f5f)",
  "--q-brand": "var(--jp-brand-color1, #1976d2)",
  "--q-error": "var(--jp-error-color1, #c62828)",
  "--q-font": "var(--jp-ui-font-family, system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif)",
  "--q-input": "#0072b2",
  "--q-weight": "#c25400",
  "--q-qdq": "#007a5a",
  "--q-output": "#7b4fa3",
  "--q-float": "#6b727d",
  "--q-partial": "#e69f00",
  "--q-differs": "color-mix(in srgb, #e69f00 16%, var(--q-card))",
};

/** Styles of the picture, which an exported SVG file contains too. */
export const PICTURE_CSS = `
.qdqw-svg text { font-family: var(--q-font); fill: var(--q-text); dominant-baseline: central; }
.qdqw-floats { opacity: .6; }
.qdqw-edge { fill: none; stroke: var(--q-muted); stroke-width: 1.4; }
.qdqw-edge.q { stroke: var(--q-qdq); stroke-width: 2; }
.qdqw-edge.near { stroke: var(--q-text); stroke-width: 2.4; }
.qdqw-edge.q.near { stroke: var(--q-qdq); stroke-width: 3; }
.qdqw-card { fill: var(--q-card); stroke: var(--q-line); }
.qdqw-under { fill: var(--q-soft); stroke: var(--q-line); }
.qdqw-unit.block .qdqw-card { fill: var(--q-soft); }
.qdqw-unit.selected .qdqw-card { stroke: var(--q-brand); stroke-width: 2; }
.qdqw-ring { fill: none; pointer-events: none; }
.qdqw-unit.hit .qdqw-mark { fill: #f0e442; stroke: #8a7a00; }
.qdqw-unit .title { font-size: 12px; font-weight: 600; }
.qdqw-unit .name { font-size: 11px; fill: var(--q-muted); }
.qdqw-unit .shape { font-size: 10.5px; fill: var(--q-muted); text-anchor: end; font-variant-numeric: tabular-nums; }
.qdqw-mark, .qdqw-changed { fill: none; }
.qdqw-unit.changed .qdqw-changed { fill: var(--q-partial); stroke: #8a6000; }
.qdqw-hatch { display: none; fill: none; stroke: var(--q-card); stroke-width: 3; }
.qdqw-unit.hatched .qdqw-hatch, .qdqw-hatch.key { display: inline; }
.qdqw-unit.hatched .letter { display: none; }
.qdqw-stripe.metric { stroke: var(--q-line); stroke-width: .75; }
.qdqw-stripe.int8 { fill: var(--q-qdq); }
.qdqw-stripe.float { fill: var(--q-float); }
.qdqw-stripe.partial { fill: var(--q-partial); }
.qdqw-stripe.other { fill: var(--q-output); }
.qdqw-stripe.blank { fill: var(--q-faint); }
.qdqw-svg .letter, .qdqw-badge text, .qdqw-pill text, .qdqw-unequal text { font-weight: 700; text-anchor: middle; }
.qdqw-svg text.letter { font-size: 10.5px; fill: #fff; pointer-events: none; }
.qdqw-svg text.letter.dark { fill: #1b1b1b; }
.qdqw-badge rect { fill: var(--q-card); stroke: var(--q-line); }
.qdqw-svg .qdqw-badge text { font-size: 10.5px; fill: var(--q-muted); pointer-events: none; }
.qdqw-badge polygon { display: none; fill-opacity: .45; pointer-events: none; }
.qdqw-badge.impossible rect { fill: transparent; stroke: none; }
.qdqw-badge.impossible text { opacity: .3; font-weight: 400; }
.qdqw-badge.some polygon { display: inline; }
.qdqw-badge.input.all rect { fill: var(--q-input); stroke: var(--q-input); }
.qdqw-badge.input polygon { fill: var(--q-input); }
.qdqw-badge.weight.all rect { fill: var(--q-weight); stroke: var(--q-weight); }
.qdqw-badge.weight polygon { fill: var(--q-weight); }
.qdqw-badge.output.all rect { fill: var(--q-output); stroke: var(--q-output); }
.qdqw-badge.output polygon { fill: var(--q-output); }
.qdqw-svg .qdqw-badge.all text { fill: #fff; }
.qdqw-svg .qdqw-badge.some text { fill: var(--q-text); }
.qdqw-pill rect { fill: var(--q-qdq); stroke: var(--q-bg); stroke-width: 1.5; }
.qdqw-svg .qdqw-pill text { font-size: 8.5px; fill: #fff; }
.qdqw-pill.ghost rect { fill: var(--q-bg); stroke: var(--q-error); stroke-width: 1.4; stroke-dasharray: 3 2; }
.qdqw-svg .qdqw-pill.ghost text { fill: var(--q-error); text-decoration: line-through; }
.qdqw-pill.fresh rect { stroke: var(--q-partial); }
.qdqw-pill.would rect { fill: var(--q-bg); stroke: var(--q-qdq); stroke-width: 1.4; stroke-dasharray: 3 2; }
.qdqw-svg .qdqw-pill.would text { fill: var(--q-qdq); }
.qdqw-pill.only rect { fill: var(--q-partial); stroke: #8a6000; stroke-width: 1.4; }
.qdqw-svg .qdqw-pill.only text { fill: #1b1b1b; }
.qdqw-unit.faded > :not(.qdqw-ring, .qdqw-unequal, .name) { opacity: .42; }
.qdqw-unit.faded.selected > .qdqw-card { opacity: 1; }
.qdqw-unit.faded .qdqw-card { stroke-dasharray: 4 3; }
.qdqw-unit.differs .qdqw-card { stroke: var(--q-partial); stroke-width: 2; fill: var(--q-differs); }
.qdqw-unit.differs.selected .qdqw-card { stroke: var(--q-brand); }
.qdqw-unequal circle { fill: var(--q-partial); stroke: #8a6000; }
.qdqw-svg .qdqw-unequal text { fill: #1b1b1b; font-size: 12px; }
.qdqw-time { fill: var(--q-weight); }
.qdqw-bracket { fill: none; stroke: var(--q-muted); stroke-width: 1.6; }
.qdqw-bracket.selected { stroke: var(--q-brand); stroke-width: 3; }
.qdqw-frame { fill: var(--q-muted); fill-opacity: .055; stroke: var(--q-line); stroke-dasharray: 3 3; }
.qdqw-svg .qdqw-frametitle text { font-size: 11px; font-weight: 600; paint-order: stroke; stroke: var(--q-bg); stroke-width: 5px; stroke-linejoin: round; }
.qdqw-frametitle .count { font-weight: 400; fill: var(--q-muted); }
.qdqw-frametitle rect, .qdqw-opener rect { fill: transparent; }
.qdqw-chevron { fill: none; stroke: var(--q-muted); stroke-width: 1.6; stroke-linecap: round; stroke-linejoin: round; }
`;

// JupyterLab floats dt and dd and sets their widths, which would make the terms of a tip one letter wide.
/** Styles of the page only: toolbar, footer, panels, tooltip, focus, hover, levels of detail. */
export const PAGE_CSS = `
.qdqw-root { position: relative; display: flex; flex-direction: column; box-sizing: border-box; min-width: 320px; min-height: 160px; overflow: hidden; resize: vertical; container-type: inline-size;
  border: 1px solid var(--q-line); border-radius: 4px; background: var(--q-bg); color: var(--q-text); font: 12px/1.4 var(--q-font); }
.qdqw-root * { box-sizing: border-box; }
.qdqw-button[aria-pressed=true] { background: var(--q-soft); border-color: var(--q-brand); }
.qdqw-root.picking .qdqw-svg { cursor: crosshair; }
.qdqw-region { fill: var(--q-brand); fill-opacity: .1; stroke: var(--q-brand); }
.qdqw-svg .qdqw-labels text { display: inline; font-size: 11px; paint-order: stroke; stroke: var(--q-bg); stroke-width: 4px; stroke-linejoin: round; pointer-events: none; }
.qdqw-bar, .qdqw-search, .qdqw-foot, .qdqw-second, .qdqw-status, .qdqw-legend, .qdqw-diffline { display: flex; align-items: center; }
.qdqw-bar { gap: 4px; padding: 5px 6px; border-bottom: 1px solid var(--q-faint); background: var(--q-card); flex-wrap: wrap; }
.qdqw-sep { width: 1px; height: 18px; margin: 0 4px; background: var(--q-faint); }
.qdqw-button { display: inline-flex; align-items: center; justify-content: center; gap: 5px; min-width: 28px; height: 28px; padding: 0 6px; border: 1px solid transparent;
  border-radius: 4px; background: transparent; color: var(--q-text); font: inherit; cursor: pointer; white-space: nowrap; }
.qdqw-button:hover:not(:disabled) { background: var(--q-soft); }
.qdqw-button:disabled { opacity: .35; cursor: default; }
.qdqw-button.framed { border-color: var(--q-line); height: 24px; }
.qdqw-button svg { width: 16px; height: 16px; fill: none; stroke: currentColor; stroke-width: 1.6; stroke-linecap: round; stroke-linejoin: round; }
.qdqw-root :focus-visible { outline: 2px solid var(--q-brand); outline-offset: -1px; }
.qdqw-search { flex: 0 1 280px; min-width: 150px; border: 1px solid var(--q-line); border-radius: 4px; background: var(--q-bg); height: 28px; }
.qdqw-search input { flex: 1; min-width: 0; height: 100%; padding: 0 8px; border: 0; background: transparent; color: var(--q-text); font: inherit; }
.qdqw-search input::placeholder { color: var(--q-muted); }
.qdqw-search output { padding: 0 6px; color: var(--q-muted); font-variant-numeric: tabular-nums; white-space: nowrap; }
.qdqw-search .qdqw-button { height: 24px; min-width: 24px; }
.qdqw-grow { flex: 1; }
.qdqw-main { position: relative; flex: 1; display: flex; min-height: 0; }
.qdqw-stage { position: relative; flex: 1; display: flex; min-width: 0; overflow: hidden; }
.qdqw-picture { flex: 1 1 0; display: flex; flex-direction: column; min-width: 0; min-height: 0; }
.qdqw-picture + .qdqw-picture { border-left: 2px solid var(--q-line); }
.qdqw-box { position: relative; flex: 1; min-height: 0; overflow: hidden; }
.qdqw-head { display: flex; gap: 10px; align-items: baseline; padding: 5px 10px; border-bottom: 1px solid var(--q-faint); background: var(--q-card); white-space: nowrap; }
.qdqw-head b { font-size: 13px; font-weight: 600; flex: none; max-width: 70%; }
.qdqw-head span { color: var(--q-muted); }
.qdqw-head b, .qdqw-head span, .qdqw-foot strong, .qdqw-diffline .framed { overflow: hidden; text-overflow: ellipsis; }
.qdqw-unequal-key { display: inline-flex; width: 14px; height: 14px; border-radius: 7px; align-items: center; justify-content: center; background: var(--q-partial); color: #1b1b1b; font-size: 11px; }
.qdqw-svg { display: block; width: 100%; height: 100%; outline: none; touch-action: none; cursor: grab; user-select: none; -webkit-user-select: none; background: var(--q-bg); }
.qdqw-svg.dragging { cursor: grabbing; }
.qdqw-box:has(.qdqw-svg:focus-visible)::after { content: ""; position: absolute; inset: 0; border: 2px solid var(--q-brand); opacity: .55; pointer-events: none; }
.qdqw-svg:focus .qdqw-unit.focus .qdqw-ring { stroke: var(--q-brand); stroke-width: 2; stroke-opacity: .45; }
.qdqw-unit { cursor: pointer; }
.qdqw-unit:hover .qdqw-card { stroke: var(--q-muted); }
.qdqw-unit.selected:hover .qdqw-card { stroke: var(--q-brand); }
.qdqw-badge:not(.impossible) { cursor: pointer; }
.qdqw-badge:not(.impossible):hover rect { stroke: var(--q-text); }
.qdqw-badge.impossible { cursor: not-allowed; }
.qdqw-root.gone .qdqw-badge { opacity: .6; cursor: not-allowed; }
.qdqw-opener, .qdqw-frametitle { cursor: pointer; }
.qdqw-opener:hover .qdqw-chevron, .qdqw-frametitle:hover .qdqw-chevron { stroke: var(--q-text); stroke-width: 2.2; }
.qdqw-small text { display: none; }
.qdqw-tiny .qdqw-badge, .qdqw-tiny .qdqw-opener, .qdqw-tiny .qdqw-pill, .qdqw-tiny .qdqw-under { display: none; }
.qdqw-tiny .qdqw-stripe { transform: scaleX(${NODE_WIDTH / STRIPE}); }
.qdqw-tiny .qdqw-unit.selected .qdqw-card { stroke-width: 40; }
.qdqw-map { flex: none; width: 64px; border-left: 1px solid var(--q-faint); background: var(--q-card); cursor: pointer; touch-action: none; }
.qdqw-map canvas { display: block; width: 100%; height: 100%; }
.qdqw-foot { gap: 10px; min-height: 34px; padding: 4px 8px; border-top: 1px solid var(--q-faint); background: var(--q-card); color: var(--q-muted); flex-wrap: wrap; }
.qdqw-second { gap: 10px; min-width: 0; }
.qdqw-status { gap: 8px; height: 26px; min-width: 0; white-space: nowrap; }
.qdqw-foot strong { color: var(--q-text); font-weight: 600; max-width: 300px; flex: 0 1 auto; min-width: 60px; white-space: nowrap; }
.qdqw-legend { gap: 12px; flex-wrap: wrap; }
.qdqw-legend span { display: inline-flex; align-items: center; gap: 5px; white-space: nowrap; }
.qdqw-legend svg { display: block; }
.qdqw-tip, .qdqw-error, .qdqw-diff, .qdqw-help { position: absolute; border: 1px solid var(--q-line); background: var(--q-card); box-shadow: 0 3px 14px #00000038; }
.qdqw-tip { z-index: 5; max-width: 380px; padding: 8px 10px; border-radius: 4px; color: var(--q-text); pointer-events: none; overflow-wrap: anywhere; }
.qdqw-tip dl { display: grid; grid-template-columns: auto 1fr; gap: 1px 10px; margin: 4px 0 0; }
.qdqw-tip dt, .qdqw-tip dd { float: none; width: auto; margin: 0; } .qdqw-tip dt { color: var(--q-muted); font-weight: 400; white-space: nowrap; }
.qdqw-tip b { font-weight: 600; }
.qdqw-error { z-index: 6; left: 10px; right: 84px; top: 10px; display: flex; gap: 8px; align-items: flex-start; padding: 8px 8px 8px 12px; border-color: var(--q-error);
  border-left-width: 4px; border-radius: 4px; color: var(--q-text); white-space: pre-wrap; overflow-wrap: anywhere; max-height: 60%; overflow: auto; }
.qdqw-error p { flex: 1; margin: 3px 0; }
.qdqw-diffline { min-width: 0; } .qdqw-diffline[hidden], .qdqw-diff[hidden] { display: none; }
.qdqw-diffline .framed { display: block; min-width: 0; color: var(--q-text); border-color: var(--q-partial); }
.qdqw-diff { z-index: 4; right: 10px; bottom: 0; max-width: calc(100% - 20px); max-height: calc(100% - 10px); overflow: auto; border-bottom: 0;
  border-radius: 6px 6px 0 0; }
.pair .qdqw-diff { max-height: 42%; }
.qdqw-diff ul { margin: 0; padding: 4px 0; list-style: none; }
.qdqw-diff li > * { display: flex; gap: 8px; width: 100%; padding: 2px 10px; border: 0; background: transparent; color: var(--q-text); font: inherit; text-align: left; overflow-wrap: anywhere; }
.qdqw-diff li > button { cursor: pointer; } .qdqw-diff li > button:hover { background: var(--q-soft); }
.qdqw-diff button.at { background: var(--q-soft); box-shadow: inset 3px 0 var(--q-brand); }
.qdqw-diff b { flex: none; width: 1.2em; text-align: center; }
.qdqw-diff .gain { color: var(--q-qdq); } .qdqw-diff .loss { color: var(--q-error); }
.qdqw-help { z-index: 7; inset: 10px auto auto 10px; max-width: min(560px, calc(100% - 94px)); max-height: calc(100% - 20px); overflow: auto; padding: 12px 16px;
  border-radius: 6px; box-shadow: 0 6px 24px #00000047; }
.qdqw-help h3 { margin: 0 0 6px; font-size: 13px; } .qdqw-help table { border-collapse: collapse; }
.qdqw-help td { padding: 2px 14px 2px 0; vertical-align: top; border: 0; text-align: left; color: var(--q-text); }
.qdqw-help kbd { margin-right: 4px; padding: 0 5px; border: 1px solid var(--q-line); border-radius: 3px; background: var(--q-soft); font: 11px var(--jp-code-font-family, monospace); }
.qdqw-sr { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
@container (max-width: 1050px) { .qdqw-legend .word { display: none; } }
@container (max-width: 700px) { .qdqw-bar .qdqw-sep, .qdqw-pairkey { display: none !important; } .qdqw-legend { gap: 8px; } .qdqw-search { flex: 1 1 150px; } .qdqw-bar { gap: 0; } .qdqw-bar .qdqw-grow { display: none; } }
@container (max-width: 560px) { .pair .qdqw-stage { flex-direction: column; }
  .qdqw-picture + .qdqw-picture { border-left: 0; border-top: 2px solid var(--q-line); } }
@media (forced-colors: active) {
  .qdqw-badge.all rect, .qdqw-stripe, .qdqw-pill rect { forced-color-adjust: none; }
  .qdqw-card, .qdqw-edge { stroke: CanvasText; }
  .qdqw-svg text { fill: CanvasText; }
  .qdqw-unit.selected .qdqw-card, .qdqw-svg:focus .qdqw-unit.focus .qdqw-ring { stroke: Highlight; }
}
@media (prefers-reduced-motion: no-preference) {
  .qdqw-badge rect, .qdqw-edge { transition: fill .12s, stroke .12s; }
  .qdqw-pill.fresh rect { animation: qdqw-pulse .5s ease-in-out 3; }
}
@keyframes qdqw-pulse { 50% { stroke-width: 7; } }
`;

export function styleSheet(): string {
  const tokens = Object.entries(TOKENS).map(([name, value]) => `${name}: ${value};`);
  return `.qdqw-root { ${tokens.join(" ")} }\n${PICTURE_CSS}${PAGE_CSS}`;
}
