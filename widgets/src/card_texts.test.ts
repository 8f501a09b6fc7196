// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { deep } from "./fixtures";
import { show, withSizes } from "./page";

withSizes();

describe("the text of a card", () => {
  it("a closed block counts pairs as the footer does, also several on one tensor", () => {
    const { model, unit, find } = show(deep(20));
    const plan = { revision: 1, target: "tensorrt", mode: "full", states: {}, why: {} };
    model.say({ type: "plan", ...plan, pairs: { 9: ["int8"], 12: ["int8", "uint8"] } });
    expect(unit("block block3").querySelector(".name")!.textContent).toBe("4 layers · 3 Q·DQ");
    expect(unit("block block4").querySelector(".name")!.textContent).toBe("4 layers");
    expect(find(".qdqw-status").textContent).toContain("· 3 Q·DQ");
  });
});
