// Layout, first part: a row for every unit (longest path from a source), and chains of units in consecutive rows.

import { topologicalOrder } from "./regions";
import type { Edge } from "./units";

export interface Ranks {
  row: number[];
  rows: number;
  /** Units in topological order. */
  order: number[];
  successors: number[][];
  predecessors: number[][];
}

export function assignRows(count: number, edges: readonly Edge[]): Ranks {
  const after = Array.from({ length: count }, () => new Set<number>());
  for (const edge of edges) after[edge.from].add(edge.to);
  const successors = after.map((set) => [...set]);
  const predecessors: number[][] = Array.from({ length: count }, () => []);
  successors.forEach((targets, from) => {
    for (const to of targets) predecessors[to].push(from);
  });
  const order = topologicalOrder(successors);
  const row = new Array(count).fill(0);
  for (const unit of order) for (const to of successors[unit]) row[to] = Math.max(row[to], row[unit] + 1);
  // A unit without predecessors (a further input, a constant) is in the row above its first reader.
  for (const unit of order) {
    if (predecessors[unit].length === 0 && successors[unit].length > 0) {
      row[unit] = Math.min(...successors[unit].map((to) => row[to])) - 1;
    }
  }
  return { row, rows: count === 0 ? 0 : Math.max(...row) + 1, order, successors, predecessors };
}

/** Return chains of units, each in the row below its predecessor in the chain; the longest paths stay whole. */
export function findChains(ranks: Ranks): number[][] {
  const { row, order, successors, predecessors } = ranks;
  const below = new Array(row.length).fill(1);
  for (const unit of [...order].reverse())
    for (const to of successors[unit]) below[unit] = Math.max(below[unit], below[to] + 1);
  const next = new Array(row.length).fill(-1);
  const previous = new Array(row.length).fill(-1);
  const length = new Array(row.length).fill(1);
  for (const units of byRow(ranks)) {
    const pairs = units.flatMap((to) =>
      predecessors[to].filter((from) => row[from] === row[to] - 1).map((from) => ({ from, to })),
    );
    // By the length of the whole path: the chain that ends in `from`, and the longest path from `to` on.
    pairs.sort((a, b) => below[b.to] + length[b.from] - below[a.to] - length[a.from] || a.from - b.from || a.to - b.to);
    for (const { from, to } of pairs) {
      if (next[from] >= 0 || previous[to] >= 0) continue;
      next[from] = to;
      previous[to] = from;
      length[to] = length[from] + 1;
    }
  }
  const chains: number[][] = [];
  for (const unit of order) {
    if (previous[unit] >= 0) continue;
    const chain = [unit];
    while (next[chain[chain.length - 1]] >= 0) chain.push(next[chain[chain.length - 1]]);
    chains.push(chain);
  }
  return chains;
}

function byRow(ranks: Ranks): number[][] {
  const rows: number[][] = Array.from({ length: ranks.rows }, () => []);
  for (const unit of ranks.order) rows[ranks.row[unit]].push(unit);
  return rows;
}
