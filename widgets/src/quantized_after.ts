// The layer after which an output is quantized, if not its own; `quantized_after.py` finds it for the inspector.
import type { Store } from "./store";

/**
 * Return the first layer with a pair on its output on the single path behind a node, or null. Normalizations and
 * activations on this path are folded or fused, so that the node runs in integers although its own output has no pair.
 */
export function quantizedAfter(store: Store, node: number): number | null {
  const { graph } = store;
  if (isPaired(store, node)) return null;
  for (let at = node; ; ) {
    const readers = graph.readers[at];
    if (readers.length !== 1) return null;
    const next = readers[0].node;
    if (graph.payload.inputs[next].length !== 1 || !graph.refusal(next, "weight") || graph.outputs(next).length > 1)
      return null;
    at = next;
    if (isPaired(store, at)) return at;
  }
}

function isPaired(store: Store, tensor: number): boolean {
  return store.pairs(tensor).length > 0;
}
