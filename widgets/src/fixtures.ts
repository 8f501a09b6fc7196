// Small graphs and a fake model in place of Python, for the tests.
import { Graph } from "./graph";
import { Store } from "./store";
import type { FromPython, GraphPayload, Model, PlanState, Traits } from "./traits";

/** `[name, class, inputs]`; the classes Conv2D and Dense have quantizable weights. */
export type Line = [name: string, className: string, inputs?: string[]];

export function payload(lines: Line[]): GraphPayload {
  const names = lines.map(([name]) => name);
  const classes = [...new Set(lines.map(([, className]) => className))];
  const refusals = ["", "it has no weights", "it is an input"];
  const isInput = (line: Line) => line[1] === "InputLayer";
  const hasKernel = (className: string) => className === "Conv2D" || className === "Dense";
  const read = new Set(lines.flatMap(([, , inputs]) => inputs ?? []));
  return {
    name: "net",
    names,
    calls: [],
    class_of: lines.map(([, className]) => classes.indexOf(className)),
    classes,
    shape_of: lines.map(() => 0),
    shapes: ["8×8×16"],
    parameters: lines.map(([, className]) => (hasKernel(className) ? 8 : 0)),
    inputs: lines.map(([, , inputs]) => (inputs ?? []).map((name) => names.indexOf(name))),
    further_outputs: [],
    model_inputs: lines.flatMap((line, node) => (isInput(line) ? [node] : [])),
    model_outputs: names.flatMap((name, node) => (read.has(name) ? [] : [node])),
    operations: [],
    opaque: [],
    refused: {
      input: lines.map((line) => (isInput(line) ? 2 : 0)),
      weight: lines.map(([, className]) => (hasKernel(className) ? 0 : 1)),
      output: lines.map((line) => (isInput(line) ? 2 : 0)),
    },
    refusals,
    unreal: [],
  };
}

export function graph(lines: Line[]): Graph {
  return new Graph(payload(lines));
}

/** A plan that quantizes nothing. */
export function floatPlan(of: GraphPayload): PlanState {
  return {
    revision: 0,
    target: "tensorrt",
    mode: "full",
    states: of.inputs.map((inputs) => `${"0".repeat(inputs.length)}:0:0`),
    why: of.names.map(() => 0),
    reasons: ["default: off"],
    pairs: {},
  };
}

export class FakeModel implements Model {
  readonly sent: Record<string, unknown>[] = [];
  saves = 0;
  private readonly values: Traits;
  private readonly listeners = new Map<string, Set<(...args: never[]) => void>>();

  constructor(lines: Line[], changes: Partial<Traits> = {}) {
    const of = payload(lines);
    this.values = {
      graph: of,
      plan_state: floatPlan(of),
      colors: { mode: "plan" },
      selection: [],
      height: 400,
      editable: true,
      can_undo: true,
      can_redo: true,
      svg_text: "",
      whole: "",
      ...changes,
    };
  }

  get<K extends keyof Traits>(name: K): Traits[K] {
    return this.values[name];
  }

  set<K extends keyof Traits>(name: K, value: Traits[K]): void {
    this.values[name] = value;
  }

  /** Set a trait as Python does. */
  receive<K extends keyof Traits>(name: K, value: Traits[K]): void {
    this.values[name] = value;
    this.emit(`change:${name}`);
  }

  /** Emit the host's event for a lost or restored connection to the kernel. */
  live(isLive: boolean): void {
    for (const callback of this.listeners.get("comm_live_update") ?? [])
      callback.call({ model: { comm_live: isLive } } as never);
  }

  say(message: FromPython): void {
    this.emit("msg:custom", message as never);
  }

  save_changes(): void {
    this.saves++;
  }

  on(event: string, callback: (...args: never[]) => void): void {
    this.listeners.set(event, (this.listeners.get(event) ?? new Set()).add(callback));
  }

  off(event: string, callback: (...args: never[]) => void): void {
    this.listeners.get(event)?.delete(callback);
  }

  send(content: unknown): void {
    this.sent.push(content as Record<string, unknown>);
  }

  get listenerCount(): number {
    return [...this.listeners.values()].reduce((sum, set) => sum + set.size, 0);
  }

  private emit(event: string, ...args: never[]): void {
    for (const callback of [...(this.listeners.get(event) ?? [])]) callback(...args);
  }
}

export function storeOf(lines: Line[], changes: Partial<Traits> = {}): { store: Store; model: FakeModel } {
  const model = new FakeModel(lines, changes);
  return { store: new Store(model), model };
}

/** A residual block: after `relu`, a branch of two convolutions beside an identity. */
export const RESIDUAL: Line[] = [
  ["image", "InputLayer"],
  ["conv", "Conv2D", ["image"]],
  ["relu", "Activation", ["conv"]],
  ["left_1", "Conv2D", ["relu"]],
  ["left_2", "Conv2D", ["left_1"]],
  ["sum", "Add", ["left_2", "relu"]],
  ["dense", "Dense", ["sum"]],
];

/** A chain of `blocks` blocks named `block1_...`, each a convolution, a normalization, an activation and an add. */
export function deep(blocks: number): Line[] {
  const lines: Line[] = [["image", "InputLayer"]];
  let last = "image";
  for (let k = 1; k <= blocks; k++) {
    const name = (part: string) => `block${k}_${part}`;
    lines.push([name("conv"), "Conv2D", [last]], [name("bn"), "BatchNormalization", [name("conv")]]);
    lines.push([name("relu"), "Activation", [name("bn")]], [name("add"), "Add", [name("relu"), last]]);
    last = name("add");
  }
  return lines;
}
