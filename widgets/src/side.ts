// One side of a comparison: its look and differences, and the model through which a store reads it.
import type { Model, SideData, SideLook, Traits } from "./traits";

export type Which = "left" | "right";

export interface Side {
  look: SideLook;
  title: string;
  note: string;
  faded: ReadonlySet<number>;
  /** Nodes that differ between the sides. */
  differs: ReadonlySet<number>;
  /** Tensors with a pair on this side only. */
  only: ReadonlySet<number>;
  /** Tensors with a pair on the other side only. */
  missing: ReadonlySet<number>;
}

/** Presents one side of a comparison as the model of a read-only graph. */
export class SideModel implements Model {
  constructor(
    private readonly root: Model,
    private readonly which: Which,
  ) {}

  get<K extends keyof Traits>(name: K): Traits[K] {
    // Each side has its own of these two; all other traits are those of the comparison.
    if (name === "plan_state" || name === "colors") return this.data[name as "plan_state"] as Traits[K];
    return this.root.get(name);
  }

  set<K extends keyof Traits>(name: K, value: Traits[K]): void {
    this.root.set(name, value);
  }

  save_changes(): void {
    this.root.save_changes();
  }

  send(content: unknown): void {
    this.root.send(content);
  }

  on(event: string, callback: (this: never, ...args: never[]) => void): void {
    for (const name of this.namesOf(event)) this.root.on(name, callback);
  }

  off(event: string, callback: (this: never, ...args: never[]) => void): void {
    for (const name of this.namesOf(event)) this.root.off(name, callback);
  }

  readSide(): Side {
    const { look, title, note } = this.data;
    const { differs, only } = this.root.get("difference")!;
    const [mine, others] = this.which === "left" ? only : [only[1], only[0]];
    return {
      look,
      title,
      note,
      faded: new Set(look.faded),
      differs: new Set(differs),
      only: new Set(mine),
      missing: new Set(others),
    };
  }

  private get data(): SideData {
    return this.root.get(this.which)!;
  }

  /** Map events: Python sets the difference after both sides, and the left side alone passes its messages on. */
  private namesOf(event: string): string[] {
    if (event === "change:plan_state") return ["change:difference"];
    if (event === "change:colors") return [];
    return event === "msg:custom" && this.which === "right" ? [] : [event];
  }
}
