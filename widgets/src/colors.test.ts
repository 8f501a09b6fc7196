import { describe, expect, it } from "vitest";
import { formatNumber, metricRange, paintOf } from "./colors";
import { RESIDUAL, storeOf } from "./fixtures";

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

  it("by a metric: the worst of a block counts", () => {
    const { store, model } = storeOf(RESIDUAL);
    model.receive("colors", {
      mode: "sqnr",
      legend: { better: "high" },
      unit: "dB",
      values: [null, 10, 20, 40, null, null, null],
    });
    expect(paintOf(store, [1, 2])).toMatchObject({ kind: "metric", label: "worst 10 dB" });
    expect(paintOf(store, [3]).label).toBe("40 dB");
    expect(paintOf(store, [5]).kind).toBe("blank");
    expect(metricRange(store.colors)).toEqual([10, 40]);
    expect(metricRange({ mode: "x", values: [null] })).toEqual([0, 1]);
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
