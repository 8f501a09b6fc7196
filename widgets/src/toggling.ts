// What a badge or its key changes.
import type { Store } from "./store";
import type { Site } from "./traits";
import type { Unit } from "./units";

/**
 * Return the nodes for which a badge of a unit toggles its site, and whether it quantizes: those of the unit, or of the
 * whole selection if the unit is in it and no single input is meant.
 */
export function toggleOf(
  store: Store,
  visible: readonly Unit[],
  selected: ReadonlySet<number>,
  unit: Unit,
  site: Site,
  index: number | null,
): { nodes: number[]; on: boolean } {
  const isSelected = (other: Unit) => other.nodes.every((node) => selected.has(node));
  const isAll = index === null && isSelected(unit);
  const units = isAll ? visible.filter(isSelected) : [unit];
  const covered = new Set(units.flatMap((other) => other.nodes));
  const rest = isAll ? [...selected].filter((node) => !covered.has(node)) : []; // in blocks that are selected in part
  const nodes = [...units.flatMap((other) => store.badgeNodes(other, site)), ...rest];
  const on = store.coverage(nodes, site, index) !== "all";
  // Off covers also the inputs of merging layers in closed blocks, which on leaves out (see `badge_nodes.ts`).
  const isOff = !on && site === "input" && index === null;
  const merging = isOff ? [...covered].filter((node) => store.hasInput(node)) : [];
  return { nodes: [...new Set([...nodes, ...merging])], on };
}
