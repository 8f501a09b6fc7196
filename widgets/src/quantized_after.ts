// The layer after which an output is quantized, if not its own; `quantized_after.py` finds it for the inspector.
import type { Store } from "./store";

/**
 * Return the first layer with a pair on its output on the single path behind a node, or null. A layer with weights ends
 * the path, but for batch normalizations: they are folded and activations fused, so that the node runs in integers
 * although its own output has no pair.
 */
export function quantizedAfter(store: Store, node: number): number | null {
  const { graph } = store;
  const { inputs, parameters, model_outputs } = graph.payload;
  let at = node;
  while (graph.outputs(at).length === 1 && store.pairs(at).length === 0) {
    const readers = graph.readers[at];
    if (readers.length !== 1 || model_outputs.includes(at)) return null;
    at = readers[0].node;
    const hasKernel = parameters[at] > 0 && graph.className(at) !== "BatchNormalization";
    if (inputs[at].length !== 1 || hasKernel) return null;
  }
  return at === node || graph.outputs(at).length > 1 ? null : at;
}
