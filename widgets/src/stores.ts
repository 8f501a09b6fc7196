// The stores of a model: one for a graph, two for a comparison.
import { SideModel } from "./side";
import { Store } from "./store";
import type { Model } from "./traits";

export function storesOf(model: Model, isOffline = false): Store[] {
  if (model.get("left") === undefined) return [new Store(model, isOffline)];
  return [new Store(new SideModel(model, "left")), new Store(new SideModel(model, "right"))];
}
