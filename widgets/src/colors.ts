// The colour of nodes, and the letter or label that repeats its meaning.
import type { Store } from "./store";
import type { Colors } from "./traits";

export interface Paint {
  /** The style class; "metric" has an explicit colour in `fill` (metrics and rules). */
  kind: "int8" | "float" | "partial" | "other" | "metric" | "blank";
  letter: string;
  fill?: string;
  label?: string;
  reason?: string;
  /** Whether the plan quantizes more than the target runs in INT8. */
  hatched?: boolean;
}

/** cividis, a perceptually uniform map from dark blue to yellow for colour-blind eyes too; interpolated by `mixed`. */
const SCALE = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55"];
const RGB = SCALE.map((text) => [1, 3, 5].map((at) => Number.parseInt(text.slice(at, at + 2), 16)));
const LETTERS = { int8: "8", float: "F", partial: "½" } as const;

export function paintOf(store: Store, nodes: readonly number[]): Paint {
  const colors = store.colors;
  if (colors.mode === "precision" && colors.status_of)
    return { ...precisionPaint(colors, nodes), hatched: nodes.some((node) => falls(store, colors, node)) };
  if (colors.values) return metricPaint(colors, nodes);
  if (colors.fills) return rulePaint(colors.fills, nodes);
  const precision = store.precision(nodes);
  const bits = precision === "int8" ? store.bits(nodes, "weight") : 8;
  if (bits !== 8) return { kind: "other", letter: bits === null ? "…" : String(bits) };
  return precision === null ? { kind: "blank", letter: "" } : { kind: precision, letter: LETTERS[precision] };
}

/** Return whether the target runs less of a node in INT8 than the plan quantizes. */
function falls(store: Store, colors: Colors, node: number): boolean {
  const status = colors.statuses![colors.status_of![node]];
  if (status !== "float" && status !== "partial") return false;
  const planned = store.precision([node]);
  return planned === "int8" || (planned === "partial" && status === "float");
}

function precisionPaint(colors: Colors, nodes: readonly number[]): Paint {
  const names = new Set<string>();
  for (const node of nodes) {
    const status = colors.status_of![node];
    if (status >= 0) names.add(colors.statuses![status]);
  }
  names.delete("unknown");
  if (names.size > 1) names.delete("vanishes");
  const reason = nodes.length === 1 ? colors.reasons?.[colors.why?.[nodes[0]] ?? 0] : undefined;
  if (names.size > 1) return { kind: "partial", letter: "½" };
  const [name] = names;
  if (!name || name === "vanishes") return { kind: "blank", letter: "", reason };
  if (name === "int8" || name === "float" || name === "partial") return { kind: name, letter: LETTERS[name], reason };
  return { kind: "other", letter: name.replace(/^int/, "").slice(0, 2), reason };
}

function metricPaint(colors: Colors, nodes: readonly number[]): Paint {
  const values = nodes.flatMap((node) => colors.values![node] ?? []);
  if (values.length === 0) return { kind: "blank", letter: "" };
  const worst = colors.legend?.better === "high" ? Math.min(...values) : Math.max(...values);
  const extreme = colors.legend?.better === "high" ? "lowest " : "highest ";
  const unit = unitOf(colors);
  const label = `${values.length > 1 ? extreme : ""}${formatNumber(worst)}${unit ? ` ${unit}` : ""}`;
  return { kind: "metric", letter: "", fill: mixed(positionOf(colors, worst)), label };
}

/** Return the paint of nodes coloured by rules; a block with several colours is painted as "partial". */
function rulePaint(fills: readonly (string | null)[], nodes: readonly number[]): Paint {
  const found = new Set(nodes.flatMap((node) => fills[node] ?? []));
  if (found.size === 0) return { kind: "blank", letter: "" };
  if (found.size > 1) return { kind: "partial", letter: "½" };
  return { kind: "metric", letter: "", fill: [...found][0] };
}

export function unitOf(colors: Colors): string {
  return colors.legend?.unit ?? colors.unit ?? "";
}

/** Return the position of a value in the scale, from 0 to 1. */
function positionOf(colors: Colors, value: number): number {
  const [low, high] = metricRange(colors);
  if (!(high > low)) return 0.5;
  const isLog = colors.legend?.scale === "log" && low > 0;
  const place = isLog ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.min(1, Math.max(0, place));
}

/** Return the colour at a position of the scale, from 0 to 1. */
export function mixed(position: number): string {
  const at = position * (RGB.length - 1);
  const from = Math.min(Math.floor(at), RGB.length - 2);
  const parts = RGB[from].map((part, k) => Math.round(part + (RGB[from + 1][k] - part) * (at - from)));
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

export function metricRange(colors: Colors): [number, number] {
  const known = (colors.values ?? []).filter((value): value is number => value !== null);
  const low = colors.legend?.low ?? known.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
  const high = colors.legend?.high ?? known.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  return Number.isFinite(low) && Number.isFinite(high) ? [low, high] : [0, 1];
}

export function formatNumber(value: number): string {
  const size = Math.abs(value);
  // The unary plus drops trailing zeros, and the exponent that toPrecision may write.
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  if (size !== 0 && size < 1e-3) return value.toExponential(1);
  return String(+value.toPrecision(3));
}
