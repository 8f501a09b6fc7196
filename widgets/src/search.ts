// Search: all words of a query must match. A word matches a part of a name or class, with `*` or `?` the whole of it;
// `name:` or `class:` restricts it. `int8`, `float`, `mixed`: precision; `shared`: shared weights; `w=4`, `i=float`:
// bits; `differs`: in a comparison; `not` or `-` before a word negates it. `find_layers` of `layer_query.py` has the
// same syntax except for `differs`; `queries.json` and `graph_twins.json` (in `tests`) test both.
import { paintOf } from "./colors";
import type { Store } from "./store";
import type { Site } from "./traits";

const PRECISIONS = new Map([
  ["int8", "int8"],
  ["quantized", "int8"],
  ["float", "float"],
  ["mixed", "partial"],
  ["partial", "partial"],
]);

const LETTERS: Record<string, Site> = { i: "input", w: "weight", o: "output" };

/** Return the nodes that match a query, in computing order; none for an empty query. */
export function search(store: Store, query: string): number[] {
  const terms = parse(query);
  if (terms.length === 0) return [];
  const found: number[] = [];
  for (let node = 0; node < store.graph.size; node++) {
    if (terms.every(({ word, negated }) => fits(store, node, word, negated))) found.push(node);
  }
  return found;
}

/** Return the match after or before a node, which need not be a match itself; around the ends. */
export function nextMatch(hits: readonly number[], from: number, direction: 1 | -1): number {
  const before = hits.filter((node) => node < from).length;
  const next = direction < 0 ? before - 1 : before + (hits.includes(from) ? 1 : 0);
  return hits[(next + hits.length) % hits.length];
}

export function parse(query: string): { word: string; negated: boolean }[] {
  const terms: { word: string; negated: boolean }[] = [];
  let negated = false;
  for (const word of query.toLowerCase().split(/\s+/).filter(Boolean)) {
    if (word === "not") {
      negated = true;
      continue;
    }
    // `not -conv` negates twice.
    const minus = word.length > 1 && word.startsWith("-");
    terms.push({ word: minus ? word.slice(1) : word, negated: negated !== minus });
    negated = false;
  }
  return terms;
}

function fits(store: Store, node: number, word: string, negated: boolean): boolean {
  // Outside a comparison the word may be a part of a name.
  if (word === "differs" && store.side !== null) return store.side.differs.has(node) !== negated;
  const bits = /^([iwo])=(\d+|float)$/.exec(word);
  if (bits !== null) return hasBits(store, node, LETTERS[bits[1]], bits[2]) !== negated;
  // A layer that is not shared may still have the word in its name.
  if (word === "shared" && store.graph.sharing(node).length > 1) return !negated;
  const precision = PRECISIONS.get(word);
  if (precision === undefined) return matches(store, node, word) !== negated;
  // A layer without a precision (an input, an activation that the runtime folds) is neither int8 nor "not int8".
  const own = precisionOf(store, node);
  return own !== null && (own === precision) !== negated;
}

/** Return whether a quantizable site has the wanted bits (of several inputs, any). */
function hasBits(store: Store, node: number, site: Site, wanted: string): boolean {
  const inputs = site === "input" ? store.graph.realInputs(node) : [0];
  if (store.graph.refusal(node, site)) return false;
  return inputs.some((index) => {
    const has = store.isOn(node, site, index) ? String(store.bits([node], site, index)) : "float";
    return has === wanted;
  });
}

function matches(store: Store, node: number, word: string): boolean {
  const name = store.graph.name(node).toLowerCase();
  const className = store.graph.className(node).toLowerCase();
  if (word.startsWith("class:")) return fitsText(className, word.slice(6));
  if (word.startsWith("name:")) return fitsText(name, word.slice(5));
  return fitsText(name, word) || fitsText(className, word);
}

/** Return whether a word is a part of a text or, with `*` or `?`, a pattern of the whole text. */
function fitsText(text: string, word: string): boolean {
  if (!/[*?]/.test(word)) return text.includes(word);
  const pattern = word
    .replace(/[.+^${}()|[\]\\]/g, "\\$&")
    .replace(/\*+/g, ".*")
    .replace(/\?/g, ".");
  // s and u: `*` and `?` also stand for line breaks and for characters of two code units.
  return new RegExp(`^${pattern}$`, "su").test(text);
}

/** Return the status on the target if it is displayed, else the precision by the plan; null for none. */
function precisionOf(store: Store, node: number): string | null {
  if (store.colors.mode !== "precision") return store.precision([node]);
  const { kind } = paintOf(store, [node]);
  return kind === "blank" ? null : kind;
}
