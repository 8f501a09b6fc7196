// The state that all views of one model share: the plan, the toggles that Python has not answered yet, the colours.
import { badgeNodes } from "./badge_nodes";
import { Graph } from "./graph";
import { type Change, hasOneInput, type NodeState, parseState, USUAL } from "./node_state";
import { type Side, SideModel } from "./side";
import { StepMarks } from "./step_marks";
import type { Action, Colors, Difference, FromPython, Model, PlanChanges, PlanState, Site } from "./traits";

export type Coverage = "all" | "some" | "none" | "impossible";
export type Precision = "int8" | "float" | "partial";

type Listener = (change: Change) => void;
type MessageListener = (message: FromPython) => void;

export class Store {
  readonly graph: Graph;
  private readonly parsed: (NodeState | undefined)[];
  /** Toggles by `key` that are painted before Python has answered the action `id`. */
  private readonly ahead = new Map<string, { on: boolean; id: number }>();
  private readonly listeners = new Set<Listener>();
  private readonly messageListeners = new Set<MessageListener>();
  /** Nodes whose only input was quantized in any plan so far. */
  private readonly wasOn = new Set<number>();
  private nextId = 1;
  private gone = false;
  readonly step = new StepMarks();
  /** The side of a comparison; null for a single graph. */
  side: Side | null = null;

  constructor(
    private readonly model: Model,
    private readonly isOffline = false,
  ) {
    this.graph = new Graph(model.get("graph"));
    this.parsed = new Array(this.graph.size);
    this.readSide();
    this.remember();
    // A store lives as long as its model, so these listeners are never removed.
    model.on("msg:custom", (message: FromPython) => this.receive(message));
    for (const event of ["change:colors", "change:editable"])
      model.on(event, () => this.notify({ nodes: null, tensors: false }));
    model.on("change:plan_state", () => this.reset());
    model.on("change:graph", () => {
      this.graph.refuse(model.get("graph"));
      this.notify({ nodes: null, tensors: false });
    });
  }

  get plan(): PlanState {
    return this.model.get("plan_state");
  }

  get colors(): Colors {
    return this.model.get("colors");
  }

  /** Whether toggles are sent and painted: not in a read-only graph, nor without a kernel, as no answer would come. */
  get isEditable(): boolean {
    return this.model.get("editable") && !this.gone;
  }

  /** Whether cards have badges: in an editable graph, an offline page, or a side of a comparison that wants them. */
  get hasBadges(): boolean {
    return this.side === null ? this.model.get("editable") || this.isOffline : this.side.look.badges;
  }

  /** Whether the kernel is disconnected. */
  get isGone(): boolean {
    return this.gone;
  }

  setGone(gone: boolean): void {
    if (gone === this.gone) return;
    this.gone = gone;
    this.ahead.clear();
    this.notify({ nodes: null, tensors: false });
  }

  subscribe(listener: Listener, messages: MessageListener): () => void {
    this.listeners.add(listener);
    this.messageListeners.add(messages);
    return () => {
      this.listeners.delete(listener);
      this.messageListeners.delete(messages);
    };
  }

  /** Return whether one input, the weights or the output of a node is quantized, unanswered toggles included. */
  isOn(node: number, site: Site, index = 0): boolean {
    const painted = this.ahead.get(key(node, site, index));
    if (painted !== undefined) return painted.on;
    const state = this.state(node);
    if (site === "weight") return state.weights > 0;
    if (site === "output") return state.output;
    return (state.inputs[index] ?? "0") !== "0";
  }

  /** Return how much of a site is quantized in some nodes; those where it cannot be quantized do not count. */
  coverage(nodes: readonly number[], site: Site, index: number | null = null): Coverage {
    let on = 0;
    let all = 0;
    for (const node of nodes) {
      for (const k of this.indices(node, site, index)) {
        all++;
        if (this.isOn(node, site, k)) on++;
      }
    }
    if (all === 0) return "impossible";
    return on === 0 ? "none" : on === all ? "all" : "some";
  }

  /** Return the quantizable ones of the given inputs (`index` null: all inputs); `[0]` for such weights or output. */
  private indices(node: number, site: Site, index: number | null): number[] {
    if (site !== "input") return this.graph.refusal(node, site) ? [] : [0];
    return this.graph.realInputs(node).filter((k) => index === null || k === index);
  }

  /** Return the nodes that a unit's badge represents; see `badge_nodes.ts`. */
  badgeNodes(unit: { nodes: readonly number[]; block: unknown }, site: Site): readonly number[] {
    return unit.block === null ? unit.nodes : badgeNodes(this.graph, this.wasOn, unit.nodes, site);
  }

  /**
   * Return the precision of some nodes by the plan alone. If any of them have quantizable weights, only those count;
   * other nodes count only if they are quantized: an activation that the runtime folds is not a float layer.
   */
  precision(nodes: readonly number[]): Precision | null {
    const withWeights = nodes.filter((node) => !this.graph.refusal(node, "weight"));
    const found = new Set<Precision>();
    for (const node of withWeights.length > 0 ? withWeights : nodes) {
      const verdict = this.ownPrecision(node);
      if (verdict !== null) found.add(verdict);
    }
    if (found.size === 0) return null;
    return found.size === 1 ? [...found][0] : "partial";
  }

  private ownPrecision(node: number): Precision | null {
    const sites = [this.coverage([node], "input"), this.coverage([node], "weight")].filter((c) => c !== "impossible");
    if (sites.every((c) => c === "none")) return this.graph.refusal(node, "weight") ? null : "float";
    return sites.every((c) => c === "all") ? "int8" : "partial";
  }

