// One view: toolbar, stage and footer; listens to the model's traits and to messages from Python.
import { GraphCommands } from "./commands";
import { DifferencePanel } from "./difference";
import { html } from "./dom";
import { Footer } from "./footer";
import { helpPanel } from "./help";
import { icon } from "./icons";
import { handlePanelKey, listen } from "./interaction";
import type { Change } from "./node_state";
import { Stage } from "./stage";
import type { Store } from "./store";
import type { Surroundings } from "./surroundings";
import { download, exportSvg } from "./svg_export";
import { styleSheet } from "./theme";
import { button, Toolbar } from "./toolbar";
import type { FromPython, Model } from "./traits";

export class View implements Surroundings {
  readonly element: HTMLElement;
  readonly stage: Stage;
  readonly commands: GraphCommands;
  private readonly each: readonly GraphCommands[];
  /** The commands of the picture that the search is in. */
  private searched: GraphCommands;
  private readonly store: Store;
  private readonly toolbar: Toolbar;
  private readonly footer: Footer;
  private readonly difference: DifferencePanel;
  private readonly ends: (() => void)[] = [];
  private help: HTMLElement | null = null;
  private error: HTMLElement | null = null;

  constructor(
    private readonly model: Model,
    private readonly stores: readonly Store[],
  ) {
    const [store] = stores;
    this.store = store;
    this.stage = new Stage(stores);
    this.each = this.stage.pictures.map(
      (picture) => new GraphCommands(model, picture.store, this.stage, this, picture),
    );
    this.commands = this.searched = this.each[0];
    this.toolbar = this.makeToolbar();
    this.footer = new Footer(store, this.commands);
    this.difference = new DifferencePanel(store, (node) => this.commands.jumpTo(node));
    this.stage.element.append(this.difference.element);
    this.footer.second.prepend(this.difference.line);
    const style = html("style");
    style.textContent = styleSheet();
    const main = html("div", { class: "qdqw-main" }, [this.stage.element, this.stage.minimap.element]);
    this.element = html("div", { class: stores.length > 1 ? "qdqw-root pair" : "qdqw-root" }, [
      style,
      this.toolbar.element,
      main,
      this.footer.element,
    ]);
    this.connect();
    this.difference.update();
    this.readTraits();
    this.readHeight();
    this.readSelection();
    this.selectionChanged();
  }

  /** Read the size and draw, at the start and after every resize; does nothing while the element has no size. */
  start(): void {
    if (this.stage.resize()) this.stage.render();
  }

  destroy(): void {
    for (const end of this.ends) end();
    this.stage.destroy();
    this.element.remove();
  }

  // ------------------------------------------------------------------ called by the commands

  selectionChanged(): void {
    this.footer.update([...this.stage.selected]);
  }

  focusSearch(): void {
    this.toolbar.input.focus();
    this.toolbar.input.select();
  }

  setCount(text: string): void {
    this.toolbar.setCount(text);
  }

  toggleHelp(): void {
    if (this.closeHelp()) return;
    this.help = helpPanel(() => this.closeHelp());
    this.stage.element.append(this.help);
    this.help.focus({ preventScroll: true });
  }

  stepDifference(direction: 1 | -1): void {
    this.difference.step(direction);
  }

  closePanel(): boolean {
    const wasPicking = this.stage.isPicking;
    this.pick(false);
    return this.closeHelp() || this.showError("") || wasPicking;
  }

  pick(on: boolean): void {
    this.stage.isPicking = on;
    this.toolbar.setPicking(on);
    this.element.classList.toggle("picking", on);
  }

  // ------------------------------------------------------------------ events

  private connect(): void {
    const { stage, model } = this;
    stage.pictures.forEach((picture, k) => {
      this.ends.push(listen(picture.svg, stage.viewport, this.each[k]));
    });
    this.ends.push(this.listenAround());
    for (const store of this.stores)
      this.ends.push(
        store.subscribe(
          (change) => this.storeChanged(store, change),
          (message) => this.receive(message),
        ),
      );
    const traits = () => this.readTraits();
    for (const event of ["change:can_undo", "change:can_redo"]) this.listenTo(model, event, traits);
    this.listenTo(model, "change:height", () => this.readHeight());
    this.listenTo(model, "change:selection", () => this.readSelection());
    if (typeof ResizeObserver !== "undefined") {
      const observer = new ResizeObserver(() => this.start());
      observer.observe(stage.element);
      this.ends.push(() => observer.disconnect());
    }
  }

