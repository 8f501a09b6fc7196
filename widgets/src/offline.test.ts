// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { FakeModel, RESIDUAL } from "./fixtures";
import { type PageData, showPage } from "./index";
import { withSizes } from "./page";
import type { Traits } from "./traits";

withSizes();

function shown(details: PageData["details"] = {}) {
  const fake = new FakeModel(RESIDUAL, { editable: false });
  const names: (keyof Traits)[] = ["graph", "plan_state", "colors", "selection", "height", "editable", "can_undo"];
  const traits = Object.fromEntries(names.map((name) => [name, fake.get(name)])) as unknown as Traits;
  const host = document.createElement("div");
  const notes = document.createElement("div");
  document.body.append(host, notes);
  showPage({ traits, details }, host, notes);
  const unit = (name: string) =>
    [...host.querySelectorAll(".qdqw-unit")].find((each) => each.getAttribute("aria-label")?.includes(name)) as Element;
  const click = (element: Element) => {
    for (const type of ["pointerdown", "pointerup"])
      element.dispatchEvent(new PointerEvent(type, { bubbles: true, button: 0 }));
  };
  return { host, notes, unit, click };
}

describe("a page without Python", () => {
  it("draws the graph, and tells about the layer that is selected", () => {
    const { host, notes, unit, click } = shown({ conv: [["input image", "int8", "default: <b>compute</b>"]] });
    expect(host.querySelectorAll(".qdqw-unit").length).toBe(RESIDUAL.length);
    expect(notes.textContent).toContain("Select a layer");
    click(unit("conv"));
    expect([...notes.querySelectorAll("td")].map((cell) => cell.textContent)).toEqual([
      "input image",
      "int8",
      "default: <b>compute</b>",
    ]);
    expect(notes.querySelector("b")).toBeNull();
    click(unit("relu"));
    expect(notes.textContent).toContain("places nothing");
  });

  it("offers nothing that only Python could answer", () => {
    const { host } = shown();
    for (const name of ["Undo", "Redo"])
      expect((host.querySelector(`button[aria-label^="${name}"]`) as HTMLButtonElement).disabled).toBe(true);
    const badge = host.querySelector(".qdqw-badge") as Element;
    badge.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true, button: 0 }));
    expect(host.querySelector("[role=alert]")).toBeNull();
  });
});
