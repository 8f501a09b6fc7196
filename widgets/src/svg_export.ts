// SVG export: the whole graph with its open and closed blocks as shown, in the colours of the page's theme.

import { svg } from "./dom";
import { Scene } from "./draw";
import type { Layout } from "./layout";
import type { Store } from "./store";
import { PICTURE_CSS, TOKENS } from "./theme";

const MARGIN = 24;

export function exportSvg(store: Store, layout: Layout, host: Element): string {
  const scene = new Scene(store, "qdqw-export");
  scene.setLayout(layout);
  scene.show({ left: 0, top: -1e6, right: 1e6, bottom: layout.height + 1e3 }, -1);
  const left = Math.min(0, ...layout.frames.map((frame) => frame.x)) - MARGIN;
  const width = layout.width - left + MARGIN;
  const height = layout.height + 2 * MARGIN;
  const style = svg("style", {}, [resolved(host)]);
  const root = svg("svg", { class: "qdqw-svg", viewBox: `${left} ${-MARGIN} ${width} ${height}`, width, height }, [
    style,
    svg("rect", { x: left, y: -MARGIN, width, height, style: `fill:${token(host, "--q-bg")}` }),
    scene.frames,
    scene.edges,
    scene.titles,
    scene.units,
    scene.pills,
    scene.brackets,
  ]);
  root.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new XMLSerializer().serializeToString(root);
}

/** Return the style sheet with every variable replaced by its value: a file has no theme. */
function resolved(host: Element): string {
  return PICTURE_CSS.replace(/var\((--q-[a-z]+)\)/g, (_, name: string) => token(host, name));
}

function token(host: Element, name: string): string {
  const value = getComputedStyle(host).getPropertyValue(name).trim();
  if (value) return value;
  const fallback = TOKENS[name] ?? "";
  return /^var\([^,]+,\s*(.*)\)$/.exec(fallback)?.[1] ?? fallback;
}

/** Offer a text as a download. */
export function download(text: string, name: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `${name.replace(/[^\w.-]+/g, "_").slice(0, 80)}.svg`;
  link.click();
  // The browser reads the URL only after `click` has returned.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
