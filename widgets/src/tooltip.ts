// Tooltips of nodes and blocks (names, sites, reason), badges (state, or why a site cannot be quantized) and pairs.
import { blockSize } from "./blocks";
import { sharedText } from "./card_texts";
import { paintOf } from "./colors";
import { html, plain } from "./dom";
import type { Placed } from "./placed";
import { quantizedAfter } from "./quantized_after";
import type { Store } from "./store";
import type { Site } from "./traits";

const WORDS: Record<Site, string> = { input: "input", weight: "weights", output: "output" };
const LONG = 8;

export class Tooltip {
  readonly element = html("div", { class: "qdqw-tip", role: "tooltip" });

  constructor(private readonly host: HTMLElement) {
    this.element.hidden = true;
    host.append(this.element);
  }

  hide(): void {
    this.element.hidden = true;
  }

  show(content: Element[], x: number, y: number): void {
    this.element.replaceChildren(...content);
    // Before it is measured: a hidden element has no size.
    this.element.hidden = false;
    const { clientWidth, clientHeight } = this.host;
    const { offsetWidth, offsetHeight } = this.element;
    const left = x + 16 + offsetWidth > clientWidth ? x - 12 - offsetWidth : x + 16;
    const top = y + 16 + offsetHeight > clientHeight ? y - 10 - offsetHeight : y + 16;
    this.element.style.left = `${Math.max(4, left)}px`;
    this.element.style.top = `${Math.max(4, top)}px`;
  }
}

export function unitTip(store: Store, unit: Pick<Placed, "nodes" | "block">): Element[] {
  if (unit.block !== null) return blockTip(store, unit.nodes, unit.block.label);
  const { graph } = store;
  const [node] = unit.nodes;
  const rows: [string, string][] = [
    ["name", plain(graph.name(node))],
    ["output", graph.shape(node)],
  ];
  const shared = sharedText(store, node);
  if (shared) rows.push(["shares weights with", shared]);
  if (graph.payload.opaque.includes(node)) rows.push(["inside", "not visible to planning"]);
  const parameters = graph.payload.parameters[node];
  if (parameters > 0) rows.push(["parameters", parameters.toLocaleString("en")]);
  const { side } = store;
  const card = side?.look.cards?.[node];
  if (card) rows.push([plain(side!.title), plain(card)]);
  if (side !== null && !side.look.badges) {
    const bar = side.look.labels?.[node];
    if (bar) rows.push(["measured", bar]);
    return [html("b", {}, [graph.className(node)]), table([...rows, ...differenceRows(store, node)])];
  }
  graph.payload.inputs[node].slice(0, LONG).forEach((tensor, index) => {
    const pair = store.isOn(node, "input", index) ? `Q·DQ ${store.pairs(tensor)[0] ?? ""}` : "float";
    rows.push([`input ${index}`, `${pair}, from ${plain(graph.name(graph.producer(tensor)))}`]);
  });
  const bits = store.bits([node], "weight");
  const block = blockSize(store, node);
  const blocks = block === null ? "" : ` in blocks of ${block}`;
  const quantized = `quantized${bits === 8 ? "" : ` to ${bits} bits`}${blocks}`;
  if (!graph.refusal(node, "weight")) rows.push(["weights", store.isOn(node, "weight") ? quantized : "float"]);
  const after = quantizedAfter(store, node);
  if (after !== null) rows.push(["output", `quantized after ${plain(graph.name(after))}`]);
  rows.push(["plan", plain(store.reason(node))]);
  const paint = paintOf(store, [node]);
  if (paint.label) rows.push([store.colors.legend?.title ?? store.colors.mode, paint.label]);
  if (paint.reason) rows.push([store.plan.target, plain(paint.reason)]);
  if (paint.hatched) rows.push(["differs", "the plan quantizes it, and the target does not run it in INT8"]);
  rows.push(...differenceRows(store, node));
  const kind = graph.payload.operations.includes(node) ? " (operation)" : "";
  return [html("b", {}, [graph.className(node) + kind]), table(rows)];
}

function differenceRows(store: Store, node: number): [string, string][] {
  const word = store.side !== null ? "differs" : store.step.isPreview ? "then" : "now";
  const rows = store.step.difference?.rows ?? [];
  return rows.filter(([changed]) => changed === node).map(([, , text]) => [word, plain(text)]);
}

