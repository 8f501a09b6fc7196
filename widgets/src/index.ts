// What anywidget loads: one store per model, one view per place where it is displayed.
import { Store } from "./store";
import type { Model } from "./traits";
import { View } from "./view";

export default () => {
  let store: Store | undefined;
  return {
    initialize({ model }: { model: Model }): void {
      store = new Store(model);
    },
    render({ model, el }: { model: Model; el: HTMLElement }): () => void {
      store ??= new Store(model);
      const view = new View(model, store);
      el.append(view.element);
      view.start();
      return () => view.destroy();
    },
  };
};
