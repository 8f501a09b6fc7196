// What the last step changed: a sentence in the footer, which opens a list whose rows lead to their layers.
import { html, plain } from "./dom";
import { icon } from "./icons";
import type { Store } from "./store";
import { button } from "./toolbar";
import type { Difference, DifferenceRow } from "./traits";

const LOOKS: Record<string, string> = { "+": "gain", "8": "gain", "-": "loss", F: "loss" };

export class DifferencePanel {
  /** The sentence, for the footer. */
  readonly line = html("div", { class: "qdqw-diffline" });
  /** The list, over the lower edge of the graph: closed until it is asked for, so that it never hides a card by itself. */
  readonly element = html("section", { class: "qdqw-diff", "aria-label": "What the last step changed" });
  private readonly summary: HTMLButtonElement;
  private readonly list = html("ul");
  private shown: Difference | null = null;

  constructor(
    private readonly store: Store,
    private readonly jump: (node: number) => void,
  ) {
    this.summary = button("Show or hide what changed", [], () => this.open(this.element.hidden), true);
    const close = button("Show the plan alone", [icon("close")], () => store.dismissDifference());
    this.line.append(this.summary, close);
    this.element.append(this.list);
    this.line.setAttribute("aria-live", "polite");
    this.line.hidden = true;
    this.open(false);
  }

  update(): void {
    const { difference } = this.store.step;
    if (difference === this.shown) return;
    this.shown = difference;
    this.line.hidden = difference === null;
    if (difference === null) {
      this.open(false);
      return;
    }
    this.summary.textContent = `${this.store.step.isPreview ? "Preview: " : ""}${plain(difference.summary)}`;
    const rest = difference.hidden > 0 ? [html("li", {}, [html("span", {}, [`and ${difference.hidden} more`])])] : [];
    this.list.replaceChildren(...difference.rows.map((row) => this.row(row)), ...rest);
  }

  private open(isOpen: boolean): void {
    this.element.hidden = !isOpen;
    this.summary.setAttribute("aria-expanded", String(isOpen));
  }

  private row([node, sign, text]: DifferenceRow): HTMLElement {
    const mark = html("b", { class: LOOKS[sign] ?? "" }, [sign === "-" ? "−" : sign]);
    const row = html("button", { type: "button", "data-lm-suppress-shortcuts": "true" }, [mark, plain(text)]);
    row.addEventListener("click", () => this.jump(node));
    return html("li", {}, [row]);
  }
}