  private storeChanged(store: Store, change: Change): void {
    // `updateUnit` does not know the marks of a side, which `drawUnit` makes, so a side is drawn anew.
    if (store.side === null) this.stage.refresh(change.nodes, change.tensors);
    else this.stage.redraw();
    this.difference.update();
    this.element.setAttribute("data-revision", String(store.plan.revision));
    this.element.classList.toggle("gone", store.isGone);
    this.readTraits();
    if (this.stage.state.query) this.searched.renewSearch();
    this.selectionChanged();
  }

  /** Handle keys on buttons and panels, and close the help at a click outside it. */
  private listenAround(): () => void {
    const onKey = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.target instanceof HTMLInputElement) return;
      if (!handlePanelKey(event, this.commands)) return;
      event.preventDefault();
      event.stopPropagation();
    };
    const onDown = (event: PointerEvent) => {
      const target = event.target as Element;
      // Not on the button of the help, whose click would open it again.
      if (!this.help?.contains(target) && !target.closest?.("[aria-label^='Keys and colours']")) this.closeHelp();
    };
    this.element.addEventListener("keydown", onKey);
    this.element.addEventListener("pointerdown", onDown, true);
    return () => {
      this.element.removeEventListener("keydown", onKey);
      this.element.removeEventListener("pointerdown", onDown, true);
    };
  }

  private listenTo(model: Model, event: string, handler: () => void): void {
    model.on(event, handler);
    this.ends.push(() => model.off(event, handler));
  }

  private receive(message: FromPython): void {
    // A successful change closes the message of an earlier error.
    if (message.type === "plan") this.showError("");
    else if (message.type === "error") this.showError(message.text);
    else if (message.type === "fit") this.commands.fit();
    else if (message.type === "export_svg") this.saveSvg();
    else if (message.type === "reveal" && message.names.length > 0) {
      const node = this.store.graph.number(message.names[0]);
      if (node !== undefined) this.stage.reveal(node);
    }
  }

  /** Set the height only if its trait changes: the user may have resized the pane by its lower edge. */
  private readHeight(): void {
    this.element.style.height = `${this.model.get("height")}px`;
  }

  private readTraits(): void {
    const can = (what: "can_undo" | "can_redo") => this.store.isEditable && this.model.get(what);
    if (this.toolbar.setHistory(can("can_undo"), can("can_redo"))) this.stage.takeFocus();
  }

  private readSelection(): void {
    const { stage } = this;
    const nodes = this.model.get("selection").flatMap((name) => this.store.graph.number(name) ?? []);
    // The event also comes for the selection that `GraphCommands.select` has set itself.
    if (nodes.length === stage.selected.size && nodes.every((node) => stage.selected.has(node))) return;
    stage.selected = new Set(nodes);
    stage.showMarks();
    this.selectionChanged();
  }

  // ------------------------------------------------------------------ panels and toolbar

  private makeToolbar(): Toolbar {
    const { commands } = this;
    const active = () => this.each[this.stage.pictures.indexOf(this.stage.active)];
    const kind = this.store.side === null ? "single" : this.model.get("can_leave") ? "pair to leave" : "pair";
    const actions = {
      search: (query: string) => {
        this.searched = active();
        this.searched.setQuery(query);
      },
      step: (direction: 1 | -1) => commands.step(direction),
      leaveSearch: () => {
        this.stage.takeFocus();
        commands.selectMatch();
      },
      selectAll: () => {
        this.stage.takeFocus();
        commands.selectAll();
      },
      pick: () => this.pick(!this.stage.isPicking),
      collapseAll: () => commands.setAllOpen(false),
      expandAll: () => commands.setAllOpen(true),
      zoom: (factor: number) => commands.zoom(factor),
      fit: () => commands.toggleFit(),
      undo: () => commands.undo(),
      redo: () => commands.redo(),
      save: () => download(this.saveSvg(), this.store.graph.payload.name),
      help: () => commands.help(),
      difference: (direction: 1 | -1) => this.stepDifference(direction),
      leave: () => this.model.send({ type: "leave" }),
    };
    return new Toolbar(actions, kind);
  }

  private saveSvg(): string {
    const text = exportSvg(this.stage.active.store, this.stage.state.layout, this.element);
    this.model.set("svg_text", text);
    this.model.save_changes();
    return text;
  }

  /** Show an error, or close the present one if the text is empty; return whether one was shown before. */
  private showError(text: string): boolean {
    const wasOpen = this.error !== null;
    this.error?.remove();
    this.error = null;
    if (text === "") return wasOpen;
    const close = button("Close", [icon("close")], () => this.showError(""));
    this.error = html("div", { class: "qdqw-error", role: "alert" }, [html("p", {}, [text]), close]);
    this.stage.element.append(this.error);
    return wasOpen;
  }

  private closeHelp(): boolean {
    if (this.help === null) return false;
    this.help.remove();
    this.help = null;
    this.stage.takeFocus();
    return true;
  }
}
