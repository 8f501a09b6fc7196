// Which colour and which letter a node has: never a colour alone.
import type { Store } from "./store";
import type { Colors } from "./traits";

export interface Paint {
  /** Name of the style class, or an explicit colour for metrics. */
  kind: "int8" | "float" | "partial" | "other" | "metric" | "blank";
  letter: string;
  fill?: string;
  /** Dark text on light fills. */
  dark?: boolean;
  label?: string;
  reason?: string;
}

/** Dark blue to yellow, evenly light to colour-blind eyes too (cividis, nine steps). */
const SCALE = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55"];
const LETTERS = { int8: "8", float: "F", partial: "½" } as const;

export function paintOf(store: Store, nodes: readonly number[]): Paint {
  const colors = store.colors;
  if (colors.mode === "precision" && colors.status_of) return precisionPaint(colors, nodes);
  if (colors.values) return metricPaint(colors, nodes);
  const precision = store.precision(nodes);
  return precision === null ? { kind: "blank", letter: "" } : { kind: precision, letter: LETTERS[precision] };
}

function precisionPaint(colors: Colors, nodes: readonly number[]): Paint {
  const names = new Set<string>();
  for (const node of nodes) {
    const status = colors.status_of![node];
    if (status >= 0) names.add(colors.statuses![status]);
  }
  names.delete("unknown");
  if (names.size === 0) return { kind: "blank", letter: "" };
  const reason = nodes.length === 1 ? colors.reasons?.[colors.why?.[nodes[0]] ?? 0] : undefined;
  if (names.size > 1) return { kind: "partial", letter: "½" };
  const [name] = names;
  if (name === "int8" || name === "float" || name === "partial") return { kind: name, letter: LETTERS[name], reason };
  return { kind: "other", letter: name.replace(/^int/, "").slice(0, 2), reason };
}

function metricPaint(colors: Colors, nodes: readonly number[]): Paint {
  const values = nodes.flatMap((node) => colors.values![node] ?? []);
  if (values.length === 0) return { kind: "blank", letter: "" };
  const [low, high] = metricRange(colors);
  const worst = colors.legend?.better === "high" ? Math.min(...values) : Math.max(...values);
  const position = high > low ? Math.min(1, Math.max(0, (worst - low) / (high - low))) : 0.5;
  const step = Math.round(position * (SCALE.length - 1));
  const label = `${nodes.length > 1 ? "worst " : ""}${formatNumber(worst)}${colors.unit ? ` ${colors.unit}` : ""}`;
  return { kind: "metric", letter: "", fill: SCALE[step], dark: step > 5, label };
}

export function metricRange(colors: Colors): [number, number] {
  const known = (colors.values ?? []).filter((value): value is number => value !== null);
  const low = colors.legend?.low ?? known.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
  const high = colors.legend?.high ?? known.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  return Number.isFinite(low) && Number.isFinite(high) ? [low, high] : [0, 1];
}

export function scaleColors(): readonly string[] {
  return SCALE;
}

export function formatNumber(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  if (size !== 0 && size < 1e-3) return value.toExponential(1);
  return String(+value.toPrecision(3));
}
