// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { deep, RESIDUAL } from "./fixtures";
import { show, withSizes } from "./page";

withSizes();

const PLAN = { type: "plan", target: "tensorrt", mode: "full", why: {}, pairs: {} } as const;

describe("quantizing", () => {
  it("leaves the merging layers of all selected blocks in float, wherever the focus is", () => {
    for (const last of ["block block3", "Conv2D block9_conv"]) {
      const { model, click, unit, key } = show(deep(20));
      const on = { 9: "1:0:0", 12: "01:0:0", 13: "1:0:0", 16: "10:0:0", 33: "1:0:0" };
      model.say({ ...PLAN, revision: 1, states: on });
      click(unit("block block9"));
      key("Enter");
      click(unit("block block4"));
      click(unit("block block3"), { ctrlKey: true });
      if (last !== "block block3") click(unit(last), { ctrlKey: true });
      key("i");
      expect(model.sent).toHaveLength(1);
      expect(model.sent[0]).toMatchObject({ action: "toggle", site: "input", index: null, on: false });
      const nodes = model.sent[0].nodes as number[];
      expect(nodes.sort((a, b) => a - b)).toEqual([9, 12, 13, 16, ...(last === "block block3" ? [] : [33])]);
    }
  });

  it("says that there is no such input, and how many there are", () => {
    const { model, click, unit, key, find } = show(RESIDUAL);
    click(unit("Add sum"));
    key("7");
    expect(find(".qdqw-tip").textContent).toBe("There is no input 7The layer has 2, counted from 0.");
    expect(find(".qdqw-sr").textContent).toBe("There is no input 7: The layer has 2, counted from 0.");
    click(unit("InputLayer image"));
    key("0");
    expect(find(".qdqw-tip").textContent).toBe("The input 0 cannot be quantizedit is an input");
    expect(model.sent).toEqual([]);
    click(unit("Add sum"));
    key("1");
    expect(model.sent).toMatchObject([{ nodes: [5], site: "input", index: 1, on: true }]);
  });

  it("says of a block without such an input to open it", () => {
    const { model, click, unit, key, find } = show(deep(20));
    click(unit("block block3"));
    key("1");
    expect(find(".qdqw-tip").textContent).toContain("Open the block to choose inputs of its layers.");
    expect(model.sent).toEqual([]);
  });
});

describe("fit", () => {
  const scaleOf = async (picture: Element) => {
    await new Promise((done) => requestAnimationFrame(done));
    return Number(/scale\((\S+)\)/.exec(picture.querySelector("g")!.getAttribute("transform")!)![1]);
  };

  it("from Python shows the whole graph, however often; the button goes back to a size to read", async () => {
    const { model, picture, find } = show(deep(40));
    find("button[aria-label^='Open all']").click();
    model.say({ type: "fit" });
    const whole = await scaleOf(picture);
    expect(whole).toBeLessThan(0.85);
    model.say({ type: "fit" });
    expect(await scaleOf(picture)).toBe(whole);
    find("button[aria-label^='All in view']").click();
    expect(await scaleOf(picture)).toBeGreaterThanOrEqual(0.85);
    find("button[aria-label^='All in view']").click();
    expect(await scaleOf(picture)).toBe(whole);
  });
});

describe("a search by state", () => {
  const searched = (query: string) => {
    const shown = show(RESIDUAL);
    const field = shown.find("input") as HTMLInputElement;
    field.value = query;
    field.dispatchEvent(new Event("input"));
    const hits = () => shown.all(".qdqw-unit.hit").map((unit) => unit.querySelector(".name")!.textContent);
    return { ...shown, hits, count: () => shown.find("output").textContent };
  };

  it("is renewed with the plan, and goes on behind a match that is none any more", () => {
    const { model, key, hits, count } = searched("float");
    expect(hits()).toEqual(["conv", "left_1", "left_2", "dense"]);
    key("n");
    expect([model.get("selection"), count()]).toEqual([["left_1"], "2/4"]);
    key("w");
    key("i"); // painted before Python answers: in INT8 now
    expect([hits(), count()]).toEqual([["conv", "left_2", "dense"], "0/3"]);
    model.say({ ...PLAN, revision: 1, states: { 3: "1:1:0" } });
    expect([hits(), count()]).toEqual([["conv", "left_2", "dense"], "0/3"]);
    key("p");
    expect([model.get("selection"), count()]).toEqual([["conv"], "1/3"]);
    key("n");
    expect([model.get("selection"), count()]).toEqual([["left_2"], "2/3"]);
    model.say({ ...PLAN, revision: 2, states: { 3: "0:0:0" } });
    model.say({ type: "done", id: 2 });
    expect([hits(), count()]).toEqual([["conv", "left_1", "left_2", "dense"], "3/4"]);
    key("n");
    key("n");
    expect([model.get("selection"), count()]).toEqual([["conv"], "1/4"]);
    key("p");
    expect([model.get("selection"), count()]).toEqual([["dense"], "4/4"]);
  });

  it("is renewed with the colours", () => {
    const { model, hits, count } = searched("int8");
    expect([hits(), count()]).toEqual([[], "0/0"]);
    model.receive("colors", { mode: "precision", statuses: ["int8"], status_of: [-1, 0, 0, -1, -1, -1, -1] });
    expect([hits(), count()]).toEqual([["conv", "relu"], "0/2"]);
  });

  it("leaves the selection alone when it ends at a match that is none any more", () => {
    const { model, find, key } = searched("float");
    key("n");
    key("w");
    key("i");
    model.receive("selection", []);
    find("input").dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
    expect(model.get("selection")).toEqual([]);
  });
});
