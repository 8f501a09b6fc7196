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
    if (terms.every(({ word, negated }) => matches(store, node, word) !== negated)) found.push(node);
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

function matches(store: Store, node: number, word: string): boolean {
  const precision = PRECISIONS.get(word);
  if (precision !== undefined) return hasPrecision(store, node, precision);
  if (word.startsWith("class:")) return store.graph.className(node).toLowerCase().includes(word.slice(6));
  if (word.startsWith("name:")) return store.graph.name(node).toLowerCase().includes(word.slice(5));
  return (
    store.graph.name(node).toLowerCase().includes(word) || store.graph.className(node).toLowerCase().includes(word)
  );
}

/** By the target's verdict where it is shown, else by the plan. */
function hasPrecision(store: Store, node: number, precision: string): boolean {
  const kind = store.colors.mode === "precision" ? paintOf(store, [node]).kind : store.precision([node]);
  return (kind === null || kind === "blank" ? "float" : kind) === precision;
}
