// The footer: the legend, the status of the selection with its actions, and the summary of the last difference.
import { formatNumber, metricRange, mixed, unitOf } from "./colors";
import { html, plain, svg } from "./dom";
import { spokenLabel } from "./node_draw";
import type { Side } from "./side";
import type { Store } from "./store";
import { button } from "./toolbar";

export interface FooterActions {
  applyLike(source: number): void;
  clear(): void;
}

export class Footer {
  readonly element = html("div", { class: "qdqw-foot" });
  private readonly legend = html("div", { class: "qdqw-legend" });
  private readonly status = html("div", { class: "qdqw-status" });
  /** The right part, wrapped to a line of its own in a narrow pane: difference and selection. */
  readonly second = html("div", { class: "qdqw-second" }, [this.status]);

  constructor(
    private readonly store: Store,
    private readonly actions: FooterActions,
  ) {
    this.element.append(this.legend, html("span", { class: "qdqw-grow" }), this.second);
  }

  update(selection: readonly number[]): void {
    this.legend.replaceChildren(...this.legendItems());
    this.status.replaceChildren(...this.statusItems(selection));
  }

  private statusItems(selection: readonly number[]): Element[] {
    const { graph, isGone } = this.store;
    if (isGone) return [html("strong", {}, ["The kernel is gone"]), item("The graph can only be read.")];
    if (selection.length === 0 && this.store.side !== null) return [];
    if (selection.length === 0) {
      const pairs = Object.values(this.store.plan.pairs).flat().length;
      return [item(`${graph.layers([...graph.payload.names.keys()])} · ${pairs} Q·DQ`)];
    }
    const clear = button("Select nothing (Esc)", ["Clear"], () => this.actions.clear(), true);
    if (selection.length > 1) return [html("strong", {}, [`${graph.layers(selection)} selected`]), clear];
    const [node] = selection;
    const name = html("strong", { title: spokenLabel(this.store, { nodes: [node], block: null }) }, [
      plain(graph.name(node)),
    ]);
    const like = likeThis(this.store, node);
    if (like.length === 0 || !this.store.isEditable) return [name, clear];
    const label = `Apply to ${like.length} more ${graph.className(node)}`;
    const apply = button(
      "Quantize every layer of this class as this one is",
      [label],
      () => this.actions.applyLike(node),
      true,
    );
    return [name, apply, clear];
  }

  private legendItems(): Element[] {
    const colors = this.store.colors;
    const { side } = this.store;
    const badges = [
      key("--q-input", "I", "input"),
      key("--q-weight", "W", "weights"),
      key("--q-output", "O", "output"),
      pill(),
      ...(this.store.graph.payload.calls.length > 0
        ? [html("span", { title: "so many calls of a layer share its weights" }, ["2× shared"])]
        : []),
      ...(side === null ? [] : sideKeys(side)),
    ];
    if (colors.values !== undefined) return [this.scale(), ...badges];
    if (colors.rules !== undefined) return [...colors.rules.map(ruleKey), ...badges];
    const target = side !== null ? "" : colors.mode === "precision" ? `on ${this.store.plan.target}` : "in the plan";
    const other = colors.mode !== "precision" && this.store.hasOtherWidths;
    return [
      item(square("int8", "8"), "int8", html("span", { class: "word" }, [target])),
      ...(other ? [item(square("other", "n"), "n bits")] : []),
      item(square("partial", "½", true), "mixed"),
      item(square("float", "F"), "float"),
      ...(colors.mode === "precision" ? [item(hatched(), "planned, not INT8")] : []),
      ...(colors.statuses?.includes("vanishes") ? [item(square("blank", ""), "vanishes")] : []),
      ...badges,
    ];
  }

