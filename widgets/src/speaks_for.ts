// Which nodes of a closed block its badges speak for.
import type { Graph } from "./graph";
import type { Site } from "./traits";

/**
 * A closed block answers for what is worth quantizing in it: inputs of layers with weights and those that an earlier
 * plan quantized (`wasOn`), never of each normalization and activation between them, nor of merging layers, whose inputs
 * are chosen one by one; its outputs are the tensors that leave it.
 */
export function speaksFor(
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
