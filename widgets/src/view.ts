// One view: puts the parts together and carries out what the user asks for.
import { html, svg } from "./dom";
import { Scene } from "./draw";
import { Footer, likeThis } from "./footer";
import { helpPanel } from "./help";
import { icon } from "./icons";
import { type Commands, listen, type Target } from "./interaction";
import { NODE_HEIGHT, NODE_WIDTH } from "./layout";
import { Minimap } from "./minimap";
import { type Badge, badgesOf } from "./node_draw";
import { search } from "./search";
import type { Change, Store } from "./store";
import { download, exportSvg } from "./svg_export";
import { styleSheet } from "./theme";
import { button, Toolbar } from "./toolbar";
import { badgeTip, pairTip, Tooltip, unitTip } from "./tooltip";
import type { FromPython, Model, Site } from "./traits";
import { UiState } from "./ui_state";
import { Viewport } from "./viewport";

let counter = 0;

export class View implements Commands {
  readonly element: HTMLElement;
  readonly state: UiState;
  readonly viewport = new Viewport();
  readonly scene: Scene;
  private readonly picture: SVGSVGElement;
  private readonly content = svg("g");
  private readonly stage = html("div", { class: "qdqw-stage" });
  private readonly toolbar: Toolbar;
  private readonly footer: Footer;
  private readonly minimap: Minimap;
  private readonly tip: Tooltip;
  private readonly spoken = html("div", { class: "qdqw-sr", "aria-live": "polite" });
  private readonly ends: (() => void)[] = [];
  private helpBox: HTMLElement | null = null;
  private error: HTMLElement | null = null;
  private frame = 0;
  private selected = new Set<number>();

  constructor(
    private readonly model: Model,
    private readonly store: Store,
  ) {
    const { graph } = store;
    this.state = new UiState(graph);
    this.scene = new Scene(store, `qdqw-${++counter}`);
    this.picture = svg("svg", {
      class: "qdqw-svg",
      role: "tree",
      tabindex: 0,
      "aria-label": `Graph of the model ${graph.payload.name}: arrows move, I, W and O quantize, question mark for help`,
      "aria-multiselectable": "true",
      "data-lm-suppress-shortcuts": "true",
    });
    this.content.append(this.scene.frames, this.scene.edges, this.scene.pills, this.scene.units);
    this.picture.append(this.content);
    this.stage.append(this.picture);
    this.tip = new Tooltip(this.stage);
    this.toolbar = new Toolbar(this.toolbarActions());
    this.footer = new Footer(store, {
      applyLike: (source, targets) => this.sendLike(source, targets),
      clear: () => this.clear(),
    });
    this.minimap = new Minimap(store, this.viewport, () => this.moved());
    const style = html("style");
    style.textContent = styleSheet();
    const main = html("div", { class: "qdqw-main" }, [this.stage, this.minimap.element]);
    this.element = html("div", { class: "qdqw-root" }, [
      style,
      this.toolbar.element,
      main,
      this.footer.element,
      this.spoken,
    ]);
    this.connect();
    this.relayout();
    this.readSelection();
    this.readTraits();
  }

  /** Draw for the first time, once the element stands in the page and has a size. */
  start(): void {
    this.resize();
    this.viewport.fit();
    this.render();
  }

  destroy(): void {
    for (const end of this.ends) end();
    cancelAnimationFrame(this.frame);
    this.element.remove();
  }

  // ------------------------------------------------------------------ pointer and keys

  hitTest(element: Element): Target {
    const number = (selector: string, name: string) => {
      const value = element.closest?.(selector)?.getAttribute(name);
      return value === null || value === undefined ? null : Number(value);
    };
    const key = element.closest?.(".qdqw-unit")?.getAttribute("data-unit");
    const unit = key ? this.state.layout.units.findIndex((candidate) => candidate.key === key) : -1;
    const badge = number(".qdqw-badge", "data-badge");
    return {
      unit,
      badge: unit >= 0 && badge !== null ? badgesOf(this.store, this.unit(unit))[badge] : null,
      open: number(".qdqw-opener", "data-open"),
      close: number(".qdqw-frametitle", "data-close"),
      tensor: number(".qdqw-pill", "data-tensor"),
    };
  }

