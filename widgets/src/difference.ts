// What the last step changed, over the graph's lower right: a sentence, and a row per change that leads to its layer.
import { html, plain } from "./dom";
import { icon } from "./icons";
import type { Store } from "./store";
import { button } from "./toolbar";
import type { Difference, DifferenceRow } from "./traits";

/** More rows than this are folded at first. */
const FEW = 6;
const LOOKS: Record<string, string> = { "+": "gain", "8": "gain", "-": "loss", F: "loss" };

export class DifferencePanel {
  readonly element = html("section", { class: "qdqw-diff", "aria-label": "What the last step changed" });
  private readonly summary = html("strong", { "aria-live": "polite" });
  private readonly list = html("ul");
  private shown: Difference | null = null;

  constructor(
    private readonly store: Store,
    private readonly jump: (node: number) => void,
  ) {
    const fold = button("Show or hide the changes", [icon("expand")], () => this.fold(!this.list.hidden));
    const close = button("Close: show the plan alone", [icon("close")], () => store.dismissDifference());
    this.element.append(html("header", {}, [this.summary, fold, close]), this.list);
    this.element.hidden = true;
  }

  update(): void {
    const { difference } = this.store.step;
    if (difference === this.shown) return;
    this.shown = difference;
    this.element.hidden = difference === null;
    if (difference === null) return;
    this.summary.textContent = `${this.store.step.isPreview ? "Preview: " : ""}${plain(difference.summary)}`;
    this.element.classList.toggle("preview", this.store.step.isPreview);
    const rest = difference.hidden > 0 ? [html("li", {}, [html("span", {}, [`and ${difference.hidden} more`])])] : [];
    this.list.replaceChildren(...difference.rows.map((row) => this.row(row)), ...rest);
    this.fold(difference.rows.length > FEW || difference.rows.length === 0);
  }

  private fold(isFolded: boolean): void {
    this.list.hidden = isFolded;
  }

  private row([node, sign, text]: DifferenceRow): HTMLElement {
    const mark = html("b", { class: LOOKS[sign] ?? "" }, [sign === "-" ? "−" : sign]);
    const row = html("button", { type: "button", "data-lm-suppress-shortcuts": "true" }, [mark, plain(text)]);
    row.addEventListener("click", () => this.jump(node));
    return html("li", {}, [row]);
  }
}
