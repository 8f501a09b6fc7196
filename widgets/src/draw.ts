// The scene: creates the elements in view, removes the others, and updates changed ones.
import { type Bracket, bracketPath, findBrackets } from "./brackets";
import { clip, svg } from "./dom";
import { drawPill, viewTensor } from "./edge_draw";
import { type Frame, HEADER } from "./frames";
import type { Layout } from "./layout";
import { drawUnit, updateUnit } from "./node_draw";
import { NODE_HEIGHT } from "./placed";
import type { Store } from "./store";

const BUCKET = 600;
const MARGIN = 150;

export interface Marks {
  selected: ReadonlySet<number>;
  hits: ReadonlySet<number>;
  focus: number;
}

export interface Box {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export class Scene {
  readonly frames = svg("g", { role: "presentation" });
  private readonly floatEdges = svg("g", { class: "qdqw-floats" });
  private readonly pairEdges = svg("g");
  // SVG draws in this order: quantized edges lie above float ones.
  readonly edges = svg("g", { role: "presentation" }, [this.floatEdges, this.pairEdges]);
  readonly titles = svg("g", { role: "presentation" });
  readonly pills = svg("g", { role: "presentation" });
  readonly units = svg("g", { role: "presentation" });
  readonly brackets = svg("g", { role: "presentation" });
  private layout: Layout | null = null;
  private readonly drawnUnits = new Map<number, SVGGElement>();
  private readonly drawnTensors = new Map<number, Element[]>();
  private readonly drawnFrames = new Map<Frame, SVGElement>();
  private readonly drawnTitles = new Map<Frame, SVGElement>();
  private readonly drawnBrackets = new Map<Bracket, SVGElement>();
  private foundBrackets: Bracket[] = [];
  /** Tensors by the horizontal strips, `BUCKET` high, that their edges cross. */
  private buckets: number[][] = [];
  private byHeight: number[] = [];
  private marks: Marks = { selected: new Set(), hits: new Set(), focus: -1 };

  constructor(
    private readonly store: Store,
    private readonly idPrefix: string,
  ) {}

  setLayout(layout: Layout): void {
    this.clear();
    this.layout = layout;
    this.foundBrackets = findBrackets(layout, this.store.side?.look.groups ?? []);
    this.byHeight = layout.units.map((_, index) => index).sort((a, b) => layout.units[a].y - layout.units[b].y);
    this.buckets = Array.from({ length: Math.ceil((layout.height + 100) / BUCKET) + 1 }, () => []);
    for (const [tensor, indices] of layout.byTensor) {
      const top = Math.min(...indices.map((index) => layout.routes[index].y0));
      const bottom = Math.max(...indices.map((index) => layout.routes[index].y1));
      for (let k = Math.floor(top / BUCKET); k <= Math.floor(bottom / BUCKET); k++) this.buckets[k]?.push(tensor);
    }
    // A model output that nothing visible reads has no route, but it may have a pill.
    for (const tensor of this.store.graph.payload.model_outputs) {
      const unit = layout.units[layout.unitOf[this.store.graph.producer(tensor)]];
      if (!layout.byTensor.has(tensor)) this.buckets[Math.floor(unit.y / BUCKET)]?.push(tensor);
    }
  }

  /** Draw the elements near a box (only its y range counts); unit `always`, the focused one, exists even outside. */
  show(box: Box, always: number): void {
    const layout = this.layout;
    if (layout === null) return;
    const top = box.top - MARGIN;
    const bottom = box.bottom + MARGIN;
    this.sync(this.drawnUnits, this.unitsBetween(top, bottom, always), this.units, (index) => {
      const element = drawUnit(this.store, layout.units[index], this.id(index));
      this.mark(index, element);
      return element;
    });
    const visible = new Set<number>();
    for (let k = Math.max(0, Math.floor(top / BUCKET)); k <= Math.floor(bottom / BUCKET); k++) {
      for (const tensor of this.buckets[k] ?? []) visible.add(tensor);
    }
    for (const [tensor, elements] of this.drawnTensors) {
      if (visible.has(tensor)) continue;
      for (const element of elements) element.remove();
      this.drawnTensors.delete(tensor);
    }
    for (const tensor of visible) if (!this.drawnTensors.has(tensor)) this.drawTensor(tensor);
    const frames = new Set(layout.frames.filter((frame) => frame.y < bottom && frame.y + frame.height > top));
    this.sync(this.drawnFrames, frames, this.frames, drawFrame);
    this.sync(this.drawnTitles, frames, this.titles, (frame) =>
      drawTitle(frame, this.store.graph.layers(frame.block.nodes)),
    );
    const brackets = new Set(this.foundBrackets.filter((found) => found.top < bottom && found.bottom > top));
    this.sync(this.drawnBrackets, brackets, this.brackets, (found) => {
      const element = svg("path", { class: "qdqw-bracket", d: bracketPath(found) });
      this.markBracket(found, element);
      return element;
    });
  }

  id(index: number): string {
    return `${this.idPrefix}-${this.layout?.units[index]?.key ?? index}`;
  }

  element(index: number): SVGGElement | undefined {
    return this.drawnUnits.get(index);
  }

  /** Redraw the units that show these nodes (null for all) and the affected tensors (all if `tensors`). */
  refresh(nodes: ReadonlySet<number> | null, tensors: boolean): void {
    const layout = this.layout;
    if (layout === null) return;
    const changed = nodes === null ? null : new Set([...nodes].map((node) => layout.unitOf[node]));
    for (const [index, element] of this.drawnUnits) {
      const unit = layout.units[index];
      // A closed block shows its number of pairs.
      if (changed === null || changed.has(index) || (tensors && unit.block !== null))
        updateUnit(this.store, unit, element);
    }
    for (const tensor of this.touched(nodes, tensors)) this.drawTensor(tensor);
  }

