// The marks of the last step, or of a previewed one: removed and new pairs, and the nodes of the difference.
import type { Difference } from "./traits";

export class StepMarks {
  difference: Difference | null = null;
  /** Whether the step is only previewed. */
  isPreview = false;
  /** Nodes in the rows of the difference. */
  changed: ReadonlySet<number> = new Set();
  /** The grids of removed pairs, by tensor. */
  ghosts: ReadonlyMap<number, string[]> = new Map();
  /** Tensors with a new or further pair. */
  fresh: ReadonlySet<number> = new Set();

  /** Set the marks of a step before its pairs are applied; none if there is no difference (another target, say). */
  set(
    pairs: Record<string, string[]>,
    difference: Difference | null,
    before: (tensor: number) => string[],
    isPreview = false,
  ): void {
    const ghosts = new Map<number, string[]>();
    const fresh = new Set<number>();
    for (const [text, grids] of difference === null ? [] : Object.entries(pairs)) {
      const had = before(+text);
      if (grids.length === 0 && had.length > 0) ghosts.set(+text, had);
      else if (grids.length > had.length) fresh.add(+text);
    }
    Object.assign(this, { difference, ghosts, fresh, isPreview: isPreview && difference !== null });
    this.changed = new Set(difference?.rows.map(([node]) => node));
  }

  /** Set the difference without marks: in a comparison, `Side` has the marks. */
  show(difference: Difference | null): void {
    this.difference = difference;
  }

  clear(): void {
    this.set({}, null, () => []);
  }
}
