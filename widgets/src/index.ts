// The module that anywidget loads: one store per model or side of a comparison, one view per displayed output.
import { watchKernel } from "./kernel";
import { keepListening } from "./late";
import type { Store } from "./store";
import { storesOf } from "./stores";
import type { Model } from "./traits";
import { View } from "./view";

export default () => {
  let stores: Store[] | undefined;
  return {
    initialize({ model }: { model: Model }): void {
      stores = storesOf(model);
      // Some hosts (marimo) replay only the first state to a page that connects late, not the plan messages since.
      if (model.get("left") === undefined) model.send({ type: "resync", revision: model.get("plan_state").revision });
    },
    render({ model, el }: { model: Model; el: HTMLElement }): () => void {
      stores ??= storesOf(model);
      const all = stores;
      const view = new View(model, all);
      el.append(view.element);
      view.start();
      keepListening(model).catch(() => undefined); // the graph works without it
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
