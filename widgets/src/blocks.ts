// Weights in blocks: so many values along the inputs of a matrix share a scale.

import type { Store } from "./store";

/** How many values of a node's weights share a scale, where they are in blocks. */
export function blockSize(store: Store, node: number): number | null {
  return store.isOn(node, "weight") ? (store.state(node).widths.b ?? null) : null;
}

/** Whether the quantized weights of some nodes are all in blocks. */
export function hasBlocks(store: Store, nodes: readonly number[]): boolean {
  const weighted = nodes.filter((node) => store.isOn(node, "weight"));
  return weighted.length > 0 && weighted.every((node) => blockSize(store, node) !== null);
}
