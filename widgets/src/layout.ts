// Positions of units, edges and frames: pure arithmetic, about linear in the number of visible units and edges.
import { assignColumns, trackColumn } from "./columns";
import { type Frame, findFrames, frameSpace } from "./frames";
import { Levels } from "./levels";
import { NODE_HEIGHT, NODE_WIDTH, type Placed, type Route } from "./placed";
import { assignRows } from "./ranks";
import type { Edge, Visible } from "./units";

const COLUMN_GAP = 32;
const LANE_GAP = 20;
const TOP = 8;
const EXIT_TOP = 15;
const ENTRY_BOTTOM = 7;
const LEVEL = 5;
const GAP_MIN = 8;
const PORT_GAP = 44;

export interface Layout {
  units: Placed[];
  routes: Route[];
  frames: Frame[];
  width: number;
  height: number;
  unitOf: number[];
  /** Indices of the routes, by tensor. */
  byTensor: Map<number, number[]>;
  exits: Map<number, { x: number; y: number }>;
}

export function layOut(visible: Visible): Layout {
  const ranks = assignRows(visible.units.length, visible.edges);
  const { column, occupancy } = assignColumns(ranks);
  const units: Placed[] = visible.units.map((unit, index) => ({
    ...unit,
    x: column[index] * (NODE_WIDTH + COLUMN_GAP),
    y: 0,
    row: ranks.row[index],
    column: column[index],
  }));
  const tracks = visible.edges.map((edge) => trackColumn(ranks, column, occupancy, edge));
  const lanes = bypassLanes(units, visible.edges, tracks, ranks.rows);
  const exits = exitPoints(units, visible.edges);
  const routes = visible.edges.map((edge, index) => rawRoute(units, edge, tracks[index], lanes, exits));
  // Before the heights: a route that is straight now needs no level between rows.
  spreadEntries(routes);
  const byTensor = groupByTensor(routes);
  const height = setHeights(units, routes, byTensor, ranks.rows);
  for (const route of routes) exits.get(route.edge.tensor)!.y = route.y0;
  const frames = findFrames(units, routes);
  const right = Math.max(0, ...units.map((unit) => unit.x + NODE_WIDTH), ...lanes.values());
  return {
    units,
    routes,
    frames,
    byTensor,
    exits,
    width: Math.max(right, ...frames.map((frame) => frame.x + frame.width)),
    height,
    unitOf: visible.unitOf,
  };
}

/** Give every tensor without a free column a lane to the right of everything in the rows that it passes. */
function bypassLanes(units: Placed[], edges: readonly Edge[], tracks: number[], rows: number): Map<number, number> {
  const right = new Float64Array(rows);
  for (const unit of units) right[unit.row] = Math.max(right[unit.row], unit.x + NODE_WIDTH);
  const spans = new Map<number, [number, number]>();
  edges.forEach((edge, index) => {
    if (tracks[index] >= 0) {
      const x = tracks[index] * (NODE_WIDTH + COLUMN_GAP) + NODE_WIDTH / 2;
      for (let row = units[edge.from].row + 1; row < units[edge.to].row; row++) right[row] = Math.max(right[row], x);
      return;
    }
    const last = units[edge.to].row - 1;
    const span = spans.get(edge.tensor);
    spans.set(edge.tensor, [units[edge.from].row + 1, Math.max(last, span?.[1] ?? last)]);
  });
  const lanes = new Map<number, number>();
  // Short spans take the inner lanes, so that long ones run outside without crossing them.
  const shortestFirst = [...spans].sort(([, a], [, b]) => a[1] - a[0] - (b[1] - b[0]) || a[0] - b[0]);
  for (const [tensor, [first, last]] of shortestFirst) {
    let x = 0;
    for (let row = first; row <= last; row++) x = Math.max(x, right[row]);
    lanes.set(tensor, x + LANE_GAP);
    right.fill(x + LANE_GAP, first, last + 1);
  }
  return lanes;
}

/** Return the exit port of every tensor: the middle of its unit, or spread if several tensors leave that unit. */
function exitPoints(units: Placed[], edges: readonly Edge[]): Map<number, { x: number; y: number }> {
  const byUnit = new Map<number, number[]>();
  for (const edge of edges) {
    const tensors = byUnit.get(edge.from) ?? [];
    if (!tensors.includes(edge.tensor)) tensors.push(edge.tensor);
    byUnit.set(edge.from, tensors);
  }
  const exits = new Map<number, { x: number; y: number }>();
  for (const [unit, tensors] of byUnit) {
    const step = Math.min(64, (NODE_WIDTH - 60) / tensors.length);
    tensors.forEach((tensor, k) => {
      const offset = (k - (tensors.length - 1) / 2) * step;
      exits.set(tensor, { x: units[unit].x + NODE_WIDTH / 2 + offset, y: 0 });
    });
  }
  return exits;
}