  setMarks(marks: Marks): void {
    this.marks = marks;
    for (const [index, element] of this.drawnUnits) this.mark(index, element);
    for (const [found, element] of this.drawnBrackets) this.markBracket(found, element);
  }

  private markBracket(found: Bracket, element: SVGElement): void {
    element.classList.toggle(
      "selected",
      found.nodes.some((node) => this.marks.selected.has(node)),
    );
  }

  /** Highlight the edges of a unit; -1 for none. */
  emphasize(index: number): void {
    for (const path of this.edges.querySelectorAll(".near")) path.classList.remove("near");
    if (index < 0 || this.layout === null) return;
    for (const [, elements] of this.drawnTensors) {
      for (const element of elements) {
        const [from, to] = [element.getAttribute("data-from"), element.getAttribute("data-to")];
        if (from === String(index) || to === String(index)) element.classList.add("near");
      }
    }
  }

  private clear(): void {
    const { drawnUnits, drawnTensors, drawnFrames, drawnTitles, drawnBrackets } = this;
    for (const map of [drawnUnits, drawnTensors, drawnFrames, drawnTitles, drawnBrackets]) map.clear();
    const { frames, floatEdges, pairEdges, titles, pills, units, brackets } = this;
    for (const layer of [frames, floatEdges, pairEdges, titles, pills, units, brackets]) layer.replaceChildren();
  }

  private touched(nodes: ReadonlySet<number> | null, tensors: boolean): number[] {
    const drawn = [...this.drawnTensors.keys()];
    if (nodes === null || tensors) return drawn;
    const near = new Set(
      [...nodes].flatMap((node) => [...this.store.graph.payload.inputs[node], ...this.store.graph.outputs(node)]),
    );
    return drawn.filter((tensor) => near.has(tensor));
  }

  private mark(index: number, element: SVGGElement): void {
    const unit = this.layout!.units[index];
    const selected = unit.nodes.every((node) => this.marks.selected.has(node));
    element.classList.toggle("selected", selected);
    element.classList.toggle("hit", this.marks.hits.size > 0 && unit.nodes.some((node) => this.marks.hits.has(node)));
    element.classList.toggle("focus", index === this.marks.focus);
    element.setAttribute("aria-selected", String(selected));
    element.setAttribute("aria-level", String(unit.frames.length + 1));
    if (unit.block !== null) element.setAttribute("aria-expanded", "false");
  }

  private drawTensor(tensor: number): void {
    const layout = this.layout!;
    for (const element of this.drawnTensors.get(tensor) ?? []) element.remove();
    const view = viewTensor(this.store, layout, tensor);
    const elements: Element[] = view.paths.map(({ route, d, quantized }) => {
      const { edge } = layout.routes[route];
      return svg("path", {
        class: quantized ? "qdqw-edge q" : "qdqw-edge",
        d,
        "data-from": edge.from,
        "data-to": edge.to,
      });
    });
    if (view.stub !== null) elements.push(svg("path", { class: "qdqw-edge", d: view.stub }));
    for (const element of elements)
      (element.classList.contains("q") ? this.pairEdges : this.floatEdges).append(element);
    if (view.pill !== null) {
      const pill = drawPill(view.pill, tensor);
      elements.push(pill);
      this.pills.append(pill);
    }
    this.drawnTensors.set(tensor, elements);
  }

  private unitsBetween(top: number, bottom: number, always: number): Set<number> {
    const { units } = this.layout!;
    // A binary search for lower edges in an order of upper ones: all cards have one height.
    let low = 0;
    let high = this.byHeight.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (units[this.byHeight[middle]].y + NODE_HEIGHT < top) low = middle + 1;
      else high = middle;
    }
    const found = new Set<number>();
    for (let k = low; k < this.byHeight.length && units[this.byHeight[k]].y <= bottom; k++) found.add(this.byHeight[k]);
    if (always >= 0 && always < units.length) found.add(always);
    return found;
  }

  private sync<K, E extends SVGElement>(
    drawn: Map<K, E>,
    wanted: Set<K>,
    layer: SVGGElement,
    make: (key: K) => E,
  ): void {
    for (const [key, element] of drawn) {
      if (wanted.has(key)) continue;
      element.remove();
      drawn.delete(key);
    }
    for (const key of wanted) {
      if (drawn.has(key)) continue;
      const element = make(key);
      drawn.set(key, element);
      layer.append(element);
    }
  }
}

function drawFrame(frame: Frame): SVGElement {
  const { x, y, width, height } = frame;
  return svg("rect", { class: "qdqw-frame", x, y, width, height, rx: 10 });
}

/** Draw a frame's title; it lies above the edges, and a halo keeps it readable over them. */
function drawTitle(frame: Frame, count: string): SVGElement {
  const title = clip(frame.block.label, frame.width - 110, 11, 600);
  const label = svg("text", { x: 28, y: HEADER / 2 + 1 }, [title]);
  label.append(svg("tspan", { class: "count", dx: 8 }, [count]));
  return svg(
    "g",
    { class: "qdqw-frametitle", "data-close": frame.block.id, transform: `translate(${frame.x} ${frame.y})` },
    [
      svg("rect", { width: frame.width, height: HEADER }),
      svg("path", { class: "qdqw-chevron", d: `M12 ${HEADER / 2 - 2}l5 5l5 -5` }),
      label,
    ],
  );
}