  unit(index: number) {
    return this.state.layout.units[index];
  }

  clickUnit(index: number, mode: "only" | "toggle" | "range"): void {
    const { nodes } = this.unit(index);
    if (mode === "only") this.select(nodes);
    else if (mode === "toggle") this.select(this.toggled(nodes));
    else {
      const { units } = this.state.layout;
      const [from, to] = [units[this.state.anchor].row, units[index].row].sort((a, b) => a - b);
      this.select(units.flatMap((unit) => (unit.row >= from && unit.row <= to ? unit.nodes : [])));
    }
    if (mode !== "range") this.state.anchor = index;
    this.setFocus(index);
  }

  clickBadge(index: number, badge: Badge): void {
    this.state.anchor = index;
    this.setFocus(index);
    const nodes = this.unit(index).nodes;
    // A badge of a selected layer speaks for the whole selection.
    const selected = nodes.every((node) => this.selected.has(node)) && badge.index === null;
    this.toggle(selected ? [...this.selected] : nodes, badge.site, badge.index);
  }

  setOpen(block: number, open: boolean): void {
    const before = this.state.focusNode;
    const first = this.state.blocks.all.find((candidate) => candidate.id === block)?.nodes[0] ?? before;
    this.keepInPlace(first, () => this.state.setOpen(block, open));
  }

  hover(target: Target | null, x: number, y: number): void {
    if (target === null || (target.unit < 0 && target.tensor === null)) {
      this.tip.hide();
      this.scene.emphasize(this.selected.size > 0 ? this.state.focus : -1);
      return;
    }
    if (target.tensor !== null) this.tip.show(pairTip(this.store, target.tensor), x, y);
    else if (target.badge)
      this.tip.show(badgeTip(this.store, this.unit(target.unit), target.badge.site, target.badge.index), x, y);
    else this.tip.show(unitTip(this.store, this.unit(target.unit)), x, y);
    if (target.unit >= 0) this.scene.emphasize(target.unit);
  }

