// Finds blocks of nodes: nested models, repeated name prefixes or suffixes, regions between two cut points.
//
// Blocks form a tree. On every level of it, closed blocks must not form a cycle, which no layout can show. The smallest
// block of a cycle is dissolved.
import type { Graph } from "./graph";
import { cutRegions, isConnected, nodesBetween, strongComponents } from "./regions";

export interface Block {
  id: number;
  label: string;
  kind: "model" | "prefix" | "region";
  parent: Block | null;
  /** All nodes inside, including those of inner blocks. */
  nodes: number[];
}

export interface Blocks {
  all: Block[];
  /** The innermost block of every node. */
  of: (Block | null)[];
}

// PREFIX_* and SUFFIX_MIN count layers; REGION_MIN, REGION_MAX and SUFFIX_WHEN count items: loose layers and blocks.
const PREFIX_MIN = 3;
const PREFIX_MAX = 24;
const REGION_MIN = 4;
const REGION_MAX = 80;
const REGION_SHARE = 0.6;
const SUFFIX_WHEN = 150;
const SUFFIX_MIN = 6;

export function findBlocks(graph: Graph): Blocks {
  const builder = new Builder(graph);
  // The order counts: regions may contain the blocks found so far, and suffixes are for containers that are still long,
  // such as the generated cells of NASNet.
  builder.nestedModels();
  builder.eachContainer((container) => builder.repeated(container, byPrefix));
  builder.eachContainer((container) => builder.regions(container));
  builder.eachContainer((container) => {
    if (builder.items(container).length > SUFFIX_WHEN) builder.repeated(container, bySuffix);
  });
  return builder.finish();
}

type Item = { node: number } | { block: Block };

class Builder {
  private blocks = new Set<Block>();
  private readonly of: (Block | null)[];
  private nextId = 0;

  constructor(private readonly graph: Graph) {
    this.of = new Array(graph.size).fill(null);
  }

  finish(): Blocks {
    return { all: [...this.blocks], of: this.of };
  }

  nestedModels(): void {
    const byPath = new Map<string, Block>();
    for (let node = 0; node < this.graph.size; node++) {
      const { folders, call } = splitPath(this.graph.name(node));
      let parent: Block | null = null;
      for (let depth = 1; depth <= folders.length; depth++) {
        // With the call: two calls of a nested model stand at different places of the graph.
        const path = folders.slice(0, depth).join("/") + call;
        let block = byPath.get(path);
        if (block === undefined) {
          block = this.add(folders[depth - 1] + call, "model", parent, []);
          byPath.set(path, block);
        }
        block.nodes.push(node);
        parent = block;
      }
      this.of[node] = parent;
    }
    this.dropCycles(null);
    this.eachContainer((container) => this.dropCycles(container));
  }

  /** Make blocks of a container's loose nodes whose names `keys` groups, by a prefix or suffix. */
  repeated(container: Block | null, keys: (names: string[]) => Map<string, number[]>): void {
    const loose = this.items(container).flatMap((item) => ("node" in item ? [item.node] : []));
    const named = loose.filter((node) => !isAutomatic(this.graph.name(node), this.graph.className(node)));
    const names = named.map((node) => splitPath(this.graph.name(node)).base);
    const free = new Set(loose);
    for (const [label, positions] of keys(names)) {
      const members = positions.map((position) => named[position]);
      // Nodes on paths between members join the block, whatever their names; but none if another block has any of them.
      const between = nodesBetween(this.graph, members);
      if (between.length > 2 * members.length || !members.every((node) => free.has(node))) continue;
      const nodes = between.every((node) => free.has(node)) ? between : members;
      const sameClass = new Set(nodes.map((node) => this.graph.payload.class_of[node])).size === 1;
      if (nodes.length === this.size(container) || sameClass || !isConnected(this.graph, nodes)) continue;
      const block = this.add(label, "prefix", container, nodes);
      for (const node of nodes) {
        this.of[node] = block;
        free.delete(node);
      }
    }
    this.dropCycles(container);
  }

  /** Make blocks of the regions between two cut points; see `cutRegions`. */
  regions(container: Block | null): void {
    const items = this.items(container);
    const { successors } = this.contract(items);
    for (const region of cutRegions(successors)) {
      if (region.length < REGION_MIN || region.length > REGION_MAX || region.length === items.length) continue;
      const { inside, label } = this.unwrapped(region.map((position) => items[position]));
      const nodes = inside.flatMap((item) => ("node" in item ? [item.node] : item.block.nodes)).sort((a, b) => a - b);
      // A block with most of the container's nodes tells nothing about its structure.
      if (nodes.length > REGION_SHARE * this.size(container)) continue;
      const block = this.add(label ?? this.regionLabel(inside), "region", container, nodes);
      for (const item of inside) {
        if ("node" in item) this.of[item.node] = block;
        else item.block.parent = block;
      }
    }
  }

  /** Dissolve a region's only block, if it is a prefix block and most of the region; the region gets its label. */
  private unwrapped(items: Item[]): { inside: Item[]; label?: string } {
    const blocks = items.flatMap((item) => ("block" in item ? [item.block] : []));
    if (blocks.length !== 1 || blocks[0].kind !== "prefix" || blocks[0].nodes.length < items.length - 1)
      return { inside: items };
    const [block] = blocks;
    this.dissolve(block);
    const inside = items.flatMap((item) => ("block" in item ? block.nodes.map((node) => ({ node })) : [item]));
    return { inside, label: block.label };
  }

