// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { RESIDUAL } from "./fixtures";
import { show, withSizes } from "./page";

withSizes();

describe("focus", () => {
  it("a click on a badge selects the layer, so that its verdict is seen; a selection that holds it stays", () => {
    const { model, click, unit } = show(RESIDUAL);
    const badge = (name: string, site: string) => unit(name).querySelector(`.qdqw-badge.${site}`) as Element;
    click(badge("left_1", "weight"));
    expect(model.get("selection")).toEqual(["left_1"]);
    click(unit("left_2"), { ctrlKey: true });
    click(badge("left_2", "input"));
    expect(model.get("selection")).toEqual(["left_1", "left_2"]);
    expect(model.sent[1]).toMatchObject({ nodes: [3, 4], site: "input" });
    click(badge("Activation relu", "weight")); // impossible: the inspector says why
    expect(model.get("selection")).toEqual(["relu"]);
    expect(model.sent).toHaveLength(2);
  });

  it("Ctrl+Z works after a click on Apply, on undo, and on any other button", () => {
    const { model, click, unit, find, all } = show(RESIDUAL);
    click(unit("left_1"));
    const press = (name: string, more: KeyboardEventInit = {}) =>
      (document.activeElement ?? document.body).dispatchEvent(
        new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...more }),
      );
    const apply = all(".qdqw-status button")[0] as HTMLButtonElement;
    apply.focus();
    apply.click();
    model.say({
      type: "plan",
      revision: 1,
      target: "tensorrt",
      mode: "full",
      states: { 1: "1:1:0" },
      why: {},
      pairs: {},
    });
    press("z", { ctrlKey: true });
    const undo = find("button[aria-label^=Undo]") as HTMLButtonElement;
    undo.focus();
    undo.click();
    model.receive("can_undo", false); // a disabled button takes no keys
    press("Z", { ctrlKey: true, shiftKey: true });
    (find("button[aria-label^='Close all']") as HTMLButtonElement).focus();
    press("y", { ctrlKey: true });
    expect(model.sent.map((message) => message.action)).toEqual(["apply_like", "undo", "undo", "redo", "redo"]);
  });

  it("help that was opened by mouse closes by its key, by Escape, and by a click beside it", () => {
    const { find, click, picture } = show(RESIDUAL);
    const open = () => {
      const button = find("button[aria-label^='Keys and colours']") as HTMLButtonElement;
      click(button);
      button.focus();
      button.click();
      expect(find(".qdqw-help")).not.toBeNull();
    };
    for (const name of ["?", "Escape"]) {
      open();
      document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
      expect(find(".qdqw-help")).toBeNull();
      expect(document.activeElement).toBe(picture);
    }
    open();
    click(find(".qdqw-help h3"));
    expect(find(".qdqw-help")).not.toBeNull();
    click(picture);
    expect(find(".qdqw-help")).toBeNull();
    open();
    (find("button[aria-label^='Keys and colours']") as HTMLButtonElement).click(); // its own button, too
    expect(find(".qdqw-help")).toBeNull();
  });
});
