// What the last step changed, or a step that is previewed would change: pairs that go and come, layers that are named.
import type { Difference } from "./traits";

export class StepMarks {
  difference: Difference | null = null;
  /** Whether nobody has taken this step yet. */
  isPreview = false;
  /** Nodes that the difference names. */
  changed: ReadonlySet<number> = new Set();
  /** Grids of the pairs that go, by tensor, and the tensors that get one. */
  ghosts: ReadonlyMap<number, string[]> = new Map();
  fresh: ReadonlySet<number> = new Set();

  /** Note a step while the pairs before it are still known; without a difference nothing is marked. */
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

  /** Hold a list of differences and mark nothing: the sides of a comparison mark themselves. */
  show(difference: Difference | null): void {
    this.difference = difference;
  }

  clear(): void {
    this.set({}, null, () => []);
  }
}
