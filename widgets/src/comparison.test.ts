// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { findBrackets } from "./brackets";
import { deep, FakeModel, floatPlan, graph, type Line, payload, RESIDUAL } from "./fixtures";
import widget, { type PageData, showPage } from "./index";
import { layOut } from "./layout";
import { show, withSizes } from "./page";
import { search } from "./search";
import { storesOf } from "./stores";
import type { SideData, SideDifference, SideLook, Traits } from "./traits";
import { visibleUnits } from "./units";

withSizes();

const NO_DIFFERENCE: SideDifference = { summary: "", rows: [], hidden: 0, differs: [], only: [[], []] };

function side(lines: Line[], title: string, look: Partial<SideLook> = {}, plan = {}): SideData {
  const of = { ...floatPlan(payload(lines)), ...plan };
  return { title, note: "a note", plan_state: of, colors: { mode: "plan" }, look: { badges: true, ...look } };
}

/** A plan beside a runtime that fuses `relu` into `conv`, runs `left_1` in float and has no pair on `relu`. */
function compared(changes: Partial<Traits> = {}, lines = RESIDUAL) {
  const pairs = { 2: ["uint8"] };
  const look = { badges: false, cards: { 1: "QLinearConv", 2: "in QLinearConv" }, faded: [2], groups: [[1, 2]] };
  const shown = show(lines, {
    editable: false,
    left: side(lines, "Plan", { groups: [[1, 2]] }, { pairs }),
    right: side(lines, "Runtime", { ...look, labels: { 1: "0.5 ms" }, bars: { 1: 1 } }),
    difference: {
      summary: "2 differences",
      rows: [
        [3, "F", "left_1 in float"],
        [6, "F", "dense in float"],
      ],
      hidden: 0,
      differs: [3, 6],
      only: [[2], []],
    },
    ...changes,
  });
  const pictures = shown.all(".qdqw-picture");
  const at = (k: number, name: string) =>
    [...pictures[k].querySelectorAll(".qdqw-unit")].find((unit) =>
      unit.getAttribute("aria-label")?.includes(name),
    ) as Element;
  return { ...shown, pictures, at };
}

