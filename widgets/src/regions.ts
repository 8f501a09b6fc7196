// Graph algorithms for blocks; most work on successor lists by position.
import type { Graph } from "./graph";

/** Return the positions in topological order; those on or behind a cycle are missing. */
export function topologicalOrder(successors: readonly number[][]): number[] {
  const waiting = new Array(successors.length).fill(0);
  for (const targets of successors) for (const target of targets) waiting[target]++;
  const order: number[] = [];
  for (let start = 0; start < successors.length; start++) if (waiting[start] === 0) order.push(start);
  for (let next = 0; next < order.length; next++) {
    for (const target of successors[order[next]]) if (--waiting[target] === 0) order.push(target);
  }
  return order;
}

/**
 * Return the regions of two or more positions between neighbouring cut points, each with its last cut point.
 * A cut point is a position that no edge skips in topological order, so that all paths lead through it.
 */
export function cutRegions(successors: readonly number[][]): number[][] {
  const order = topologicalOrder(successors);
  const rank = new Array(successors.length).fill(0);
  order.forEach((position, index) => {
    rank[position] = index;
  });
  const regions: number[][] = [];
  let reach = -1;
  let start = -1;
  order.forEach((position, index) => {
    const isCut = reach <= index;
    if (isCut) {
      if (start >= 0 && index - start > 1) regions.push(order.slice(start + 1, index + 1));
      start = index;
    }
    for (const target of successors[position]) reach = Math.max(reach, rank[target]);
  });
  return regions;
}

/** Return whether nodes are connected by edges among themselves. */
export function isConnected(graph: Graph, nodes: readonly number[]): boolean {
  const inside = new Set(nodes);
  const seen = new Set([nodes[0]]);
  const open = [nodes[0]];
  for (let node = open.pop(); node !== undefined; node = open.pop()) {
    for (const near of [...graph.successors[node], ...graph.predecessors[node]]) {
      if (inside.has(near) && !seen.has(near)) {
        seen.add(near);
        open.push(near);
      }
    }
  }
  return seen.size === inside.size;
}

/** Return nodes and all nodes on paths from one of them to another, in computing order. */
export function nodesBetween(graph: Graph, nodes: readonly number[]): number[] {
  const first = Math.min(...nodes);
  const last = Math.max(...nodes);
  // Node numbers are in computing order, so one pass in each direction visits every path.
  const after = new Set(nodes);
  for (let node = first; node <= last; node++) {
    if (after.has(node)) for (const reader of graph.successors[node]) if (reader <= last) after.add(reader);
  }
  const before = new Set(nodes);
  for (let node = last; node >= first; node--) {
    if (before.has(node)) for (const source of graph.predecessors[node]) if (source >= first) before.add(source);
  }
  return [...after].filter((node) => before.has(node)).sort((a, b) => a - b);
}

/** Return the strongly connected components (Tarjan, without recursion: networks are thousands of nodes deep). */
export function strongComponents(successors: readonly number[][]): number[][] {
  const index = new Array(successors.length).fill(-1);
  const low = new Array(successors.length).fill(0);
  const onStack = new Array(successors.length).fill(false);
  const stack: number[] = [];
  const components: number[][] = [];
  let counter = 0;
  for (let root = 0; root < successors.length; root++) {
    if (index[root] >= 0) continue;
    // In place of the call stack: a position, and how many of its successors have been visited.
    const work: [number, number][] = [[root, 0]];
    while (work.length > 0) {
      const frame = work[work.length - 1];
      const [position, next] = frame;
      if (next === 0) {
        index[position] = low[position] = counter++;
        stack.push(position);
        onStack[position] = true;
      }
      if (next < successors[position].length) {
        frame[1]++;
        const target = successors[position][next];
        if (index[target] < 0) work.push([target, 0]);
        else if (onStack[target]) low[position] = Math.min(low[position], index[target]);
        continue;
      }
      work.pop();
      if (work.length > 0) {
        const parent = work[work.length - 1][0];
        low[parent] = Math.min(low[parent], low[position]);
      }
      if (low[position] === index[position]) components.push(popUntil(stack, onStack, position));
    }
  }
  return components;
}

function popUntil(stack: number[], onStack: boolean[], last: number): number[] {
  const component: number[] = [];
  for (;;) {
    const member = stack.pop() as number;
    onStack[member] = false;
    component.push(member);
    if (member === last) return component;
  }
}
