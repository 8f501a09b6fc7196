// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { RESIDUAL, storeOf } from "./fixtures";
import { drawUnit, updateUnit } from "./node_draw";

function placed(node: number) {
  return { key: `n${node}`, block: null, nodes: [node], frames: [], x: 0, y: 0, row: 0, column: 0 };
}

/** Draw a layer; `plan` sets its state, `texts` reads its badges. */
function drawn() {
  const { store, model } = storeOf(RESIDUAL);
  const unit = drawUnit(store, placed(3), "u");
  const plan = (revision: number, state: string) => {
    model.say({ type: "plan", revision, target: "tensorrt", mode: "full", states: { 3: state }, why: {}, pairs: {} });
    updateUnit(store, placed(3), unit);
  };
  const texts = () => [...unit.querySelectorAll(".qdqw-badge")].map((badge) => badge.textContent);
  return { store, unit, plan, texts };
}

describe("bits of a site", () => {
  it("a badge says its width where it is not 8 bits, and again when it changes back", () => {
    const { unit, plan, texts } = drawn();
    plan(1, "1:1:0:w=4");
    expect(texts()).toEqual(["I", "W4", "O"]);
    expect(unit.getAttribute("aria-label")).toContain("weights quantized to 4 bits");
    plan(2, "1:1:0:i0=16,w=4");
    expect(texts()).toEqual(["I16", "W4", "O"]);
    expect(unit.querySelector(".title")?.textContent).toBe("Conv2D");
    plan(3, "1:1:0");
    expect(texts()).toEqual(["I", "W", "O"]);
  });

  it("a badge and its text say that weights are in blocks", () => {
    const { store, unit, plan, texts } = drawn();
    plan(1, "0:1:0:w=4,b=32");
    expect(texts()).toEqual(["I", "W4b", "O"]);
    expect(unit.getAttribute("aria-label")).toContain("weights quantized to 4 bits in blocks");
    plan(2, "0:1:0:b=64");
    expect(texts()).toEqual(["I", "W8b", "O"]);
    expect(store.bits([3], "weight")).toBe(8);
    plan(3, "0:0:0:w=4,b=32");
    expect(texts()).toEqual(["I", "W", "O"]);
    expect(unit.getAttribute("aria-label")).not.toContain("blocks");
  });
});
