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
  private readonly firsts: Map<number, number>; // by further call of a layer: the first one
  private unreal!: Set<string>; // `node,index`

  constructor(readonly payload: GraphPayload) {
    this.size = payload.names.length;
    this.tensorCount = this.size + payload.further_outputs.length;
    this.readers = Array.from({ length: this.tensorCount }, () => []);
    this.successors = Array.from({ length: this.size }, () => []);
    this.predecessors = Array.from({ length: this.size }, () => []);
    this.refuse(payload);
    this.firsts = new Map(payload.calls);
    this.numbers = new Map(payload.names.map((name, node) => [name, node]));
    payload.inputs.forEach((tensors, node) => {
      tensors.forEach((tensor, index) => {
        this.readers[tensor].push({ node, index });
      });
      // Once, even if the node reads several outputs of the source, or one of them twice.
      for (const source of new Set(tensors.map((tensor) => this.producer(tensor)))) {
        this.successors[source].push(node);
        this.predecessors[node].push(source);
      }
    });
  }

  /** Take the refusals of another payload of the same nodes: another target refuses other sites. */
  refuse(payload: GraphPayload): void {
    Object.assign(this.payload, payload);
    this.unreal = new Set(payload.unreal.map(String));
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
    const first = this.firstOf(node);
    return [first, ...calls.flatMap(([call, of]) => (of === first ? [call] : []))];
  }

  private firstOf(node: number): number {
    return this.firsts.get(node) ?? node;
  }

  /** Return how many layers the nodes are calls of, in words. */
  layers(nodes: readonly number[]): string {
    const { size } = new Set(nodes.map((node) => this.firstOf(node)));
    return size === 1 ? "1 layer" : `${size} layers`;
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
    if (site === "input" && this.unreal.has(`${node},${index}`)) return "it holds no real numbers";
    return this.payload.refusals[this.payload.refused[site][node]] ?? "";
  }

  /** Return the indices of the inputs that can be quantized. */
  realInputs(node: number): number[] {
    return this.payload.inputs[node].flatMap((_, index) => (this.refusal(node, "input", index) ? [] : [index]));
  }
}
