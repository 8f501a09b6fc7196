// @vitest-environment happy-dom
import { describe, expect, it, vi } from "vitest";
import { deep, FakeModel, type Line, payload, RESIDUAL } from "./fixtures";
import widget from "./index";
import { show, withSizes } from "./page";
import queries from "./queries.json";
import { search } from "./search";
import { Store } from "./store";

withSizes();

/** A chain of layers whose names form no block. */
const CHAIN: Line[] = Array.from({ length: 30 }, (_, k) => [
  `${String.fromCharCode(97 + (k % 26))}${k}`,
  "ReLU",
  k === 0 ? [] : [`${String.fromCharCode(97 + ((k - 1) % 26))}${k - 1}`],
]);

const point = (x: number, y: number, more: PointerEventInit = {}) => ({
  bubbles: true,
  button: 0,
  clientX: x,
  clientY: y,
  ...more,
});

describe("rows", () => {
  it("fourteen layers stand in a graph 560 pixels high", () => {
    // 560 pixels without the border, the toolbar and one footer line.
    vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(560 - 2 - 39 - 35);
    const { all, picture } = show(CHAIN);
    const [, y, scale] = /translate\(\S+ (\S+)\) scale\((\S+)\)/
      .exec(picture.querySelector("g")!.getAttribute("transform")!)!
      .map(Number);
    const bottoms = all(".qdqw-unit").map((unit) => {
      const top = Number(/translate\(\S+ (\S+)\)/.exec(unit.getAttribute("transform")!)![1]);
      return (top + 24) * scale + y;
    });
    expect(scale).toBe(1);
    expect(bottoms.filter((bottom) => bottom <= 484).length).toBeGreaterThanOrEqual(14);
  });

  it("an edge ends in an arrow", () => {
    const { all } = show(RESIDUAL);
    expect(
      all(".qdqw-edge[data-from]").every((edge) => /M\S+ \S+L\S+ \S+L\S+ \S+$/.test(edge.getAttribute("d")!)),
    ).toBe(true);
  });

  it("names blocks, at a size to read, where rows are too small, and none over another", () => {
    const { all, find, key } = show(deep(40));
    expect(all(".qdqw-labels text")).toHaveLength(0);
    (find("button[aria-label^='Open all']") as HTMLElement).click();
    for (let k = 0; k < 8; k++) key("-");
    const waited = new Promise<void>((resolve) => {
      requestAnimationFrame(() => {
        const labels = all(".qdqw-labels text");
        expect(labels.map((label) => label.textContent)).toContain("block3");
        const places = labels.map((label) => Number(label.getAttribute("y"))).sort((a, b) => a - b);
        expect(places.every((place, k) => k === 0 || place - places[k - 1] >= 14)).toBe(true);
        resolve();
      });
    });
    return waited;
  });
});

describe("a rectangle", () => {
  it("selects what it touches, with Shift, or after its button; Ctrl adds", () => {
    const { model, picture, find, all } = show(RESIDUAL);
    const drag = (from: [number, number], to: [number, number], more: PointerEventInit = {}) => {
      picture.dispatchEvent(new PointerEvent("pointerdown", point(...from, more)));
      picture.dispatchEvent(new PointerEvent("pointermove", point(...to, more)));
      const shown = find(".qdqw-region").getAttribute("visibility");
      picture.dispatchEvent(new PointerEvent("pointerup", point(...to, more)));
      expect(find(".qdqw-region").getAttribute("visibility")).toBe("hidden");
      return shown;
    };
    const [, , y] = /translate\((\S+) (\S+)\)/
      .exec(picture.querySelector("g")!.getAttribute("transform")!)!
      .map(Number);
    const middle = (name: string) => {
      const unit = all(".qdqw-unit").find((card) => card.getAttribute("aria-label")!.includes(name))!;
      return Number(/translate\(\S+ (\S+)\)/.exec(unit.getAttribute("transform")!)![1]) + y + 12;
    };
    const before = picture.querySelector("g")!.getAttribute("transform");
    expect(drag([700, middle("relu")], [0, middle("Conv2D conv")], { shiftKey: true })).toBe("visible");
    expect(model.get("selection")).toEqual(["conv", "relu"]);
    expect(picture.querySelector("g")!.getAttribute("transform")).toBe(before);
    drag([700, middle("dense")], [0, middle("dense") + 5], { shiftKey: true, ctrlKey: true });
    expect(model.get("selection")).toEqual(["conv", "relu", "dense"]);
    const button = find("button[aria-label^='Select by a rectangle']");
    button.click();
    expect(button.getAttribute("aria-pressed")).toBe("true");
    drag([700, middle("sum")], [0, middle("sum") + 5]);
    expect(model.get("selection")).toEqual(["sum"]);
    expect(button.getAttribute("aria-pressed")).toBe("false");
    button.click();
    picture.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
    expect(button.getAttribute("aria-pressed")).toBe("false");
    expect(model.get("selection")).toEqual(["sum"]);
  });
});

