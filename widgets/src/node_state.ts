// The state of one node, read from its text: `<inputs>:<weights>:<output>[:<widths>]`.

/** What has changed, for the listeners of a store. */
export interface Change {
  /** Nodes whose badges or colours have changed; null for all. */
  nodes: Set<number> | null;
  /** Whether pairs on tensors have changed. */
  tensors: boolean;
}

export interface NodeState {
  // A character per input: 0 float, 1 quantized for this node, 2 by the pair on the tensor itself.
  inputs: string;
  weights: number;
  output: boolean;
  /** Bits by site (`i0`, `w`, `o`) if not 8; the block size of the weights (`b`) if they are quantized in blocks. */
  widths: Record<string, number>;
}

/** The widths of a node with 8 bits everywhere; one object, so that `Store.bits` can compare by identity. */
export const USUAL: Record<string, number> = {};

function parseWidths(text: string | undefined): Record<string, number> {
  if (!text) return USUAL;
  return Object.fromEntries(
    text
      .split(",")
      .map((part) => part.split("="))
      .map(([k, v]) => [k, +v]),
  );
}

/** Return whether a node has exactly one input and it is quantized. */
export function hasOneInput(state: string): boolean {
  return /^[12]:/.test(state);
}

export function parseState(text: string): NodeState {
  const [inputs, weights, output, widths] = text.split(":");
  return { inputs, weights: +weights, output: output === "1", widths: parseWidths(widths) };
}