function blockTip(store: Store, nodes: readonly number[], label: string): Element[] {
  const counts = { int8: 0, partial: 0, float: 0 };
  for (const node of nodes) {
    const precision = store.precision([node]);
    if (precision !== null) counts[precision]++;
  }
  const rows: [string, string][] = [
    ["holds", store.graph.layers(nodes)],
    ["from", plain(store.graph.name(nodes[0]))],
    ["to", plain(store.graph.name(nodes[nodes.length - 1]))],
    ["quantized", `${counts.int8} in full, ${counts.partial} in part; ${counts.float} with float weights`],
  ];
  return [html("b", {}, [`Block ${plain(label)}`]), table(rows)];
}

export function badgeTip(
  store: Store,
  unit: Pick<Placed, "nodes" | "block">,
  site: Site,
  index: number | null,
): Element[] {
  const coverage = store.coverage(store.badgeNodes(unit, site), site, index);
  const what = site === "input" && index !== null ? `input ${index}` : WORDS[site];
  if (coverage === "impossible") {
    const refusal = unit.block === null ? store.graph.refusal(unit.nodes[0], site, index) : blockRefusal(index);
    const [title, why] = refusal
      ? [`The ${what} cannot be quantized`, refusal]
      : [`There is no ${what}`, `The layer has ${store.graph.payload.inputs[unit.nodes[0]].length}, counted from 0.`];
    return [html("b", {}, [title]), html("div", {}, [plain(why)])];
  }
  const state = { all: "quantized", some: "partly quantized", none: "float" }[coverage];
  const wish = coverage === "all" ? "leave it in float" : "quantize it";
  const click = store.isEditable ? [html("div", {}, [`Click (or ${index ?? site[0].toUpperCase()}) to ${wish}.`])] : [];
  const after = site === "output" && unit.block === null ? quantizedAfter(store, unit.nodes[0]) : null;
  const where = after === null ? [] : [html("div", {}, [`It is quantized after ${plain(store.graph.name(after))}.`])];
  return [html("b", {}, [`${what[0].toUpperCase()}${what.slice(1)}: ${state}`]), ...where, ...click];
}

function blockRefusal(index: number | null): string {
  return index === null ? "no layer of this block can" : "Open the block to choose inputs of its layers.";
}

export function pairTip(store: Store, tensor: number): Element[] {
  const { graph } = store;
  const conversions = store.side?.look.pills?.[tensor];
  if (conversions !== undefined)
    return [html("b", {}, [`Conversions behind ${plain(graph.name(graph.producer(tensor)))}: ${conversions}`])];
  if (store.side?.missing.has(tensor)) return [html("b", {}, ["A pair that only the other side has"])];
  const ghost = store.step.ghosts.get(tensor);
  if (ghost !== undefined) {
    const rows: [string, string][] = [
      ["tensor", plain(graph.name(graph.producer(tensor)))],
      ["grid", ghost.map(plain).join("; ")],
    ];
    const what = store.step.isPreview ? "Would be taken away" : "Taken away by the last step";
    return [html("b", {}, [what]), table(rows)];
  }
  const readers = graph.readers[tensor].filter(({ node, index }) => store.isOn(node, "input", index));
  const shared = readers.length > 1 ? `one pair for ${readers.length} readers` : "one pair";
  const rows: [string, string][] = [
    ["tensor", plain(graph.name(graph.producer(tensor)))],
    ["grid", store.pairs(tensor).map(plain).join("; ") || "…"],
    ...store.ranges(tensor).map((text): [string, string] => ["values", plain(text)]),
    [
      "read by",
      readers
        .slice(0, LONG)
        .map(({ node }) => plain(graph.name(node)))
        .join(", ") || "the model's output",
    ],
  ];
  return [html("b", {}, [`QuantizeLinear · DequantizeLinear, ${shared}`]), table(rows)];
}

function table(rows: [string, string][]): HTMLElement {
  return html(
    "dl",
    {},
    rows.flatMap(([term, text]) => [html("dt", {}, [term]), html("dd", {}, [text.slice(0, 700)])]),
  );
}
