// Brackets beside cards of nodes that one kernel of the runtime computes together.
import type { Layout } from "./layout";
import { NODE_HEIGHT, NODE_WIDTH } from "./placed";

const GAP = 5;
const ARM = 6;

export interface Bracket {
  nodes: readonly number[];
  x: number;
  top: number;
  bottom: number;
}

/** Return a bracket for every run of neighbouring cards of a column whose nodes are in the same group. */
export function findBrackets(layout: Layout, groups: readonly number[][]): Bracket[] {
  const groupOf = new Map(groups.flatMap((group, k) => group.map((node) => [node, k])));
  const columns = new Map<number, number[]>();
  layout.units.forEach((unit, index) => {
    columns.set(unit.column, [...(columns.get(unit.column) ?? []), index]);
  });
  const found: Bracket[] = [];
  for (const indices of columns.values()) {
    let last = -1;
    for (const index of indices.sort((a, b) => layout.units[a].y - layout.units[b].y)) {
      const unit = layout.units[index];
      // A closed block has no bracket: several kernels may compute its layers.
      const group = unit.block === null ? (groupOf.get(unit.nodes[0]) ?? -1) : -1;
      if (group >= 0 && group === last) found[found.length - 1].bottom = unit.y + NODE_HEIGHT;
      else if (group >= 0)
        found.push({ nodes: groups[group], x: unit.x + NODE_WIDTH + GAP, top: unit.y, bottom: unit.y + NODE_HEIGHT });
      last = group;
    }
  }
  return found;
}

export function bracketPath({ x, top, bottom }: Bracket): string {
  return `M${x} ${top + 4}h${ARM}V${bottom - 4}h${-ARM}`;
}
