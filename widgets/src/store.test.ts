import { describe, expect, it } from "vitest";
import { payload, RESIDUAL, storeOf } from "./fixtures";
import { badgesOf } from "./node_draw";
import type { PlanChanges } from "./traits";

function changes(
  revision: number,
  states: Record<string, string>,
  pairs: Record<string, string[]> = {},
): { type: "plan" } & PlanChanges {
  return { type: "plan", revision, target: "tensorrt", mode: "full", states, why: {}, pairs };
}

describe("store", () => {
  it("reads the states", () => {
    const { store, model } = storeOf(RESIDUAL);
    model.say(changes(1, { 1: "1:1:0", 5: "02:0:1" }, { 0: ["int8 symmetric"] }));
    expect([store.isOn(1, "input"), store.isOn(1, "weight"), store.isOn(1, "output")]).toEqual([true, true, false]);
    expect([store.isOn(5, "input", 0), store.isOn(5, "input", 1), store.isOn(5, "output")]).toEqual([
      false,
      true,
      true,
    ]);
    expect(store.pairs(0)).toEqual(["int8 symmetric"]);
  });

  it("sends one small message for a click and paints at once", () => {
    const { store, model } = storeOf(RESIDUAL);
    let painted: number[] = [];
    store.subscribe(
      (change) => (painted = [...(change.nodes ?? [])]),
      () => {},
    );
    store.toggle([1], "input", null);
    expect(model.sent).toEqual([
      { type: "action", id: 1, action: "toggle", nodes: [1], site: "input", index: null, on: true },
    ]);
    expect(store.isOn(1, "input")).toBe(true);
    expect(painted).toEqual([1]);
  });

  it("takes back what Python refused", () => {
    const { store, model } = storeOf(RESIDUAL);
    store.toggle([1], "weight", null);
    model.say({ type: "done", id: 1 });
    expect(store.isOn(1, "weight")).toBe(false);
  });

  it("keeps what was painted later than the answer", () => {
    const { store, model } = storeOf(RESIDUAL);
    store.toggle([1], "weight", null);
    store.toggle([3], "weight", null);
    model.say(changes(1, { 1: "0:1:0" }));
    model.say({ type: "done", id: 1 });
    expect([store.isOn(1, "weight"), store.isOn(3, "weight")]).toEqual([true, true]);
    model.say({ type: "done", id: 2 });
    expect(store.isOn(3, "weight")).toBe(false);
  });

  it("changes the model's state in place, so that a saved notebook holds it", () => {
    const { model } = storeOf(RESIDUAL);
    const before = model.get("plan_state");
    model.say(changes(1, { 1: "1:1:0" }, { 0: ["int8 symmetric"] }));
    expect(model.get("plan_state")).toBe(before);
    expect(before.states[1]).toBe("1:1:0");
    model.say(changes(2, {}, { 0: [] }));
    expect(before.pairs).toEqual({});
  });

  it("asks for the whole state when it missed a change, and ignores what it knows", () => {
    const { model } = storeOf(RESIDUAL);
    model.say(changes(3, { 1: "1:1:0" }));
    expect(model.sent).toEqual([{ type: "resync" }]);
    expect(model.get("plan_state").revision).toBe(0);
    model.say(changes(0, { 1: "1:1:0" }));
    expect(model.sent).toHaveLength(1);
  });

  it("asks for the whole state when it missed a single change", () => {
    const { model } = storeOf(RESIDUAL);
    model.say(changes(2, { 1: "1:1:0" }));
    expect(model.sent).toEqual([{ type: "resync" }]);
    expect(model.get("plan_state").revision).toBe(0);
  });

  it("counts coverage over possible sites only", () => {
    const { store, model } = storeOf(RESIDUAL);
    expect(store.coverage([2], "weight")).toBe("impossible");
    model.say(changes(1, { 3: "0:1:0" }));
    expect(store.coverage([2, 3, 4], "weight")).toBe("some");
    expect(store.coverage([3], "weight")).toBe("all");
    expect(store.toggle([0, 2], "weight", null)).toBeNull();
  });

  it("a toggle of a partly quantized group quantizes all of it, then none", () => {
    const { store, model } = storeOf(RESIDUAL);
    model.say(changes(1, { 3: "0:1:0" }));
    store.toggle([2, 3, 4], "weight", null);
    expect(model.sent[0]).toMatchObject({ nodes: [3, 4], on: true });
    store.toggle([2, 3, 4], "weight", null);
    expect(model.sent[1]).toMatchObject({ nodes: [3, 4], on: false });
  });

  it("judges blocks by their layers with weights", () => {
    const { store, model } = storeOf(RESIDUAL);
    expect(store.precision([2])).toBeNull();
    expect(store.precision([2, 3])).toBe("float");
    model.say(changes(1, { 3: "1:1:0" }));
    expect(store.precision([2, 3])).toBe("int8");
    expect(store.precision([3, 4])).toBe("partial");
  });

  it("inputs without real numbers, such as masks, neither count nor can be switched", () => {
    const { store, model } = storeOf(RESIDUAL, { graph: { ...payload(RESIDUAL), unreal: [[5, 1]] } });
    model.say(changes(1, { 5: "10:0:0" }));
    expect(store.coverage([5], "input")).toBe("all");
    expect(store.coverage([5], "input", 1)).toBe("impossible");
    expect(store.toggle([5], "input", 1)).toBe(null);
    store.toggle([5], "input", null, true);
    expect(store.isOn(5, "input", 1)).toBe(false);
    const unit = { nodes: [5], block: null };
    expect(badgesOf(store, unit).map(({ text }) => text)).toEqual(["I", "W", "O"]); // none for the mask
    expect(badgesOf(storeOf(RESIDUAL).store, unit).map(({ text }) => text)).toEqual(["I0", "I1", "W", "O"]);
  });
});
