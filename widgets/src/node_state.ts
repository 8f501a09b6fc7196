// The state of one node, read from its text: `<inputs>:<weights>:<output>[:<widths>]`.

/** What views are told of. */
export interface Change {
  /** Nodes whose badges or colours changed; null: all. */
  nodes: Set<number> | null;
  /** Whether pairs on tensors changed. */
  tensors: boolean;
}

export interface NodeState {
  inputs: string;
  weights: number;
  output: boolean;
  /** Bits by site (`i0`, `w`, `o`) where they are not 8; the length of the weights' blocks (`b`) where there are any. */
  widths: Record<string, number>;
}

/** No width but 8 bits. */
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

/** Whether a node's only input is quantized. */
export function hasOneInput(state: string): boolean {
  return /^[12]:/.test(state);
}

export function parseState(text: string): NodeState {
  const [inputs, weights, output, widths] = text.split(":");
  return { inputs, weights: +weights, output: output === "1", widths: parseWidths(widths) };
}
