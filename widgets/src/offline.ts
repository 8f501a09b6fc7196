// The graph in a standalone page without Python, which `graph_page.py` writes.
import { html, plain } from "./dom";
import { storesOf } from "./stores";
import type { Model, Traits } from "./traits";
import { View } from "./view";

/** A row about a layer in the plan: the site, its grid or "float", and the reason. */
export type Detail = [what: string, grid: string, reason: string];

export interface PageData {
  traits: Traits;
  details: Record<string, Detail[]>;
}

/** A model without Python: only the page changes its values. */
class OfflineModel implements Model {
  private readonly listeners = new Map<string, Set<() => void>>();

  constructor(private readonly traits: Traits) {}

  get<K extends keyof Traits>(name: K): Traits[K] {
    return this.traits[name];
  }

  set<K extends keyof Traits>(name: K, value: Traits[K]): void {
    this.traits[name] = value;
    for (const callback of this.listeners.get(`change:${name}`) ?? []) callback();
  }

  save_changes(): void {}

  send(): void {}

  on(event: string, callback: (this: never, ...args: never[]) => void): void {
    const listening = this.listeners.get(event) ?? new Set();
    this.listeners.set(event, listening.add(callback as () => void));
  }

  off(event: string, callback: (this: never, ...args: never[]) => void): void {
    this.listeners.get(event)?.delete(callback as () => void);
  }
}

/** Draw the graph into `host`, and the plan's details of the selected layers into `notes`. */
export function showPage(data: PageData, host: HTMLElement, notes: HTMLElement): void {
  const model = new OfflineModel(data.traits);
  const view = new View(model, storesOf(model, true));
  const tell = () => notes.replaceChildren(...notesOn(model.get("selection"), data.details));
  model.on("change:selection", tell);
  host.append(view.element);
  view.start();
  tell();
}

function notesOn(names: readonly string[], details: Record<string, Detail[]>): Element[] {
  if (names.length === 0) return [html("p", {}, ["Select a layer to read what the plan decides about it, and why."])];
  return names.flatMap((name) => [html("h2", {}, [plain(name)]), tableOf(details[name] ?? [])]);
}

function tableOf(rows: readonly Detail[]): Element {
  if (rows.length === 0) return html("p", {}, ["The plan places nothing here."]);
  const cells = (row: Detail) => row.map((text) => html("td", {}, [plain(text)]));
  return html("table", {}, [
    html(
      "tbody",
      {},
      rows.map((row) => html("tr", {}, cells(row))),
    ),
  ]);
}
