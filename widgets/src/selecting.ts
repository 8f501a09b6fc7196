// Selection by a rectangle and by Ctrl+click.
import type { Box } from "./draw";
import type { Layout } from "./layout";
import { NODE_HEIGHT, NODE_WIDTH, type Placed } from "./placed";
import type { Viewport } from "./viewport";

/** Return the units that intersect a rectangle in screen pixels, relative to the picture. */
export function touchedUnits(layout: Layout, { x, y, scale }: Viewport, box: Box): Placed[] {
  const { left, top, right, bottom } = box;
  return layout.units.filter(
    (unit) =>
      unit.x < right / scale + x &&
      unit.x + NODE_WIDTH > left / scale + x &&
      unit.y < bottom / scale + y &&
      unit.y + NODE_HEIGHT > top / scale + y,
  );
}

/** Remove nodes from a selection if it contains all of them, else add them. */
export function toggled(selected: ReadonlySet<number>, nodes: readonly number[]): number[] {
  const own = new Set(nodes);
  const others = [...selected].filter((node) => !own.has(node));
  return nodes.every((node) => selected.has(node)) ? others : [...others, ...nodes];
}