  moved(): void {
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.render();
    });
  }

  arrow(key: "ArrowUp" | "ArrowDown" | "ArrowLeft" | "ArrowRight", extend: boolean): void {
    const next = this.state.neighbour(key);
    if (next < 0) return;
    if (extend) this.select([...this.selected, ...this.unit(next).nodes]);
    else this.select(this.unit(next).nodes);
    this.setFocus(next);
  }

  jump(where: "first" | "last"): void {
    const { units } = this.state.layout;
    const rows = units.map((unit) => unit.row);
    const index = rows.indexOf(where === "first" ? Math.min(...rows) : Math.max(...rows));
    this.select(this.unit(index).nodes);
    this.setFocus(index);
  }

  toggleSite(site: Site, index: number | null): void {
    const here = this.unit(this.state.focus).nodes;
    const inSelection = here.every((node) => this.selected.has(node));
    this.toggle(inSelection ? [...this.selected] : here, site, index);
  }

  toggleSelected(): void {
    this.select(this.toggled(this.unit(this.state.focus).nodes));
  }

  enter(): void {
    const unit = this.unit(this.state.focus);
    if (unit.block !== null) this.setOpen(unit.block.id, true);
    else if (unit.frames.length > 0) this.setOpen(unit.frames[unit.frames.length - 1].id, false);
  }

  applyLike(): void {
    const { nodes, block } = this.unit(this.state.focus);
    if (block === null) this.sendLike(nodes[0], likeThis(this.store, nodes[0]));
  }

  find(): void {
    this.toolbar.input.focus();
    this.toolbar.input.select();
  }

  step(direction: 1 | -1): void {
    const { hits } = this.state;
    if (hits.length === 0) return;
    this.state.hit = (this.state.hit + direction + hits.length) % hits.length;
    this.reveal(hits[this.state.hit]);
    this.showCount();
  }

  undo(): void {
    if (this.model.get("can_undo")) this.store.send({ action: "undo" });
  }

  redo(): void {
    if (this.model.get("can_redo")) this.store.send({ action: "redo" });
  }

  fit(): void {
    this.viewport.fit();
    this.moved();
  }

  zoom(factor: number): void {
    this.viewport.zoomBy(factor);
    this.moved();
  }

  help(): void {
    if (this.helpBox !== null) this.closeHelp();
    else {
      this.helpBox = helpPanel(() => this.closeHelp());
      this.stage.append(this.helpBox);
    }
  }

  escape(): void {
    if (this.helpBox !== null) this.closeHelp();
    else if (this.error !== null) this.showError("");
    else this.clear();
  }

  clear(): void {
    this.select([]);
  }

  // ------------------------------------------------------------------ what the commands share

  private toolbarActions() {
    return {
      search: (query: string) => this.setQuery(query),
      step: (direction: 1 | -1) => this.step(direction),
      leaveSearch: () => this.picture.focus({ preventScroll: true }),
      collapseAll: () => this.keepInPlace(this.state.focusNode, () => this.state.setAll(false)),
      expandAll: () => this.keepInPlace(this.state.focusNode, () => this.state.setAll(true)),
      zoom: (factor: number) => this.zoom(factor),
      fit: () => this.fit(),
      undo: () => this.undo(),
      redo: () => this.redo(),
      save: () => download(this.saveSvg(), this.store.graph.payload.name),
      help: () => this.help(),
    };
  }

  private toggle(nodes: readonly number[], site: Site, index: number | null): void {
    if (this.store.toggle(nodes, site, index) === null) this.spoken.textContent = "This cannot be quantized.";
    else this.speakFocus();
  }

  private toggled(nodes: readonly number[]): number[] {
    const all = nodes.every((node) => this.selected.has(node));
    const others = [...this.selected].filter((node) => !nodes.includes(node));
    return all ? others : [...others, ...nodes];
  }

  private sendLike(source: number, targets: number[]): void {
    if (targets.length === 0) return;
    const inputs = this.store.graph.payload.inputs[source].map((_, index) => this.store.isOn(source, "input", index));
    const [weight, output] = [this.store.isOn(source, "weight"), this.store.isOn(source, "output")];
    this.store.send({ action: "apply_like", source, nodes: targets, inputs, weight, output });
  }

  private select(nodes: readonly number[]): void {
    this.selected = new Set([...nodes].sort((a, b) => a - b));
    this.showSelection();
    this.model.set(
      "selection",
      [...this.selected].map((node) => this.store.graph.name(node)),
    );
    this.model.save_changes();
  }

  private setFocus(index: number): void {
    this.state.focus = index;
    const unit = this.unit(index);
    this.viewport.reveal(unit.x, unit.y, NODE_WIDTH, NODE_HEIGHT);
    this.render();
    this.showSelection();
    this.scene.emphasize(index);
    this.speakFocus();
  }

  private speakFocus(): void {
    this.picture.setAttribute("aria-activedescendant", this.scene.id(this.state.focus));
    this.spoken.textContent = this.scene.element(this.state.focus)?.getAttribute("aria-label") ?? "";
  }

  private reveal(node: number): void {
    if (this.state.uncover(node)) this.relayout();
    this.state.anchor = this.state.layout.unitOf[node];
    this.setFocus(this.state.layout.unitOf[node]);
  }

  private setQuery(query: string): void {
    this.state.query = query;
    this.state.hits = search(this.store, query);
    this.state.hit = -1;
    this.showSelection();
    this.step(1);
    this.showCount();
  }

  private showCount(): void {
    const { hits, hit, query } = this.state;
    this.toolbar.setCount(query.trim() === "" ? "" : `${hit + 1}/${hits.length}`);
  }

  /** Change the layout without moving what the user looks at. */
  private keepInPlace(node: number, change: () => void): void {
    const before = this.unit(this.state.layout.unitOf[node]);
    change();
    this.relayout();
    const after = this.unit(this.state.layout.unitOf[node]);
    this.viewport.y += after.y - before.y;
    this.viewport.x += after.x - before.x;
    this.viewport.clamp();
    this.render();
  }

  private relayout(): void {
    const { layout } = this.state;
    this.scene.setLayout(layout);
    this.minimap.setLayout(layout);
    this.viewport.content = { width: layout.width, height: layout.height };
    this.showSelection();
  }

  private showSelection(): void {
    const hits = new Set(this.state.hits);
    this.scene.setMarks({ selected: this.selected, hits, focus: this.state.focus });
    this.minimap.setMarks(this.selected, hits);
    this.minimap.draw();
    this.footer.update([...this.selected]);
  }

  private render(): void {
    this.content.setAttribute("transform", this.viewport.transform);
    this.picture.classList.toggle("qdqw-small", this.viewport.scale < 0.4);
    this.scene.show(this.viewport.box, this.state.focus);
    this.minimap.draw();
  }

  // ------------------------------------------------------------------ what comes from outside

  private connect(): void {
    this.ends.push(listen(this.picture, this.viewport, this));
    this.ends.push(
      this.store.subscribe(
        (change) => this.changed(change),
        (message) => this.receive(message),
      ),
    );
    const traits = () => this.readTraits();
    const selection = () => this.readSelection();
    for (const [event, handler] of [
      ["change:height", traits],
      ["change:can_undo", traits],
      ["change:can_redo", traits],
      ["change:selection", selection],
    ] as const) {
      this.model.on(event, handler);
      this.ends.push(() => this.model.off(event, handler));
    }
    if (typeof ResizeObserver !== "undefined") {
      const observer = new ResizeObserver(() => {
        if (this.resize()) this.render();
      });
      observer.observe(this.stage);
      this.ends.push(() => observer.disconnect());
    }
  }

  private resize(): boolean {
    const { clientWidth: width, clientHeight: height } = this.stage;
    if (width === 0 || height === 0) return false;
    const first = this.viewport.size.width === 600 && this.viewport.size.height === 400;
    this.viewport.size = { width, height };
    if (first) this.viewport.fit();
    else this.viewport.clamp();
    return true;
  }

  private changed(change: Change): void {
    this.scene.refresh(change.nodes, change.tensors);
    this.minimap.refresh();
    this.minimap.draw();
    this.footer.update([...this.selected]);
  }

  private receive(message: FromPython): void {
    if (message.type === "error") this.showError(message.text);
    else if (message.type === "fit") this.fit();
    else if (message.type === "export_svg") this.saveSvg();
    else if (message.type === "reveal") {
      const node = this.store.graph.number(message.names[0]);
      if (node !== undefined) this.reveal(node);
    }
  }

  private readTraits(): void {
    this.element.style.height = `${this.model.get("height")}px`;
    this.toolbar.setHistory(this.model.get("can_undo"), this.model.get("can_redo"));
  }

  private readSelection(): void {
    const nodes = this.model.get("selection").flatMap((name) => this.store.graph.number(name) ?? []);
    if (nodes.length === this.selected.size && nodes.every((node) => this.selected.has(node))) return;
    this.selected = new Set(nodes);
    this.showSelection();
  }

  private saveSvg(): string {
    const text = exportSvg(this.store, this.state.layout, this.element);
    this.model.set("svg_text", text);
    this.model.save_changes();
    return text;
  }

  private showError(text: string): void {
    this.error?.remove();
    this.error = null;
    if (text === "") return;
    const close = button("Close", [icon("close")], () => this.showError(""));
    this.error = html("div", { class: "qdqw-error", role: "alert" }, [html("p", {}, [text]), close]);
    this.stage.append(this.error);
  }

  private closeHelp(): void {
    this.helpBox?.remove();
    this.helpBox = null;
    this.picture.focus({ preventScroll: true });
  }
}
