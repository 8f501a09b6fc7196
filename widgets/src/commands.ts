// The commands of the user, shared by pointer, keys, toolbar and footer.
import type { Box } from "./draw";
import { likeThis } from "./footer";
import type { Commands, Target } from "./interaction";
import { type Badge, badgesOf } from "./node_draw";
import type { Picture } from "./picture";
import { NODE_HEIGHT, type Placed } from "./placed";
import { nextMatch, search } from "./search";
import { toggled, touchedUnits } from "./selecting";
import type { Stage } from "./stage";
import type { Store } from "./store";
import type { Surroundings } from "./surroundings";
import { toggleOf } from "./toggling";
import { badgeTip, pairTip, unitTip } from "./tooltip";
import type { Model, Site } from "./traits";
import type { Unit } from "./units";

type Arrow = "ArrowUp" | "ArrowDown" | "ArrowLeft" | "ArrowRight";

export class GraphCommands implements Commands {
  constructor(
    private readonly model: Model,
    private readonly store: Store,
    private readonly stage: Stage,
    private readonly around: Surroundings,
    private readonly picture: Picture = stage.pictures[0],
  ) {}

  hitTest(element: Element): Target {
    const number = (selector: string, name: string) => {
      const value = element.closest?.(selector)?.getAttribute(name);
      return value === null || value === undefined ? null : Number(value);
    };
    const key = element.closest?.(".qdqw-unit")?.getAttribute("data-unit");
    const unit = key ? this.stage.state.layout.units.findIndex((candidate) => candidate.key === key) : -1;
    const badge = number(".qdqw-badge", "data-badge");
    return {
      unit,
      badge: unit >= 0 && badge !== null ? badgesOf(this.store, this.unit(unit))[badge] : null,
      open: number(".qdqw-opener", "data-open"),
      close: number(".qdqw-frametitle", "data-close"),
      tensor: number(".qdqw-pill", "data-tensor"),
    };
  }

  unit(index: number): Unit {
    return this.stage.unit(index);
  }

  select(nodes: readonly number[]): void {
    this.stage.selected = new Set([...nodes].sort((a, b) => a - b));
    this.stage.showMarks();
    this.around.selectionChanged();
    const names = [...this.stage.selected].map((node) => this.store.graph.name(node));
    this.model.set("selection", names);
    this.model.save_changes();
  }

  clear(): void {
    this.select([]);
  }

  get isPicking(): boolean {
    return this.stage.isPicking;
  }

  region(box: Box | null, end?: "only" | "add"): void {
    this.picture.showRegion(end === undefined ? box : null);
    if (box === null || end === undefined) return;
    const { viewport, state } = this.stage;
    const touched = touchedUnits(state.layout, viewport, box);
    const nodes = touched.flatMap((unit) => unit.nodes);
    this.select(end === "add" ? [...this.stage.selected, ...nodes] : nodes);
    if (touched.length > 0) this.stage.setFocus(state.layout.units.indexOf(touched[0]));
    this.around.pick(false);
  }

  clickUnit(index: number, mode: "only" | "toggle" | "range"): void {
    const { state } = this.stage;
    const { nodes } = this.unit(index);
    if (mode === "only") this.select(nodes);
    else if (mode === "toggle") this.select(toggled(this.stage.selected, nodes));
    else {
      const { units } = state.layout;
      const [from, to] = [units[state.anchor].row, units[index].row].sort((a, b) => a - b);
      this.select(units.flatMap((unit) => (unit.row >= from && unit.row <= to ? unit.nodes : [])));
    }
    if (mode !== "range") state.anchor = index;
    this.stage.setFocus(index);
  }

  toggleSelected(): void {
    this.select(toggled(this.stage.selected, this.focused().nodes));
  }

  /** Move the focus but not the selection; Space then toggles the focused unit. */
  walk(key: Arrow): void {
    const next = this.stage.state.neighbour(key);
    if (next >= 0) this.stage.setFocus(next);
  }

  /** Select all matches of the search, or all layers if there is no query. */
  selectAll(): void {
    const { query, hits } = this.stage.state;
    this.select(query.trim() === "" ? this.store.graph.payload.names.map((_, node) => node) : hits);
  }

  arrow(key: Arrow, extend: boolean): void {
    const next = this.stage.state.neighbour(key);
    if (next < 0) return;
    this.select(extend ? [...this.stage.selected, ...this.unit(next).nodes] : this.unit(next).nodes);
    if (!extend) this.stage.state.anchor = next;
    this.stage.setFocus(next);
  }

  jump(where: "first" | "last"): void {
    const rows = this.stage.state.layout.units.map((unit) => unit.row);
    const index = rows.indexOf(where === "first" ? Math.min(...rows) : Math.max(...rows));
    this.clickUnit(index, "only");
  }

  /** Open the blocks around a node, show it and select it. */
  jumpTo(node: number): void {
    this.stage.reveal(node);
    this.select([node]);
    this.stage.takeFocus();
  }

  hover(target: Target | null, x: number, y: number): void {
    const { state, selected } = this.stage;
    const { tip, scene } = this.picture;
    if (target === null || (target.unit < 0 && target.tensor === null)) {
      tip.hide();
      scene.emphasize(selected.size > 0 ? state.focus : -1);
      return;
    }
    if (target.tensor !== null) tip.show(pairTip(this.store, target.tensor), x, y);
    else {
      const unit = this.unit(target.unit);
      const { badge } = target;
      tip.show(badge ? badgeTip(this.store, unit, badge.site, badge.index) : unitTip(this.store, unit), x, y);
      scene.emphasize(target.unit);
    }
  }

