// Names beside a graph at a scale too small to read: outer blocks first, then inner ones and layers if there is space.
import { splitPath } from "./collapse";
import { clip, svg } from "./dom";
import type { Graph } from "./graph";
import type { Layout } from "./layout";
import { NODE_HEIGHT, NODE_WIDTH } from "./placed";
import type { Viewport } from "./viewport";

const LINE = 14;
const WIDTH = 150;

interface Label {
  text: string;
  x: number;
  y: number;
  depth: number;
}

export class BlockLabels {
  readonly element = svg("g", { class: "qdqw-labels", "aria-hidden": "true" });
  private all: Label[] = [];

  setLayout(graph: Graph, layout: Layout): void {
    const frames = layout.frames.map(({ block, x, y, width, height, depth }) => ({
      text: block.label,
      x: x + width,
      y: y + height / 2,
      depth,
    }));
    const units = layout.units.map(({ block, nodes, x, y, frames: around }) => ({
      text: block?.label ?? splitPath(graph.name(nodes[0])).base,
      x: x + NODE_WIDTH,
      y: y + NODE_HEIGHT / 2,
      // 100: single layers come after blocks of any depth, and give way to their names.
      depth: around.length + (block === null ? 100 : 0),
    }));
    this.all = [...frames, ...units].sort((a, b) => a.depth - b.depth || a.y - b.y);
  }

  /** Draw the names in screen pixels, independent of the scale; skip those that would overlap others. */
  show({ x, y, scale, size }: Viewport, isSmall: boolean): void {
    const taken: { x: number; y: number; text: string }[] = [];
    for (const label of isSmall ? this.all : []) {
      const at = { x: (label.x - x) * scale + 6, y: (label.y - y) * scale, text: label.text };
      if (at.y < LINE / 2 || at.y > size.height || at.x < 0 || at.x > size.width) continue;
      if (taken.some((other) => Math.abs(other.y - at.y) < LINE && Math.abs(other.x - at.x) < WIDTH)) continue;
      taken.push(at);
    }
    this.element.replaceChildren(...taken.map(({ x, y, text }) => svg("text", { x, y }, [clip(text, WIDTH - 10, 11)])));
  }
}
