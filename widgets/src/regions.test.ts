import { describe, expect, it } from "vitest";
import { graph, RESIDUAL } from "./fixtures";
import { cutRegions, isConnected, nodesBetween, strongComponents, topologicalOrder } from "./regions";

describe("graph algorithms", () => {
  it("orders, and stops at a cycle", () => {
    expect(topologicalOrder([[1], [2], []])).toEqual([0, 1, 2]);
    expect(topologicalOrder([[1], [2], [1]])).toEqual([0]);
  });

  it("cuts where every path passes", () => {
    // 0 -> {1, 2} -> 3 -> 4
    expect(cutRegions([[1, 2], [3], [3], [4], []])).toEqual([[1, 2, 3]]);
    expect(cutRegions([[1], [2], []])).toEqual([]);
  });

  it("finds strong components without recursion", () => {
    expect(strongComponents([[1], [2], [0], []]).filter((component) => component.length > 1)).toEqual([[2, 1, 0]]);
    const long = Array.from({ length: 50_000 }, (_, k) => (k < 49_999 ? [k + 1] : []));
    expect(strongComponents(long)).toHaveLength(50_000);
  });

  it("knows what hangs together and what lies between", () => {
    const of = graph(RESIDUAL);
    expect(isConnected(of, [3, 4])).toBe(true);
    expect(isConnected(of, [1, 6])).toBe(false);
    expect(nodesBetween(of, [2, 5])).toEqual([2, 3, 4, 5]);
  });
});
