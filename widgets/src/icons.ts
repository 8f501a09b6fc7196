// Icons of the toolbar, 16 x 16, strokes only; drawn for this project.
import { svg } from "./dom";

const PATHS = {
  collapse: "M3 8h10M8 1.5v3.5M6 3.5l2 2l2 -2M8 14.5v-3.5M6 12.5l2 -2l2 2",
  expand: "M3 8h10M8 5.5v-4M6 3.5l2 -2l2 2M8 10.5v4M6 12.5l2 2l2 -2",
  minus: "M3.5 8h9",
  plus: "M3.5 8h9M8 3.5v9",
  fit: "M2.5 6v-3.5h3.5M10 2.5h3.5v3.5M13.5 10v3.5h-3.5M6 13.5h-3.5v-3.5",
  undo: "M6 3l-3.5 3.5l3.5 3.5M2.5 6.5h7a3.5 3.5 0 0 1 0 7h-3",
  redo: "M10 3l3.5 3.5l-3.5 3.5M13.5 6.5h-7a3.5 3.5 0 0 0 0 7h3",
  save: "M8 2v8M4.8 7l3.2 3.2l3.2 -3.2M2.5 13.5h11",
  help: "M5.8 6a2.2 2.2 0 1 1 3.3 1.9c-.8 .5 -1.1 .9 -1.1 1.8M8 12.4v.1",
  previous: "M4 10l4 -4l4 4",
  next: "M4 6l4 4l4 -4",
  region: "M2.5 5v-2.5h2.5M8 2.5h2.5M13.5 2.5v3M2.5 8v2.5M2.5 13.5h2.5M7.5 8l6 2.2l-2.6 1l-1 2.6z",
  all: "M2.5 4h2M2.5 8h2M2.5 12h2M7 4h6.5M7 8h6.5M7 12h6.5",
  close: "M4 4l8 8M12 4l-8 8",
} as const;

export type IconName = keyof typeof PATHS;

export function icon(name: IconName): SVGSVGElement {
  return svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, [svg("path", { d: PATHS[name] })]);
}
