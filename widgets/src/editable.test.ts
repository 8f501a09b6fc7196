// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { FakeModel, floatPlan, payload, RESIDUAL } from "./fixtures";
import { showPage } from "./index";
import { show, withSizes } from "./page";
import type { Traits } from "./traits";

withSizes();

const over = (element: Element) => element.dispatchEvent(new PointerEvent("pointermove", { bubbles: true }));

/** Hover a badge of the weights of `left_1`; return what the tip says. */
function tipIn(host: Element): string | null {
  const unit = [...host.querySelectorAll(".qdqw-unit")].find((each) => /left_1/.test(each.getAttribute("aria-label")!));
  over(unit!.querySelector(".qdqw-badge.weight")!);
  return host.querySelector(".qdqw-tip")!.textContent;
}

describe("a tip", () => {
  it("names the key of a badge: its letter, or the digit of one of several inputs", () => {
    const { unit, find } = show(RESIDUAL);
    const said = (name: string, badge: number) => {
      over(unit(name).querySelectorAll(".qdqw-badge")[badge]);
      return find(".qdqw-tip").textContent;
    };
    expect(said("left_1", 0)).toBe("Input: floatClick (or I) to quantize it.");
    expect(said("Add sum", 1)).toBe("Input 1: floatClick (or 1) to quantize it.");
  });
});

describe("where nothing can be toggled", () => {
  it("no tip says that a click quantizes", () => {
    const { model, host } = show(RESIDUAL);
    expect(tipIn(host)).toBe("Weights: floatClick (or W) to quantize it.");
    model.live(false);
    expect(tipIn(host)).toBe("Weights: float");
    const page = document.createElement("div");
    document.body.append(page);
    const alone = new FakeModel(RESIDUAL, { editable: false });
    const names: (keyof Traits)[] = ["graph", "plan_state", "colors", "selection", "height", "editable"];
    const traits = Object.fromEntries(names.map((name) => [name, alone.get(name)])) as unknown as Traits;
    showPage({ traits, details: {} }, page, document.createElement("div"));
    expect(tipIn(page)).toBe("Weights: float");
  });

  it("nor in a comparison", () => {
    const of = payload(RESIDUAL);
    const colors = { mode: "plan" };
    const side = { title: "Plan", note: "", plan_state: floatPlan(of), colors, look: { badges: true } };
    const difference = { summary: "", rows: [], hidden: 0, differs: [], only: [[], []] as [number[], number[]] };
    const { host } = show(RESIDUAL, { editable: false, left: side, right: side, difference });
    expect(tipIn(host)).toBe("Weights: float");
  });
});

describe("another target", () => {
  it("refuses other sites", () => {
    const { model, host, all } = show(RESIDUAL);
    const badges = all(".qdqw-badge.weight:not(.impossible)").length;
    const graph = structuredClone(model.get("graph"));
    graph.refusals.push("not on this target");
    graph.refused.weight[graph.names.indexOf("left_1")] = graph.refusals.length - 1;
    model.receive("graph", graph);
    expect(all(".qdqw-badge.weight:not(.impossible)").length).toBe(badges - 1);
    expect(tipIn(host)).toBe("The weights cannot be quantizednot on this target");
  });
});

describe("editable", () => {
  it("takes effect when Python changes it: badges, undo, footer, label and keys", () => {
    const { model, all, find, click, unit, key, picture } = show(RESIDUAL);
    click(unit("left_1"));
    const seen = () => [
      all(".qdqw-badge").length > 0,
      !(find("button[aria-label^=Undo]") as HTMLButtonElement).disabled,
      find(".qdqw-foot").textContent?.includes("Apply to"),
      picture.getAttribute("aria-label")?.includes("quantize"),
    ];
    expect(seen()).toEqual([true, true, true, true]);
    model.receive("editable", false);
    expect(seen()).toEqual([false, false, false, false]);
    key("w");
    expect(model.sent).toEqual([]);
    model.receive("editable", true);
    expect(seen()).toEqual([true, true, true, true]);
    key("w");
    expect(model.sent).toHaveLength(1);
  });
});