  /** Return the direct contents of a container: loose nodes and blocks, in computing order. */
  items(container: Block | null): Item[] {
    const items: Item[] = [];
    const seen = new Set<Block>();
    const nodes = container === null ? [...this.of.keys()] : container.nodes;
    for (const node of nodes) {
      let block = this.of[node];
      if (block === container) {
        items.push({ node });
        continue;
      }
      while (block !== null && block.parent !== container) block = block.parent;
      if (block === null || seen.has(block)) continue;
      seen.add(block);
      items.push({ block });
    }
    return items;
  }

  eachContainer(work: (container: Block | null) => void): void {
    // A copy, because the work adds and dissolves blocks.
    const containers = [null, ...[...this.blocks].filter((block) => block.kind === "model")];
    for (const container of containers) {
      if (container === null || this.blocks.has(container)) work(container);
    }
  }

  private size(container: Block | null): number {
    return container === null ? this.graph.size : container.nodes.length;
  }

  private add(label: string, kind: Block["kind"], parent: Block | null, nodes: number[]): Block {
    const block: Block = { id: this.nextId++, label, kind, parent, nodes };
    this.blocks.add(block);
    return block;
  }

  private regionLabel(items: Item[]): string {
    const blocks = items.flatMap((item) => ("block" in item ? [item.block] : []));
    if (blocks.length > 1) return `${blocks[0].label} … ${blocks[blocks.length - 1].label}`;
    if (blocks.length === 1) return blocks[0].label;
    const last = items[items.length - 1];
    return "node" in last ? splitPath(this.graph.name(last.node)).base : last.block.label;
  }

  private contract(items: Item[]): { successors: number[][] } {
    const position = new Map<number, number>();
    items.forEach((item, index) => {
      for (const node of "node" in item ? [item.node] : item.block.nodes) position.set(node, index);
    });
    const sets = items.map(() => new Set<number>());
    for (const [node, index] of position) {
      for (const reader of this.graph.successors[node]) {
        const other = position.get(reader);
        if (other !== undefined && other !== index) sets[index].add(other);
      }
    }
    return { successors: sets.map((set) => [...set]) };
  }

  /** Dissolve blocks, the smallest of a cycle first, until the container has no cycle with all its blocks closed. */
  private dropCycles(container: Block | null): void {
    for (;;) {
      const items = this.items(container);
      const bad = strongComponents(this.contract(items).successors).filter((component) => component.length > 1);
      if (bad.length === 0) return;
      for (const component of bad) {
        const blocks = component.flatMap((position) => {
          const item = items[position];
          return "block" in item ? [item.block] : [];
        });
        blocks.sort((one, other) => one.nodes.length - other.nodes.length);
        // Single nodes form no cycle, so each of these has a block, and the loop ends with the last one.
        if (blocks.length > 0) this.dissolve(blocks[0]);
      }
    }
  }

  private dissolve(block: Block): void {
    this.blocks.delete(block);
    for (const other of this.blocks) if (other.parent === block) other.parent = block.parent;
    for (const node of block.nodes) if (this.of[node] === block) this.of[node] = block.parent;
  }
}

/** Split `backbone/head/conv#1` into nested models, base name `conv#1`, and call `#1` (empty without models). */
export function splitPath(name: string): { folders: string[]; base: string; call: string } {
  const parts = name.split("/");
  const base = parts.pop() ?? name;
  const call = /#\d+$/.exec(base)?.[0] ?? "";
  return { folders: parts, base, call: parts.length > 0 ? call : "" };
}

/** Return whether Keras generated the name from the class (`conv2d_17`); such names do not identify blocks. */
export function isAutomatic(name: string, className: string): boolean {
  const base = splitPath(name).base.toLowerCase();
  const bare = base.replace(/(_\d+)?(#\d+)?$/, "").replace(/_/g, "");
  return bare === className.toLowerCase();
}

/**
 * Group names by the shortest prefix of words (`block4c_...`) that `PREFIX_MIN` to `PREFIX_MAX` names share, unless
 * most of them differ only by a number.
 */
export function byPrefix(names: string[]): Map<string, number[]> {
  const tokens = names.map((name) => name.split("_"));
  const found = new Map<string, number[]>();
  const descend = (positions: number[], depth: number): void => {
    const groups = new Map<string, number[]>();
    for (const position of positions) {
      if (tokens[position].length <= depth) continue;
      const token = tokens[position][depth];
      groups.set(token, [...(groups.get(token) ?? []), position]);
    }
    for (const members of groups.values()) {
      if (members.length < PREFIX_MIN) continue;
      const label = tokens[members[0]].slice(0, depth + 1).join("_");
      const numbered = members.filter((p) => /^\d*$/.test(tokens[p].slice(depth + 1).join("")));
      if (members.length > PREFIX_MAX || numbered.length * 2 > members.length) descend(members, depth + 1);
      else found.set(label, members);
    }
  };
  descend([...names.keys()], 0);
  return found;
}

/** Group names by their suffix (`..._7`, `..._reduce_7`): cells of generated networks. */
export function bySuffix(names: string[]): Map<string, number[]> {
  const ends = (pattern: RegExp, positions: number[]) => {
    const found = new Map<string, number[]>();
    for (const position of positions) {
      const end = pattern.exec(names[position])?.[1];
      if (end !== undefined) found.set(end, [...(found.get(end) ?? []), position]);
    }
    return [...found].filter(([, members]) => members.length >= SUFFIX_MIN);
  };
  const worded = ends(/_([a-z]+_\d+)$/, [...names.keys()]);
  const taken = new Set(worded.flatMap(([, members]) => members));
  const numbered = ends(
    /_(\d+)$/,
    [...names.keys()].filter((position) => !taken.has(position)),
  );
  return new Map([...worded, ...numbered].map(([end, members]) => [`cell ${end}`, members]));
}
