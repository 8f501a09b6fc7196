// Traits and messages between Python and the page; counterpart of `graph_payload.py` and `graph_view.py`.

export type Site = "input" | "weight" | "output";

/** The graph, which never changes: arrays with one entry per node, and tables of repeated values. */
export interface GraphPayload {
  name: string;
  names: string[];
  /** `[node, node of the first call]` for every further call of a shared layer. */
  calls: [number, number][];
  class_of: number[];
  classes: string[];
  shape_of: number[];
  shapes: string[];
  parameters: number[];
  /** Tensor numbers per node; tensor `i` is the first output of node `i`. */
  inputs: number[][];
  /** `[node, output index]` of the other tensors; their numbers follow those of the nodes. */
  further_outputs: [number, number][];
  model_inputs: number[];
  model_outputs: number[];
  operations: number[];
  opaque: number[];
  /** Per site and node an index into `refusals`; an empty text means that the site can be quantized. */
  refused: Record<Site, number[]>;
  refusals: string[];
  /** `[node, input index]` of inputs that are not floating-point, such as masks; not of nodes refused as a whole. */
  unreal: [number, number][];
}

/** The plan; `states` has `<inputs>:<weights>:<output>[:<widths>]` per node, widths like `i0=4,w=4,b=32`. */
export interface PlanState {
  revision: number;
  target: string;
  mode: string;
  states: string[];
  why: number[];
  reasons: string[];
  /** The grids of the pairs, by tensor number. */
  pairs: Record<string, string[]>;
}

/**
 * A node, a sign and a sentence. Signs: quantizer added, removed or changed (`+ - ~`); layer now in INT8, partly in
 * INT8 or in float (`8 ½ F`); fault of the file (`!`); tensor that the runtime converts (`⇄`); node with an operator or
 * kernel of its own on one side only (`→`).
 */
export type DifferenceRow = [node: number, sign: string, text: string];

/** The difference of a plan from the previous one, as a summary and as rows. */
export interface Difference {
  summary: string;
  rows: DifferenceRow[];
  /** Number of omitted rows. */
  hidden: number;
}

/** The changes from one plan to the next: states, reasons and pairs that differ, by node or tensor number. */
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
  /** In the mode "rules": the colour of every node, and the meanings of the colours. */
  fills?: (string | null)[];
  rules?: [color: string, text: string][];
}

/** Texts and marks, by node number, with which a side of a comparison replaces or extends those of the cards. */
export interface SideLook {
  badges: boolean;
  cards?: Record<string, string>;
  /** Nodes without an operator or kernel of their own. */
  faded?: number[];
  /** Groups of nodes that one kernel computes together. */
  groups?: number[][];
  /** Texts of the pills, by tensor number, in place of the pairs. */
  pills?: Record<string, string>;
  /** Texts in place of the shapes, and lengths of the bars relative to the longest one. */
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

/** The difference of two sides; `only` has the tensors with a pair on the left side only, and on the right only. */
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
  /** False for a read-only graph; see also `Store.hasBadges`. */
  editable: boolean;
  can_undo: boolean;
  can_redo: boolean;
  svg_text: string;
  /** The id of the widget for which, with all its children, `late.ts` restores message handling. */
  whole: string;
  /** Scale, zero point and range of the pairs by tensor number, in the order of `PlanState.pairs`; once calibrated. */
  ranges?: Record<string, string[]>;
  /** Only in a comparison. */
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
  | { type: "export_svg" };

export type Action =
  | { action: "toggle"; nodes: number[]; site: Site; index: number | null; on: boolean }
  | { action: "apply_like"; source: number; nodes: number[]; inputs: boolean[]; weight: boolean; output: boolean }
  | { action: "undo" }
  | { action: "redo" };

type Message = { content: { data: object } };

/** The host's own model behind the one that anywidget passes to a widget. */
export interface HostModel {
  readonly model_id: string;
  readonly comm?: {
    on_msg(listener: (message: Message) => unknown): void;
    on_close(listener: () => void): void;
  };
  readonly views?: Record<string, Promise<{ el: Element }>>;
  get(name: string): unknown;
  on(events: string, listener: () => void): void;
  once(event: string, listener: () => void): void;
  set_state(state: object): void;
  _handle_comm_msg(message: Message): Promise<unknown>;
}

/** The part of anywidget's model that is used here; tests and offline pages have their own implementations. */
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
