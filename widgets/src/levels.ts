/** Levels for the horizontal segments of edges in one gap between rows; overlapping segments get different ones. */
export class Levels {
  private readonly levels: [number, number][][] = [];

  get count(): number {
    return this.levels.length;
  }

  /** Add the segment [from, to] to the first level where it overlaps nothing, and return that level. */
  take(from: number, to: number): number {
    for (let level = 0; level < this.levels.length; level++) {
      if (this.levels[level].every(([start, end]) => to < start || from > end)) {
        this.levels[level].push([from, to]);
        return level;
      }
    }
    return this.levels.push([[from, to]]) - 1;
  }
}
