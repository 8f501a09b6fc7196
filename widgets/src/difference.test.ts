// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { findBlocks } from "./collapse";
import { paintOf } from "./colors";
import { viewTensor } from "./edge_draw";
import { deep, RESIDUAL, storeOf } from "./fixtures";
import { layOut } from "./layout";
import { show, withSizes } from "./page";
import type { Difference, DifferenceRow, FromPython } from "./traits";
import { visibleUnits } from "./units";

withSizes();

function step(revision: number, pairs: Record<string, string[]>, difference?: Difference): FromPython {
  return { type: "plan", revision, target: "tensorrt", mode: "full", states: {}, why: {}, pairs, difference };
}

function difference(...rows: DifferenceRow[]): Difference {
  return { summary: "-1 pair, 1 layer in float", rows, hidden: 0 };
}

describe("what a step changed", () => {
  it("keeps the pairs that are gone as ghosts and marks new ones, until the next step", () => {
    const { store, model } = storeOf(RESIDUAL);
    model.get("plan_state").pairs = { 1: ["int8 symmetric"], 2: ["uint8 asymmetric"] };
    model.say(step(1, { 1: [], 3: ["int8 symmetric"] }, difference([1, "-", "pair on conv"])));
    expect([...store.step.ghosts]).toEqual([[1, ["int8 symmetric"]]]);
    expect([...store.step.fresh]).toEqual([3]);
    expect([...store.step.changed]).toEqual([1]);
    model.say(step(2, {}, difference([5, "F", "sum: int8 to float"])));
    expect([store.step.ghosts.size, store.step.fresh.size, ...store.step.changed]).toEqual([0, 0, 5]);
    store.dismissDifference();
    expect([store.step.difference, store.step.changed.size]).toEqual([null, 0]);
  });

  it("without a difference nothing is marked: another target changes everything", () => {
    const { store, model } = storeOf(RESIDUAL);
    model.say(step(1, { 1: ["int8 symmetric"] }));
    expect([store.step.fresh.size, store.step.difference]).toEqual([0, null]);
  });

  it("draws a ghost where the pair stood", () => {
    const { store, model } = storeOf(RESIDUAL);
    const plan = model.get("plan_state");
    Object.assign(plan.states, { 3: "1:1:0", 5: "01:0:0" });
    plan.pairs = { 2: ["int8 symmetric"] };
    const blocks = findBlocks(store.graph);
    const layout = layOut(visibleUnits(store.graph, blocks, new Set(blocks.all.map((block) => block.id))));
    const before = viewTensor(store, layout, 2).pill;
    const states = { 3: "0:1:0", 5: "00:0:0" };
    model.say({ ...step(1, { 2: [] }, difference([2, "-", "pair on relu"])), states } as FromPython);
    const { pill, stub } = viewTensor(store, layout, 2);
    expect(pill).toEqual({ ...before, step: "ghost" });
    expect(stub).toBeNull();
    store.dismissDifference();
    expect(viewTensor(store, layout, 2).pill).toBeNull();
  });

  it("draws a preview where the pairs would be, and leaves the plan as it is", () => {
    const { store, model } = storeOf(RESIDUAL);
    const plan = model.get("plan_state");
    Object.assign(plan.states, { 3: "1:1:0" });
    plan.pairs = { 2: ["int8 symmetric"] };
    const blocks = findBlocks(store.graph);
    const layout = layOut(visibleUnits(store.graph, blocks, new Set(blocks.all.map((block) => block.id))));
    const pairs = { 2: [], 4: ["int8 symmetric"] };
    model.say({ type: "preview", pairs, difference: difference([4, "+", "pair behind left_2"]) });
    expect(store.step.isPreview).toBe(true);
    expect(viewTensor(store, layout, 2)).toMatchObject({ pill: { step: "ghost" }, paths: [{ quantized: true }, {}] });
    expect(viewTensor(store, layout, 4)).toMatchObject({ pill: { step: "would" }, stub: null });
    expect([store.pairs(2), store.pairs(4)]).toEqual([["int8 symmetric"], []]);
    model.say({ type: "preview", pairs: {}, difference: null });
    expect([store.step.isPreview, viewTensor(store, layout, 4).pill]).toEqual([false, null]);
  });

  it("says it in the footer, and opens a list whose rows lead to their layers", () => {
    const { model, find, unit } = show(RESIDUAL);
    const [line, list] = [find(".qdqw-diffline"), find(".qdqw-diff")];
    expect([line.hidden, list.hidden]).toEqual([true, true]);
    model.say(step(1, {}, difference([3, "-", "weights of left_1"], [5, "F", "<b>sum</b>: int8 to float"])));
    expect([line.hidden, list.hidden]).toEqual([false, true]); // not opened automatically, as it covers cards
    const summary = line.querySelector("button") as HTMLElement;
    expect(summary.textContent).toBe("-1 pair, 1 layer in float");
    expect(summary.getAttribute("aria-expanded")).toBe("false");
    summary.click();
    expect([list.hidden, summary.getAttribute("aria-expanded")]).toEqual([false, "true"]);
    const rows = [...list.querySelectorAll<HTMLElement>("li button")];
    expect(rows.map((row) => row.textContent)).toEqual(["−weights of left_1", "F<b>sum</b>: int8 to float"]);
    expect(unit("Add sum").classList.contains("changed")).toBe(true);
    rows[1].click();
    expect(model.get("selection")).toEqual(["sum"]);
    (line.querySelectorAll("button")[1] as HTMLElement).click();
    expect([line.hidden, list.hidden]).toEqual([true, true]);
    expect(unit("Add sum").classList.contains("changed")).toBe(false);
  });

  it("says how many rows are left out, and that a preview is one", () => {
    const { model, find } = show(deep(10));
    const rows = Array.from({ length: 9 }, (_, node): DifferenceRow => [node + 1, "+", `pair ${node}`]);
    model.say({ type: "preview", pairs: {}, difference: { summary: "+9 pairs", rows, hidden: 40 } });
    expect(find(".qdqw-diffline button").textContent).toBe("Preview: +9 pairs");
    expect(find(".qdqw-diff ul").lastElementChild?.textContent).toBe("and 40 more");
  });
});

describe("the verdict on the card", () => {
  it("is hatched where the plan quantizes what the target leaves in float", () => {
    const { store, model } = storeOf(RESIDUAL);
    model.get("plan_state").states[1] = "1:1:0";
    model.get("plan_state").states[3] = "1:0:0";
    model.receive("colors", {
      mode: "precision",
      statuses: ["int8", "float", "partial"],
      status_of: [-1, 1, 1, 1, 0, 1, 2],
    });
    expect([1, 2, 3, 4, 5, 6].map((node) => paintOf(store, [node]).hatched)).toEqual([
      true, // planned, float
      false, // nothing planned
      true, // planned in part, float
      false, // int8
      false,
      false, // in part, nothing planned
    ]);
    expect(paintOf(store, [1, 2]).hatched).toBe(true);
  });
});
