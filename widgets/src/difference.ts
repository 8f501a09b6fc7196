// The difference of the last step, or of two sides: a summary in the footer, and a list of rows that link to layers.
import { html, plain } from "./dom";
import { icon } from "./icons";
import type { Store } from "./store";
import { button } from "./toolbar";
import type { Difference, DifferenceRow } from "./traits";

const LOOKS: Record<string, string> = { "+": "gain", "8": "gain", "-": "loss", F: "loss", "!": "loss" };

export class DifferencePanel {
  /** The summary, for the footer. */
  readonly line = html("div", { class: "qdqw-diffline" });
  /** The list, over the lower edge of the graph; initially closed, as it covers cards. */
  readonly element = html("section", { class: "qdqw-diff", "aria-label": "What the last step changed" });
  private readonly summary: HTMLButtonElement;
  private readonly list = html("ul");
  private shown: Difference | null = null;
  private at = -1;

  constructor(
    private readonly store: Store,
    private readonly jump: (node: number) => void,
  ) {
    this.summary = button("Show or hide what changed", [], () => this.open(this.element.hidden), true);
    const close = button("Show the plan alone", [icon("close")], () => store.dismissDifference());
    this.line.append(this.summary);
    if (store.side === null) this.line.append(close);
    else this.element.setAttribute("aria-label", "How the two sides differ");
    this.element.append(this.list);
    this.line.setAttribute("aria-live", "polite");
    this.line.hidden = true;
    this.open(false);
  }

  update(): void {
    const { difference } = this.store.step;
    if (difference === this.shown) return;
    this.shown = difference;
    this.at = -1;
    this.line.hidden = difference === null;
    if (difference === null) {
      this.open(false);
      return;
    }
    this.summary.textContent = `${this.store.step.isPreview ? "Preview: " : ""}${plain(difference.summary) || "no difference"}`;
    const rest = difference.hidden > 0 ? [html("li", {}, [html("span", {}, [`and ${difference.hidden} more`])])] : [];
    this.list.replaceChildren(...difference.rows.map((row, at) => this.row(row, at)), ...rest);
  }

  /** Go to the next or previous row. */
  step(direction: 1 | -1): void {
    const rows = this.shown?.rows ?? [];
    // +1: the first step backwards, from no row (-1), goes to the last row and not to the one before it.
    if (rows.length > 0)
      this.goTo((this.at + direction + rows.length + (this.at < 0 && direction < 0 ? 1 : 0)) % rows.length);
  }

  private goTo(at: number): void {
    this.at = at;
    const rows = [...this.list.querySelectorAll("button")];
    rows.forEach((row, index) => {
      row.classList.toggle("at", index === at);
    });
    if (!this.element.hidden) rows[at]?.scrollIntoView?.({ block: "nearest" });
    this.jump(this.shown!.rows[at][0]);
  }

  private open(isOpen: boolean): void {
    this.element.hidden = !isOpen;
    this.summary.setAttribute("aria-expanded", String(isOpen));
  }

  private row([, sign, text]: DifferenceRow, at: number): HTMLElement {
    const mark = html("b", { class: LOOKS[sign] ?? "" }, [sign === "-" ? "−" : sign]);
    const row = html("button", { type: "button", "data-lm-suppress-shortcuts": "true" }, [mark, plain(text)]);
    row.addEventListener("click", () => this.goTo(at));
    return html("li", {}, [row]);
  }
}
