// What Python and the page exchange; the mirror of `graph_payload.py` and `graph_view.py`.
import type { HostModel } from "./late";

export type Site = "input" | "weight" | "output";
export const SITES: readonly Site[] = ["input", "weight", "output"];

/** The part that never changes: one entry per node, tables for what repeats. */
export interface GraphPayload {
  version: number;
  name: string;
  names: string[];
  /** [node, first node of the same layer] for the further calls of shared layers. */
  calls: [number, number][];
  class_of: number[];
  classes: string[];
  shape_of: number[];
  shapes: string[];
  parameters: number[];
  /** Tensor numbers per node: number `i` is the first output of node `i`. */
  inputs: number[][];
  /** [node, output] of the tensors behind the last node's number. */
  further_outputs: [number, number][];
  model_inputs: number[];
  model_outputs: number[];
  operations: number[];
  opaque: number[];
  /** Per site and node a position in `refusals`; the empty text means that it can be quantized. */
  refused: Record<Site, number[]>;
  refusals: string[];
  /** [node, input] of single inputs that hold no real numbers, such as masks, of nodes that have other inputs too. */
  unreal: [number, number][];
}

/** The plan's part; `states` holds `<inputs>:<weights>:<output>[:<widths>]` per node, widths as `i0=4,w=4,o=16`. */
export interface PlanState {
  revision: number;
  target: string;
  mode: string;
  states: string[];
  why: number[];
  reasons: string[];
  /** Grids of the pairs by tensor number. */
  pairs: Record<string, string[]>;
}

/**
 * A node, a sign, and what happened to it: pair added, removed, altered (`+ - ~`); INT8, partly, float (`8 ½ F`); a
 * fault (`!`); a tensor that the runtime converts (`⇄`); without an operator or kernel of its own (`→`).
 */
export type DifferenceRow = [node: number, sign: string, text: string];

/** How a plan differs from the one before, in a few words and row by row. */
export interface Difference {
  summary: string;
  rows: DifferenceRow[];
  /** How many rows were left out. */
  hidden: number;
}

/** What changes with one click. */
export interface PlanChanges {
  revision: number;
  target: string;
  mode: string;
  states: Record<string, string>;
  why: Record<string, string>;
  pairs: Record<string, string[]>;
  difference?: Difference;
}

export interface Legend {
  title?: string;
  unit?: string;
  low?: number;
  high?: number;
  better?: "high" | "low";
  scale?: "linear" | "log";
}

export interface Colors {
  mode: string;
  legend?: Legend;
  statuses?: string[];
  status_of?: number[];
  reasons?: string[];
  why?: number[];
  values?: (number | null)[];
  unit?: string;
  /** Of rules: the colour of every node, and what the colours mean. */
  fills?: (string | null)[];
  rules?: [color: string, text: string][];
}

/** How the cards of one side of a comparison differ from those of a plan: texts, marks and figures by node. */
export interface SideLook {
  badges: boolean;
  cards?: Record<string, string>;
  /** Nodes without an operator or kernel of their own. */
  faded?: number[];
  /** Nodes that one kernel computes. */
  groups?: number[][];
  /** What stands on a tensor in the place of its pairs. */
  pills?: Record<string, string>;
  /** What stands in the place of the shapes, and parts of the longest bar. */
  labels?: Record<string, string>;
  bars?: Record<string, number>;
}

export interface SideData {
  title: string;
  note: string;
  plan_state: PlanState;
  colors: Colors;
  look: SideLook;
}

/** How two sides differ; `only` holds the tensors whose pairs the left, and the right, has alone. */
export interface SideDifference extends Difference {
  differs: number[];
  only: [number[], number[]];
}

export interface Traits {
  graph: GraphPayload;
  plan_state: PlanState;
  colors: Colors;
  selection: string[];
  height: number;
  /** False: the graph is only shown, without badges. */
  editable: boolean;
  can_undo: boolean;
  can_redo: boolean;
  svg_text: string;
  /** The id of the model whose parts are kept listening; see `late.ts`. */
  whole: string;
  /** Scale, zero point and range of the pairs by tensor number, in the order of `PlanState.pairs`; once calibrated. */
  ranges?: Record<string, string[]>;
  /** Of a comparison alone. */
  left?: SideData;
  right?: SideData;
  difference?: SideDifference;
  can_leave?: boolean;
}

export type FromPython =
  | ({ type: "plan" } & PlanChanges)
  | { type: "preview"; pairs: Record<string, string[]>; difference: Difference | null }
  | { type: "done"; id: number | null }
  | { type: "error"; text: string }
  | { type: "reveal"; names: string[] }
  | { type: "fit" }
  | { type: "export_svg" }
  | { type: "resynced" };

export type Action =
  | { action: "toggle"; nodes: number[]; site: Site; index: number | null; on: boolean }
  | { action: "apply_like"; source: number; nodes: number[]; inputs: boolean[]; weight: boolean; output: boolean }
  | { action: "undo" }
  | { action: "redo" };

/** The part of anywidget's model that is used here; tests give their own. */
export interface Model {
  get<K extends keyof Traits>(name: K): Traits[K];
  set<K extends keyof Traits>(name: K, value: Traits[K]): void;
  save_changes(): void;
  on(event: string, callback: (this: never, ...args: never[]) => void): void;
  off(event: string, callback: (this: never, ...args: never[]) => void): void;
  send(content: unknown): void;
  /** Real models by id; hosts without Jupyter's widgets have none. */
  readonly widget_manager?: { get_model(id: string): Promise<HostModel> };
}
