// The state of one view, never synced with Python: open blocks, focus, anchor of a range selection, search.
import { type Blocks, findBlocks } from "./collapse";
import type { Graph } from "./graph";
import { type Layout, layOut } from "./layout";
import { chain, visibleUnits } from "./units";

const START_OPEN = 48;

export class UiState {
  readonly open = new Set<number>();
  readonly blocks: Blocks;
  layout!: Layout;
  focus = 0;
  anchor = 0;
  query = "";
  hits: number[] = [];
  /** The node of the present match; -1 for none. */
  hit = -1;

  constructor(private readonly graph: Graph) {
    this.blocks = findBlocks(graph);
    if (graph.size <= START_OPEN) for (const block of this.blocks.all) this.open.add(block.id);
    this.relayout();
  }

  get focusNode(): number {
    return this.layout.units[this.focus]?.nodes[0] ?? 0;
  }

  relayout(): void {
    // A new layout has other units, so focus and anchor are kept as nodes.
    const node = this.layout === undefined ? 0 : this.focusNode;
    const anchor = this.layout === undefined ? 0 : (this.layout.units[this.anchor]?.nodes[0] ?? 0);
    this.layout = layOut(visibleUnits(this.graph, this.blocks, this.open));
    this.focus = this.layout.unitOf[node];
    this.anchor = this.layout.unitOf[anchor];
  }

  setOpen(block: number, open: boolean): void {
    if (open) this.open.add(block);
    else this.open.delete(block);
    this.relayout();
  }

  setAll(open: boolean): void {
    this.open.clear();
    if (open) for (const block of this.blocks.all) this.open.add(block.id);
    this.relayout();
  }

  /** Open all blocks that contain a node; return whether any of them was closed. */
  uncover(node: number): boolean {
    const closed = chain(this.blocks.of[node]).filter((block) => !this.open.has(block.id));
    for (const block of closed) this.open.add(block.id);
    if (closed.length > 0) this.relayout();
    return closed.length > 0;
  }

  /** Return the nearest unit in an arrow's direction, -1 for none: up and down along edges, sideways in near rows. */
  neighbour(key: "ArrowUp" | "ArrowDown" | "ArrowLeft" | "ArrowRight"): number {
    const { units, routes } = this.layout;
    const here = units[this.focus];
    const sideways = key === "ArrowLeft" || key === "ArrowRight";
    const candidates = sideways
      ? units.flatMap((unit, index) =>
          Math.abs(unit.row - here.row) <= 1 && unit.column !== here.column ? [index] : [],
        )
      : routes.flatMap(({ edge }) => {
          if (key === "ArrowDown") return edge.from === this.focus ? [edge.to] : [];
          return edge.to === this.focus ? [edge.from] : [];
        });
    const direction = key === "ArrowLeft" ? -1 : 1;
    const allowed = candidates.filter((index) => !sideways || (units[index].column - here.column) * direction > 0);
    // Sideways the nearest column counts first, then the nearest row; along edges a row counts as two columns.
    const distance = (index: number) =>
      Math.abs(units[index].column - here.column) * (sideways ? 10 : 1) +
      Math.abs(units[index].row - here.row) * (sideways ? 1 : 2);
    return allowed.reduce((best, index) => (best < 0 || distance(index) < distance(best) ? index : best), -1);
  }
}
