// What has a place in the drawing: cards and the ways between them.
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
  /** Where it leaves, which x it runs down on, where it arrives. */
  x0: number;
  y0: number;
  track: number;
  x1: number;
  y1: number;
  /** Heights of its sideways parts: below the source (one for each of two exits), above the target. */
  upper: number;
  lower: number;
  entry: number;
  isStraight: boolean;
}
