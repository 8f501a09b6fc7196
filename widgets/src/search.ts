// Search: words that must all occur in the name or class; `int8`, `float`, `mixed` by precision; `not` before a word.
import { paintOf } from "./colors";
import type { Store } from "./store";

const PRECISIONS = new Map([
  ["int8", "int8"],
  ["quantized", "int8"],
  ["float", "float"],
  ["mixed", "partial"],
  ["partial", "partial"],
]);

/** Return the nodes that a query finds, in computing order; none for an empty query. */
export function search(store: Store, query: string): number[] {
  const terms = parse(query);
  if (terms.length === 0) return [];
  const found: number[] = [];
  for (let node = 0; node < store.graph.size; node++) {
    if (terms.every(({ word, negated }) => fits(store, node, word, negated))) found.push(node);
  }
  return found;
}

export function parse(query: string): { word: string; negated: boolean }[] {
  const terms: { word: string; negated: boolean }[] = [];
  let negated = false;
  for (const word of query.toLowerCase().split(/\s+/).filter(Boolean)) {
    if (word === "not") {
      negated = true;
      continue;
    }
    const minus = word.length > 1 && word.startsWith("-");
    terms.push({ word: minus ? word.slice(1) : word, negated: negated !== minus });
    negated = false;
  }
  return terms;
}

function fits(store: Store, node: number, word: string, negated: boolean): boolean {
  if (word === "differs" && store.side !== null) return store.side.differs.has(node) !== negated;
  const precision = PRECISIONS.get(word);
  if (precision === undefined) return matches(store, node, word) !== negated;
  // A layer without a verdict (an input, an activation that the runtime folds) is neither int8 nor "not int8".
  const own = precisionOf(store, node);
  return own !== null && (own === precision) !== negated;
}

function matches(store: Store, node: number, word: string): boolean {
  const name = store.graph.name(node).toLowerCase();
  const className = store.graph.className(node).toLowerCase();
  if (word.startsWith("class:")) return className.includes(word.slice(6));
  if (word.startsWith("name:")) return name.includes(word.slice(5));
  return name.includes(word) || className.includes(word);
}

/** By the target's verdict where it is shown, else by the plan. */
function precisionOf(store: Store, node: number): string | null {
  if (store.colors.mode !== "precision") return store.precision([node]);
  const { kind } = paintOf(store, [node]);
  return kind === "blank" ? null : kind;
}
