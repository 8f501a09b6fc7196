// @vitest-environment happy-dom
import { describe, expect, it, vi } from "vitest";
import { deep, type Line, RESIDUAL } from "./fixtures";
import { show, withSizes } from "./page";

const HOSTILE = [
  "<img src=x onerror=window.__pwned=1>",
  `"><script>window.__pwned=1</script>`,
  "n".repeat(300),
  "🚀 ünï\u202ecode",
  "__proto__",
];

withSizes();

describe("view", () => {
  it("draws nodes with class, name, shape and a spoken label", () => {
    const { unit } = show(RESIDUAL);
    expect(unit("Conv2D left_1").textContent).toContain("8×8×16");
    expect(unit("Conv2D left_1").getAttribute("aria-label")).toBe(
      "Conv2D left_1, output 8×8×16, input float, weights float",
    );
    expect(unit("Conv2D left_1").getAttribute("role")).toBe("treeitem");
  });

  it("a click on a badge sends one message and paints the badge", () => {
    const { model, click, unit } = show(RESIDUAL);
    const badge = unit("left_1").querySelector(".qdqw-badge.weight") as Element;
    click(badge);
    expect(model.sent).toEqual([
      { type: "action", id: 1, action: "toggle", nodes: [3], site: "weight", index: null, on: true },
    ]);
    expect(badge.classList.contains("all")).toBe(true);
  });

  it("asks at its start whether it missed changes, and says what it knows", () => {
    expect(show(RESIDUAL).first).toEqual([{ type: "resync", revision: 0 }]);
  });

  it("a merging node has a badge per input", () => {
    const { model, click, unit } = show(RESIDUAL);
    const badges = [...unit("Add sum").querySelectorAll(".qdqw-badge")];
    expect(badges.map((badge) => badge.textContent)).toEqual(["I0", "I1", "W", "O"]);
    click(badges[1]);
    expect(model.sent[0]).toMatchObject({ nodes: [5], site: "input", index: 1, on: true });
  });

  it("a height that was dragged stays until another one is set", () => {
    const { model, find } = show(RESIDUAL);
    const pane = find(".qdqw-root");
    expect(pane.style.height).toBe("400px");
    pane.style.height = "700px"; // as the browser does when the lower edge is dragged
    model.receive("can_undo", false);
    expect(pane.style.height).toBe("700px");
    model.receive("height", 500);
    expect(pane.style.height).toBe("500px");
  });

  it("an impossible site sends nothing", () => {
    const { model, click, unit } = show(RESIDUAL);
    click(unit("Activation relu").querySelector(".qdqw-badge.weight") as Element);
    expect(model.sent).toEqual([]);
  });

  it("selects, extends by Ctrl and Shift, and tells Python", () => {
    const { model, click, unit } = show(RESIDUAL);
    click(unit("left_1"));
    expect(model.get("selection")).toEqual(["left_1"]);
    click(unit("dense"), { ctrlKey: true });
    expect(model.get("selection")).toEqual(["left_1", "dense"]);
    click(unit("left_1"));
    click(unit("Add sum"), { shiftKey: true });
    expect(model.get("selection")).toEqual(["left_1", "left_2", "sum"]);
  });

  it("keys: along edges, quantize the selection, undo and redo", () => {
    const { model, click, unit, key } = show(RESIDUAL);
    click(unit("Activation relu"));
    key("ArrowDown");
    expect(model.get("selection")).toEqual(["left_1"]);
    key("ArrowDown", { shiftKey: true });
    expect(model.get("selection")).toEqual(["left_1", "left_2"]);
    key("w");
    expect(model.sent[0]).toMatchObject({ nodes: [3, 4], site: "weight", on: true });
    key("z", { ctrlKey: true });
    key("Z", { ctrlKey: true, shiftKey: true });
    key("y", { ctrlKey: true });
    expect(model.sent.slice(1).map((message) => message.action)).toEqual(["undo", "redo", "redo"]);
    key("Escape");
    expect(model.get("selection")).toEqual([]);
  });

  it("applies to all layers like this one", () => {
    const { model, click, unit, key, find } = show(RESIDUAL);
    click(unit("left_1"));
    key("i");
    key("l");
    expect(model.sent[1]).toMatchObject({
      action: "apply_like",
      source: 3,
      nodes: [1, 4],
      inputs: [true],
      weight: false,
      output: false,
    });
    expect(find(".qdqw-foot").textContent).toContain("Apply to 2 more Conv2D");
  });

  it("starts with blocks closed; Enter opens and closes", () => {
    const { all, key, click, unit } = show(deep(20));
    expect(all(".qdqw-unit")).toHaveLength(21);
    click(unit("block block3"));
    key("Enter");
    expect(unit("block3_relu")).toBeDefined();
    expect(all(".qdqw-frametitle")).toHaveLength(1);
    key("Enter");
    expect(all(".qdqw-unit")).toHaveLength(21);
  });

  it("a closed block speaks for its layers", () => {
    const { model, click, unit } = show(deep(20));
    click(unit("block block3").querySelector(".qdqw-badge.weight") as Element);
    expect(model.sent[0]).toMatchObject({ nodes: [9], site: "weight", on: true });
  });

  it("a block's input is that of its layers with weights, its output what leaves it", () => {
    const { model, click, unit, key } = show(deep(20));
    click(unit("block block3").querySelector(".qdqw-badge.input") as Element);
    expect(model.sent[0]).toMatchObject({ nodes: [9], site: "input", on: true });
    click(unit("block block3").querySelector(".qdqw-badge.output") as Element);
    expect(model.sent[1]).toMatchObject({ nodes: [12], site: "output", on: true });
    click(unit("block block4"));
    click(unit("block block3"), { ctrlKey: true });
    key("w");
    expect(model.sent[2]).toMatchObject({ nodes: [9, 13], site: "weight" });
  });

  it("a block takes back what a plan quantized in it, but for merging layers", () => {
    const { model, click, unit } = show(deep(20));
    const say = (revision: number, states: Record<string, string>) =>
      model.say({ type: "plan", revision, target: "tensorrt", mode: "full", states, why: {}, pairs: {} });
    const badge = () => unit("block block3").querySelector(".qdqw-badge.input") as Element;
    say(1, { 9: "1:0:0", 11: "1:0:0", 12: "01:0:0" });
    click(badge());
    expect(model.sent[0]).toMatchObject({ nodes: [9, 11, 12], site: "input", on: false });
    say(2, { 9: "0:0:0", 11: "0:0:0", 12: "00:0:0" });
    model.say({ type: "done", id: 1 });
    click(badge());
    expect(model.sent[1]).toMatchObject({ nodes: [9, 11], site: "input", on: true });
  });

  it("search opens the block around a match and counts", () => {
    const { find, unit } = show(deep(20));
    const input = find("input") as HTMLInputElement;
    input.value = "block7_relu";
    input.dispatchEvent(new Event("input"));
    expect(unit("block7_relu").classList.contains("hit")).toBe(true);
    expect(find("output").textContent).toBe("1/1");
  });

  it("shows Python's changes, errors and colours", () => {
    const { model, find, unit } = show(RESIDUAL);
    model.say({
      type: "plan",
      revision: 1,
      target: "tensorrt",
      mode: "full",
      states: { 3: "1:1:0" },
      why: {},
      pairs: { 2: ["int8 symmetric"] },
    });
    expect(unit("left_1").querySelector(".qdqw-badge.weight")?.classList.contains("all")).toBe(true);
    expect(find(".qdqw-pill[data-tensor='2']")).not.toBeNull();
    model.say({ type: "error", text: "What <b>happened</b>" });
    expect(find(".qdqw-error").textContent).toContain("What <b>happened</b>");
    model.say({ type: "error", text: "" });
    expect(find(".qdqw-error")).toBeNull();
    model.receive("colors", {
      mode: "sqnr",
      legend: { title: "SQNR" },
      values: [null, 1, 2, 3, 4, null, null],
      unit: "dB",
    });
    expect(unit("left_1").querySelector(".shape")?.textContent).toBe("3 dB");
    model.receive("selection", ["dense"]);
    expect(unit("dense").classList.contains("selected")).toBe(true);
  });

  it("a graph that is only shown has no badges and sends nothing", () => {
    const { model, all, key, click, unit } = show(RESIDUAL, { editable: false });
    click(unit("left_1"));
    for (const name of ["i", "w", "o", "l", "1"]) key(name);
    key("z", { ctrlKey: true });
    expect(all(".qdqw-badge")).toEqual([]);
    expect(model.sent).toEqual([]);
    expect(model.get("selection")).toEqual(["left_1"]);
  });

  it("says why a key did nothing", () => {
    const { click, unit, key, find } = show(RESIDUAL);
    click(unit("Activation relu"));
    key("w");
    expect(find(".qdqw-tip").hidden).toBe(false);
    expect(find(".qdqw-tip").textContent).toContain("it has no weights");
  });

  it("two views of one model show the same", () => {
    const { model, render, click, unit } = show(RESIDUAL);
    const second = document.createElement("div");
    document.body.append(second);
    render({ model, el: second });
    click(unit("left_1").querySelector(".qdqw-badge.weight") as Element);
    expect(second.querySelectorAll(".qdqw-badge.weight.all")).toHaveLength(1);
    expect(model.sent).toHaveLength(1);
  });

  it("cleans up after itself", () => {
    const { model, end, host } = show(RESIDUAL);
    const withView = model.listenerCount;
    end();
    expect(host.childElementCount).toBe(0);
    expect(model.listenerCount).toBe(withView - 5);
    model.say({ type: "error", text: "nobody listens" });
  });

  it("draws hostile names as text", () => {
    const lines: Line[] = [["image", "InputLayer"]];
    for (const name of HOSTILE) lines.push([name, name, [lines[lines.length - 1][0]]]);
    const { host, click, all, find, model, picture } = show(lines);
    for (const unit of all(".qdqw-unit")) {
      picture.dispatchEvent(new PointerEvent("pointermove", { bubbles: true }));
      unit.dispatchEvent(new PointerEvent("pointermove", { bubbles: true }));
      click(unit);
    }
    model.say({ type: "export_svg" });
    expect(host.querySelector("img, script")).toBeNull();
    expect(model.get("svg_text")).not.toMatch(/<(img|script)/);
    expect(find(".qdqw-tip").textContent).toContain("__proto__");
    expect("__pwned" in window).toBe(false);
  });

  it("saves the whole picture, not only what is in view", () => {
    vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(300);
    const { model, all } = show(deep(40));
    expect(all(".qdqw-unit").length).toBeLessThan(20);
    model.say({ type: "export_svg" });
    const text = model.get("svg_text");
    expect(text.match(/class="qdqw-unit/g)).toHaveLength(41);
    expect(text).not.toContain("var(--q-");
  });

  it("every element that takes the focus keeps the notebook's shortcuts away", () => {
    const { all, key } = show(RESIDUAL);
    key("?");
    for (const element of all("button, input, [tabindex]")) {
      expect(element.hasAttribute("data-lm-suppress-shortcuts")).toBe(true);
    }
  });

  it("leaves keys alone that mean nothing here", () => {
    const { picture } = show(RESIDUAL);
    const event = new KeyboardEvent("keydown", { key: "x", bubbles: true, cancelable: true });
    picture.dispatchEvent(event);
    expect(event.defaultPrevented).toBe(false);
  });

  it("leaves the wheel to the page until it has the focus", () => {
    const { picture } = show(deep(40));
    const wheel = () => {
      const event = new WheelEvent("wheel", { deltaY: 100, bubbles: true, cancelable: true });
      picture.dispatchEvent(event);
      return event.defaultPrevented;
    };
    expect(wheel()).toBe(false);
    picture.focus();
    expect(wheel()).toBe(true);
  });
});
