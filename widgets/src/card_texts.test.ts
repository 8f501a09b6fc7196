// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { deep, payload } from "./fixtures";
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

  it("a layer that is called twice is counted once: in a block, in the footer, and where its calls are selected", () => {
    const lines = deep(20);
    const block = lines.flatMap(([name], node) => (name.startsWith("block3_") ? [node] : []));
    const calls = [[block[2], block[0]]] as [number, number][];
    const { unit, find, key } = show(lines, { graph: { ...payload(lines), calls } });
    const status = () => find(".qdqw-status").textContent;
    expect(unit("block block3").querySelector(".name")!.textContent).toContain("3 layers");
    expect(unit("block block3").getAttribute("aria-label")).toContain("3 layers");
    expect(status()).toContain(`${lines.length - 1} layers`);
    key("a", { ctrlKey: true });
    expect(status()).toContain(`${lines.length - 1} layers selected`);
  });
});
