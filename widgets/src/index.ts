// What anywidget loads: one store per model or side, one view per place where it is displayed.
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
      // What a host replays to a page that comes late, marimo for one, lacks the changes of the plan.
      if (model.get("left") === undefined) model.send({ type: "resync", revision: model.get("plan_state").revision });
    },
    render({ model, el }: { model: Model; el: HTMLElement }): () => void {
      stores ??= storesOf(model);
      const all = stores;
      const view = new View(model, all);
      el.append(view.element);
      view.start();
      keepListening(model).catch(() => undefined); // a host that cannot do it shows the graph all the same
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
