// anywidget (at least 0.9 to 0.11) waits two seconds for a widget's script, which a busy browser may exceed. The widget
// is drawn nevertheless, but its model rejects all further messages. This module finds such models in the bench,
// registers the host's own message handler for them again, and asks Python for their present state. It also frees the
// models that are closed, which JupyterLab would keep.
import type { HostModel, Model } from "./traits";

const known = new WeakSet<HostModel>();
const nothing = () => undefined;

/**
 * Restore message handling of the widget `whole` and all its present and future children. Does nothing in hosts without
 * Jupyter's widget manager or kind of models; rejects if the host does not know the widget.
 */
export async function keepListening(model: Model): Promise<void> {
  const whole = await model.widget_manager?.get_model(model.get("whole"));
  const visit = (host: HostModel) => {
    if (known.has(host)) return;
    known.add(host);
    // JupyterLab (4.6) keeps the connection of every widget for as long as the kernel lives; the handlers of a closed one
    // would keep its model with the views and their elements.
    host.on("destroy", () => {
      host.comm?.on_close(nothing);
      host.comm?.on_msg(nothing);
    });
    if (host.get("_model_module") === "anywidget")
      void revive(host, () => model.send({ type: "late", model: `IPY_MODEL_${host.model_id}` }));
    const below = () =>
      (["layout", "style", "children"].flatMap((name) => host.get(name) ?? []) as HostModel[]).forEach(visit);
    host.on("change:children", below);
    below();
  };
  if (whole?.comm) visit(whole);
}

async function revive(host: HostModel, ask: () => void): Promise<void> {
  // The class is anywidget's; its base class is the host's, which has this method in Jupyter hosts.
  const handler = Object.getPrototypeOf(host.constructor.prototype)?._handle_comm_msg;
  if (!handler || !host.comm) return;
  try {
    await host._handle_comm_msg({ content: { data: {} } }); // without effect; anywidget rejects it after its timeout
    return;
  } catch {
    host.comm?.on_msg(handler.bind(host)); // undefined if the model was closed meanwhile
  }
  ask();
  if (host.get("_widget_data") === undefined) return;
  // A plotly figure misses messages until its script has loaded; it sets this trait when it is drawn. A drawn figure is
  // replaced only if its script changes; if it were rendered once more, it would handle each message twice.
  host.once("change:_js2py_traceDeltas", ask);
  host.on("change:_widget_data change:_widget_layout", async () => {
    const script = `${host.get("_esm")}\n`; // equal for both events, so that the second has no effect
    const views = await Promise.all(Object.values(host.views ?? {}));
    if (views.some(({ el }) => el.hasChildNodes())) host.set_state({ _esm: script });
  });
}
