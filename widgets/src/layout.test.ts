import { describe, expect, it } from "vitest";
import { findBlocks } from "./collapse";
import { deep, graph, type Line, RESIDUAL } from "./fixtures";
import { type Layout, layOut } from "./layout";
import { Levels } from "./levels";
import { NODE_HEIGHT, NODE_WIDTH } from "./placed";
import { visibleUnits } from "./units";

function open(lines: Line[], which: "all" | "none" = "all"): Layout {
  const of = graph(lines);
  const blocks = findBlocks(of);
  return layOut(visibleUnits(of, blocks, new Set(which === "all" ? blocks.all.map((block) => block.id) : [])));
}

/** Random directed graphs: every node reads one to three earlier ones. */
function random(size: number, seed: number): Line[] {
  let state = seed;
  const next = (below: number) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
  const lines: Line[] = [["n0", "InputLayer"]];
  for (let k = 1; k < size; k++) {
    const near = Array.from({ length: 1 + next(3) }, () => `n${Math.max(0, k - 1 - next(6))}`);
    lines.push([`n${k}`, "Add", [...new Set(near)]]);
  }
  return lines;
}

function overlaps(layout: Layout): number {
  const cells = new Set(layout.units.map((unit) => `${unit.column} ${unit.row}`));
  return layout.units.length - cells.size;
}

type Microseconds = { user: number };
/** Node's, without all of its types: processor time does not count what other processes take. */
declare const process: { cpuUsage(since?: Microseconds): Microseconds };

describe("layout", () => {
  it("puts a chain into one column, all edges straight", () => {
    const layout = open([
      ["a", "InputLayer"],
      ["b", "Dense", ["a"]],
      ["c", "Dense", ["b"]],
    ]);
    expect(layout.units.map((unit) => [unit.column, unit.row])).toEqual([
      [0, 0],
      [0, 1],
      [0, 2],
    ]);
    expect(layout.routes.every((route) => route.isStraight)).toBe(true);
  });

  it("leads a shortcut past the branch in a lane of its own", () => {
    const layout = open(RESIDUAL);
    const shortcut = layout.routes.find((route) => route.y1 - route.y0 > 2 * NODE_HEIGHT);
    expect(shortcut?.track).toBeGreaterThan(NODE_WIDTH);
    expect(new Set(layout.units.map((unit) => unit.column))).toEqual(new Set([0]));
  });

  it("never overlaps, and every edge goes down", () => {
    for (let seed = 1; seed <= 30; seed++) {
      const layout = open(random(60, seed));
      expect(overlaps(layout)).toBe(0);
      for (const route of layout.routes) {
        expect(route.y1).toBeGreaterThan(route.y0);
        expect(route.entry).toBeGreaterThan(route.y0);
      }
    }
  });

  it("no edge runs through a card", () => {
    for (let seed = 1; seed <= 20; seed++) {
      const layout = open(random(40, seed));
      for (const { edge, track, y0, y1 } of layout.routes) {
        const hit = layout.units.some((unit, index) => {
          const between = unit.y >= y0 && unit.y + NODE_HEIGHT <= y1;
          return index !== edge.from && index !== edge.to && between && track > unit.x && track < unit.x + NODE_WIDTH;
        });
        expect(hit).toBe(false);
      }
    }
  });

  it("gives edges that arrive together places of their own", () => {
    const layout = open(RESIDUAL);
    const arriving = layout.routes
      .filter((route) => layout.units[route.edge.to].nodes[0] === 5)
      .map((route) => route.x1);
    expect(new Set(arriving).size).toBe(2);
  });

  it("frames hold exactly their members' cards", () => {
    const layout = open(deep(3));
    expect(layout.frames).toHaveLength(3);
    for (const frame of layout.frames) {
      for (const unit of layout.units) {
        const inside = unit.y >= frame.y && unit.y + NODE_HEIGHT <= frame.y + frame.height && unit.x >= frame.x;
        expect(inside).toBe(frame.block.nodes.includes(unit.nodes[0]));
      }
    }
  });

  it("keeps frames of neighbouring blocks apart", () => {
    const frames = open(deep(4)).frames.sort((a, b) => a.y - b.y);
    for (let k = 1; k < frames.length; k++) expect(frames[k].y).toBeGreaterThan(frames[k - 1].y + frames[k - 1].height);
  });

  it("frames of inner blocks lie inside the outer one, at every side", () => {
    const lines = deep(3).map(([name, className, inputs = []]): Line => {
      const path = (part: string) => (part === "image" ? part : `body/${part}`);
      return [path(name), className, inputs.map(path)];
    });
    const frames = open([...lines, ["out", "Dense", ["body/block3_add"]]]).frames;
    const outer = frames.find((frame) => frame.block.label === "body")!;
    for (const inner of frames.filter((frame) => frame !== outer)) {
      expect(inner.x).toBeGreaterThan(outer.x);
      expect(inner.y).toBeGreaterThan(outer.y);
      expect(inner.x + inner.width).toBeLessThan(outer.x + outer.width);
      expect(inner.y + inner.height).toBeLessThan(outer.y + outer.height);
    }
  });

  it("places a late input right above its reader", () => {
    const layout = open([
      ["a", "InputLayer"],
      ["b", "Dense", ["a"]],
      ["c", "Dense", ["b"]],
      ["mask", "InputLayer"],
      ["d", "Multiply", ["c", "mask"]],
    ]);
    expect(layout.units[3].row).toBe(2);
  });

  it("lays out 3,000 nodes in linear time", () => {
    const time = (blocks: number) => {
      const lines = deep(blocks);
      const start = process.cpuUsage();
      open(lines);
      return process.cpuUsage(start).user / 1e6;
    };
    time(50);
    // Seconds of processor time, far above the actual 0.1 s: a quadratic layout would take minutes.
    expect(time(750)).toBeLessThan(5);
  });

  it("draws an empty graph", () => {
    expect(layOut({ units: [], edges: [], unitOf: [] }).width).toBe(0);
  });
});

describe("levels", () => {
  it("gives overlapping stretches different heights", () => {
    const levels = new Levels();
    expect([levels.take(0, 10), levels.take(5, 15), levels.take(20, 30)]).toEqual([0, 1, 0]);
    expect(levels.count).toBe(2);
  });
});
