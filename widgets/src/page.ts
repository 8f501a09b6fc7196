// A view in a DOM without a layout engine, for the tests.
import { afterEach, beforeEach, vi } from "vitest";
import { FakeModel, type Line } from "./fixtures";
import widget from "./index";

export function show(lines: Line[], changes = {}) {
  const model = new FakeModel(lines, changes);
  const { initialize, render } = widget();
  initialize({ model });
  const first = model.sent.splice(0); // the resync request of a new page
  const host = document.createElement("div");
  document.body.append(host);
  const end = render({ model, el: host });
  const find = (selector: string) => host.querySelector(selector) as HTMLElement;
  const all = (selector: string) => [...host.querySelectorAll(selector)] as HTMLElement[];
  const picture = find("svg[role=tree]");
  const key = (name: string, more: KeyboardEventInit = {}) =>
    picture.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, ...more }));
  const click = (element: Element, more: PointerEventInit = {}) => {
    for (const type of ["pointerdown", "pointerup"])
      element.dispatchEvent(new PointerEvent(type, { bubbles: true, button: 0, ...more }));
  };
  const unit = (name: string) =>
    all(".qdqw-unit").find((element) => element.getAttribute("aria-label")?.includes(name)) as HTMLElement;
  return { model, first, host, end, render, find, all, key, click, unit, picture };
}

/** Give all elements a size: the view is not drawn before it has one, and this DOM has no layout engine. */
export function withSizes(): void {
  beforeEach(() => {
    vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(800);
    vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(2000);
  });
  afterEach(() => {
    vi.restoreAllMocks();
    document.body.replaceChildren();
  });
}
