// One side of a comparison: what its cards say, what only this side has, and a model that shows it to a store.
import type { Model, SideData, SideLook, Traits } from "./traits";

export type Which = "left" | "right";

export interface Side {
  look: SideLook;
  title: string;
  note: string;
  faded: ReadonlySet<number>;
  /** Nodes that differ between the sides. */
  differs: ReadonlySet<number>;
  /** Tensors whose pair only this side has, or only the other one. */
  only: ReadonlySet<number>;
  missing: ReadonlySet<number>;
}

/** A side as the model of a graph that is only looked at. */
export class SideModel implements Model {
  constructor(
    private readonly root: Model,
    private readonly which: Which,
  ) {}

  get<K extends keyof Traits>(name: K): Traits[K] {
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

  /** The difference is about both sides and comes last; Python's messages are for one of them. */
  private namesOf(event: string): string[] {
    if (event === "change:plan_state") return ["change:difference"];
    if (event === "change:colors") return [];
    return event === "msg:custom" && this.which === "right" ? [] : [event];
  }
}
