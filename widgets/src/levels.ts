/** Heights for sideways parts of edges within one gap: parts that overlap get different ones. */
export class Levels {
  private readonly levels: [number, number][][] = [];

  get count(): number {
    return this.levels.length;
  }

  /** Return the first level on which nothing overlaps [from, to], and take it. */
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
