// One drawing of the layout with its tooltip; a comparison has two drawings of the same layout.
import { BlockLabels } from "./block_labels";
import { html, svg } from "./dom";
import { type Box, Scene } from "./draw";
import type { Layout } from "./layout";
import type { Store } from "./store";
import { Tooltip } from "./tooltip";
import type { Viewport } from "./viewport";

const SMALL = 0.5;
const TINY = 0.25; // below it, a card shows only its colour: the stripe fills it
let counter = 0;

export class Picture {
  readonly element = html("div", { class: "qdqw-picture" });
  readonly svg: SVGSVGElement;
  readonly scene: Scene;
  readonly tip: Tooltip;
  private readonly content = svg("g");
  private readonly labels = new BlockLabels();
  private readonly region = svg("rect", { class: "qdqw-region", "aria-hidden": "true" });
  private readonly head = html("div", { class: "qdqw-head" });
  private readonly box: HTMLElement;

  constructor(readonly store: Store) {
    // `aria-activedescendant` needs ids that are unique in the page, where a graph may be displayed twice.
    this.scene = new Scene(store, `qdqw-${++counter}`);
    this.svg = svg("svg", {
      class: "qdqw-svg",
      role: "tree",
      tabindex: 0,
      "aria-multiselectable": "true",
      "data-lm-suppress-shortcuts": "true",
    });
    const { frames, brackets, edges, titles, pills, units } = this.scene;
    // SVG draws in this order: titles above edges, pills and brackets above cards.
    this.content.append(frames, edges, titles, units, pills, brackets);
    this.svg.append(this.content, this.labels.element, this.region);
    this.showRegion(null);
    this.box = html("div", { class: "qdqw-box" }, [this.svg]);
    this.tip = new Tooltip(this.box);
    this.element.append(this.box);
    this.readHead();
  }

  get size(): { width: number; height: number } {
    return { width: this.box.clientWidth, height: this.box.clientHeight };
  }

  render(viewport: Viewport, focus: number): void {
    this.content.setAttribute("transform", viewport.transform);
    this.svg.classList.toggle("qdqw-small", viewport.scale < SMALL);
    this.svg.classList.toggle("qdqw-tiny", viewport.scale < TINY);
    this.labels.show(viewport, viewport.scale < SMALL);
    this.scene.show(viewport.box, focus);
  }

  setLayout(layout: Layout): void {
    this.scene.setLayout(layout);
    this.labels.setLayout(this.store.graph, layout);
  }

  /** Show the selection rectangle, in screen pixels relative to the picture; null hides it. */
  showRegion(box: Box | null): void {
    this.region.setAttribute("visibility", box === null ? "hidden" : "visible");
    if (box === null) return;
    const { left: x, top: y, right, bottom } = box;
    for (const [name, value] of Object.entries({ x, y, width: right - x, height: bottom - y }))
      this.region.setAttribute(name, String(value));
  }

  /** Set the label of the picture; in a comparison, also show title and note of the side above its drawing. */
  readHead(): void {
    const { side, isEditable, graph } = this.store;
    const { name } = graph.payload;
    const start =
      side === null
        ? `Graph of the model ${name}: arrows move, ${isEditable ? "I, W and O quantize, " : ""}`
        : `${side.title}, ${side.note}: graph of ${name}; `;
    this.svg.setAttribute("aria-label", `${start}question mark for help`);
    if (side === null) return;
    this.head.replaceChildren(html("b", {}, [side.title]), html("span", { title: side.note }, [side.note]));
    this.element.prepend(this.head);
  }
}
