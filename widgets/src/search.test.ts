import { describe, expect, it } from "vitest";
import { RESIDUAL, storeOf } from "./fixtures";
import { parse, search } from "./search";

describe("search", () => {
  const { store, model } = storeOf([
    ...RESIDUAL,
    ["__proto__", "Dense", ["dense"]],
    ["constructor", "Dense", ["__proto__"]],
  ]);
  model.get("plan_state").states[1] = "1:1:0";

  it("finds by name and class, all words at once", () => {
    expect(search(store, "left")).toEqual([3, 4]);
    expect(search(store, "conv2d left_1")).toEqual([3]);
    expect(search(store, "class:activation")).toEqual([2]);
    expect(search(store, "name:conv")).toEqual([1]);
  });

  it("finds by precision, and turns round", () => {
    expect(search(store, "int8")).toEqual([1]);
    expect(search(store, "conv2d not int8")).toEqual([3, 4]);
    expect(search(store, "conv2d -left")).toEqual([1]);
  });

  it("leaves out what has no verdict", () => {
    expect(search(store, "not int8")).toEqual([3, 4, 6, 7, 8]);
    expect(search(store, "float activation")).toEqual([]);
  });

  it("goes by the target's verdict where it is shown", () => {
    model.receive("colors", {
      mode: "precision",
      statuses: ["int8", "float"],
      status_of: store.graph.payload.names.map((_, k) => (k === 2 ? 1 : 0)),
      why: [],
      reasons: [""],
    });
    expect(search(store, "not int8")).toEqual([2]);
  });

  it("treats names of objects as names", () => {
    expect(search(store, "__proto__")).toEqual([7]);
    expect(search(store, "constructor")).toEqual([8]);
  });

  it("finds nothing for nothing", () => {
    expect(search(store, "  ")).toEqual([]);
    expect(parse("not not a")).toEqual([{ word: "a", negated: true }]);
  });
});
