// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { formatNumber, metricRange, mixed, paintOf } from "./colors";
import { RESIDUAL, storeOf } from "./fixtures";
import { show, withSizes } from "./page";

withSizes();

describe("colours", () => {
  it("by precision: one letter each, mixed blocks half", () => {
    const { store, model } = storeOf(RESIDUAL);
    const status_of = [-1, 0, 0, 1, 2, 0, 3];
    model.receive("colors", {
      mode: "precision",
      statuses: ["int8", "float", "partial", "int4"],
      status_of,
      reasons: ["", "why"],
      why: [0, 1, 0, 0, 0, 0, 0],
    });
    expect(paintOf(store, [0])).toMatchObject({ kind: "blank" });
    expect(paintOf(store, [1])).toMatchObject({ kind: "int8", letter: "8", reason: "why" });
    expect(paintOf(store, [3])).toMatchObject({ kind: "float", letter: "F" });
    expect(paintOf(store, [4])).toMatchObject({ kind: "partial", letter: "½" });
    expect(paintOf(store, [6])).toMatchObject({ kind: "other", letter: "4" });
    expect(paintOf(store, [1, 3])).toMatchObject({ kind: "partial" });
    expect(paintOf(store, [0, 1, 2])).toMatchObject({ kind: "int8" });
  });

  it("what vanishes is pale, without a number or hatching, and no part of a block's verdict", () => {
    const { store, model } = storeOf(RESIDUAL);
    const statuses = ["int8", "float", "vanishes"];
    model.receive("colors", {
      mode: "precision",
      statuses,
      status_of: [-1, 0, 2, 1, 2, 0, 0],
      reasons: ["", "it does nothing"],
      why: [0, 0, 1, 0, 0, 0, 0],
    });
    expect(paintOf(store, [2])).toEqual({ kind: "blank", letter: "", reason: "it does nothing", hatched: false });
    expect(paintOf(store, [1, 2])).toMatchObject({ kind: "int8", letter: "8" });
    expect(paintOf(store, [2, 3])).toMatchObject({ kind: "float", letter: "F" });
    expect(paintOf(store, [1, 2, 3])).toMatchObject({ kind: "partial" });
    expect(paintOf(store, [2, 4])).toMatchObject({ kind: "blank", letter: "" });
  });

  it("the legend names what vanishes where there is such a layer", () => {
    const { model, find } = show(RESIDUAL);
    const legend = (statuses: string[]) => {
      model.receive("colors", { mode: "precision", statuses, status_of: [-1, 0, 0, 1, 0, 0, 0] });
      return find(".qdqw-legend").textContent;
    };
    expect(legend(["int8", "vanishes"])).toContain("vanishes");
    expect(legend(["int8", "float"])).not.toContain("vanishes");
  });

  it("by a metric: the worst of a block counts", () => {
    const { store, model } = storeOf(RESIDUAL);
    model.receive("colors", {
      mode: "sqnr",
      legend: { better: "high" },
      unit: "dB",
      values: [null, 10, 20, 40, null, null, null],
    });
    expect(paintOf(store, [1, 2])).toMatchObject({ kind: "metric", label: "lowest 10 dB" });
    expect(paintOf(store, [3]).label).toBe("40 dB");
    expect(paintOf(store, [5]).kind).toBe("blank");
    expect(metricRange(store.colors)).toEqual([10, 40]);
    expect(metricRange({ mode: "x", values: [null] })).toEqual([0, 1]);
  });

  it("goes through the colours of the scale without steps, from dark blue to yellow", () => {
    expect([mixed(0), mixed(1)]).toEqual(["#00224e", "#e1cc55"]);
    const fine = Array.from({ length: 101 }, (_, k) => mixed(k / 100));
    expect(new Set(fine).size).toBe(101);
  });

  it("a logarithmic scale puts the geometric mean in its middle", () => {
    const { store, model } = storeOf(RESIDUAL);
    const values = [null, 1, 100, 10_000, null, null, null];
    model.receive("colors", { mode: "size", legend: { scale: "log" }, values });
    expect(paintOf(store, [2]).fill).toBe(mixed(0.5));
    model.receive("colors", { mode: "size", legend: {}, values });
    expect(paintOf(store, [2]).fill).not.toBe(mixed(0.5));
  });

  it("says the width of the weights where it is not 8 bits", () => {
    const { store, model } = storeOf(RESIDUAL);
    model.say({
      type: "plan",
      revision: 1,
      target: "tensorrt",
      mode: "full",
      states: { 1: "1:1:0:w=4", 3: "1:1:0", 4: "1:1:0:i0=16,w=4" },
      why: {},
      pairs: {},
    });
    expect(paintOf(store, [1])).toMatchObject({ kind: "other", letter: "4" });
    expect(paintOf(store, [3])).toMatchObject({ kind: "int8", letter: "8" });
    expect(paintOf(store, [3, 4]).letter).toBe("…");
    expect(store.bits([4], "input")).toBe(16);
    expect(store.hasOtherWidths).toBe(true);
  });

  it("formats numbers short", () => {
    expect([0, 1.23456, 12_345, 2_500_000, 0.00012].map(formatNumber)).toEqual([
      "0",
      "1.23",
      "12.3k",
      "2.5M",
      "1.2e-4",
    ]);
  });
});
