// The graph payload with indices: producer and readers of every tensor, neighbours of every node.
import type { GraphPayload, Site } from "./traits";

export interface Reader {
  node: number;
  index: number;
}

export class Graph {
  readonly size: number;
  readonly tensorCount: number;
  readonly readers: Reader[][];
  readonly successors: number[][];
  readonly predecessors: number[][];
  private readonly numbers: Map<string, number>;

  constructor(readonly payload: GraphPayload) {
    this.size = payload.names.length;
    this.tensorCount = this.size + payload.further_outputs.length;
    this.readers = Array.from({ length: this.tensorCount }, () => []);
    this.successors = Array.from({ length: this.size }, () => []);
    this.predecessors = Array.from({ length: this.size }, () => []);
    this.numbers = new Map(payload.names.map((name, node) => [name, node]));
    payload.inputs.forEach((tensors, node) => {
      tensors.forEach((tensor, index) => {
        this.readers[tensor].push({ node, index });
      });
      for (const source of new Set(tensors.map((tensor) => this.producer(tensor)))) {
        this.successors[source].push(node);
        this.predecessors[node].push(source);
      }
    });
  }

  producer(tensor: number): number {
    return tensor < this.size ? tensor : this.payload.further_outputs[tensor - this.size][0];
  }

  /** Return the output tensors of a node. */
  outputs(node: number): number[] {
    const further = this.payload.further_outputs.flatMap(([producer], k) => (producer === node ? [this.size + k] : []));
    return [node, ...further];
  }

  /** Return all calls of a node's layer, itself included; only the node itself if the layer has no weights. */
  sharing(node: number): number[] {
    const { calls, parameters } = this.payload;
    if (calls.length === 0 || parameters[node] === 0) return [node];
    const first = calls.find(([call]) => call === node)?.[1] ?? node;
    return [first, ...calls.flatMap(([call, of]) => (of === first ? [call] : []))];
  }

  name(node: number): string {
    return this.payload.names[node];
  }

  className(node: number): string {
    return this.payload.classes[this.payload.class_of[node]];
  }

  shape(node: number): string {
    return this.payload.shapes[this.payload.shape_of[node]];
  }

  number(name: string): number | undefined {
    return this.numbers.get(name);
  }

  /** Return why a site, or one input, cannot be quantized; empty if it can. */
  refusal(node: number, site: Site, index: number | null = null): string {
    const { refused, refusals, unreal } = this.payload;
    if (site === "input" && unreal.some(([of, input]) => of === node && input === index))
      return "it holds no real numbers";
    return refusals[refused[site][node]] ?? "";
  }

  /** Return the indices of the inputs that can be quantized. */
  realInputs(node: number): number[] {
    return this.payload.inputs[node].flatMap((_, index) => (this.refusal(node, "input", index) ? [] : [index]));
  }
}
