import { describe, expect, it } from "vitest";
import { byPrefix, bySuffix, findBlocks, isAutomatic, splitPath } from "./collapse";
import { deep, graph, type Line, RESIDUAL } from "./fixtures";
import { topologicalOrder } from "./regions";
import { visibleUnits } from "./units";

function closed(lines: Line[]) {
  const of = graph(lines);
  const blocks = findBlocks(of);
  return { blocks: blocks.all, visible: visibleUnits(of, blocks, new Set()) };
}

function isAcyclic(visible: ReturnType<typeof visibleUnits>): boolean {
  const successors = visible.units.map(() => [] as number[]);
  for (const edge of visible.edges) successors[edge.from].push(edge.to);
  return topologicalOrder(successors).length === visible.units.length;
}

describe("blocks by name", () => {
  it("groups repeated prefixes, each block once", () => {
    const { blocks, visible } = closed(deep(5));
    expect(blocks.map((block) => block.label)).toEqual(["block1", "block2", "block3", "block4", "block5"]);
    expect(visible.units).toHaveLength(6);
    expect(isAcyclic(visible)).toBe(true);
  });

  it("does not group what Keras numbered", () => {
    expect(isAutomatic("conv2d_17", "Conv2D")).toBe(true);
    expect(isAutomatic("body/batch_normalization#2", "BatchNormalization")).toBe(true);
    expect(isAutomatic("conv2_block1_bn", "BatchNormalization")).toBe(false);
    const lines: Line[] = [["image", "InputLayer"]];
    for (let k = 0; k < 9; k++) lines.push([`conv2d_${k}`, "Conv2D", [lines[k][0]]]);
    expect(closed(lines).blocks).toEqual([]);
  });

  it("takes the longest prefixes that are not too long", () => {
    const names = [1, 2].flatMap((block) =>
      [1, 2, 3, 4].flatMap((k) => Array.from({ length: 4 }, (_, i) => `conv${block}_part${k}_${"abcd"[i]}`)),
    );
    expect([...byPrefix(names).keys()]).toEqual(["conv1", "conv2"]);
    const longer = Array.from({ length: 30 }, (_, k) => `conv1_part${k % 3}_x${k}`);
    expect([...byPrefix(longer).keys()]).toEqual(["conv1_part0", "conv1_part1", "conv1_part2"]);
  });

  it("finds the cells of generated networks by how names end", () => {
    const names = ["normal", "left", "right", "up", "down", "add"].flatMap((part) => [`${part}_7`, `${part}_reduce_7`]);
    expect([...bySuffix(names).keys()].sort()).toEqual(["cell 7", "cell reduce_7"]);
  });

  it("takes in what lies between members, whatever it is called", () => {
    const { blocks } = closed([
      ["image", "InputLayer"],
      ["stage_a", "Conv2D", ["image"]],
      ["activation_3", "Activation", ["stage_a"]],
      ["stage_b", "Conv2D", ["activation_3"]],
      ["stage_c", "Dense", ["stage_b"]],
      ["out", "Dense", ["stage_c"]],
    ]);
    expect(blocks).toHaveLength(1);
    expect(blocks[0].nodes).toEqual([1, 2, 3, 4]);
  });
});

describe("blocks by structure", () => {
  it("makes nested models groups, calls of one model apart", () => {
    const lines: Line[] = [["image", "InputLayer"]];
    for (const call of ["", "#1"]) {
      const before = lines[lines.length - 1][0];
      lines.push([`body/stem/conv${call}`, "Conv2D", [before]]);
      lines.push([`body/head${call}`, "Dense", [`body/stem/conv${call}`]]);
    }
    const { blocks, visible } = closed(lines);
    expect(blocks.map((block) => block.label)).toEqual(["body", "stem", "body#1", "stem#1"]);
    expect(blocks[1].parent).toBe(blocks[0]);
    expect(visible.units.map((unit) => unit.key)).toEqual(["n0", "b0", "b2"]);
  });

  it("finds regions with one way in and one way out", () => {
    const { blocks } = closed([
      ...RESIDUAL.slice(0, 4),
      ["left_2", "BatchNormalization", ["left_1"]],
      ["extra", "Conv2D", ["left_2"]],
      ["sum", "Add", ["extra", "relu"]],
      ["dense", "Dense", ["sum"]],
    ]);
    expect(blocks).toHaveLength(1);
    expect(blocks[0]).toMatchObject({ kind: "region", label: "sum", nodes: [3, 4, 5, 6] });
  });

  it("never makes a cycle", () => {
    // If both blocks were closed, `a` would feed `b` (a_one -> b_one) and `b` would feed `a` (b_three -> a_three).
    const { visible } = closed([
      ["x", "InputLayer"],
      ["a_one", "Conv2D", ["x"]],
      ["b_one", "Conv2D", ["a_one"]],
      ["b_two", "Dense", ["b_one"]],
      ["b_three", "Add", ["b_two", "b_one"]],
      ["a_two", "Dense", ["a_one"]],
      ["a_three", "Add", ["a_two", "b_three"]],
    ]);
    expect(isAcyclic(visible)).toBe(true);
    expect(visible.units.length).toBeLessThan(7);
  });

  it("puts every node into one block of a level", () => {
    for (const lines of [
      deep(5),
      RESIDUAL,
      [...deep(3), ["tail_a", "Dense", ["block3_add"]], ["tail_b", "Add", ["tail_a", "block1_add"]]] as Line[],
    ]) {
      const { blocks } = closed(lines);
      for (const block of blocks) {
        for (const other of blocks) {
          if (other !== block && other.parent === block.parent)
            expect(other.nodes.filter((node) => block.nodes.includes(node))).toEqual([]);
        }
      }
    }
  });

  it("splits paths", () => {
    expect(splitPath("a/b/conv#1")).toEqual({ folders: ["a", "b"], base: "conv#1", call: "#1" });
    expect(splitPath("conv#1")).toEqual({ folders: [], base: "conv#1", call: "" });
  });
});
