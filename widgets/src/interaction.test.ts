// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { RESIDUAL } from "./fixtures";
import { show, withSizes } from "./page";

withSizes();

describe("a press", () => {
  /** Press, leave the picture between two moves, and come back; return whether that drew a rectangle. */
  const press = (buttons: number) => {
    const { picture, find } = show(RESIDUAL);
    const say = (type: string, clientY: number, more: PointerEventInit = {}) =>
      picture.dispatchEvent(new PointerEvent(type, { clientX: 50, clientY, button: 0, shiftKey: true, ...more }));
    say("pointerdown", 500);
    say("pointerenter", 500, { buttons });
    say("pointermove", 300, { buttons });
    return find(".qdqw-region").getAttribute("visibility") === "visible";
  };

  it("that was released outside drags nothing on the pointer's return", () => {
    expect(press(0)).toBe(false);
  });

  it("that was held outside goes on as a drag", () => {
    expect(press(1)).toBe(true);
  });
});
