// The picture with its minimap: what is laid out, what of it is in view, where the focus is.
import { html, svg } from "./dom";
import { Scene } from "./draw";
import { Minimap } from "./minimap";
import { NODE_HEIGHT, NODE_WIDTH, type Placed } from "./placed";
import type { Store } from "./store";
import { Tooltip } from "./tooltip";
import { UiState } from "./ui_state";
import { Viewport } from "./viewport";

const SMALL = 0.4;
const TINY = 0.25; // there the colour of a card's stripe fills it: nothing else of it could be seen
let counter = 0;

export class Stage {
  readonly state: UiState;
  readonly viewport = new Viewport();
  readonly scene: Scene;
  readonly minimap: Minimap;
  readonly picture: SVGSVGElement;
  readonly element = html("div", { class: "qdqw-stage" });
  readonly tip: Tooltip;
  selected: ReadonlySet<number> = new Set();
  private readonly content = svg("g");
  private readonly spoken = html("div", { class: "qdqw-sr", "aria-live": "polite" });
  private frame = 0;
  /** The minimap is pixels: a new theme does not reach it by itself. JupyterLab marks the body, then loads the colours. */
  private readonly themes = new MutationObserver(() => {
    for (const wait of [50, 600]) setTimeout(() => this.repaintMap(), wait);
  });
  private hasSize = false;

  constructor(store: Store) {
    this.state = new UiState(store.graph);
    this.scene = new Scene(store, `qdqw-${++counter}`);
    this.minimap = new Minimap(store, this.viewport, () => this.moved());
    this.picture = svg("svg", {
      class: "qdqw-svg",
      role: "tree",
      tabindex: 0,
      "aria-label": `Graph of the model ${store.graph.payload.name}: arrows move, I, W and O quantize, question mark for help`,
      "aria-multiselectable": "true",
      "data-lm-suppress-shortcuts": "true",
    });
    this.content.append(this.scene.frames, this.scene.edges, this.scene.titles, this.scene.pills, this.scene.units);
    this.picture.append(this.content);
    this.element.append(this.picture, this.spoken);
    this.tip = new Tooltip(this.element);
    this.themes.observe(document.body, { attributes: true, attributeFilter: ["class", "data-jp-theme-name"] });
    this.relayout();
  }

  destroy(): void {
    cancelAnimationFrame(this.frame);
    this.themes.disconnect();
  }

  takeFocus(): void {
    this.picture.focus({ preventScroll: true });
  }

  unit(index: number): Placed {
    return this.state.layout.units[index];
  }

  /** Draw the current part of the picture, now. */
  render(): void {
    this.content.setAttribute("transform", this.viewport.transform);
    this.picture.classList.toggle("qdqw-small", this.viewport.scale < SMALL);
    this.picture.classList.toggle("qdqw-tiny", this.viewport.scale < TINY);
    this.scene.show(this.viewport.box, this.state.focus);
    this.minimap.draw();
  }

  /** Draw it with the next frame of the page. */
  moved(): void {
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.render();
    });
  }

  /** Take over the size that the page gives; says whether there is one. */
  resize(): boolean {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (width === 0 || height === 0) return false;
    this.viewport.size = { width, height };
    if (this.hasSize) this.viewport.clamp();
    else this.viewport.start();
    this.hasSize = true;
    return true;
  }

  /** Change the layout without moving what the user looks at. */
  keepInPlace(node: number, change: () => void): void {
    const before = this.unit(this.state.layout.unitOf[node]);
    change();
    this.relayout();
    const after = this.unit(this.state.layout.unitOf[node]);
    this.viewport.x += after.x - before.x;
    this.viewport.y += after.y - before.y;
    this.viewport.clamp();
    this.render();
  }

  /** Move the focus to a unit, and the view as far as needed. */
  setFocus(index: number): void {
    this.state.focus = index;
    const unit = this.unit(index);
    this.viewport.reveal(unit.x, unit.y, NODE_WIDTH, NODE_HEIGHT);
    this.render();
    this.showMarks();
    this.scene.emphasize(index);
    this.picture.setAttribute("aria-activedescendant", this.scene.id(index));
    this.speakFocus();
  }

  /** Show a node, wherever it hides. */
  reveal(node: number): void {
    if (this.state.uncover(node)) this.relayout();
    this.state.anchor = this.state.layout.unitOf[node];
    this.setFocus(this.state.layout.unitOf[node]);
  }

  speak(text: string): void {
    this.spoken.textContent = text;
  }

  speakFocus(): void {
    this.speak(this.scene.element(this.state.focus)?.getAttribute("aria-label") ?? "");
  }

  showMarks(): void {
    const hits = new Set(this.state.hits);
    this.scene.setMarks({ selected: this.selected, hits, focus: this.state.focus });
    this.minimap.setMarks(this.selected, hits);
    this.minimap.draw();
  }

  /** Bring badges, colours and edges up to date. */
  refresh(nodes: ReadonlySet<number> | null, tensors: boolean): void {
    this.scene.refresh(nodes, tensors);
    this.repaintMap();
  }

  private repaintMap(): void {
    this.minimap.refresh();
    this.minimap.draw();
  }

  private relayout(): void {
    const { layout } = this.state;
    this.scene.setLayout(layout);
    this.minimap.setLayout(layout);
    this.viewport.content = { width: layout.width, height: layout.height };
    this.showMarks();
  }
}
