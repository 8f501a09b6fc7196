import { describe, expect, it } from "vitest";
import { findBlocks } from "./collapse";
import { pathOf, viewTensor } from "./edge_draw";
import { RESIDUAL, storeOf } from "./fixtures";
import { layOut } from "./layout";
import { visibleUnits } from "./units";

function scene() {
  const { store, model } = storeOf(RESIDUAL);
  const blocks = findBlocks(store.graph);
  const layout = layOut(visibleUnits(store.graph, blocks, new Set(blocks.all.map((block) => block.id))));
  return { store, model, layout };
}

describe("pairs on tensors", () => {
  it("draws no pair for float readers", () => {
    const { store, layout } = scene();
    expect(viewTensor(store, layout, 2)).toMatchObject({ pill: null, stub: null });
  });

  it("draws one pair at the tensor, however many read it", () => {
    const { store, model, layout } = scene();
    const plan = model.get("plan_state");
    Object.assign(plan.states, { 3: "1:1:0", 5: "01:0:0" });
    plan.pairs[2] = ["int8 symmetric"];
    const view = viewTensor(store, layout, 2);
    expect(view.paths.map((path) => path.quantized)).toEqual([true, true]);
    expect(view.pill?.text).toBe("Q·DQ");
  });

  it("lets a float reader out beside the pair", () => {
    const { store, model, layout } = scene();
    model.get("plan_state").states[3] = "1:1:0";
    const view = viewTensor(store, layout, 2);
    const starts = view.paths.map((path) => Number(/^M(-?[\d.]+)/.exec(path.d)?.[1]));
    expect(starts[1] - starts[0]).toBe(44);
    expect(view.pill?.x).toBe(starts[0]);
  });

  it("shows several grids on one tensor, and the pair of a model's output", () => {
    const { store, model, layout } = scene();
    const plan = model.get("plan_state");
    plan.states[3] = "1:1:0";
    plan.pairs[2] = ["int8 symmetric", "uint8 asymmetric"];
    plan.pairs[6] = ["int8 symmetric"];
    expect(viewTensor(store, layout, 2).pill?.text).toBe("Q·DQ ×2");
    expect(viewTensor(store, layout, 6).pill).not.toBeNull();
  });

  it("rounds corners", () => {
    const route = {
      edge: { from: 0, to: 1, tensor: 0 },
      x0: 0,
      y0: 0,
      track: 50,
      x1: 20,
      y1: 100,
      upper: 20,
      lower: 20,
      entry: 80,
      isStraight: false,
    };
    expect(pathOf(route, 0, 20)).toBe(
      "M0 0L0 14Q0 20 6 20L44 20Q50 20 50 26L50 74Q50 80 44 80L26 80Q20 80 20 86L20 100M17 95L20 99L23 95",
    );
  });
});
