// The text line of a card: heading, name (preceded by the number of calls that share its weights), shape or value.
import { splitPath } from "./collapse";
import { clip, plain, textWidth } from "./dom";
import { NODE_WIDTH, type Placed } from "./placed";
import type { Side } from "./side";
import type { Store } from "./store";

const GAP = 7;
const HEADING = 104;

/**
 * Write heading, name and shape into the space left of the badges; `figure`, a metric's value, replaces the shape. A
 * shape that would shorten the name is omitted (the tooltip has it), except in a comparison; a figure never is.
 */
export function writeTexts(store: Store, unit: Placed, group: SVGGElement, figure: string | undefined): void {
  const right = Number(group.querySelector(".qdqw-badges")!.getAttribute("data-left") ?? NODE_WIDTH);
  const [title, name, shape] = ["title", "name", "shape"].map((part) => group.querySelector(`.${part}`)!);
  const isBlock = unit.block !== null;
  const heading = isBlock ? unit.block!.label : headingOf(store, unit.nodes[0]);
  const full = isBlock ? blockText(store, unit.nodes, figure) : nameText(store, unit.nodes[0]);
  const given = isBlock ? "" : (figure ?? shapeText(store, unit.nodes[0]));
  const left = Number(title.getAttribute("x"));
  const isKept = figure !== undefined || store.side !== null;
  // A long class name may use the space that a short name leaves.
  const most = isBlock || isKept ? 130 : Math.max(HEADING, right - 2 * GAP - left - textWidth(full, 11));
  title.textContent = clip(heading, most, 12, 600);
  const start = left + textWidth(title.textContent, 12, 600) + GAP;
  const room = right - GAP - start;
  let text = clip(given, 84, 10.5);
  if (!isKept && textWidth(full, 11) + textWidth(text, 10.5) + GAP > room) text = "";
  name.setAttribute("x", String(start));
  name.textContent = clip(full, room - (text === "" ? 0 : textWidth(text, 10.5) + GAP), 11);
  shape.setAttribute("x", String(right - GAP));
  shape.textContent = text;
}

export function headingOf(store: Store, node: number): string {
  return store.side?.look.cards?.[node] ?? store.graph.className(node);
}

export function shapeText(store: Store, node: number): string {
  return store.side?.look.labels?.[node] ?? store.graph.shape(node);
}

/** Return the name without the nested models, which the titles of the frames name. */
function nameText({ graph }: Store, node: number): string {
  const { base } = splitPath(graph.name(node));
  const calls = graph.sharing(node).length;
  return calls > 1 ? `${calls}× ${base}` : base;
}

function blockText(store: Store, nodes: readonly number[], figure: string | undefined): string {
  if (figure !== undefined) return `${store.graph.layers(nodes)} · ${figure}`;
  if (store.side !== null) return sideText(store, store.side, nodes);
  const pairs = nodes.flatMap((node) => store.graph.outputs(node).flatMap((tensor) => store.pairs(tensor))).length;
  return store.graph.layers(nodes) + (pairs > 0 ? ` · ${pairs} Q·DQ` : "");
}

/** Return a closed block's text in a comparison: its layers, those that are not merged, those that differ. */
function sideText({ graph }: Store, side: Side, nodes: readonly number[]): string {
  const present = nodes.filter((node) => !side.faded.has(node)).length;
  const differing = nodes.filter((node) => side.differs.has(node)).length;
  const parts = [graph.layers(nodes)];
  if (present < nodes.length) parts.push(`${present} stand alone`);
  if (differing > 0) parts.push(`${differing} differ${differing === 1 ? "s" : ""}`);
  return parts.join(" · ");
}

/** Return the names of the other calls that share the node's weights. */
export function sharedText({ graph }: Store, node: number): string {
  const others = graph.sharing(node).filter((other) => other !== node);
  return others.map((other) => plain(graph.name(other))).join(", ");
}
