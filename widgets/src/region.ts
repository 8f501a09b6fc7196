// What is selected by a rectangle, or by one more click.
import type { Box } from "./draw";
import type { Layout } from "./layout";
import { NODE_HEIGHT, NODE_WIDTH, type Placed } from "./placed";
import type { Viewport } from "./viewport";

/** Return the units that a rectangle touches, which is in pixels of the picture. */
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

/** Return a selection without some nodes where it has all of them, else with them. */
export function toggled(selected: ReadonlySet<number>, nodes: readonly number[]): number[] {
  const own = new Set(nodes);
  const others = [...selected].filter((node) => !own.has(node));
  return nodes.every((node) => selected.has(node)) ? others : [...others, ...nodes];
}
