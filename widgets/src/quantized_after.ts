// Where the output of a layer is quantized, if not right behind it; `quantized_after.py` says the same in the inspector.
import type { Store } from "./store";

/**
 * Return the layer behind which the pair of an output stands: normalizations and activations between them are fused or
 * folded, so that the layer in front runs in integers with a float output. Null where nothing on the way is quantized.
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
