// Visible units (nodes, and closed blocks in place of their nodes) and the edges between them.
import type { Block, Blocks } from "./collapse";
import type { Graph } from "./graph";

export interface Unit {
  /** `n12` for a node, `b3` for a closed block. */
  key: string;
  block: Block | null;
  /** The nodes that it represents. */
  nodes: number[];
  /** The open blocks that contain it, outermost first. */
  frames: Block[];
}

export interface Edge {
  from: number;
  to: number;
  tensor: number;
}

export interface Visible {
  units: Unit[];
  edges: Edge[];
  /** The index of the unit that shows a node. */
  unitOf: number[];
}

export function visibleUnits(graph: Graph, blocks: Blocks, open: ReadonlySet<number>): Visible {
  const units: Unit[] = [];
  const unitOf: number[] = new Array(graph.size);
  const ofBlock = new Map<Block, number>();
  for (let node = 0; node < graph.size; node++) {
    const around = chain(blocks.of[node]);
    // The outermost closed block hides what is inside it, open blocks too.
    const closed = around.findIndex((block) => !open.has(block.id));
    if (closed < 0) {
      unitOf[node] = units.push({ key: `n${node}`, block: null, nodes: [node], frames: around }) - 1;
      continue;
    }
    const block = around[closed];
    let unit = ofBlock.get(block);
    if (unit === undefined) {
      unit = units.push({ key: `b${block.id}`, block, nodes: block.nodes, frames: around.slice(0, closed) }) - 1;
      ofBlock.set(block, unit);
    }
    unitOf[node] = unit;
  }
  return { units, edges: edgesBetween(graph, unitOf), unitOf };
}

/** Return a block and the blocks that contain it, outermost first. */
export function chain(innermost: Block | null): Block[] {
  const around: Block[] = [];
  for (let block = innermost; block !== null; block = block.parent) around.unshift(block);
  return around;
}

/** Return one edge per tensor and reading unit, however many nodes in that unit read it. */
function edgesBetween(graph: Graph, unitOf: readonly number[]): Edge[] {
  const edges: Edge[] = [];
  for (let tensor = 0; tensor < graph.tensorCount; tensor++) {
    const from = unitOf[graph.producer(tensor)];
    const targets = new Set(graph.readers[tensor].map((reader) => unitOf[reader.node]));
    for (const to of targets) if (to !== from) edges.push({ from, to, tensor });
  }
  return edges;
}
