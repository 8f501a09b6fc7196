// The frames around open blocks: their positions, and the space for their titles and lower edges between rows.
import type { Block } from "./collapse";
import { NODE_HEIGHT, NODE_WIDTH, type Placed, type Route } from "./placed";

export const HEADER = 18;
const TITLE_GAP = 2;
const FRAME_PAD = 12;
const FRAME_END = 6;

export interface Frame {
  block: Block;
  x: number;
  y: number;
  width: number;
  height: number;
  depth: number;
}

/** Return the extra space above each row: titles of blocks that begin there, lower edges of those that end above. */
export function frameSpace(units: Placed[], rows: number): Float64Array {
  const first = new Map<Block, number>();
  const last = new Map<Block, number>();
  for (const unit of units) {
    for (const block of unit.frames) {
      first.set(block, Math.min(unit.row, first.get(block) ?? unit.row));
      last.set(block, Math.max(unit.row, last.get(block) ?? 0));
    }
  }
  const space = new Float64Array(rows + 1);
  for (const unit of units) {
    const begins = unit.frames.filter((block) => first.get(block) === unit.row).length;
    space[unit.row] = Math.max(space[unit.row], begins * (HEADER + TITLE_GAP));
  }
  const ends = new Float64Array(rows + 1);
  for (const unit of units) {
    const count = unit.frames.filter((block) => last.get(block) === unit.row).length;
    ends[unit.row + 1] = Math.max(ends[unit.row + 1], count * FRAME_END);
  }
  return space.map((room, row) => room + ends[row]);
}

export function findFrames(units: Placed[], routes: Route[]): Frame[] {
  const frames = new Map<Block, { left: number; right: number; top: number; bottom: number; depth: number }>();
  const stretch = (block: Block, depth: number, left: number, right: number, top: number, bottom: number) => {
    const frame = frames.get(block);
    if (frame === undefined) frames.set(block, { left, right, top, bottom, depth });
    else {
      frame.left = Math.min(frame.left, left);
      frame.right = Math.max(frame.right, right);
      frame.top = Math.min(frame.top, top);
      frame.bottom = Math.max(frame.bottom, bottom);
    }
  };
  for (const unit of units) {
    unit.frames.forEach((block, depth) => {
      stretch(block, depth, unit.x, unit.x + NODE_WIDTH, unit.y, unit.y + NODE_HEIGHT);
    });
  }
  for (const route of routes) {
    const source = units[route.edge.from];
    const target = new Set(units[route.edge.to].frames);
    source.frames.forEach((block, depth) => {
      // An edge within a block may run beside all of its cards.
      if (target.has(block)) stretch(block, depth, route.track, route.track, route.y0, route.y1);
    });
  }
  return [...frames].map(([block, frame]) => {
    const { inside, stacked } = innerDepths(block, frames);
    const pad = FRAME_PAD + inside * 6;
    const title = (stacked + 1) * (HEADER + TITLE_GAP);
    return {
      block,
      depth: frame.depth,
      x: frame.left - pad,
      y: frame.top - title - 2,
      width: frame.right - frame.left + 2 * pad,
      height: frame.bottom - frame.top + title + 2 + FRAME_END * (1 + inside),
    };
  });
}

/** Return how deep frames are nested in a block's: `inside` in all, `stacked` of those that begin in the same row. */
function innerDepths(block: Block, frames: Map<Block, { top: number; depth: number }>) {
  const own = frames.get(block)!;
  let inside = 0;
  let stacked = 0;
  for (const [other, frame] of frames) {
    const depth = frame.depth - own.depth;
    if (depth <= 0 || !isInside(other, block)) continue;
    inside = Math.max(inside, depth);
    if (frame.top === own.top) stacked = Math.max(stacked, depth);
  }
  return { inside, stacked };
}

function isInside(inner: Block, outer: Block): boolean {
  for (let block = inner.parent; block !== null; block = block.parent) if (block === outer) return true;
  return false;
}
