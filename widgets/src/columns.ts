// Layout, second part: a column for every chain of units, and a column or lane for every edge to run down in.
import { findChains, type Ranks } from "./ranks";
import type { Edge } from "./units";

const FREE = -1;

/** The owner of every cell: a unit (0, 1, ...), a tensor (-2, -3, ...), or a unit's reservation (below -1e6). */
export class Occupancy {
  private readonly columns: Int32Array[] = [];

  constructor(private readonly rows: number) {}

  at(column: number, row: number): number {
    return this.columns[column]?.[row] ?? FREE;
  }

  isFree(column: number, first: number, last: number, allowed = FREE): boolean {
    const cells = this.columns[column];
    if (cells === undefined) return true;
    for (let row = first; row <= last; row++) if (cells[row] !== FREE && cells[row] !== allowed) return false;
    return true;
  }

  take(column: number, first: number, last: number, owner: number): void {
    while (this.columns.length <= column) this.columns.push(new Int32Array(this.rows).fill(FREE));
    this.columns[column].fill(owner, first, last + 1);
  }
}

export function tensorMark(tensor: number): number {
  // Distinct from the marks of reservations, which are 1e6 lower, for up to a million tensors and units.
  return -2 - tensor;
}

/** Try a few orders of the chains; keep the columns with the least horizontal distance, a proxy for crossings. */
export function assignColumns(ranks: Ranks): { column: number[]; occupancy: Occupancy } {
  const chains = findChains(ranks);
  const start = (chain: number[]) => ranks.row[chain[0]];
  // Of chains that start in one row, the longest one is placed first, and gets the column nearest to its parent.
  chains.sort((a, b) => start(a) - start(b) || b.length - a.length);
  let best = place(ranks, chains);
  if (chains.length > 2) {
    for (let round = 0; round < 3; round++) {
      const goal = new Map(chains.map((chain) => [chain, barycentre(ranks, chain, best.column)]));
      const sorted = [...chains].sort(
        (a, b) => start(a) - start(b) || (goal.get(a) as number) - (goal.get(b) as number) || b.length - a.length,
      );
      const next = place(ranks, sorted, goal);
      if (next.cost >= best.cost) break;
      best = next;
    }
  }
  return best;
}

function place(ranks: Ranks, chains: number[][], goal?: Map<number[], number>) {
  const { row, predecessors, successors } = ranks;
  const column = new Array(row.length).fill(-1);
  const occupancy = new Occupancy(ranks.rows);
  for (const chain of chains) {
    const first = chain[0];
    const last = chain[chain.length - 1];
    const sources = predecessors[first];
    const parent = sources.find((unit) => column[unit] >= 0);
    // Reserve the rows from the fork above to the join below for the chain, so that its edges run straight.
    const from = parent === undefined ? row[first] : Math.min(row[first], row[parent] + 1);
    const joins = successors[last].map((unit) => row[unit]);
    const to = joins.length === 0 ? row[last] : Math.max(row[last], Math.min(...joins) - 1);
    const wish = goal?.get(chain) ?? (parent === undefined ? 0 : column[parent]);
    const found = nearestFree(occupancy, Math.max(0, Math.round(wish)), from, to);
    for (const unit of chain) {
      column[unit] = found;
      occupancy.take(found, row[unit], row[unit], unit);
    }
    if (sources.length > 0 && from < row[first])
      occupancy.take(found, from, row[first] - 1, tensorMark(sources[0]) - 1e6);
    if (to > row[last]) occupancy.take(found, row[last] + 1, to, tensorMark(last) - 1e6);
  }
  return { column, occupancy, cost: sideways(ranks, column) };
}

function nearestFree(occupancy: Occupancy, wish: number, first: number, last: number): number {
  for (let distance = 0; ; distance++) {
    // Found at the latest right of all columns so far, where every cell is free.
    if (occupancy.isFree(wish + distance, first, last)) return wish + distance;
    if (distance > 0 && wish - distance >= 0 && occupancy.isFree(wish - distance, first, last)) return wish - distance;
  }
}

function barycentre(ranks: Ranks, chain: number[], column: number[]): number {
  const ends = [...ranks.predecessors[chain[0]], ...ranks.successors[chain[chain.length - 1]]];
  if (ends.length === 0) return column[chain[0]];
  return ends.reduce((sum, unit) => sum + column[unit], 0) / ends.length;
}

function sideways(ranks: Ranks, column: number[]): number {
  let cost = 0;
  ranks.successors.forEach((targets, from) => {
    for (const to of targets) {
      const across = Math.abs(column[from] - column[to]);
      // One more for every edge that is not straight: two edges across one column cost more than one across two.
      cost += across + (across > 0 ? 1 : 0);
    }
  });
  return cost;
}

/** Return the column that an edge runs down in, and take its cells; -1 for a lane beside the columns. */
export function trackColumn(ranks: Ranks, column: number[], occupancy: Occupancy, edge: Edge): number {
  const first = ranks.row[edge.from] + 1;
  const last = ranks.row[edge.to] - 1;
  const mark = tensorMark(edge.tensor);
  // An edge may share the cells of its own tensor, and use those that are reserved for edges of its source.
  for (const [candidate, owner] of [
    [column[edge.to], edge.from],
    [column[edge.from], edge.from],
  ]) {
    let free = true;
    for (let row = first; row <= last && free; row++) {
      const cell = occupancy.at(candidate, row);
      free = cell === FREE || cell === mark || cell === tensorMark(owner) - 1e6;
    }
    if (free) {
      if (last >= first) occupancy.take(candidate, first, last, mark);
      return candidate;
    }
  }
  return -1;
}
