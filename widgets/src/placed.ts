// Units and edges with their positions in the layout.
import type { Edge, Unit } from "./units";

export const NODE_WIDTH = 320;
export const NODE_HEIGHT = 24;

export interface Placed extends Unit {
  x: number;
  y: number;
  row: number;
  column: number;
}

export interface Route {
  edge: Edge;
  /** The exit port (x0, y0), the x of the vertical segment, and the entry port (x1, y1). */
  x0: number;
  y0: number;
  track: number;
  x1: number;
  y1: number;
  /** The y of the horizontal segments: below the source (one for each of two exits), and above the target. */
  upper: number;
  lower: number;
  entry: number;
  isStraight: boolean;
}
