// Block-wise quantized weights: blocks of consecutive values along the input axis of a matrix share a scale.

import type { Store } from "./store";

/** Return the block size of a node's quantized weights; null if they are float or not in blocks. */
export function blockSize(store: Store, node: number): number | null {
  return store.isOn(node, "weight") ? (store.state(node).widths.b ?? null) : null;
}

/** Return whether any weights of these nodes are quantized, and all quantized ones are in blocks. */
export function hasBlocks(store: Store, nodes: readonly number[]): boolean {
  const weighted = nodes.filter((node) => store.isOn(node, "weight"));
  return weighted.length > 0 && weighted.every((node) => blockSize(store, node) !== null);
}