describe("two graphs side by side", () => {
  it("says on each side what it is, and what becomes of every layer there", () => {
    const { pictures, at } = compared();
    expect(pictures.map((picture) => picture.querySelector("b")?.textContent)).toEqual(["Plan", "Runtime"]);
    expect(at(0, "relu").textContent).toContain("Activation");
    expect(at(1, "relu").textContent).toContain("in QLinearConv");
    expect(at(1, "relu").classList.contains("faded")).toBe(true);
    expect(at(1, " conv,").textContent).toContain("0.5 ms");
    expect(at(1, " conv,").querySelector(".qdqw-time")).not.toBeNull();
    expect([pictures[0], pictures[1]].map((picture) => picture.querySelectorAll(".qdqw-bracket").length)).toEqual([
      1, 1,
    ]);
    expect(pictures[0].querySelectorAll(".qdqw-badge").length).toBeGreaterThan(0);
    expect(pictures[1].querySelectorAll(".qdqw-badge").length).toBe(0);
  });

  it("selects, focuses and reveals on both sides, whichever is clicked", () => {
    const { model, click, at, pictures } = compared();
    click(at(1, "left_2"));
    expect(model.get("selection")).toEqual(["left_2"]);
    for (const k of [0, 1]) expect(at(k, "left_2").classList.contains("selected")).toBe(true);
    pictures[1]
      .querySelector(".qdqw-svg")!
      .dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true }));
    expect(model.get("selection")).toEqual(["sum"]);
    for (const k of [0, 1]) expect(at(k, "Add sum").classList.contains("focus")).toBe(true);
    expect(at(0, "left_2").classList.contains("selected")).toBe(false);
    click(at(0, "relu"));
    for (const picture of pictures) expect(picture.querySelector(".qdqw-bracket.selected")).not.toBeNull();
  });

  it("pans and zooms both", () => {
    const { all, find } = compared({}, deep(20));
    const places = () =>
      all(".qdqw-picture .qdqw-svg > g:first-child").map((content) => content.getAttribute("transform"));
    const before = places();
    (find("[aria-label^='Larger']") as HTMLButtonElement).click();
    const svg = all(".qdqw-svg")[1];
    svg.focus();
    svg.dispatchEvent(new WheelEvent("wheel", { deltaY: 300, bubbles: true, cancelable: true }));
    return new Promise<void>((resolve) => {
      requestAnimationFrame(() => {
        const [left, right] = places();
        expect(left).toBe(right);
        expect(left).not.toBe(before[0]);
        resolve();
      });
    });
  });

  it("opens and closes blocks on both", () => {
    const { pictures, all } = compared({}, deep(20));
    const count = (k: number) => pictures[k].querySelectorAll(".qdqw-unit").length;
    const closed = count(0);
    (pictures[1].querySelector(".qdqw-opener") as Element).dispatchEvent(
      new PointerEvent("pointerdown", { bubbles: true }),
    );
    (pictures[1].querySelector(".qdqw-opener") as Element).dispatchEvent(
      new PointerEvent("pointerup", { bubbles: true }),
    );
    expect(count(0)).toBeGreaterThan(closed);
    expect(count(0)).toBe(count(1));
    expect(all(".qdqw-frametitle").length).toBe(2);
  });

  it("marks the layers that differ, and the pairs of one side", () => {
    const { at, pictures } = compared();
    for (const k of [0, 1]) {
      expect(at(k, "left_1").classList.contains("differs")).toBe(true);
      expect(at(k, "left_1").querySelector(".qdqw-unequal")?.textContent).toBe("≠");
      expect(at(k, "left_2").classList.contains("differs")).toBe(false);
    }
    expect(pictures[1].querySelector(".qdqw-pill.ghost")).not.toBeNull();
    const { pictures: with_pair } = compared({
      left: side(
        RESIDUAL,
        "Plan",
        {},
        { pairs: { 2: ["uint8"] }, states: [":0:0", "0:0:0", "0:0:1", "2:0:0", "0:0:0", "02:0:0", "0:0:0"] },
      ),
    });
    expect(with_pair[0].querySelector(".qdqw-pill.only")).not.toBeNull();
  });

  it("leads from the list, by buttons and by D, to the differences", () => {
    const { model, find, all } = compared();
    expect(find(".qdqw-diffline").textContent).toContain("2 differences");
    all(".qdqw-diff li button")[1].click();
    expect(model.get("selection")).toEqual(["dense"]);
    find("[aria-label^='Next difference']").click();
    expect(model.get("selection")).toEqual(["left_1"]);
    const press = (more: KeyboardEventInit = {}) =>
      all(".qdqw-svg")[0].dispatchEvent(new KeyboardEvent("keydown", { key: "d", bubbles: true, ...more }));
    press();
    expect(model.get("selection")).toEqual(["dense"]);
    press({ shiftKey: true });
    expect(model.get("selection")).toEqual(["left_1"]);
    find("[aria-label^='Previous difference']").click();
    expect(model.get("selection")).toEqual(["dense"]);
  });

  it("is told again when the sides change", () => {
    const { model, at, find } = compared();
    model.receive("right", side(RESIDUAL, "Other", { cards: { 3: "Conv" } }));
    model.receive("difference", NO_DIFFERENCE);
    expect(find(".qdqw-picture + .qdqw-picture b").textContent).toBe("Other");
    expect(at(1, "left_1").textContent).toContain("Conv");
    expect(at(0, "left_1").classList.contains("differs")).toBe(false);
    expect(find(".qdqw-diffline").textContent).toContain("no difference");
  });

  it("searches again on the side that was searched when the sides change", () => {
    const { model, find, all, pictures } = compared({ right: side(RESIDUAL, "File", {}) });
    pictures[1].querySelector("svg")!.dispatchEvent(new Event("focus"));
    const field = find("input") as HTMLInputElement;
    field.value = "int8";
    field.dispatchEvent(new Event("input"));
    pictures[0].querySelector("svg")!.dispatchEvent(new Event("focus"));
    expect(find("output").textContent).toBe("0/0");
    const states = floatPlan(payload(RESIDUAL)).states.map((state, node) => (node === 1 ? "1:1:0" : state));
    model.receive("right", side(RESIDUAL, "File", {}, { states }));
    model.receive("difference", NO_DIFFERENCE);
    expect(find("output").textContent).toBe("0/1");
    expect(all(".qdqw-unit.hit").map((unit) => unit.querySelector(".name")!.textContent)).toEqual(["conv", "conv"]);
  });

  it("changes nothing of a plan, and leads back where there is a way back", () => {
    const { model, first, click, at, find } = compared();
    expect(first).toEqual([]);
    click(at(0, "left_1").querySelector(".qdqw-badge.weight") as Element);
    expect(model.sent).toEqual([]);
    expect(find("[aria-label^='Back to one graph']")).toBeNull();
    const other = compared({ can_leave: true });
    other.find("[aria-label^='Back to one graph']").click();
    expect(other.model.sent).toEqual([{ type: "leave" }]);
  });

  it("finds what differs", () => {
    const model = new FakeModel(RESIDUAL, {
      left: side(RESIDUAL, "Plan"),
      right: side(RESIDUAL, "File"),
      difference: { ...NO_DIFFERENCE, differs: [3] },
    });
    expect(search(storesOf(model)[0], "differs")).toEqual([3]);
    expect(search(storesOf(model)[0], "conv not differs")).toEqual([1, 4]);
  });

  it("lets go of everything when it is closed", () => {
    const { model, end } = compared();
    end();
    const alone = new FakeModel(RESIDUAL, {
      left: side(RESIDUAL, "a"),
      right: side(RESIDUAL, "b"),
      difference: NO_DIFFERENCE,
    });
    widget().initialize({ model: alone });
    expect(model.listenerCount).toBe(alone.listenerCount);
  });

  it("stands in a page without Python, too", () => {
    const traits = {
      graph: payload(RESIDUAL),
      selection: [],
      height: 400,
      editable: false,
      left: side(RESIDUAL, "Plan"),
      right: side(RESIDUAL, "File"),
      difference: NO_DIFFERENCE,
    } as unknown as Traits;
    const host = document.createElement("div");
    document.body.append(host);
    showPage({ traits, details: {} } as PageData, host, document.createElement("div"));
    expect(host.querySelectorAll(".qdqw-picture").length).toBe(2);
  });
});

describe("brackets", () => {
  it("join cards below each other that one kernel computes, and nothing in a closed block", () => {
    const of = graph(RESIDUAL);
    const layout = layOut(visibleUnits(of, { all: [], of: RESIDUAL.map(() => null) } as never, new Set()));
    const found = findBrackets(layout, [
      [1, 2],
      [3, 4],
    ]);
    expect(found.map(({ nodes }) => nodes)).toEqual([
      [1, 2],
      [3, 4],
    ]);
    const top = layout.units[layout.unitOf[1]].y;
    expect([found[0].top, found[0].bottom > layout.units[layout.unitOf[2]].y]).toEqual([top, true]);
  });
});
