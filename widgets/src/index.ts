// What anywidget loads: one store per model, one view per place where it is displayed.
import { watchKernel } from "./kernel";
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
      const end = watchKernel(model, el, (gone) => (store as Store).setGone(gone));
      return () => {
        end();
        view.destroy();
      };
    },
  };
};

export { type PageData, showPage } from "./offline";