  private scale(): Element {
    const colors = this.store.colors;
    const [low, high] = metricRange(colors);
    const bar = svg("svg", { width: 90, height: 12, "aria-hidden": "true" });
    // Wider than the step, because antialiasing would show a seam between rectangles that only touch.
    for (let x = 0; x < 90; x += 3) bar.append(svg("rect", { x, width: 3.5, height: 12, fill: mixed((x + 1.5) / 90) }));
    const better =
      colors.legend?.better === "high" ? ", high is good" : colors.legend?.better === "low" ? ", low is good" : "";
    const note = `${colors.legend?.scale === "log" && low > 0 ? ", logarithmic" : ""}${better}`;
    const title = plain(colors.legend?.title ?? colors.mode);
    return html("span", { class: "qdqw-scale", title: title + note }, [
      html("strong", {}, [title]),
      item(formatNumber(low), bar, `${formatNumber(high)} ${plain(unitOf(colors))}`),
      html("span", { class: "word" }, [note.slice(2)]),
    ]);
  }
}

/** Return the other nodes of the same class and number of inputs; none for a node without inputs. */
export function likeThis(store: Store, node: number): number[] {
  const { payload, size } = store.graph;
  const inputs = payload.inputs[node].length;
  if (inputs === 0) return [];
  return Array.from({ length: size }, (_, other) => other).filter(
    (other) =>
      other !== node && payload.class_of[other] === payload.class_of[node] && payload.inputs[other].length === inputs,
  );
}

function item(...parts: (Element | string)[]): HTMLElement {
  return html("span", {}, parts);
}

function drawing(width: number, ...children: Element[]): SVGSVGElement {
  // Inline, because the class gives pictures of the graph the full size of their box.
  const style = `width:${width}px;height:14px;cursor:inherit`;
  return svg("svg", { class: "qdqw-svg", width, height: 14, "aria-hidden": "true", style }, children);
}

/** Return a small square with a letter; `look` are the attributes of its ground. */
function tile(look: Record<string, string>, letter: string, dark = false): SVGSVGElement {
  return drawing(
    14,
    svg("rect", { ...look, width: 14, height: 14, rx: 3 }),
    svg("text", { class: dark ? "letter dark" : "letter", x: 7, y: 7.5 }, [letter]),
  );
}

function square(kind: string, letter: string, dark = false): SVGSVGElement {
  return tile({ class: `qdqw-stripe ${kind}` }, letter, dark);
}

function ruleKey([fill, text]: [string, string]): Element {
  return item(tile({ fill }, ""), plain(text));
}

/** Return the legend of the marks in a comparison. */
function sideKeys({ look }: Side): HTMLElement[] {
  const key = (sign: string, css: string, word: string, title: string) =>
    html("span", { title }, [html("b", { class: css, "aria-hidden": "true" }, [sign]), item(word)]);
  return [
    key("≠", "qdqw-unequal-key", "differs", "the sides differ here"),
    ...(look.groups ? [key("]", "", "one kernel", "the layers beside it are computed by one kernel")] : []),
    key("┄", "", "merged", "without an operator or kernel of its own"),
  ];
}

function hatched(): SVGSVGElement {
  const mark = square("float", "");
  mark.append(svg("path", { class: "qdqw-hatch key", d: "M1 9L9 1M5 13L13 5" }));
  return mark;
}

function key(variable: string, letter: string, label: string): HTMLElement {
  const mark = tile({ style: `fill:var(${variable})` }, letter);
  return html("span", { title: `${label} quantized` }, [mark, label]);
}

function pill(): HTMLElement {
  const mark = drawing(
    36,
    svg("g", { class: "qdqw-pill", transform: "translate(18 7)" }, [
      svg("rect", { x: -18, y: -7, width: 36, height: 14, rx: 7 }),
      svg("text", { y: 0.5 }, ["Q·DQ"]),
    ]),
  );
  return html("span", { class: "qdqw-pairkey", title: "a pair of QuantizeLinear and DequantizeLinear on a tensor" }, [
    mark,
    html("span", { class: "word" }, ["pair on a tensor"]),
  ]);
}