function rawRoute(
  units: Placed[],
  edge: Edge,
  track: number,
  lanes: Map<number, number>,
  exits: Map<number, { x: number; y: number }>,
): Route {
  const x0 = exits.get(edge.tensor)!.x;
  const x1 = units[edge.to].x + NODE_WIDTH / 2;
  const adjacent = units[edge.to].row === units[edge.from].row + 1;
  const column = track * (NODE_WIDTH + COLUMN_GAP) + NODE_WIDTH / 2;
  // Between adjacent rows there is nothing to pass by.
  const x = adjacent ? x1 : track < 0 ? lanes.get(edge.tensor)! : column;
  return { edge, x0, y0: 0, track: x, x1, y1: 0, upper: 0, lower: 0, entry: 0, isStraight: false };
}

/** Give edges that enter the same unit separate ports on its top, on the side that they come from. */
function spreadEntries(routes: Route[]): void {
  const byTarget = new Map<number, Route[]>();
  for (const route of routes) byTarget.set(route.edge.to, [...(byTarget.get(route.edge.to) ?? []), route]);
  for (const arriving of byTarget.values()) {
    const side = (route: Route) => (route.track !== route.x1 ? route.track : route.x0) - route.x1;
    for (const direction of arriving.length > 1 ? [-1, 1] : []) {
      const beside = arriving.filter((route) => side(route) * direction > 0);
      beside.sort((a, b) => Math.abs(side(a)) - Math.abs(side(b)));
      const step = Math.min(PORT_GAP, (NODE_WIDTH / 2 - 20) / Math.max(1, beside.length));
      beside.forEach((route, k) => {
        const x = route.x1 + direction * step * (k + 1);
        if (route.track === route.x1) route.track = x;
        route.x1 = x;
      });
    }
    for (const route of arriving) route.isStraight = route.x0 === route.x1 && route.track === route.x0;
  }
}

function groupByTensor(routes: Route[]): Map<number, number[]> {
  const byTensor = new Map<number, number[]>();
  routes.forEach((route, index) => {
    const same = byTensor.get(route.edge.tensor);
    if (same) same.push(index);
    else byTensor.set(route.edge.tensor, [index]);
  });
  return byTensor;
}

/** Give horizontal segments their levels in the gaps between rows, then stack the rows; return the total height. */
function setHeights(units: Placed[], routes: Route[], byTensor: Map<number, number[]>, rows: number): number {
  const exitLevels = Array.from({ length: rows + 1 }, () => new Levels());
  const entryLevels = Array.from({ length: rows + 1 }, () => new Levels());
  for (const indices of byTensor.values()) {
    const group = indices.map((index) => routes[index]);
    const gap = units[group[0].edge.from].row + 1;
    const xs = group.flatMap((route) => [route.x0, route.track]);
    if (group.every((route) => route.isStraight)) continue;
    // Two levels: one reader may take the quantized value and another the float one.
    // Wider by the second exit (`SECOND_EXIT` of edge_draw.ts), which depends on the plan and not on the layout.
    const upper = exitLevels[gap].take(Math.min(...xs) - PORT_GAP, Math.max(...xs) + PORT_GAP);
    const lower =
      group.length > 1 ? exitLevels[gap].take(Math.min(...xs) - PORT_GAP, Math.max(...xs) + PORT_GAP) : upper;
    for (const route of group) [route.upper, route.lower] = [upper, lower];
  }
  for (const route of routes) {
    if (route.track === route.x1) continue;
    const gap = units[route.edge.to].row;
    route.entry = entryLevels[gap].take(Math.min(route.track, route.x1), Math.max(route.track, route.x1));
  }
  const headers = frameSpace(units, rows);
  const tops = new Float64Array(rows + 1);
  let y = headers[0] + TOP;
  for (let row = 0; row < rows; row++) {
    if (row > 0) {
      const exits = exitLevels[row].count;
      const entries = entryLevels[row].count;
      const sideways = exits + entries;
      y += (sideways > 0 ? EXIT_TOP + sideways * LEVEL + ENTRY_BOTTOM : GAP_MIN) + headers[row];
    }
    tops[row] = y;
    y += NODE_HEIGHT;
  }
  for (const unit of units) unit.y = tops[unit.row];
  for (const route of routes) {
    const below = tops[units[route.edge.from].row] + NODE_HEIGHT;
    const above = tops[units[route.edge.to].row];
    route.y0 = below;
    route.y1 = above;
    // So far these were numbers of levels; from here on they are coordinates.
    route.upper = below + EXIT_TOP + route.upper * LEVEL;
    route.lower = below + EXIT_TOP + route.lower * LEVEL;
    route.entry = above - ENTRY_BOTTOM - route.entry * LEVEL;
  }
  return y + EXIT_TOP;
}
