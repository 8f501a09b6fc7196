// The toolbar: search, selection by a rectangle, blocks, scale, undo and redo or steps between differences, save, help.
import { html } from "./dom";
import { type IconName, icon } from "./icons";

export interface ToolbarActions {
  search(query: string): void;
  step(direction: 1 | -1): void;
  leaveSearch(): void;
  selectAll(): void;
  /** Switch the picking mode, in which the next drag selects by a rectangle. */
  pick(): void;
  collapseAll(): void;
  expandAll(): void;
  zoom(factor: number): void;
  fit(): void;
  undo(): void;
  redo(): void;
  save(): void;
  help(): void;
  /** Go to the next or previous difference between two sides. */
  difference(direction: 1 | -1): void;
  /** Leave the comparison for the single graph. */
  leave(): void;
}

export function button(
  label: string,
  content: (Element | string)[],
  click: () => void,
  framed = false,
): HTMLButtonElement {
  const element = html(
    "button",
    // JupyterLab's single-key shortcuts look for the last attribute on the focused element only, not on its parents.
    {
      type: "button",
      class: framed ? "qdqw-button framed" : "qdqw-button",
      title: label,
      "aria-label": label,
      "data-lm-suppress-shortcuts": "true",
    },
    content,
  );
  element.addEventListener("click", click);
  return element;
}

export class Toolbar {
  readonly element = html("div", { class: "qdqw-bar", role: "toolbar", "aria-label": "Graph" });
  readonly input = html("input", {
    type: "text",
    placeholder: "Find layers  ( / )",
    title:
      "Words of a name or class; block?_*conv; int8, float, mixed, shared; w=4, i=float; not before a word: conv not int8",
    "aria-label": "Find layers by name, class or precision",
    autocomplete: "off",
    spellcheck: "false",
    "data-lm-suppress-shortcuts": "true",
  });
  private readonly count = html("output", { "aria-live": "polite" });
  private readonly undoButton: HTMLButtonElement;
  private readonly redoButton: HTMLButtonElement;
  private readonly pickButton: HTMLButtonElement;

  constructor(actions: ToolbarActions, kind: "single" | "pair" | "pair to leave" = "single") {
    const make = (label: string, name: IconName, click: () => void) => button(label, [icon(name)], click);
    const field = html("div", { class: "qdqw-search" }, [
      this.input,
      this.count,
      make("Previous match (P)", "previous", () => actions.step(-1)),
      make("Next match (N)", "next", () => actions.step(1)),
      make("Select all matches (Ctrl+A in the graph)", "all", actions.selectAll),
    ]);
    this.input.addEventListener("input", () => actions.search(this.input.value));
    this.input.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") actions.step(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") actions.leaveSearch();
      else return;
      event.preventDefault();
    });
    this.undoButton = make("Undo (Ctrl+Z)", "undo", actions.undo);
    this.redoButton = make("Redo (Ctrl+Shift+Z)", "redo", actions.redo);
    this.pickButton = make("Select by a rectangle (Shift and drag)", "region", actions.pick);
    this.setPicking(false);
    this.element.append(
      field,
      this.pickButton,
      separator(),
      make("Close all blocks", "collapse", actions.collapseAll),
      make("Open all blocks", "expand", actions.expandAll),
      separator(),
      make("Smaller (-)", "minus", () => actions.zoom(1 / 1.25)),
      make("Larger (+)", "plus", () => actions.zoom(1.25)),
      make("All in view; once more: back to a size to read (F)", "fit", actions.fit),
      separator(),
      ...(kind === "single"
        ? [this.undoButton, this.redoButton]
        : [
            button("Previous difference (Shift+D)", [icon("previous"), "≠"], () => actions.difference(-1)),
            button("Next difference (D)", [icon("next"), "≠"], () => actions.difference(1)),
          ]),
      html("span", { class: "qdqw-grow" }),
      ...(kind === "pair to leave" ? [button("Back to one graph", ["Back to one graph"], actions.leave, true)] : []),
      make("Save the picture as SVG", "save", actions.save),
      make("Keys and colours (?)", "help", actions.help),
    );
  }

  setCount(text: string): void {
    this.count.textContent = text;
  }

  setPicking(on: boolean): void {
    this.pickButton.setAttribute("aria-pressed", String(on));
  }

  /** Return whether the focused button becomes disabled, as it receives no keys then. */
  setHistory(canUndo: boolean, canRedo: boolean): boolean {
    const active = (this.element.getRootNode() as Document | ShadowRoot).activeElement;
    const ends = (active === this.undoButton && !canUndo) || (active === this.redoButton && !canRedo);
    this.undoButton.disabled = !canUndo;
    this.redoButton.disabled = !canRedo;
    return ends;
  }
}

function separator(): HTMLElement {
  return html("span", { class: "qdqw-sep" });
}
