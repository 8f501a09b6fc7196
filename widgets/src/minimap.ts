// The minimap: the whole graph, coloured like the cards, with differences, search hits, selection and the part in view.

import { paintOf } from "./colors";
import { html } from "./dom";
import type { Layout } from "./layout";
import { NODE_HEIGHT, NODE_WIDTH } from "./placed";
import type { Store } from "./store";
import { EDGE, type Viewport } from "./viewport";

const VARIABLES = {
  int8: "--q-qdq",
  float: "--q-float",
  partial: "--q-partial",
  other: "--q-output",
  blank: "--q-faint",
} as const;

export class Minimap {
  readonly element: HTMLElement;
  private readonly canvas = html("canvas", { "aria-hidden": "true" });
  private layout: Layout | null = null;
  private hits: ReadonlySet<number> = new Set();
  private selected: ReadonlySet<number> = new Set();
  private picture: HTMLCanvasElement | null = null;

  constructor(
    private readonly stores: readonly Store[],
    private readonly viewport: Viewport,
    moved: () => void,
  ) {
    this.element = html("div", { class: "qdqw-map", title: "Overview: drag to scroll" }, [this.canvas]);
    const drag = (event: PointerEvent) => {
      if (event.buttons === 0) return;
      const { y, scale } = this.scales();
      const middle = (event.clientY - this.canvas.getBoundingClientRect().top) / scale + y;
      this.viewport.y = middle - this.viewport.size.height / this.viewport.scale / 2;
      this.viewport.clamp();
      moved();
    };
    this.element.addEventListener("pointerdown", (event) => {
      this.element.setPointerCapture(event.pointerId);
      drag(event);
    });
    this.element.addEventListener("pointermove", drag);
  }

  setLayout(layout: Layout): void {
    this.layout = layout;
    this.picture = null;
  }

  setMarks(selected: ReadonlySet<number>, hits: ReadonlySet<number>): void {
    this.selected = selected;
    this.hits = hits;
    this.picture = null;
  }

  /** Discard the cached picture, after colours or states have changed. */
  refresh(): void {
    this.picture = null;
  }

  draw(): void {
    const context = this.canvas.getContext?.("2d");
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!context || this.layout === null || width === 0 || height === 0) return;
    const ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.picture = null;
    }
    this.picture ??= this.paint(width, height, ratio);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.picture, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { y, scale } = this.scales();
    const box = this.viewport.box;
    const top = Math.max(1, (box.top - y) * scale);
    const bottom = Math.min(height - 1, (box.bottom - y) * scale);
    const style = getComputedStyle(this.element);
    context.fillStyle = context.strokeStyle = style.getPropertyValue("--q-brand") || "#1976d2";
    context.globalAlpha = 0.14;
    context.fillRect(1, top, width - 3, Math.max(4, bottom - top));
    context.globalAlpha = 1;
    context.lineWidth = 1.5;
    context.strokeRect(1.5, top, width - 3, Math.max(4, bottom - top));
  }

  private paint(width: number, height: number, ratio: number): HTMLCanvasElement {
    const picture = html("canvas");
    picture.width = Math.round(width * ratio);
    picture.height = Math.round(height * ratio);
    const context = picture.getContext("2d");
    const layout = this.layout;
    if (!context || layout === null) return picture;
    context.scale(ratio, ratio);
    const style = getComputedStyle(this.element);
    const { y, scale } = this.scales();
    const room = (width - 16) / this.stores.length;
    const across = Math.min(room / Math.max(NODE_WIDTH, layout.width), 0.16);
    for (const unit of layout.units) {
      const top = (unit.y - y) * scale;
      this.stores.forEach((store, k) => {
        const paint = paintOf(store, unit.nodes);
        context.fillStyle = paint.kind === "metric" ? paint.fill! : style.getPropertyValue(VARIABLES[paint.kind]);
        const left = 8 + k * room + unit.x * across;
        context.fillRect(left, top, Math.max(3, NODE_WIDTH * across - 2 * k), Math.max(1, NODE_HEIGHT * scale));
      });
      const differs = unit.nodes.some((node) => this.stores[0].side?.differs.has(node));
      if (differs) this.flag(context, style.getPropertyValue("--q-partial"), width - 7, top);
      // The colour of hits on the cards, in theme.ts.
      if (unit.nodes.some((node) => this.hits.has(node))) this.flag(context, "#f0e442", width - 7, top);
      if (unit.nodes.some((node) => this.selected.has(node)))
        this.flag(context, style.getPropertyValue("--q-brand"), 1, top);
    }
    return picture;
  }

  private flag(context: CanvasRenderingContext2D, color: string, x: number, y: number): void {
    context.fillStyle = color;
    context.fillRect(x, y - 1, 5, 3);
  }

  private scales(): { y: number; scale: number } {
    const content = this.viewport.content.height + 2 * EDGE;
    return { y: -EDGE, scale: Math.min(0.16, this.element.clientHeight / Math.max(1, content)) };
  }
}