  /** Return the bits of a site in some nodes: 8 if nothing is quantized, null if they differ. */
  bits(nodes: readonly number[], site: Site, index: number | null = null): number | null {
    if (nodes.every((node) => this.state(node).widths === USUAL)) return 8; // the usual case; called for every badge
    const found = new Set<number>();
    for (const node of nodes) {
      const { widths } = this.state(node);
      const count = site === "input" && index === null ? this.graph.payload.inputs[node].length : 1;
      for (let k = 0; k < count; k++) {
        const input = index ?? k;
        if (this.isOn(node, site, input)) found.add(widths[site === "input" ? `i${input}` : site[0]] ?? 8);
      }
    }
    return found.size > 1 ? null : ([...found][0] ?? 8);
  }

  get hasOtherWidths(): boolean {
    // Not `b=`: weights in blocks may have 8 bits.
    return this.plan.states.some((state) => /[iwo]\d*=/.test(state));
  }

  /** Return whether any input of a node is quantized. */
  hasInput(node: number): boolean {
    return this.graph.payload.inputs[node].some((_, index) => this.isOn(node, "input", index));
  }

  reason(node: number): string {
    return this.plan.reasons[this.plan.why[node]] ?? "";
  }

  pairs(tensor: number): string[] {
    return this.plan.pairs[tensor] ?? [];
  }

  /** Return scale, zero point and range of a tensor's pairs; empty before calibration and in a comparison. */
  ranges(tensor: number): string[] {
    return this.side === null ? (this.model.get("ranges")?.[tensor] ?? []) : [];
  }

  /** Toggle a site: paint at once, send one message. Default: on unless all are. Null if nothing can change. */
  toggle(nodes: readonly number[], site: Site, index: number | null, wish?: boolean): Action | null {
    const able = nodes.filter((n) => this.indices(n, site, index).length > 0);
    if (able.length === 0 || !this.isEditable) return null;
    const on = wish ?? this.coverage(able, site, index) !== "all";
    const action: Action = { action: "toggle", nodes: able, site, index, on };
    const id = this.send(action);
    for (const node of able) {
      for (const k of this.indices(node, site, index)) this.ahead.set(key(node, site, k), { on, id });
    }
    this.notify({ nodes: new Set(able), tensors: false });
    return action;
  }

  send(action: Action): number {
    if (!this.isEditable) return 0;
    const id = this.nextId++;
    this.model.send({ type: "action", id, ...action });
    return id;
  }

  private receive(message: FromPython): void {
    if (message.type === "plan") this.apply(message);
    else if (message.type === "done") this.settle(message.id);
    else if (message.type === "preview")
      this.notify({ nodes: this.mark(message.pairs, message.difference, true), tensors: true });
    for (const listener of this.messageListeners) listener(message);
  }

  /** Apply a plan message to the model's state in place, so that a saved notebook contains it; resync after a gap. */
  private apply(changes: PlanChanges): void {
    const plan = this.plan;
    if (changes.revision <= plan.revision) return;
    if (changes.revision !== plan.revision + 1) {
      this.model.send({ type: "resync" });
      return;
    }
    plan.revision = changes.revision;
    plan.target = changes.target;
    plan.mode = changes.mode;
    const nodes = this.mark(changes.pairs, changes.difference ?? null);
    for (const [text, state] of Object.entries(changes.states)) {
      plan.states[+text] = state;
      if (hasOneInput(state)) this.wasOn.add(+text);
      this.parsed[+text] = undefined;
      nodes.add(+text);
    }
    for (const [text, reason] of Object.entries(changes.why)) {
      const known = plan.reasons.indexOf(reason);
      plan.why[+text] = known >= 0 ? known : plan.reasons.push(reason) - 1;
    }
    for (const [tensor, grids] of Object.entries(changes.pairs)) {
      if (grids.length > 0) plan.pairs[tensor] = grids;
      else delete plan.pairs[tensor];
    }
    this.notify({ nodes, tensors: true });
  }

  /** Set the marks of a step; return the nodes that were or are marked. */
  private mark(pairs: Record<string, string[]>, difference: Difference | null, isPreview = false): Set<number> {
    const before = this.step.changed;
    this.step.set(pairs, difference, (tensor) => this.pairs(tensor), isPreview);
    return new Set([...before, ...this.step.changed]);
  }

  /** Remove the marks and the difference of the last step or preview. */
  dismissDifference(): void {
    if (this.step.difference !== null) this.notify({ nodes: this.mark({}, null), tensors: true });
  }

  /** Drop the painted toggles up to an action that Python has answered (null: all): the plan now has the result. */
  private settle(id: number | null): void {
    const nodes = new Set<number>();
    for (const [text, painted] of this.ahead) {
      if (id !== null && painted.id > id) continue;
      this.ahead.delete(text);
      nodes.add(Number.parseInt(text, 10));
    }
    if (nodes.size > 0) this.notify({ nodes, tensors: false });
  }

  private remember(): void {
    this.plan.states.forEach((state, node) => {
      if (hasOneInput(state)) this.wasOn.add(node);
    });
  }

  private readSide(): void {
    if (!(this.model instanceof SideModel)) return;
    this.side = this.model.readSide();
    this.step.show(this.model.get("difference") ?? null);
  }

  private reset(): void {
    this.step.clear();
    this.readSide();
    this.remember();
    this.parsed.fill(undefined);
    this.ahead.clear();
    this.notify({ nodes: null, tensors: true });
  }

  state(node: number): NodeState {
    let state = this.parsed[node];
    if (state === undefined) {
      state = parseState(this.plan.states[node]);
      this.parsed[node] = state;
    }
    return state;
  }

  private notify(change: Change): void {
    for (const listener of this.listeners) listener(change);
  }
}

function key(node: number, site: Site, index: number): string {
  return `${node}:${site}:${site === "input" ? index : 0}`;
}
