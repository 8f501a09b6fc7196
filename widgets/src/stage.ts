// The pictures and the minimap, with the state that they share: layout, viewport, selection and focus.
import { html } from "./dom";
import { Minimap } from "./minimap";
import { Picture } from "./picture";
import { NODE_HEIGHT, NODE_WIDTH, type Placed } from "./placed";
import type { Store } from "./store";
import { UiState } from "./ui_state";
import { Viewport } from "./viewport";

export class Stage {
  readonly state: UiState;
  readonly viewport = new Viewport();
  readonly minimap: Minimap;
  readonly pictures: readonly Picture[];
  readonly element = html("div", { class: "qdqw-stage" });
  /** The picture that has, or last had, the keyboard focus. */
  active: Picture;
  selected: ReadonlySet<number> = new Set();
  /** Whether the next drag selects by a rectangle. */
  isPicking = false;
  private readonly spoken = html("div", { class: "qdqw-sr", "aria-live": "polite" });
  private frame = 0;
  /** Repaints the minimap canvas in a new theme; delayed: JupyterLab marks the body before it loads the colours. */
  private readonly themes = new MutationObserver(() => {
    for (const wait of [50, 600]) setTimeout(() => this.repaintMap(), wait);
  });
  private hasSize = false;

  constructor(stores: readonly Store[]) {
    this.state = new UiState(stores[0].graph);
    this.minimap = new Minimap(stores, this.viewport, () => this.moved());
    this.pictures = stores.map((store) => new Picture(store));
    this.active = this.pictures[0];
    for (const picture of this.pictures) picture.svg.addEventListener("focus", () => this.activate(picture));
    this.element.append(...this.pictures.map((picture) => picture.element), this.spoken);
    this.themes.observe(document.body, { attributes: true, attributeFilter: ["class", "data-jp-theme-name"] });
    this.relayout();
  }

  private activate(picture: Picture): void {
    this.active = picture;
    for (const other of this.pictures) if (other !== picture) other.tip.hide();
  }

  destroy(): void {
    cancelAnimationFrame(this.frame);
    this.themes.disconnect();
  }

  takeFocus(): void {
    this.active.svg.focus({ preventScroll: true });
  }

  unit(index: number): Placed {
    return this.state.layout.units[index];
  }

  /** Draw the part in view at once. */
  render(): void {
    for (const picture of this.pictures) picture.render(this.viewport, this.state.focus);
    this.minimap.draw();
  }

  /** Draw it in the next animation frame. */
  moved(): void {
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.render();
    });
  }

  /** Read the size of the element; return whether it has one. */
  resize(): boolean {
    const { width, height } = this.pictures[0].size;
    // An output that is not displayed yet, such as one in a hidden tab, has no size.
    if (width === 0 || height === 0) return false;
    this.viewport.size = { width, height };
    // Only the first size starts the view; later ones leave its scale and place to the user.
    if (this.hasSize) this.viewport.clamp();
    else this.viewport.start();
    this.hasSize = true;
    return true;
  }

  /** Change the layout and keep the unit of a node at its position on the screen. */
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

  /** Move the focus to a unit, and scroll as far as needed to show it. */
  setFocus(index: number): void {
    this.state.focus = index;
    const unit = this.unit(index);
    // Scrolled and drawn first: the marks below are set on elements, which exist only near the part in view.
    this.viewport.reveal(unit.x, unit.y, NODE_WIDTH, NODE_HEIGHT);
    this.render();
    this.showMarks();
    for (const { scene, svg } of this.pictures) {
      scene.emphasize(index);
      svg.setAttribute("aria-activedescendant", scene.id(index));
    }
    this.speakFocus();
  }

  /** Open the blocks around a node, and move the focus to it. */
  reveal(node: number): void {
    if (this.state.uncover(node)) this.relayout();
    this.state.anchor = this.state.layout.unitOf[node];
    this.setFocus(this.state.layout.unitOf[node]);
  }

  speak(text: string): void {
    this.spoken.textContent = text;
  }

  speakFocus(): void {
    this.speak(this.active.scene.element(this.state.focus)?.getAttribute("aria-label") ?? "");
  }

  showMarks(): void {
    const hits = new Set(this.state.hits);
    const marks = { selected: this.selected, hits, focus: this.state.focus };
    for (const { scene } of this.pictures) scene.setMarks(marks);
    this.minimap.setMarks(this.selected, hits);
    this.minimap.draw();
  }

  /** Redraw badges, colours and edges; see `Scene.refresh`. */
  refresh(nodes: ReadonlySet<number> | null, tensors: boolean): void {
    for (const picture of this.pictures) {
      picture.readHead();
      picture.scene.refresh(nodes, tensors);
    }
    this.repaintMap();
  }

  private repaintMap(): void {
    this.minimap.refresh();
    this.minimap.draw();
  }

  /** Lay out and draw everything again, after the sides of a comparison have changed. */
  redraw(): void {
    for (const picture of this.pictures) picture.readHead();
    this.relayout();
    this.render();
  }

  private relayout(): void {
    const { layout } = this.state;
    for (const picture of this.pictures) picture.setLayout(layout);
    this.minimap.setLayout(layout);
    this.viewport.content = { width: layout.width, height: layout.height };
    this.showMarks();
  }
}
