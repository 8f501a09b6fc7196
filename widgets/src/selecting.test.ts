// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { RESIDUAL } from "./fixtures";
import { show, withSizes } from "./page";

withSizes();

describe("selecting", () => {
  it("search selects the match that it goes to, so that keys act on that one", () => {
    const { model, find, key, click, unit } = show(RESIDUAL);
    click(unit("Add sum"));
    const field = find("input") as HTMLInputElement;
    const type = (name: string) =>
      field.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
    field.value = "left";
    field.dispatchEvent(new Event("input"));
    expect(model.get("selection")).toEqual(["sum"]); // typing shows a match without selecting it
    type("Escape");
    expect(model.get("selection")).toEqual(["left_1"]);
    key("n");
    expect(model.get("selection")).toEqual(["left_2"]);
    key("w");
    expect(model.sent).toMatchObject([{ action: "toggle", nodes: [4], site: "weight" }]);
  });

  it("Ctrl+A selects every match, without a search every layer", () => {
    const { model, find, key } = show(RESIDUAL);
    key("a", { ctrlKey: true });
    expect(model.get("selection")).toEqual(RESIDUAL.map(([name]) => name));
    const field = find("input") as HTMLInputElement;
    field.value = "conv2d left";
    field.dispatchEvent(new Event("input"));
    (find("[title^='Select all matches']") as HTMLElement).click();
    expect(model.get("selection")).toEqual(["left_1", "left_2"]);
  });

  it("Ctrl and an arrow move the focus alone, Space then selects more", () => {
    const { model, key } = show(RESIDUAL);
    key("Home");
    key("ArrowDown", { ctrlKey: true });
    expect(model.get("selection")).toHaveLength(1);
    key(" ");
    expect(model.get("selection")).toHaveLength(2);
  });

  it("a message of something refused goes once something has worked", () => {
    const { model, find } = show(RESIDUAL);
    model.say({ type: "error", text: "refused" });
    expect(find(".qdqw-error").textContent).toContain("refused");
    const changes = { revision: 1, target: "tensorrt", mode: "full" as const, states: {}, why: {}, pairs: {} };
    model.say({ type: "plan", ...changes });
    expect(find(".qdqw-error")).toBe(null);
  });
});
