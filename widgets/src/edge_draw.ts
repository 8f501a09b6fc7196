// Edges and the Q·DQ pills on them. The layout fixes the geometry; the plan decides which readers are quantized.
import { svg } from "./dom";
import type { Layout } from "./layout";
import { NODE_HEIGHT, NODE_WIDTH, type Route } from "./placed";
import type { Store } from "./store";

const CORNER = 6;
const SECOND_EXIT = 44;
/** Distance from the producer's lower edge to the centre of a pill. */
const PILL = 4;

export interface TensorView {
  /** Path from the producer to the pill, which is still float. */
  stub: string | null;
  /** For every route of the tensor its path, and whether it carries the quantized value. */
  paths: { route: number; d: string; quantized: boolean }[];
  pill: Pill | null;
}

export interface Pill {
  x: number;
  y: number;
  text: string;
  /** Pair that is removed, to be removed or on the other side only; added; to be added; on this side only. */
  step?: "ghost" | "fresh" | "would" | "only";
}

/**
 * Return the paths and the pill of a tensor. The pill is right below the producer; if there are also float readers,
 * their edges start at a second exit beside it.
 */
export function viewTensor(store: Store, layout: Layout, tensor: number): TensorView {
  const exit = layout.exits.get(tensor);
  const routes = (layout.byTensor.get(tensor) ?? []).map((index) => ({ index, route: layout.routes[index] }));
  const flags = routes.map(({ route }) => readsQuantized(store, layout, route));
  const isMixed = flags.some((flag) => flag) && flags.some((flag) => !flag);
  // The float exit is on the left if the straight route is float, else on the right: no crossing then.
  const toLeft = routes.some(({ route }, k) => route.isStraight && !flags[k]);
  const pills = store.side?.look.pills;
  const paths = routes.map(({ index, route }, k) => {
    const shift = isMixed && !flags[k] ? (toLeft ? -SECOND_EXIT : SECOND_EXIT) : 0;
    const useUpper = !isMixed || (toLeft ? flags[k] : !flags[k]);
    return {
      route: index,
      // A quantized edge starts at the centre of the pill, which the float stub leads to.
      d: pathOf(route, shift, useUpper ? route.upper : route.lower, flags[k] && pills === undefined ? PILL : 0),
      quantized: flags[k],
    };
  });
  const count = Math.max(1, store.pairs(tensor).length);
  const text = count > 1 ? `Q·DQ ×${count}` : "Q·DQ";
  if (pills !== undefined) return { paths, pill: textPill(layout, store, tensor, pills[tensor]), stub: null };
  const step = stepOf(store, tensor);
  const shown = flags.includes(true) && exit !== undefined ? { x: exit.x, y: exit.y + PILL, text, step } : null;
  const pill = exit === undefined ? deadEndPill(store, layout, tensor, { text, step }) : shown;
  if (pill === null) return { paths, pill: markedPlace(store, layout, tensor), stub: null };
  return { paths, pill, stub: `M${pill.x} ${pill.y - PILL}V${pill.y}` };
}

function stepOf(store: Store, tensor: number): Pill["step"] {
  if (store.side?.only.has(tensor)) return "only";
  if (store.step.ghosts.has(tensor)) return "ghost";
  return store.step.fresh.has(tensor) ? "fresh" : undefined;
}

/** Return the pill of a runtime's side, with the conversions that it executes on the tensor. */
function textPill(layout: Layout, store: Store, tensor: number, text: string | undefined): Pill | null {
  if (text === undefined) return null;
  const unit = layout.units[layout.unitOf[store.graph.producer(tensor)]];
  const { x, y } = layout.exits.get(tensor) ?? { x: unit.x + NODE_WIDTH / 2, y: unit.y + NODE_HEIGHT };
  return { x, y: y + PILL, text };
}

/** Return the pill of an absent pair: removed by the last step, on the other side only, or to be added (preview). */
function markedPlace(store: Store, layout: Layout, tensor: number): Pill | null {
  const isGone = store.step.ghosts.has(tensor) || store.side?.missing.has(tensor) === true;
  if (!isGone && !(store.step.isPreview && store.step.fresh.has(tensor))) return null;
  const exit = layout.exits.get(tensor);
  const unit = layout.units[layout.unitOf[store.graph.producer(tensor)]];
  const { x, y } = exit ?? { x: unit.x + NODE_WIDTH / 2, y: unit.y + NODE_HEIGHT };
  return { x, y: y + PILL, text: "Q·DQ", step: isGone ? "ghost" : "would" };
}

/** Return the pill of a pair on a tensor that no node reads, such as a model output. */
function deadEndPill(store: Store, layout: Layout, tensor: number, look: Pick<Pill, "text" | "step">): Pill | null {
  if (store.pairs(tensor).length === 0 || store.graph.readers[tensor].length > 0) return null;
  const unit = layout.units[layout.unitOf[store.graph.producer(tensor)]];
  return { x: unit.x + NODE_WIDTH / 2, y: unit.y + NODE_HEIGHT + PILL, ...look };
}

function readsQuantized(store: Store, layout: Layout, route: Route): boolean {
  // A closed block may have several readers; one that is quantized is enough.
  return store.graph.readers[route.edge.tensor].some(
    ({ node, index }) => layout.unitOf[node] === route.edge.to && store.isOn(node, "input", index),
  );
}

/** Return a path with rounded corners and an arrow; it starts `shift` beside and `from` below the route's start. */
export function pathOf(route: Route, shift: number, level: number, from = 0): string {
  const x0 = route.x0 + shift;
  const points: [number, number][] = [[x0, route.y0 + from]];
  if (x0 !== route.track) points.push([x0, level], [route.track, level]);
  if (route.track !== route.x1) points.push([route.track, route.entry], [route.x1, route.entry]);
  points.push([route.x1, route.y1]);
  let d = `M${points[0][0]} ${points[0][1]}`;
  for (let k = 1; k < points.length - 1; k++) {
    const [before, corner, after] = [points[k - 1], points[k], points[k + 1]];
    // Half of a segment at most, because the next corner takes the other half.
    const radius = Math.min(CORNER, distance(before, corner) / 2, distance(corner, after) / 2);
    const [ax, ay] = towards(corner, before, radius);
    const [bx, by] = towards(corner, after, radius);
    d += `L${ax} ${ay}Q${corner[0]} ${corner[1]} ${bx} ${by}`;
  }
  const [x, y] = points[points.length - 1];
  return `${d}L${x} ${y}M${x - 3} ${y - 5}L${x} ${y - 1}L${x + 3} ${y - 5}`;
}

function distance(a: [number, number], b: [number, number]): number {
  return Math.abs(a[0] - b[0]) + Math.abs(a[1] - b[1]);
}

function towards(from: [number, number], to: [number, number], length: number): [number, number] {
  return [from[0] + Math.sign(to[0] - from[0]) * length, from[1] + Math.sign(to[1] - from[1]) * length];
}

export function drawPill(pill: Pill, tensor: number): SVGGElement {
  const width = pill.text.length > 4 ? Math.max(48, pill.text.length * 5.4 + 12) : 32;
  const look = pill.step === undefined ? "qdqw-pill" : `qdqw-pill ${pill.step}`;
  return svg("g", { class: look, "data-tensor": tensor, transform: `translate(${pill.x} ${pill.y})` }, [
    svg("rect", { x: -width / 2, y: -6.5, width, height: 13, rx: 6.5 }),
    svg("text", { y: 0.5 }, [pill.text]),
  ]);
}
