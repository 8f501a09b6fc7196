// What anywidget loads: one store per model or side, one view per place where it is displayed.
import { watchKernel } from "./kernel";
import type { Store } from "./store";
import { storesOf } from "./stores";
import type { Model } from "./traits";
import { View } from "./view";

export default () => {
  let stores: Store[] | undefined;
  return {
    initialize({ model }: { model: Model }): void {
      stores = storesOf(model);
    },
    render({ model, el }: { model: Model; el: HTMLElement }): () => void {
      stores ??= storesOf(model);
      const all = stores;
      const view = new View(model, all);
      el.append(view.element);
      view.start();
      const end = watchKernel(model, el, (gone) => {
        for (const store of all) store.setGone(gone);
      });
      return () => {
        end();
        view.destroy();
      };
    },
  };
};

export { type PageData, showPage } from "./offline";
