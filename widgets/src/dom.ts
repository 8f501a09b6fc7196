// The only functions that create elements. Layer names are untrusted: they become text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";

export type Attributes = Record<string, string | number | boolean | undefined>;

export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  children: (Element | string)[] = [],
): SVGElementTagNameMap[K] {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function html<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  children: (Element | string)[] = [],
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), attributes, children);
}

function fill<E extends Element>(element: E, attributes: Attributes, children: (Element | string)[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) element.append(child);
  return element;
}

/** Replace control, zero-width and bidirectional characters, which could hide or reorder text, by a visible dot. */
export function plain(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, "\u00b7");
}

// The fallbacks of --q-font in theme.ts, because a canvas resolves no CSS variables.
const FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif";
let context: CanvasRenderingContext2D | null | undefined;
const widths = new Map<string, number>();

/** Return the width of a text in pixels; an estimate if there is no canvas. */
export function textWidth(text: string, size: number, weight = 400): number {
  const key = `${weight} ${size} ${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    // A canvas measures without the page; SVG's own methods need the text in it, and force a layout.
    if (context === undefined) context = document.createElement("canvas").getContext?.("2d") ?? null;
    if (context) context.font = `${weight} ${size}px ${FONT}`;
    width = context ? context.measureText(text).width : text.length * size * 0.56;
    // A bound for pages that stay open: `clip` measures several shortened forms of a text.
    if (widths.size > 20_000) widths.clear();
    widths.set(key, width);
  }
  return width;
}

/** Shorten a text to a width in pixels with an ellipsis; surrogate pairs are never split. */
export function clip(
  text: string,
  room: number,
  size: number,
  weight = 400,
  measure: (text: string, size: number, weight: number) => number = textWidth,
): string {
  // No more characters than this can fit: a 300-character name is not measured as a whole.
  const characters = Array.from(plain(text));
  const shown = characters.slice(0, Math.ceil(room / (size * 0.2))).join("");
  if (shown.length === plain(text).length && measure(shown, size, weight) <= room) return shown;
  let low = 0;
  let high = Math.min(characters.length, Math.ceil(room / (size * 0.2)));
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measure(`${characters.slice(0, middle).join("").trimEnd()}…`, size, weight) <= room) low = middle;
    else high = middle - 1;
  }
  return `${characters.slice(0, low).join("").trimEnd()}…`;
}