describe("queries", () => {
  it("find what Python finds", () => {
    const model = new FakeModel(RESIDUAL);
    model.get("plan_state").states[1] = "1:1:0:w=4";
    const store = new Store(model);
    for (const [query, names] of queries as [string, string[]][])
      expect([query, search(store, query).map((node) => store.graph.name(node))]).toEqual([query, names]);
  });
});

describe("marks", () => {
  it("shared weights: how many calls on the card, which ones in the tip, and by search", () => {
    const lines: Line[] = [
      ["image", "InputLayer"],
      ["twice", "Dense", ["image"]],
      ["twice#1", "Dense", ["twice"]],
    ];
    const graph = { ...payload(lines), calls: [[2, 1]] as [number, number][], parameters: [0, 8, 8] };
    const model = new FakeModel(lines, { graph });
    const host = document.createElement("div");
    document.body.append(host);
    widget().render({ model, el: host });
    const card = [...host.querySelectorAll(".qdqw-unit")][1];
    expect(card.querySelector(".name")?.textContent).toBe("2× twice");
    expect(card.getAttribute("aria-label")).toContain("shared weights");
    card.dispatchEvent(new PointerEvent("pointermove", { bubbles: true }));
    expect(host.querySelector(".qdqw-tip")?.textContent).toContain("shares weights withtwice#1");
    expect(search(new Store(model), "shared")).toEqual([1, 2]);
    expect(host.querySelector(".qdqw-status")?.textContent).toBe("2 layers · 0 Q·DQ");
  });

  it("a pair tells scale, zero point and range; an output where it is quantized", () => {
    const { model, find, all, unit } = show(RESIDUAL, { ranges: { 2: ["scale 0.04, zero point -7, range -1 to 5"] } });
    const plan = { revision: 1, target: "tensorrt", mode: "full", states: { 2: "0:0:1", 3: "2:0:0" }, why: {} };
    model.say({ type: "plan", ...plan, pairs: { 2: ["int8 symmetric"] } });
    const over = (element: Element) => element.dispatchEvent(new PointerEvent("pointermove", { bubbles: true }));
    over(all(".qdqw-pill").find((pill) => pill.getAttribute("data-tensor") === "2")!);
    expect(find(".qdqw-tip").textContent).toContain("scale 0.04, zero point -7, range -1 to 5");
    over(unit("Conv2D conv").querySelector(".qdqw-badge.output")!);
    expect(find(".qdqw-tip").textContent).toContain("It is quantized after relu.");
    over(unit("left_1").querySelector(".qdqw-badge.output")!);
    expect(find(".qdqw-tip").textContent).not.toContain("quantized after");
  });

  it("rules colour cards and the legend", () => {
    const fills = ["#0072b2", "#0072b2", null, "#ff8800", null, null, null];
    const colors = { mode: "rules", fills, rules: [["#0072b2", "conv"]] as [string, string][] };
    const { find, unit } = show(RESIDUAL, { colors });
    expect(unit("Conv2D conv").querySelector(".qdqw-stripe")?.getAttribute("fill")).toBe("#0072b2");
    expect(unit("dense").querySelector(".qdqw-stripe")?.classList.contains("blank")).toBe(true);
    expect(find(".qdqw-legend").textContent).toMatch(/^conv/);
    expect(find(".qdqw-legend rect").getAttribute("fill")).toBe("#0072b2");
  });
});
