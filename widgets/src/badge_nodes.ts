// The nodes that the badges of a closed block represent.
import type { Graph } from "./graph";
import type { Site } from "./traits";

/**
 * Return the nodes of a closed block that one of its badges represents. Weights: all nodes. Output: those that are read
 * outside the block or by no node. Input: those with quantizable weights, and those whose only input any plan so far
 * quantized (`wasOn`); all if there are none. Merging layers are left out: their inputs are chosen one by one.
 */
export function badgeNodes(
  graph: Graph,
  wasOn: ReadonlySet<number>,
  nodes: readonly number[],
  site: Site,
): readonly number[] {
  if (site === "weight") return nodes;
  if (site === "input") {
    const worth = nodes.filter((node) => !graph.refusal(node, "weight") || wasOn.has(node));
    return worth.length > 0 ? worth : nodes;
  }
  const inside = new Set(nodes);
  return nodes.filter((node) => {
    const readers = graph.successors[node];
    return readers.length === 0 || readers.some((reader) => !inside.has(reader));
  });
}