  // ------------------------------------------------------------------ quantizing

  /** Toggle a badge: a selected unit's for the selection, another one's for that unit, which is then selected. */
  clickBadge(index: number, badge: Badge): void {
    const unit = this.stage.unit(index);
    this.stage.state.anchor = index;
    this.stage.setFocus(index);
    this.toggle(unit, badge.site, badge.index);
    if (!unit.nodes.every((node) => this.stage.selected.has(node))) this.select(unit.nodes);
  }

  toggleSite(site: Site, index: number | null): void {
    this.toggle(this.focused(), site, index);
  }

  /** Quantize all layers like `from` (default: the focused one); see `likeThis`. */
  applyLike(from?: number): void {
    if (from === undefined && this.focused().block !== null) return;
    const source = from ?? this.focused().nodes[0];
    const nodes = likeThis(this.store, source);
    if (nodes.length === 0) return;
    const inputs = this.store.graph.payload.inputs[source].map((_, index) => this.store.isOn(source, "input", index));
    const [weight, output] = [this.store.isOn(source, "weight"), this.store.isOn(source, "output")];
    this.store.send({ action: "apply_like", source, nodes, inputs, weight, output });
    this.stage.takeFocus(); // the next change removes the pressed button
  }

  undo(): void {
    if (this.model.get("can_undo")) this.store.send({ action: "undo" });
  }

  redo(): void {
    if (this.model.get("can_redo")) this.store.send({ action: "redo" });
  }

  // ------------------------------------------------------------------ blocks, search, scale

  setOpen(block: number, open: boolean): void {
    const { state } = this.stage;
    const first = state.blocks.all.find((candidate) => candidate.id === block)?.nodes[0] ?? state.focusNode;
    this.stage.keepInPlace(first, () => state.setOpen(block, open));
  }

  setAllOpen(open: boolean): void {
    const { state } = this.stage;
    this.stage.keepInPlace(state.focusNode, () => state.setAll(open));
  }

  enter(): void {
    const { block, frames } = this.focused();
    if (block !== null) this.setOpen(block.id, true);
    else if (frames.length > 0) this.setOpen(frames[frames.length - 1].id, false);
  }

  find(): void {
    this.around.focusSearch();
  }

  setQuery(query: string): void {
    const { state } = this.stage;
    state.query = query;
    state.hit = -1;
    this.renewSearch();
    this.visit(1);
  }

  /** Search again, after the plan or the colours have changed. */
  renewSearch(): void {
    const { state } = this.stage;
    state.hits = search(this.store, state.query);
    this.stage.showMarks();
    this.showCount();
  }

  /** Go to the next or previous match and select it, so that keys act on it. */
  step(direction: 1 | -1): void {
    this.visit(direction);
    this.selectMatch();
  }

  selectMatch(): void {
    const { hits, hit } = this.stage.state;
    // The plan or the colours may have changed since, so that the layer matches no more.
    if (!hits.includes(hit)) return;
    this.stage.reveal(hit);
    this.select([hit]);
  }

  private visit(direction: 1 | -1): void {
    const { state } = this.stage;
    if (state.hits.length === 0) return;
    state.hit = nextMatch(state.hits, state.hit, direction);
    this.stage.reveal(state.hit);
    this.showCount();
  }

  /** Show the whole graph, or the focus at a readable scale if the whole graph is in view. */
  toggleFit(): void {
    const { viewport, state } = this.stage;
    if (viewport.isWhole) {
      viewport.start();
      this.stage.setFocus(state.focus);
    } else this.fit();
  }

  fit(): void {
    this.stage.viewport.fit();
    this.stage.moved();
  }

  zoom(factor: number): void {
    this.stage.viewport.zoomBy(factor);
    this.stage.moved();
  }

  moved(): void {
    this.stage.moved();
  }

  help(): void {
    this.around.toggleHelp();
  }

  difference(direction: 1 | -1): void {
    this.around.stepDifference(direction);
  }

  escape(): void {
    if (!this.around.closePanel()) this.clear();
  }

  private focused(): Placed {
    return this.stage.unit(this.stage.state.focus);
  }

  /** Toggle a site of a unit or of the selection (see `toggleOf`), or show why nothing can change. */
  private toggle(unit: Placed, site: Site, index: number | null): void {
    const { store, stage } = this;
    if (!store.isEditable) return;
    const { nodes, on } = toggleOf(store, stage.state.layout.units, stage.selected, unit, site, index);
    if (store.toggle(nodes, site, index, on) !== null) {
      stage.speakFocus();
      return;
    }
    const why = badgeTip(store, unit, site, index);
    const { x, y, scale } = stage.viewport;
    this.picture.tip.show(why, (unit.x - x) * scale, (unit.y + NODE_HEIGHT - y) * scale);
    stage.speak(why.map((element) => element.textContent).join(": "));
  }

  private showCount(): void {
    const { hits, hit, query } = this.stage.state;
    this.around.setCount(query.trim() === "" ? "" : `${hits.indexOf(hit) + 1}/${hits.length}`);
  }
}
